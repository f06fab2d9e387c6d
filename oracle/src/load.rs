//! Endless load: orders, customers that pay exactly or not, chains with reorganisations. All is written to the log as
//! the api and ingest write it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::fold::Reading;
use crate::machine_model::chain::{CONTRACT, Chain, Movement, Policy, WALLETS, account, cents};
use crate::machine_model::operator::attach_command;
use crate::machine_model::pipeline::{create_order, exact_or_cents};
use log::{Error, Log, NewRecord, StepError, Tail, Writer};
use runtime::{Clock, SystemClock};
use schemas::record::{
    ChainBody, ChainRecord, Deposit, Order, OrderCommand, OrderCommandBody, PaymentRequest,
    Transfer,
};
use schemas::{
    Address, Amount, Blockchain, DepositState, OrderId, OrderStatus, Partition, Stablecoin, Topic,
    UnixMicros, UnixSeconds, UnknownReason,
};
use testkit::Dice;
use uuid::Uuid;

/// The chains, with one wallet each. Lanes without a wallet get only heads.
pub const CHAINS: [Blockchain; 4] =
    [Blockchain::Eth, Blockchain::Polygon, Blockchain::Base, Blockchain::Linea];
const TOKENS: [Stablecoin; 2] = [Stablecoin::Usdt, Stablecoin::Usdc];
const SENDERS: [Address; 2] = [account(0x21), account(0x22)];
const POLICY: Policy =
    Policy { depth: 2, depth_large: 4, finality: 6, rewind_max: 6, match_window_seconds: 20 };
/// Lifetime of an order with a deposit, in chain time.
const TTL_SECONDS: i64 = 45;
/// Lifetime of an order whose customer never chooses, in real time.
const IDLE_TTL_SECONDS: i64 = 2;
const LATE_WINDOW_SECONDS: u32 = 20;
const DAY: i64 = 24 * 3600;
/// Maximum number of orders, and of unknown transfers, per chain that the load still acts on.
const RECENT: usize = 8;
/// Topics of the processor that the shop reads.
const OUTPUTS: [Topic; 3] = [Topic::Deposits, Topic::Orders, Topic::TransfersUnknown];

/// The load and its view of the shop.
pub struct Shop {
    log: Arc<dyn Log>,
    dice: Dice,
    lines: Vec<Line>,
    outputs: Box<dyn Tail>,
    commands: Vec<NewRecord>,
    orders: u128,
    attached: u128,
    runtime: tokio::runtime::Runtime,
}

/// One chain with the wallet on it.
struct Line {
    wallet: Address,
    lane: Partition,
    chain: Chain,
    /// Number of its records on the log.
    written: usize,
    writer: Option<Box<dyn Writer>>,
    /// Orders that the load still acts on.
    recent: Vec<OrderId>,
    /// Newest record of each of these orders, for commands that carry it.
    rows: HashMap<OrderId, Order>,
    senders: HashMap<OrderId, Address>,
    /// Payments sent only after their deposit has expired, each with the time to send it.
    late: Vec<(UnixSeconds, Movement)>,
    /// Unknown transfers that an operator may attach to an order.
    unknown: VecDeque<Transfer>,
}

impl Line {
    fn new(blockchain: Blockchain, number: u8, log: &dyn Log) -> Self {
        let wallet = account(0x60 + number);
        Self {
            wallet,
            lane: log.layout().lane(blockchain, &wallet),
            chain: Chain::new(blockchain, POLICY, SystemClock.now().seconds(), &[wallet]),
            written: 0,
            writer: None,
            recent: Vec::new(),
            rows: HashMap::new(),
            senders: HashMap::new(),
            late: Vec::new(),
            unknown: VecDeque::new(),
        }
    }

    /// Replaces the last blocks: their transactions keep their place, move, return to the mempool or are lost. One fork
    /// in four only makes ingest rewind: the same blocks come back.
    fn fork(&mut self, dice: &mut Dice) {
        let branch = self.chain.fork(1 + dice.below(3), dice.below(2));
        if dice.below(4) == 0 && self.chain.take_back_fork() {
            self.chain.scan();
            return;
        }
        self.chain.mine_anew(branch, 1, |_, _| dice.below(4));
        self.chain.scan();
    }

    /// New records of the chain, in the parts that ingest writes at once: each up to a head.
    fn unwritten(&self, log: &dyn Log) -> Vec<Vec<NewRecord>> {
        let mut parts = vec![Vec::new()];
        for record in &self.chain.records[self.written..] {
            let is_head = matches!(record.body, ChainBody::Head(_));
            let part = parts.last_mut().expect("there is one");
            part.extend(self.raw(record, log));
            if is_head {
                parts.push(Vec::new());
            }
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Wraps a record of the chain for the log: a head goes to every lane.
    fn raw(&self, record: &ChainRecord, log: &dyn Log) -> Vec<NewRecord> {
        let lanes: Vec<Partition> = match &record.body {
            ChainBody::Head(_) => log.layout().lanes_of(self.chain.blockchain).collect(),
            ChainBody::Transfer(_) | ChainBody::Retract(_) | ChainBody::Watch(_) => vec![self.lane],
        };
        let wrap = |lane| {
            let key = self.wallet.to_string();
            NewRecord::encode(Topic::TransfersRaw, lane, key, record).unwrap()
        };
        lanes.into_iter().map(wrap).collect()
    }
}

impl Shop {
    /// Starts the load on an empty log.
    pub fn open(log: Arc<dyn Log>, seed: u64) -> Self {
        let outputs = log.tail(&OUTPUTS).unwrap();
        let line = |(blockchain, number)| Line::new(blockchain, number, &*log);
        let lines = CHAINS.into_iter().zip(0_u8..).map(line).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (dice, commands) = (Dice(seed), Vec::new());
        Self { log, dice, lines, outputs, commands, orders: 0, attached: 0, runtime }
    }

    /// The lanes with a wallet, and the chain of each.
    pub fn chains(&self) -> impl Iterator<Item = (Partition, &Chain)> {
        self.lines.iter().map(|line| (line.lane, &line.chain))
    }

    /// Number of times that ingest saw a transfer in a block.
    pub fn transfers(&self) -> usize {
        let of = |line: &Line| {
            let is_transfer = |r: &&ChainRecord| matches!(r.body, ChainBody::Transfer(_));
            line.chain.records.iter().filter(is_transfer).count()
        };
        self.lines.iter().map(of).sum()
    }

    /// One round: orders, payments, a few blocks on each chain. Customers pay the deposits published since the last
    /// round.
    pub fn trade(&mut self) {
        for deposit in self.new_deposits() {
            self.pay(&deposit);
        }
        for line in 0..self.lines.len() {
            for _ in 0..self.dice.below(4) {
                self.order(line);
            }
            self.disturb(line);
            // About once in twenty orders.
            if self.dice.below(12) == 0 {
                self.attach(line);
            }
            if self.dice.below(5) == 0 {
                self.lines[line].fork(&mut self.dice);
            }
            for _ in 0..=self.dice.below(2) {
                self.mine(line, 1);
            }
        }
        self.write();
    }

    /// Mines a block on every chain for each of these steps, in seconds.
    pub fn pass_time(&mut self, steps: impl Iterator<Item = i64> + Clone) {
        for line in 0..self.lines.len() {
            for seconds in steps.clone() {
                self.mine(line, seconds);
            }
        }
        self.write();
    }

    /// Mines blocks until every window has ended and everything is forgotten that may be.
    pub fn pass_all_windows(&mut self) {
        let calm = std::iter::repeat_n(1, usize::try_from(POLICY.finality + 2).unwrap());
        // Short, so that late payments are in the window of their orders.
        let ends = [i64::from(LATE_WINDOW_SECONDS) / 2; 7];
        let leaps = [TTL_SECONDS + i64::from(LATE_WINDOW_SECONDS); 4];
        self.pass_time(calm.chain(ends).chain(leaps).chain([2 * DAY; 4]));
    }

    /// Marks every fourth ended order paid, or has its webhook sent again. The processor may have forgotten the order,
    /// so the command carries the row, as the api reads it in the tables.
    pub fn ask_about_ended(&mut self) {
        let reading = Reading::of(&*self.log).unwrap();
        let of_orders = reading.partitions().filter(|of| of.topic == Topic::Orders);
        let decode = |value: &Vec<u8>| schemas::decode::<Order>(value).unwrap();
        let records = of_orders.flat_map(|of| reading.records(of));
        let orders = records.filter_map(|record| record.value.as_ref()).map(decode);
        let rows: BTreeMap<_, _> = orders.map(|order| (order.order_id, order)).collect();
        let ended = rows.into_values().filter(|order| order.status != OrderStatus::Pending);
        for order in ended.step_by(4) {
            let (id, row) = (order.order_id, Some(Box::new(order)));
            let body = if self.dice.below(2) == 0 {
                OrderCommandBody::MarkPaid(row)
            } else {
                OrderCommandBody::ResendWebhook(row)
            };
            self.command(0, id, body);
        }
        self.write();
    }

    /// New deposits on the log. Also notes orders and unknown transfers.
    fn new_deposits(&mut self) -> Vec<Deposit> {
        let mut deposits = Vec::new();
        loop {
            let records = match self.outputs.poll(Duration::ZERO) {
                Ok(records) => records,
                Err(Error::Transient(_)) => Vec::new(),
                Err(error) => panic!("{error}"),
            };
            if records.is_empty() {
                return deposits;
            }
            for record in records.iter().filter(|record| record.value.is_some()) {
                match record.from.topic {
                    Topic::Deposits => deposits.push(record.read().unwrap()),
                    Topic::Orders => self.note_order(record.read().unwrap()),
                    _ => self.note_unknown(record.read().unwrap()),
                }
            }
        }
    }

    fn note_order(&mut self, order: Order) {
        let id = order.order_id;
        let line = self.lines.iter_mut().find(|line| line.recent.contains(&id));
        drop(line.and_then(|line| line.rows.insert(id, order)));
    }

    /// Notes an unknown transfer. The api refuses to attach the merchant's own money and orphaned transfers.
    fn note_unknown(&mut self, transfer: Transfer) {
        let is_of = |line: &&mut Line| line.chain.blockchain == transfer.blockchain;
        let line = self.lines.iter_mut().find(is_of).expect("transfers are of these chains");
        if transfer.reason != Some(UnknownReason::OwnWallet) && transfer.orphaned_at.is_none() {
            line.unknown.push_back(transfer);
            if line.unknown.len() > RECENT {
                line.unknown.pop_front();
            }
        }
    }

    /// Attaches an unknown transfer to one of the newest orders, with both rows as in the tables, as the api does.
    fn attach(&mut self, line: usize) {
        let shop = &mut self.lines[line];
        if shop.recent.is_empty() {
            return;
        }
        let Some(transfer) = shop.unknown.pop_front() else { return };
        let id = shop.recent[self.dice.below(shop.recent.len())];
        let ended = shop.rows.get(&id).filter(|order| order.status != OrderStatus::Pending);
        let ended = ended.cloned().map(Box::new);
        self.attached += 1;
        let command = attach_command((id, ended), transfer, self.attached, self.now(line));
        let (lane, key) = (self.lines[line].lane, command.wallet_address.to_string());
        let record = NewRecord::encode(Topic::DepositsCommands, lane, key, &command);
        self.commands.push(record.unwrap());
    }

    /// Pays an open deposit: exactly or not, once or twice, late, or not at all.
    fn pay(&mut self, deposit: &Deposit) {
        if deposit.state != DepositState::Open {
            return;
        }
        let roll = self.dice.below(12);
        let cent = cents(1).parts();
        let parts = match roll {
            6 => deposit.value.parts() + cent,
            7 => deposit.value.parts() - cent,
            _ => deposit.value.parts(),
        };
        // Sometimes it is the merchant, who moves money between wallets.
        let stranger = if roll == 10 { WALLETS[0] } else { SENDERS[self.dice.below(2)] };
        let (joined, lateness) = (self.dice.below(4) == 0, self.dice.below(30));
        let is_of = |line: &&mut Line| line.chain.blockchain == deposit.blockchain;
        let line = self.lines.iter_mut().find(is_of).expect("deposits are of these chains");
        let from = line.senders.get(&deposit.order_id).copied().filter(|_| roll != 5 && roll != 10);
        let movement = Movement {
            stablecoin: deposit.stablecoin,
            contract: CONTRACT,
            from: from.unwrap_or(stranger),
            to: deposit.wallet_address,
            value: Amount::from_parts(parts).unwrap(),
        };
        if roll != 9 && roll != 11 {
            line.chain.send(movement, joined, 1 + usize::from(roll == 8));
        } else if let Ok(late @ 1..) = i64::try_from(lateness) {
            line.late.push((deposit.expires_at.plus(late), movement));
        }
    }

    /// Creates an order. Most have a payment choice, some get it later, some never.
    fn order(&mut self, line: usize) {
        self.orders += 1;
        let id = OrderId(Uuid::from_u128(self.orders << 64 | 0x7000_8000_0000_0000_0000));
        let roll = self.dice.below(10);
        let large = self.dice.below(6) == 0;
        // Few prices, so that orders collide and their amounts are raised.
        let price = if large { 6_000 } else { 1_000 } + self.dice.below(12) as u128;
        let sender = (self.dice.below(4) == 0).then_some(SENDERS[0]);
        let request = self.request(line);
        let idle = roll == 9;
        let expires_at = if idle {
            SystemClock.now().seconds().plus(IDLE_TTL_SECONDS)
        } else {
            self.now(line).seconds().plus(TTL_SECONDS)
        };
        let payment = (roll < 7).then(|| request.clone());
        let amount = cents(price);
        let reference = format!("m-{}", self.orders);
        let create = create_order(reference, amount, sender, expires_at, payment);
        // Some customers pay before the order is known.
        if self.dice.below(12) == 0 {
            let (stablecoin, to) = (request.stablecoin, self.lines[line].wallet);
            let from = sender.unwrap_or(SENDERS[1]);
            self.lines[line].chain.send(
                Movement { stablecoin, contract: CONTRACT, from, to, value: amount },
                false,
                1,
            );
        }
        self.lines[line].senders.extend(sender.map(|sender| (id, sender)));
        self.lines[line].recent.push(id);
        self.command(line, id, create);
        if (7..9).contains(&roll) {
            self.command(line, id, OrderCommandBody::ChoosePayment(request));
        }
    }

    /// Sometimes cancels, marks paid, resends or re-chooses one of the newest orders. Cancels are twice as frequent.
    fn disturb(&mut self, line: usize) {
        let Line { recent, rows, .. } = &mut self.lines[line];
        if recent.is_empty() {
            return;
        }
        let id = recent[self.dice.below(recent.len())];
        let excess = recent.len().saturating_sub(RECENT);
        recent.drain(..excess);
        rows.retain(|id, _| recent.contains(id));
        match self.dice.below(16) {
            0 | 1 => self.command(line, id, OrderCommandBody::Cancel),
            2 => self.command(line, id, OrderCommandBody::MarkPaid(None)),
            4 => self.command(line, id, OrderCommandBody::ResendWebhook(None)),
            3 => {
                let request = self.request(line);
                self.command(line, id, OrderCommandBody::ChoosePayment(request));
            }
            _ => {}
        }
    }

    fn request(&mut self, line: usize) -> PaymentRequest {
        // Some choices are refused unless the lane has a head of the last second.
        let head_age_max_seconds = if self.dice.below(8) == 0 { 1 } else { u32::MAX };
        PaymentRequest {
            blockchain: self.lines[line].chain.blockchain,
            stablecoin: TOKENS[self.dice.below(2)],
            contract: CONTRACT,
            decimals: 6,
            contracts: vec![CONTRACT],
            wallets: vec![self.lines[line].wallet],
            amounts: exact_or_cents(6),
            late_window_seconds: LATE_WINDOW_SECONDS,
            accepts_late: self.dice.below(2) == 0,
            head_age_max_seconds,
        }
    }

    /// Returns the later of clock and chain time. The chain is ahead, as its blocks are mined fast.
    fn now(&self, line: usize) -> UnixMicros {
        SystemClock.now().max(self.lines[line].chain.time().micros())
    }

    fn command(&mut self, line: usize, order_id: OrderId, body: OrderCommandBody) {
        let issued_at = self.now(line);
        let command = OrderCommand { order_id, command_id: None, issued_at, body };
        let key = order_id.to_string();
        let partition = self.log.layout().order(&key);
        let record = NewRecord::encode(Topic::OrdersCommands, partition, key, &command);
        self.commands.push(record.unwrap());
    }

    fn mine(&mut self, line: usize, seconds: i64) {
        let Line { chain, late, .. } = &mut self.lines[line];
        let now = chain.time();
        for (_, movement) in late.extract_if(.., |(due, _)| *due <= now) {
            chain.send(movement, false, 1);
        }
        // Blocks are small, so that the mempool is seldom empty: the last blocks should have transactions for a fork to
        // orphan.
        let most = chain.mempool.len().min(1 + self.dice.below(3));
        let transactions = chain.mempool.drain(..most).collect();
        chain.mine(transactions, chain.time().plus(seconds));
        chain.scan();
    }

    /// Writes new records. A failed write is repeated and may leave duplicates, as with ingest and the api.
    fn write(&mut self) {
        let commands = std::mem::take(&mut self.commands);
        while let Err(error) = self.runtime.block_on(self.log.produce(commands.clone())) {
            assert!(matches!(error, Error::Transient(_)), "{error}");
        }
        for line in &mut self.lines {
            for part in line.unwritten(&*self.log) {
                // Sometimes ingest writes a block twice.
                let times = 1 + usize::from(self.dice.below(16) == 0);
                for _ in 0..times {
                    write_at_once(&mut line.writer, &*self.log, line.chain.blockchain, &part);
                }
            }
            line.written = line.chain.records.len();
        }
    }
}

fn write_at_once(
    writer: &mut Option<Box<dyn Writer>>,
    log: &dyn Log,
    blockchain: Blockchain,
    part: &[NewRecord],
) {
    loop {
        if writer.is_none() {
            match log.writer(&format!("ingest-{blockchain}")) {
                Ok(new) => *writer = Some(new),
                Err(Error::Transient(_)) => continue,
                Err(error) => panic!("{error}"),
            }
        }
        match writer.as_mut().expect("it was made").commit(part.to_vec()) {
            Ok(()) => return,
            Err(StepError::Aborted(_)) => {}
            Err(StepError::Fenced(_) | StepError::Fatal(_)) => *writer = None,
        }
    }
}
