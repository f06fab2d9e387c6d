//! Properties of the processor's machines: the invariants of `docs/invariants.md` under an
//! adversary, and the outcomes against an independent model.
//!
//! A case is a list of things that happen outside, each with dice for what the adversary does next. A
//! failing case is shrunk and printed, and its seed kept in `machine_properties.regressions`.

use std::collections::{BTreeMap, BTreeSet};

use oracle::machine_model::chain::{CONTRACT, Chain, Movement, Policy, account, cents};
use oracle::machine_model::check::Ledger;
use oracle::machine_model::delivered::Delivered;
use oracle::machine_model::pipeline::{Pipeline, Tricks, create_order, exact_or_cents};
use oracle::machine_model::station::Sabotage;
use oracle::machine_model::violation::Violation;
use oracle::machine_model::{Fact, predict};
use processor::machine::matching::TransferStage;
use processor::machine::{matching, orders};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use schemas::record::{
    AmountRule, EndedOrder, Order, OrderCommand, OrderCommandBody, PaymentRequest,
};
use schemas::{
    Address, Amount, Blockchain, CloseReason, Draws, OrderCause, OrderId, OrderStatus,
    RefusalReason, Stablecoin, TransferStatus, UnixMicros, UnixSeconds, UnknownReason,
};
use testkit::Dice;
use uuid::Uuid;

const START: UnixSeconds = UnixSeconds(1_790_000_000);
const DAY: i64 = 24 * 3600;
const TOKENS: [Stablecoin; 2] = [Stablecoin::Usdt, Stablecoin::Usdc];
const WALLETS: [Address; 2] = [account(0x11), account(0x12)];
/// The third is the sender of a mint: the zero address.
const SENDERS: [Address; 3] = [account(0x21), account(0x22), account(0)];
/// Few, next to each other, one of them large: choices collide, and raised into each other.
const PRICES: [u128; 3] = [1_000, 1_001, 6_000];
const SKEW_SECONDS: u32 = 60;

/// What happens outside.
#[derive(Debug, Clone)]
enum Happening {
    Create {
        price: usize,
        sender: usize,
        long: bool,
        choice: Option<(usize, usize)>,
    },
    Choose {
        order: usize,
        stablecoin: usize,
        wallets: usize,
    },
    Cancel {
        order: usize,
    },
    /// An operator's commands carry what tables show that are some versions behind.
    Resend {
        order: usize,
        behind: usize,
    },
    MarkPaid {
        order: usize,
        behind: usize,
    },
    /// The merchant repeats a create: it is sent only while the tables do not have the order.
    Repeat {
        order: usize,
        behind: usize,
    },
    /// A customer sends the amount that the order's deposit names, more or less, from the account
    /// that the order expects or from the zero address.
    Pay {
        order: usize,
        cents_off: usize,
        sender: usize,
        joined: bool,
        twice: bool,
    },
    /// An amount is sent to a wallet.
    Send {
        price: usize,
        cents_off: usize,
        stablecoin: usize,
        wallet: usize,
        sender: usize,
    },
    Mine {
        blocks: usize,
        seconds: i64,
        transactions: usize,
        each: bool,
    },
    /// The last blocks are replaced. For each of their transactions two bits of `fates`: kept in its
    /// place, moved to the last new block, back to the mempool, lost.
    Fork {
        depth: usize,
        further: usize,
        fates: u16,
        seconds: i64,
        back: bool,
    },
    /// Time passes, with everything read after each block, until every window has ended; or until orders
    /// that have ended are forgotten.
    Rest {
        long: bool,
    },
    /// Ingest watches the second wallet, too.
    Watch,
    /// No block for a while, and ingest says so. Nothing waits for days to be read.
    Wait {
        seconds: i64,
    },
}

#[derive(Debug, Clone)]
struct Case {
    happenings: Vec<(Happening, u64)>,
    tricks: Tricks,
}

/// The two worlds: one in which anything may race, and one in which the outcome is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum World {
    Wild,
    /// Deadlines are passed only by leaps of a [`LEAP`], with all queues read before and after, and
    /// confirmed blocks stay.
    Settled,
}

/// In the settled world blocks take a second, and every window ends between two leaps.
const LEAP: i64 = 1000;

impl World {
    fn policy(self) -> Policy {
        match self {
            Self::Wild => Policy {
                depth: 2,
                depth_large: 4,
                finality: 6,
                rewind_max: 6,
                match_window_seconds: 600,
            },
            Self::Settled => Policy {
                depth: 3,
                depth_large: 5,
                finality: 7,
                rewind_max: 2,
                match_window_seconds: LEAP + 250,
            },
        }
    }

    fn ttl_seconds(self, long: bool) -> i64 {
        match (self, long) {
            (Self::Wild, false) => 300,
            (Self::Wild, true) => 3600,
            (Self::Settled, false) => LEAP + 750,
            (Self::Settled, true) => 4 * LEAP + 750,
        }
    }

    fn head_age_max_seconds(self) -> u32 {
        match self {
            Self::Wild => 1_500,
            // A choice may be read before blocks that were mined earlier.
            Self::Settled => 100 * LEAP as u32,
        }
    }

    /// The wallets that are watched from the start.
    fn watched(self) -> &'static [Address] {
        match self {
            Self::Wild => &WALLETS[..1],
            Self::Settled => &WALLETS,
        }
    }

    fn late_window_seconds(self) -> u32 {
        match self {
            // Longer than a closed deposit keeps its amount where others need it.
            Self::Wild => 7200,
            // A transfer seen by then is confirmed or given up: how long it holds its amount is open.
            Self::Settled => u32::try_from(9 * LEAP + 500).unwrap(),
        }
    }
}

struct Sold {
    id: OrderId,
    create: OrderCommandBody,
    amount: Amount,
    sender: Option<Address>,
}

/// A shop, its customers and the chain, with the pipeline between them.
struct Play {
    world: World,
    chain: Chain,
    pipeline: Pipeline,
    sold: Vec<Sold>,
    now: UnixMicros,
    /// What commutes with everything that is not read yet.
    unread: Kind,
}

/// What must not be in the queues together where the outcome is to be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Commands about orders that ended or are new, and the chain: the order does not matter.
    Commutes,
    /// All else.
    Alone,
}

impl Play {
    fn new(world: World, tricks: Tricks, sabotage: Sabotage) -> Self {
        Self {
            world,
            chain: Chain::new(world.policy(), START, world.watched()),
            pipeline: Pipeline::new(tricks, sabotage),
            sold: Vec::new(),
            now: START.micros(),
            unread: Kind::Commutes,
        }
    }

    /// Everything happens, then time passes until nothing waits any more.
    fn run(&mut self, case: &Case) -> Result<(), Violation> {
        if self.world == World::Settled {
            self.pipeline.write_raw(&self.chain.records);
            self.pipeline.drain(&mut Dice(7))?;
        }
        for (happening, dice) in &case.happenings {
            let mut dice = Dice(*dice);
            if self.world == World::Settled {
                let kind = self.kind(happening);
                if kind == Kind::Alone || self.unread == Kind::Alone {
                    self.pipeline.drain(&mut dice)?;
                }
                self.unread = kind;
            }
            if let Happening::Rest { long } = happening {
                let days = std::iter::repeat_n(2 * DAY, if *long { 5 } else { 0 });
                self.pass_time(std::iter::repeat_n(LEAP, 11).chain(days), &mut dice)?;
                if *long {
                    // Forgotten as well: after a day, one that comes back would be another transfer.
                    self.chain.mempool.clear();
                }
            }
            if matches!(happening, Happening::Wait { seconds } if *seconds > DAY) {
                self.pipeline.drain(&mut dice)?;
            }
            self.happen(happening);
            self.pipeline.write_raw(&self.chain.records);
            for _ in 0..dice.below(8) {
                self.pipeline.disturb(&mut dice)?;
            }
        }
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Violation> {
        let blocks = usize::try_from(self.world.policy().finality + 2).unwrap();
        let calm = std::iter::repeat_n(1, blocks);
        let leaps = || std::iter::repeat_n(LEAP, 11);
        // The chain may be weeks behind: forks take long blocks back.
        let ended = leaps().chain([30 * DAY]).chain(leaps()).chain([2 * DAY; 2]);
        self.pass_time(calm.chain(ended).chain([30 * DAY; 2]), &mut Dice(7))
    }

    fn pass_time(
        &mut self,
        blocks: impl Iterator<Item = i64>,
        dice: &mut Dice,
    ) -> Result<(), Violation> {
        for seconds in blocks {
            self.pipeline.drain(dice)?;
            self.mine(1, seconds, 0, true);
            self.pipeline.write_raw(&self.chain.records);
            self.pipeline.drain(dice)?;
            self.tick();
        }
        self.pipeline.drain(dice)
    }

    fn kind(&self, happening: &Happening) -> Kind {
        match happening {
            // What is chosen gets another amount if a transfer waits.
            Happening::Create { choice: None, .. }
            | Happening::Pay { .. }
            | Happening::Send { .. }
            | Happening::Watch
            | Happening::Fork { .. } => Kind::Commutes,
            Happening::Mine { seconds, .. } if *seconds == 1 => Kind::Commutes,
            _ => Kind::Alone,
        }
    }

    fn happen(&mut self, happening: &Happening) {
        self.now = UnixMicros(self.now.0 + 1);
        match *happening {
            Happening::Create { price, sender, long, choice } => {
                self.create(PRICES[price], SENDERS.get(sender).copied(), long, choice);
            }
            Happening::Choose { order, stablecoin, wallets } => {
                self.choose(order, stablecoin, wallets)
            }
            Happening::Cancel { order } => {
                if let Some(order) = self.pick(order).map(|sold| sold.id) {
                    self.chain.facts.push(Fact::Cancelled { order });
                    self.command(order, OrderCommandBody::Cancel);
                }
            }
            Happening::MarkPaid { order, behind } => {
                if let Some((order, _, row)) = self.row(order, behind) {
                    self.chain.facts.push(Fact::MarkedPaid { order });
                    self.command(order, OrderCommandBody::MarkPaid(ended(row)));
                }
            }
            Happening::Resend { order, behind } => {
                if let Some((order, _, row)) = self.row(order, behind) {
                    self.command(order, OrderCommandBody::ResendWebhook(ended(row)));
                }
            }
            Happening::Repeat { order, behind } => {
                if let Some((order, create, None)) = self.row(order, behind) {
                    self.command(order, create);
                }
            }
            Happening::Pay { order, cents_off, sender, joined, twice } => {
                self.pay(order, cents_off, SENDERS[sender], joined, twice);
            }
            Happening::Send { price, cents_off, stablecoin, wallet, sender } => {
                let value = off(cents(PRICES[price]), cents_off);
                let (stablecoin, to, from) = (TOKENS[stablecoin], WALLETS[wallet], SENDERS[sender]);
                self.chain.send(Movement { stablecoin, from, to, value }, false, 1);
            }
            Happening::Mine { blocks, seconds, transactions, each } => {
                self.mine(blocks, seconds, transactions, each);
                if seconds > 1 {
                    self.tick();
                }
            }
            Happening::Fork { depth, further, fates, seconds, back } => {
                self.fork(depth, further, fates, seconds, back);
            }
            Happening::Rest { .. } => {}
            Happening::Watch => self.chain.watch(WALLETS[1]),
            Happening::Wait { seconds } => {
                self.now = UnixMicros(self.now.0 + seconds * 1_000_000);
                self.chain.beat();
                self.tick();
            }
        }
    }

    fn pick(&self, order: usize) -> Option<&Sold> {
        // The newest orders are the ones that something happens to.
        self.sold.iter().rev().nth(order % self.sold.len().clamp(1, 4))
    }

    /// An order, how it was created, and its row in the tables.
    fn row(
        &self,
        order: usize,
        behind: usize,
    ) -> Option<(OrderId, OrderCommandBody, Option<Order>)> {
        let sold = self.pick(order)?;
        Some((sold.id, sold.create.clone(), self.pipeline.row_of(sold.id, behind, self.now)))
    }

    fn command(&mut self, order_id: OrderId, body: OrderCommandBody) {
        let issued_at = self.now;
        self.pipeline.write_command(OrderCommand { order_id, command_id: None, issued_at, body });
    }

    fn tick(&mut self) {
        self.chain.facts.push(Fact::TimersDue { now: self.now.seconds() });
        self.pipeline.write_ticks(self.now);
    }

    fn create(
        &mut self,
        price: u128,
        sender: Option<Address>,
        long: bool,
        choice: Option<(usize, usize)>,
    ) {
        let id = OrderId(Uuid::from_u128(self.sold.len() as u128 + 1));
        let amount = cents(price);
        let expires_at = self.now.seconds().plus(self.world.ttl_seconds(long));
        let payment = choice.map(|(stablecoin, wallets)| {
            self.request(stablecoin, wallets.min(1), exact_or_cents(1))
        });
        self.chain.facts.push(Fact::Created { order: id, amount, sender, expires_at });
        if let Some(request) = payment.clone() {
            self.chain.facts.push(Fact::Chosen { order: id, request, at: self.now.seconds() });
        }
        let create = create_order(String::new(), amount, sender, expires_at, payment);
        self.sold.push(Sold { id, create: create.clone(), amount, sender });
        self.command(id, create);
    }

    fn request(&self, stablecoin: usize, wallets: usize, amounts: AmountRule) -> PaymentRequest {
        let wallets = if wallets < 2 { vec![WALLETS[wallets]] } else { WALLETS.to_vec() };
        PaymentRequest {
            blockchain: Blockchain::Eth,
            stablecoin: TOKENS[stablecoin],
            contract: CONTRACT,
            wallets,
            amounts,
            late_window_seconds: self.world.late_window_seconds(),
            skew_seconds: SKEW_SECONDS,
            head_age_max_seconds: self.world.head_age_max_seconds(),
        }
    }

    fn choose(&mut self, order: usize, stablecoin: usize, wallets: usize) {
        let Some(id) = self.pick(order).map(|sold| sold.id) else { return };
        let request = self.request(stablecoin, wallets, digits_of(id));
        let at = self.now.seconds();
        self.chain.facts.push(Fact::Chosen { order: id, request: request.clone(), at });
        self.command(id, OrderCommandBody::ChoosePayment(request));
    }

    fn pay(&mut self, order: usize, cents_off: usize, from: Address, joined: bool, twice: bool) {
        let Some(sold) = self.pick(order) else { return };
        let deposit = self.pipeline.deposit_of(sold.id);
        let from = sold.sender.filter(|_| from != SENDERS[2]).unwrap_or(from);
        let (stablecoin, to, value) = deposit.map_or((TOKENS[0], WALLETS[0], sold.amount), |d| {
            (d.stablecoin, d.wallet_address, d.value)
        });
        let value = off(value, cents_off);
        let times = 1 + usize::from(twice);
        self.chain.send(Movement { stablecoin, from, to, value }, joined, times);
    }

    fn mine(&mut self, blocks: usize, seconds: i64, transactions: usize, each: bool) {
        for block in 0..blocks {
            let pool = &mut self.chain.mempool;
            let first = transactions.min(pool.len());
            let taken = if block == 0 { pool.drain(..first).collect() } else { Vec::new() };
            self.chain.mine(taken, self.chain.time().plus(seconds));
            if each {
                self.chain.scan();
            }
        }
        self.chain.scan();
        self.now = self.now.max(self.chain.time().micros());
    }

    fn fork(&mut self, depth: usize, further: usize, fates: u16, seconds: i64, back: bool) {
        let branch = self.chain.fork(depth, further);
        if back {
            self.chain.take_back_fork();
            self.chain.scan();
            return;
        }
        let mut moved = Vec::new();
        for (i, block) in branch.iter().enumerate() {
            let mut kept = Vec::new();
            for (j, transaction) in block.iter().enumerate() {
                match (fates >> (((i * 3 + j) * 2) % 16)) & 3 {
                    0 => kept.push(transaction.clone()),
                    1 => moved.push(transaction.clone()),
                    2 => self.chain.mempool.push(transaction.clone()),
                    _ => {}
                }
            }
            self.chain.mine(kept, self.chain.time().plus(seconds));
        }
        self.chain.mine(moved, self.chain.time().plus(seconds));
        if fates & 1 == 0 {
            self.chain.scan();
        }
        self.now = self.now.max(self.chain.time().micros());
    }

    /// The invariants over everything that came out.
    fn check(&self) -> Result<(), Violation> {
        let ledger = Ledger::of(&self.chain, &self.pipeline.delivered)?;
        ledger.check_end()?;
        self.pipeline.compare_with_undisturbed()?;
        let (deposits, transfers, orders) = self.pipeline.rows();
        if (deposits, transfers, orders) != (0, 0, 0) {
            let text = format!("{deposits} deposits, {transfers} transfers, {orders} orders kept");
            return Err(Violation { invariant: 6, text });
        }
        Ok(())
    }

    /// The outcomes against the model.
    fn compare_with_model(&self) -> Result<(), String> {
        let ledger = Ledger::of(&self.chain, &self.pipeline.delivered)
            .map_err(|violation| violation.to_string())?;
        let prediction = predict(&self.chain.facts);
        let payment_of = |id| {
            ledger.transfers.iter().find(|(_, t)| t.transfer_id == id).map(|(payment, _)| *payment)
        };
        for (id, predicted) in &prediction.orders {
            let Some(order) = ledger.orders.get(id) else { return Err(format!("no order {id}")) };
            let payer = order.paid_by.and_then(payment_of);
            let mut deposits: Vec<_> =
                ledger.deposits.values().filter(|d| d.order_id == *id).collect();
            deposits.sort_by_key(|d| d.slot);
            let reserved: Vec<_> =
                deposits.iter().map(|d| (d.stablecoin, d.wallet_address, d.value)).collect();
            if (order.status, payer, &reserved)
                != (predicted.status, predicted.payer, &predicted.reserved)
            {
                return Err(format!("predicted {predicted:?}\nfor {order:?}\nwith {deposits:?}"));
            }
        }
        if prediction.transfers.len() != ledger.transfers.len() {
            return Err("another number of transfers".to_owned());
        }
        for (payment, predicted) in &prediction.transfers {
            let Some(transfer) = ledger.transfers.get(payment) else {
                return Err(format!("no transfer {payment:?}"));
            };
            let unknown = transfer.status == TransferStatus::NoMatchedDeposit;
            let reason = transfer.reason.filter(|_| unknown);
            if (transfer.status, transfer.order_id) != (predicted.status, predicted.order)
                || !reason.is_none_or(|reason| predicted.reasons.contains(&reason))
            {
                return Err(format!("predicted {predicted:?}\nfor {transfer:?}"));
            }
        }
        Ok(())
    }
}

/// At checkout: one of three amounts below a cent.
fn digits_of(order: OrderId) -> AmountRule {
    let draws = Draws([order.0.as_bytes()[15]; 32]);
    let limit = Amount::parse("0.003").unwrap();
    AmountRule { exact_first: false, digits: 3, limit, draws }
}

/// What a command about an order carries of its row.
fn ended(row: Option<Order>) -> EndedOrder {
    row.filter(|order| order.status != OrderStatus::Pending).map(Box::new)
}

/// The amount, a cent more, a cent less, or twice as much.
fn off(value: Amount, cents_off: usize) -> Amount {
    let cent = cents(1).parts();
    let parts = match cents_off {
        5 => value.parts() + cent,
        6 => value.parts() - cent,
        7 => value.parts() * 2,
        _ => value.parts(),
    };
    Amount::from_parts(parts).unwrap()
}

fn happening(world: World) -> impl Strategy<Value = Happening> {
    let seconds = match world {
        World::Wild => {
            prop_oneof![4 => Just(1_i64), 4 => Just(12), 2 => Just(120), 1 => Just(1000)]
        }
        World::Settled => {
            prop_oneof![8 => Just(1_i64), 0 => Just(1), 0 => Just(1), 2 => Just(LEAP)]
        }
    };
    let fork_seconds = if world == World::Wild { 1..30_i64 } else { 1..2 };
    // As long as ended orders are kept, while other chains continue.
    let days = u32::from(world == World::Wild);
    let seconds_short = if world == World::Wild { 200 } else { 1 };
    let wait_seconds = prop_oneof![2 => Just(seconds_short), days => Just(8 * DAY)];
    prop_oneof![
        6 => (0..3_usize, 0..6_usize, any::<bool>(), proptest::option::weighted(0.7, (0..2_usize, 0..2_usize)))
            .prop_map(|(price, sender, long, choice)| {
                Happening::Create { price, sender, long, choice }
            }),
        4 => (0..4_usize, 0..2_usize, 0..3_usize)
            .prop_map(|(order, stablecoin, wallets)| Happening::Choose { order, stablecoin, wallets }),
        2 => (0..4_usize).prop_map(|order| Happening::Cancel { order }),
        1 => (0..4_usize, 0..3_usize)
            .prop_map(|(order, behind)| Happening::MarkPaid { order, behind }),
        1 => (0..4_usize, 0..3_usize).prop_map(|(order, behind)| Happening::Resend { order, behind }),
        1 => (0..4_usize, 0..3_usize).prop_map(|(order, behind)| Happening::Repeat { order, behind }),
        7 => (0..4_usize, 0..8_usize, 0..3_usize, any::<bool>(), 0..6_u8).prop_map(
            |(order, cents_off, sender, joined, twice)| {
                Happening::Pay { order, cents_off, sender, joined, twice: twice == 0 }
            }
        ),
        2 => (0..3_usize, 0..8_usize, 0..2_usize, 0..2_usize, 0..3_usize).prop_map(
            |(price, cents_off, stablecoin, wallet, sender)| {
                Happening::Send { price, cents_off, stablecoin, wallet, sender }
            }
        ),
        9 => (1..4_usize, seconds, 0..4_usize, any::<bool>()).prop_map(
            move |(blocks, seconds, transactions, each)| {
                let blocks = if world == World::Settled && seconds > 1 { 1 } else { blocks };
                Happening::Mine { blocks, seconds, transactions, each }
            }
        ),
        3 => (1..6_usize, 0..3_usize, any::<u16>(), fork_seconds, 0..4_u8).prop_map(
            |(depth, further, fates, seconds, back)| {
                Happening::Fork { depth, further, fates, seconds, back: back == 0 }
            }
        ),
        1 => any::<bool>().prop_map(|long| Happening::Rest { long }),
        6 => Just(Happening::Watch),
        1 => wait_seconds.prop_map(|seconds| Happening::Wait { seconds }),
    ]
}

fn case(world: World) -> impl Strategy<Value = Case> {
    let happenings = proptest::collection::vec((happening(world), any::<u64>()), 6..48);
    (happenings, any::<[bool; 3]>()).prop_map(|(happenings, [batches, losses, repeats])| Case {
        happenings,
        tricks: Tricks { batches, losses, repeats },
    })
}

/// How many random cases each property gets; `cargo xtask test --fast` asks for fewer.
fn cases() -> u32 {
    std::env::var_os("TIDEMARK_TEST_CASES").map_or(5_000, |cases| {
        cases.to_str().and_then(|cases| cases.parse().ok()).expect("a number")
    })
}

fn check_all(world: World, test: impl Fn(&Case) -> Result<(), String>) {
    let regressions = FileFailurePersistence::WithSource("regressions");
    let config = Config {
        cases: cases(),
        source_file: Some(file!()),
        failure_persistence: Some(Box::new(regressions)),
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&case(world), |case| test(&case).map_err(TestCaseError::fail))
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn invariants_hold() {
    check_all(World::Wild, |case| {
        let mut play = Play::new(World::Wild, case.tricks, Sabotage::None);
        play.run(case).and_then(|()| play.check()).map_err(|violation| violation.to_string())
    });
}

#[test]
fn outcomes_equal_the_model() {
    check_all(World::Settled, |case| {
        let mut play = Play::new(World::Settled, case.tricks, Sabotage::None);
        play.run(case).and_then(|()| play.check()).map_err(|violation| violation.to_string())?;
        play.compare_with_model()
    });
}

/// Cases from a fixed seed, for tests that need one case of a kind.
fn fixed_cases(world: World, count: usize) -> impl Iterator<Item = Case> {
    let mut runner = TestRunner::deterministic();
    std::iter::repeat_with(move || case(world).new_tree(&mut runner).unwrap().current()).take(count)
}

/// The checks can fail: each defect, put in from outside, is found as what it is.
#[test]
fn sabotage_is_found() {
    let machine = "found by the machine";
    for (sabotage, invariant, part) in [
        (Sabotage::WaitForEver, 1, ""),
        (Sabotage::SettleTwice, 2, machine),
        (Sabotage::MatchTwice, 2, "is paid by"),
        (Sabotage::SwallowRetracts, 3, ""),
        (Sabotage::ConfirmEarly, 3, ""),
        (Sabotage::ConfirmAtSight, 3, ""),
        (Sabotage::HideOrphans, 3, "on the chain"),
        (Sabotage::CancelAlways, 4, ""),
        (Sabotage::ForgetEarly, 4, "no answer to"),
        (Sabotage::ReviveStale, 4, "has version"),
        (Sabotage::LoseInBatch, 5, ""),
        (Sabotage::ForgetUndo, 6, ""),
        (Sabotage::KeepRemoved, 6, ""),
        (Sabotage::ExpireEarly, 8, ""),
        (Sabotage::ExpireByTip, 8, ""),
        (Sabotage::AnnounceAsked, 10, ""),
        (Sabotage::WatchAnother, 11, "not watched"),
        (Sabotage::BelieveOldHeads, 11, "opened at"),
        (Sabotage::ReuseAtOnce, 10, "share an amount"),
        (Sabotage::ClaimLoose, 10, "was given the amount of"),
        (Sabotage::IgnoreSender, 10, "is not what"),
        (Sabotage::RaiseBeyondLimit, 10, "is not what"),
    ] {
        let mut violations = BTreeSet::new();
        let found = fixed_cases(World::Wild, 400).any(|case| {
            let tricks = Tricks { batches: true, losses: true, repeats: false };
            let mut play = Play::new(World::Wild, tricks, sabotage);
            let violation = play.run(&case).and_then(|()| play.check()).err();
            violation.is_some_and(|violation| {
                violations.insert(violation.invariant);
                violation.invariant == invariant && violation.text.contains(part)
            })
        });
        assert!(
            found,
            "{sabotage:?} breaks {invariant}, and only {violations:?} were found broken"
        );
    }
}

/// The comparison with the model can fail, too.
#[test]
fn the_model_finds_wrong_outcomes() {
    for sabotage in [
        Sabotage::SwallowRetracts,
        Sabotage::ConfirmEarly,
        Sabotage::ExpireByTip,
        Sabotage::WaitForEver,
    ] {
        let tricks = Tricks { batches: true, losses: false, repeats: false };
        let found = fixed_cases(World::Settled, 400).any(|case| {
            let mut play = Play::new(World::Settled, tricks, sabotage);
            play.run(&case).is_ok() && play.compare_with_model().is_err()
        });
        assert!(found, "{sabotage:?}");
    }
}

/// What only races lead to.
const WILD: [&str; 3] = ["not_watched", "chain_behind", "payment_unavailable"];
/// A transfer that is confirmed before its head.
const AT_SIGHT: &str = "confirmed at sight";
/// An order that had been forgotten.
const REMEMBERED: &str = "remembered";

/// Whether an order that was forgotten follows from this command.
fn is_remembered(command: &OrderCommand, order: &Order) -> bool {
    use OrderCommandBody as Body;
    let (Body::MarkPaid(Some(row)) | Body::ResendWebhook(Some(row))) = &command.body else {
        return false;
    };
    let ended_at = row.updated_at.seconds();
    row.version + 1 == order.version && ended_at.plus(8 * DAY) < command.issued_at.seconds()
}

/// The cases are worth their time: every way in which an order or a transfer can end is among them.
#[test]
fn cases_reach_every_outcome() {
    for world in [World::Wild, World::Settled] {
        let mut reached: BTreeMap<&str, usize> = BTreeMap::new();
        for case in fixed_cases(world, 400) {
            let mut play = Play::new(world, case.tricks, Sabotage::None);
            play.run(&case).unwrap_or_else(|violation| panic!("{violation}"));
            let mut reach = |what| *reached.entry(what).or_default() += 1;
            for delivered in &play.pipeline.delivered {
                match delivered {
                    Delivered::Lane(input, effects) => effects.iter().for_each(|effect| match effect {
                        matching::Effect::Transfer(stage, transfer) => {
                            let at_sight = *stage == TransferStage::Confirmed
                                && matches!(input, matching::Input::Chain(record) if record.confirmed);
                            reach(if at_sight { AT_SIGHT } else { transfer.status.as_str() });
                            transfer.reason.into_iter().for_each(|r| reach(r.as_str()));
                        }
                        matching::Effect::Deposit(deposit) => {
                            reach(deposit.close_reason.map_or("open", |reason| reason.as_str()));
                        }
                        matching::Effect::Alert(alert) => reach(alert.kind.as_str()),
                        matching::Effect::Progress(_) => {}
                        matching::Effect::Command(command) => {
                            if let OrderCommandBody::DepositRefused { reason, .. } = command.body {
                                reach(reason.as_str());
                            }
                        }
                    }),
                    Delivered::Orders(command, effects) => effects.iter().for_each(|effect| {
                        if let orders::Effect::Order(order) = effect {
                            reach(order.cause.as_str());
                            if is_remembered(command, order) {
                                reach(REMEMBERED);
                            }
                        }
                    }),
                }
            }
        }
        let statuses = TransferStatus::ALL.iter().map(|status| status.as_str());
        let reasons = UnknownReason::ALL.iter().map(|reason| reason.as_str());
        let refusals = RefusalReason::ALL.iter().map(|reason| reason.as_str());
        // Where the outcome is determined everything is watched.
        let elsewhere = |what: &&str| world == World::Settled && WILD.contains(what);
        let causes = OrderCause::ALL.iter().map(|cause| cause.as_str());
        // A deposit never outlives its order's expiry: the order waits for it.
        let closes = CloseReason::ALL.iter().filter(|r| **r != CloseReason::OrderExpired);
        let closes = closes.map(|reason| reason.as_str());
        let all = statuses.chain(reasons).chain(refusals).chain(causes).chain(closes);
        let missed: Vec<_> = all
            .chain([AT_SIGHT, REMEMBERED])
            .filter(|what| !elsewhere(what) && !reached.contains_key(what))
            .collect();
        assert!(missed.is_empty(), "{world:?} misses {missed:?}, reaches {reached:?}");
    }
}
