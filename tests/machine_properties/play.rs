//! A shop, its customers and two chains, with the pipeline between them.

use oracle::machine_model::chain::{CONTRACT, Chain, Movement, OTHER_CONTRACT, WALLETS, cents};
use oracle::machine_model::driver::Sabotage;
use oracle::machine_model::fact::Fact;
use oracle::machine_model::operator::{attach_command, stop_command};
use oracle::machine_model::pipeline::{Pipeline, create_order, exact_or_cents};
use oracle::machine_model::restored::Names;
use oracle::machine_model::violation::Violation;
use schemas::record::{AmountRule, EndedOrder, Order, OrderCommandBody, PaymentRequest};
use schemas::{Address, Amount, Draws, Incarnation, OrderId, OrderStatus, UnixMicros, UnixSeconds};
use testkit::Dice;
use uuid::Uuid;

use crate::case::{Away, Case, Choice, Fork, Happening, Mine, Pay, Restore, Rewind};
use crate::world::{
    CHAINS, DAY, LEAP, PRICES, SENDERS, START, STOPS, TOKENS, Terms, World, sender_of,
};

struct Sold {
    id: OrderId,
    create: OrderCommandBody,
    amount: Amount,
    sender: Option<Address>,
}

pub(crate) struct Play {
    world: World,
    pub(crate) chains: [Chain; 2],
    /// All external events, for the model.
    pub(crate) facts: Vec<Fact>,
    pub(crate) pipeline: Pipeline,
    terms: Terms,
    sold: Vec<Sold>,
    /// Number of orders ever created.
    created: u128,
    now: UnixMicros,
    /// Kind of the events not read yet.
    unread: Kind,
    /// `true` if a payment reserves an amount until the reply about it is read.
    keeps_longer: bool,
    /// Objects named by ids before restores.
    pub(crate) names: Names,
    incarnation: Incarnation,
}

/// Kind of event; where the outcome must be determined, only commuting kinds are queued together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Creates without a choice, payments that no block has yet, and configurations: their order does not matter.
    Neutral,
    /// Events of this chain alone.
    Of(usize),
    /// All other events.
    Alone,
}

impl Kind {
    fn commutes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Alone, _) | (_, Self::Alone) => false,
            (Self::Of(chain), Self::Of(other)) => chain == other,
            (Self::Neutral, _) | (_, Self::Neutral) => true,
        }
    }
}

impl Play {
    pub(crate) fn new(world: World, case: &Case, sabotage: Sabotage) -> Self {
        let chain = |number: usize| {
            let (chain, ahead) = (CHAINS[number], case.ahead[number]);
            let start = START.plus(ahead);
            let mut chain = Chain::new(chain, world.policy(), start, world.watched());
            chain.ahead = ahead;
            chain
        };
        let mut play = Self {
            world,
            chains: [chain(0), chain(1)],
            facts: Vec::new(),
            pipeline: Pipeline::new(&CHAINS, case.tricks, sabotage),
            terms: world.terms(),
            sold: Vec::new(),
            created: 0,
            now: START.micros(),
            unread: Kind::Alone,
            keeps_longer: false,
            names: Names::default(),
            incarnation: Incarnation::default(),
        };
        play.publish();
        play
    }

    /// Plays all events, then lets time pass until all queues are empty.
    pub(crate) fn run(&mut self, case: &Case) -> Result<(), Violation> {
        for (happening, dice) in &case.happenings {
            let mut dice = Dice(*dice);
            if self.world == World::Settled {
                let kind = self.kind(happening);
                if !kind.commutes_with(self.unread) || self.keeps_longer {
                    self.pipeline.drain(&mut dice)?;
                    self.keeps_longer = self.pipeline.keeps_longer();
                    self.unread = kind;
                } else if kind != Kind::Neutral {
                    self.unread = kind;
                }
            }
            if let Happening::Rest { long } = happening {
                if self.world == World::Settled {
                    // Disputes end first: orders that are forgotten meanwhile would answer them with an undetermined
                    // outcome.
                    self.agree(&mut dice)?;
                }
                let days = std::iter::repeat_n(2 * DAY, if *long { 5 } else { 0 });
                self.pass_time(std::iter::repeat_n(LEAP, 11).chain(days), &mut dice)?;
            }
            if matches!(happening, Happening::Wait { seconds, .. } if *seconds > DAY) {
                if case.tricks.silence {
                    continue; // An unanswered question is not repeated for days.
                }
                self.pipeline.drain(&mut dice)?;
            }
            match happening {
                // Never drawn in this world, but shrinking a case may bring one.
                _ if self.world == World::Settled => {}
                Happening::Away(away) => self.away(away, &mut dice)?,
                Happening::Rewind(rewind) => self.rewind(rewind, &mut dice)?,
                Happening::Linger { chain, price } => self.linger(*chain, *price, &mut dice)?,
                Happening::Restore(restore) => self.restore(*restore, &mut dice)?,
                _ => {}
            }
            self.happen(happening);
            self.publish();
            for _ in 0..dice.below(8) {
                self.pipeline.disturb(&mut dice)?;
            }
        }
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Violation> {
        self.pipeline.end_silence();
        self.pipeline.drain(&mut Dice(7))?;
        (0..CHAINS.len()).for_each(|chain| self.stop(chain, STOPS.len() - 1, false));
        self.pipeline.drain(&mut Dice(7))?;
        for chain in 0..CHAINS.len() {
            (self.chains[chain].has_gap, self.chains[chain].is_unseen) = (false, false);
            self.chains[chain].scan();
            self.publish();
            self.pipeline.drain(&mut Dice(7))?;
        }
        self.agree(&mut Dice(7))?;
        let blocks = usize::try_from(self.world.policy().finality + 2).unwrap();
        let calm = std::iter::repeat_n(1, blocks);
        let leaps = || std::iter::repeat_n(LEAP, 11);
        // The chain may be weeks behind: forks orphan long blocks.
        let ended = leaps().chain([30 * DAY]).chain(leaps()).chain([2 * DAY; 2]);
        self.pass_time(calm.chain(ended).chain([30 * DAY; 2]), &mut Dice(7))
    }

    /// Ends all disputes, one chain at a time, because both chains may release a payment of the same order.
    fn agree(&mut self, dice: &mut Dice) -> Result<(), Violation> {
        for chain in 0..CHAINS.len() {
            self.chains[chain].agree();
            self.read(dice)?;
        }
        Ok(())
    }

    fn pass_time(
        &mut self,
        blocks: impl Iterator<Item = i64>,
        dice: &mut Dice,
    ) -> Result<(), Violation> {
        for seconds in blocks {
            for chain in 0..CHAINS.len() {
                self.pipeline.drain(dice)?;
                self.mine(chain, 1, seconds, 0, (true, false));
                self.publish();
            }
            self.pipeline.drain(dice)?;
            self.tick();
        }
        self.pipeline.drain(dice)
    }

    /// Writes the records of ingest to the log.
    fn publish(&mut self) {
        for chain in &mut self.chains {
            self.facts.append(&mut chain.facts);
            self.pipeline.write_raw(chain);
        }
    }

    /// Publishes, and reads everything.
    fn read(&mut self, dice: &mut Dice) -> Result<(), Violation> {
        self.publish();
        self.pipeline.drain(dice)
    }

    fn kind(&self, happening: &Happening) -> Kind {
        match *happening {
            // A create commutes only without a choice: a waiting transfer changes a chosen deposit's amount.
            Happening::Create { choice: None, .. }
            | Happening::Pay(_)
            | Happening::PayAll { .. }
            | Happening::Send { .. }
            | Happening::Configure { .. } => Kind::Neutral,
            Happening::Watch { chain }
            | Happening::Fork(Fork { chain, .. })
            | Happening::Dispute { chain, .. }
            | Happening::Decide { chain, .. }
            | Happening::Gap { chain, .. } => Kind::Of(chain),
            Happening::Mine(mine) if !self.is_leap(mine.chain, mine.seconds) => {
                Kind::Of(mine.chain)
            }
            _ => Kind::Alone,
        }
    }

    /// Time of the next block of a chain: in step with other chains, except a fast chain in the wild world.
    fn next_time(&self, chain: usize, seconds: i64) -> UnixSeconds {
        let next = self.chains[chain].time().plus(seconds);
        if self.world == World::Wild && seconds == 1 {
            return next;
        }
        let ahead = self.chains[chain].ahead;
        let clocks = self.chains.iter().map(|other| other.clock().plus(ahead));
        clocks.fold(next, UnixSeconds::max)
    }

    fn is_leap(&self, chain: usize, seconds: i64) -> bool {
        self.next_time(chain, seconds) >= self.chains[chain].time().plus(LEAP / 2)
    }

    /// `true` if a block and all replies are read before the next one is mined.
    fn is_single(&self, leaps: bool) -> bool {
        self.world == World::Settled && (leaps || self.keeps_longer)
    }

    fn happen(&mut self, happening: &Happening) {
        self.now = UnixMicros(self.now.0 + 1);
        match *happening {
            Happening::Create { price, sender, long, choice } => {
                let seconds = self.world.ttl_seconds(long);
                self.create(PRICES[price], SENDERS.get(sender).copied(), seconds, choice);
            }
            Happening::Choose { order, choice } => self.choose(order, choice),
            Happening::Cancel { order } => {
                if let Some(order) = self.pick(order).map(|sold| sold.id) {
                    self.facts.push(Fact::Cancelled { order });
                    self.command(order, OrderCommandBody::Cancel);
                }
            }
            Happening::MarkPaid { order, behind } => {
                if let Some((order, _, row)) = self.row(order, behind) {
                    self.facts.push(Fact::MarkedPaid { order });
                    self.command(order, OrderCommandBody::MarkPaid(ended(row)));
                }
            }
            Happening::Resend { order, behind } => {
                if let Some((order, _, row)) = self.row(order, behind) {
                    self.command(order, OrderCommandBody::ResendWebhook(ended(row)));
                }
            }
            Happening::Attach { order, transfer, behind } => self.attach(order, transfer, behind),
            Happening::Repeat { order, behind } => {
                if let Some((order, create, None)) = self.row(order, behind) {
                    self.command(order, create);
                }
            }
            Happening::Pay(pay) => self.pay(pay),
            Happening::PayAll { order } => {
                (0..4).for_each(|earlier| self.pay(Pay::exact(order, earlier)));
            }
            Happening::Send { price, cents_off, choice, sender, other } => {
                let (chain, stablecoin, wallet) = choice;
                let value = off(cents(PRICES[price]), cents_off);
                let to = WALLETS[wallet.min(1)];
                let (stablecoin, from) = (TOKENS[stablecoin], sender_of(sender));
                let contract = contract(other);
                let movement = Movement { stablecoin, contract, from, to, value };
                self.chains[chain].send(movement, false, 1);
            }
            Happening::Stop { chain, what, begins } => self.stop(chain, what, begins),
            Happening::Mine(Mine { chain, blocks, seconds, transactions, each, late }) => {
                let leaps = self.is_leap(chain, seconds);
                let blocks = if self.is_single(leaps) { 1 } else { blocks };
                self.mine(chain, blocks, seconds, transactions, (each, late));
                if seconds > 1 || leaps {
                    self.tick();
                }
            }
            Happening::Fork(fork) => self.fork(fork),
            Happening::Rest { .. }
            | Happening::Away(_)
            | Happening::Rewind(_)
            | Happening::Restore(_)
            | Happening::Linger { .. } => {}
            Happening::Dispute { chain, transfer } => self.chains[chain].dispute(transfer),
            Happening::Decide { chain, rejects: false } => self.chains[chain].agree(),
            Happening::Decide { chain, rejects: true } => self.chains[chain].reject(),
            Happening::Gap { chain, begins } => {
                self.chains[chain].has_gap = begins;
                self.chains[chain].beat();
            }
            Happening::Unsee { chain, begins } => {
                self.chains[chain].is_unseen = begins;
                self.chains[chain].scan();
            }
            Happening::Watch { chain } => self.chains[chain].watch(WALLETS[1]),
            Happening::Wait { chain, seconds } => {
                self.now = UnixMicros(self.now.0 + seconds * 1_000_000);
                self.chains[chain].beat();
                self.tick();
            }
            Happening::Configure { chain, other } => {
                let (policy, terms) = match other {
                    true => (self.world.other_policy(), self.world.other_terms()),
                    false => (self.world.policy(), self.world.terms()),
                };
                (self.chains[chain].policy, self.terms) = (policy, terms);
            }
        }
    }

    fn pick(&self, order: usize) -> Option<&Sold> {
        // Events concern the newest orders.
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

    fn command(&mut self, order: OrderId, body: OrderCommandBody) {
        self.pipeline.write_command(order, body, self.now);
    }

    fn tick(&mut self) {
        self.facts.push(Fact::TimersDue { now: self.now.seconds() });
        self.pipeline.write_ticks(self.now);
    }

    fn create(
        &mut self,
        price: u128,
        sender: Option<Address>,
        seconds: i64,
        choice: Option<Choice>,
    ) -> OrderId {
        self.created += 1;
        let id = OrderId(Uuid::from_u128(self.created));
        let amount = cents(price);
        let expires_at = self.now.seconds().plus(seconds);
        let payment = choice.map(|(chain, stablecoin, wallets)| {
            let amounts = exact_or_cents(self.terms.cents_most);
            self.request((chain, stablecoin, wallets.min(1)), amounts)
        });
        self.facts.push(Fact::Created { order: id, amount, sender, expires_at });
        if let Some(request) = payment.clone() {
            self.facts.push(Fact::Chosen { order: id, request, at: self.now.seconds() });
        }
        let create = create_order(String::new(), amount, sender, expires_at, payment);
        self.sold.push(Sold { id, create: create.clone(), amount, sender });
        self.command(id, create);
        id
    }

    fn request(&self, (chain, stablecoin, wallets): Choice, amounts: AmountRule) -> PaymentRequest {
        let wallets = if wallets < 2 { vec![WALLETS[wallets]] } else { WALLETS.to_vec() };
        PaymentRequest {
            blockchain: CHAINS[chain],
            stablecoin: TOKENS[stablecoin],
            contract: CONTRACT,
            decimals: 6,
            contracts: match self.sold.len() % 4 {
                0 => vec![CONTRACT, OTHER_CONTRACT],
                _ => vec![CONTRACT],
            },
            wallets,
            amounts,
            late_window_seconds: self.terms.late_window_seconds,
            accepts_late: self.accepts_late(),
            head_age_max_seconds: self.terms.head_age_max_seconds,
        }
    }

    /// `true` if the shop accepts late payments now.
    fn accepts_late(&self) -> bool {
        self.sold.len().is_multiple_of(3)
    }

    fn choose(&mut self, order: usize, choice: Choice) {
        let Some(id) = self.pick(order).map(|sold| sold.id) else { return };
        let request = self.request(choice, digits_of(id));
        let at = self.now.seconds();
        self.facts.push(Fact::Chosen { order: id, request: request.clone(), at });
        self.command(id, OrderCommandBody::ChoosePayment(request));
    }

    /// Begins or ends one kind of stop; an end of the last kind ends all.
    fn stop(&mut self, chain: usize, what: usize, begins: bool) {
        let scope = STOPS[what];
        let blockchain = CHAINS[chain];
        let mut write = |scope, begins| {
            self.facts.push(Fact::Stopped { blockchain, scope, begins });
            let command = stop_command(blockchain, scope, begins, self.now);
            self.pipeline.write_lane_command(command);
        };
        match begins {
            true => write(scope, true),
            false if what + 1 < STOPS.len() => write(scope, false),
            false => STOPS.into_iter().for_each(|scope| write(scope, false)),
        }
    }

    fn attach(&mut self, order: usize, transfer: usize, behind: usize) {
        let Some((order_id, _, row)) = self.row(order, behind) else { return };
        let mut unknown: Vec<_> = self.pipeline.unknown().map(|t| t.transfer_id).collect();
        unknown.truncate(3);
        let Some(id) = unknown.get(transfer % unknown.len().max(1)).copied() else { return };
        let behind = if self.world == World::Wild { behind } else { 0 };
        let Some(transfer) = self.pipeline.transfer_row(id, behind, self.now) else { return };
        let payment = transfer.observation.payment();
        self.facts.push(Fact::Attached { order: order_id, payment });
        let number = self.facts.len() as u128;
        let command = attach_command((order_id, ended(row)), transfer, number, self.now);
        self.pipeline.write_lane_command(command);
    }

    /// Pays to the order's newest deposit, or to one opened `earlier` deposits before it; without any, to a wallet.
    fn pay(&mut self, pay: Pay) {
        let Pay { order, earlier, cents_off, sender, joined, twice, other } = pay;
        let from = sender_of(sender);
        let Some(sold) = self.pick(order) else { return };
        let is_customer = SENDERS[..2].contains(&from);
        let from = sold.sender.filter(|_| is_customer).unwrap_or(from);
        let mut opened = self.pipeline.opened().filter(|deposit| deposit.order_id == sold.id);
        let (chain, stablecoin, to, value) = match opened.nth(earlier) {
            Some(d) => {
                let chain = CHAINS.iter().position(|chain| *chain == d.blockchain);
                (chain.unwrap_or(0), d.stablecoin, d.wallet_address, d.value)
            }
            None if earlier == 0 => (0, TOKENS[0], WALLETS[0], sold.amount),
            None => return,
        };
        let value = off(value, cents_off);
        let times = 1 + usize::from(twice);
        let contract = contract(other);
        let movement = Movement { stablecoin, contract, from, to, value };
        self.chains[chain].send(movement, joined, times);
    }

    fn mine(
        &mut self,
        chain: usize,
        blocks: usize,
        seconds: i64,
        transactions: usize,
        (each, late): (bool, bool),
    ) {
        for block in 0..blocks {
            let time = self.next_time(chain, seconds);
            let chain = &mut self.chains[chain];
            if self.world == World::Settled && time >= chain.time().plus(DAY / 4) {
                // Long before a day: then failed transfers are forgotten, and one that returned would be a new one.
                chain.mempool.clear();
            }
            let pool = &mut chain.mempool;
            let first = transactions.min(pool.len());
            let taken = if block == 0 { pool.drain(..first).collect() } else { Vec::new() };
            chain.mine(taken, time);
            if each && block + 1 < blocks {
                chain.scan();
            }
        }
        if late {
            self.chains[chain].scan_with_late_logs();
        } else {
            self.chains[chain].scan();
        }
        self.now = self.now.max(self.chains[chain].clock().micros());
    }

    fn away(&mut self, away: &Away, dice: &mut Dice) -> Result<(), Violation> {
        let Away { chain, price, long, replaced, answers, ended, rival, .. } = *away;
        let Away { depth, fates, hours, back, again, .. } = *away;
        self.happen(&Happening::Unsee { chain, begins: false });
        self.mine_and_read(chain, (1, 12, 0), dice)?;
        let seconds = if long { 3 * DAY } else { self.world.ttl_seconds(true) };
        let id = self.create(PRICES[price], None, seconds, Some((chain, 0, 0)));
        self.pipeline.drain(dice)?;
        if replaced {
            self.choose(0, (chain, 1, 0));
            self.pipeline.drain(dice)?;
        }
        if !answers {
            self.pipeline.hold(id);
        }
        if ended {
            self.happen(&Happening::MarkPaid { order: 0, behind: 0 });
        }
        self.pay(Pay::exact(0, usize::from(replaced)));
        self.mine_and_read(chain, (depth, 12, 9), dice)?;
        self.fork_and_read(chain, depth, fates, dice)?;
        for _ in 0..8 {
            self.mine_and_read(chain, (1, hours * 3600, 0), dice)?;
            self.tick();
        }
        if rival {
            self.create(PRICES[price], None, seconds, Some((chain, 0, 0)));
            self.pipeline.drain(dice)?;
        }
        self.mine_and_read(chain, (back, 12, 9), dice)?;
        if again {
            self.fork_and_read(chain, back, fates, dice)?;
        }
        self.pipeline.release();
        Ok(())
    }

    /// Plays an order with a remaining candidate, whose outcome it requests.
    fn linger(&mut self, chain: usize, price: usize, dice: &mut Dice) -> Result<(), Violation> {
        let (other, seconds) = (1 - chain, self.world.ttl_seconds(false));
        for chain in [chain, other] {
            self.happen(&Happening::Unsee { chain, begins: false });
            self.mine_and_read(chain, (1, 12, 0), dice)?;
        }
        while !self.accepts_late() {
            self.create(PRICES[price], None, seconds, None);
        }
        self.create(PRICES[price], None, seconds, Some((chain, 0, 0)));
        self.pipeline.drain(dice)?;
        self.choose(0, (other, 0, 0));
        self.pipeline.drain(dice)?;
        let depth = usize::try_from(self.world.policy().finality).unwrap();
        self.mine_and_read(chain, (depth, 200, 0), dice)?;
        self.pay(Pay::exact(0, 1));
        self.mine_and_read(chain, (1, 12, 9), dice)?;
        (0..4).for_each(|_| self.chains[chain].dispute(0));
        self.publish();
        self.mine_and_read(other, (depth, 200, 0), dice)?;
        self.mine_and_read(other, (1, 7200, 0), dice)?;
        self.tick();
        self.pipeline.drain(dice)
    }

    /// Pays an order, and days later rewinds the chain to before the payment.
    fn rewind(&mut self, rewind: &Rewind, dice: &mut Dice) -> Result<(), Violation> {
        let Rewind { chain, price, days, named, same, rival } = *rewind;
        self.happen(&Happening::Unsee { chain, begins: false });
        self.mine_and_read(chain, (1, 12, 0), dice)?;
        self.create(PRICES[price], None, DAY / 24, Some((chain, 0, 0)));
        self.pipeline.drain(dice)?;
        self.pay(Pay::exact(0, 0));
        let depth = usize::try_from(self.chains[chain].policy.finality).unwrap() + 1;
        self.mine_and_read(chain, (depth, 12, 9), dice)?;
        self.mine_and_read(chain, (days + 1, DAY, 0), dice)?;
        self.tick();
        let branch = self.chains[chain].rewind_by_hand(depth + days + 1, named);
        self.read(dice)?;
        if rival {
            self.create(PRICES[price], None, DAY, Some((chain, 0, 0)));
        }
        if same || !named {
            self.chains[chain].take_back_fork();
            self.chains[chain].scan();
        } else {
            let transactions = branch.into_iter().flatten().collect();
            let now = self.now.seconds().plus(self.chains[chain].ahead);
            let time = self.chains[chain].time().max(now).plus(12);
            self.chains[chain].mine(transactions, time);
            // The replacement has a present time: as old as the retracted payment, it would be too old to be seen.
            self.mine_and_read(chain, (depth, 12, 0), dice)?;
        }
        self.read(dice)
    }

    /// Restores a backup from before two payments. Ingest rescans the chain; commands are lost.
    fn restore(&mut self, restore: Restore, dice: &mut Dice) -> Result<(), Violation> {
        let Restore { chain, price, depth, rival, early } = restore;
        self.happen(&Happening::Unsee { chain, begins: false });
        let (backup, sold) = (self.pipeline.clone(), self.sold.len());
        self.create(PRICES[price], None, DAY / 24, Some((chain, 0, 0)));
        self.pipeline.drain(dice)?;
        self.pay(Pay::exact(0, 0));
        self.pay(Pay { sender: 1, cents_off: 5, ..Pay::exact(0, 0) });
        self.mine_and_read(chain, (depth, 12, 9), dice)?;
        self.names.add(&self.pipeline.delivered)?;
        self.pipeline = backup;
        self.sold.truncate(sold);
        self.incarnation = Incarnation(self.now.seconds().0.max(self.incarnation.0 + 1));
        self.pipeline.begin_anew(self.incarnation);
        if rival {
            self.create(PRICES[price], None, DAY, Some((chain, 0, 0)));
        }
        if rival && early {
            self.pipeline.drain(dice)?;
        }
        self.read(dice)
    }

    fn mine_and_read(
        &mut self,
        chain: usize,
        (blocks, seconds, transactions): (usize, i64, usize),
        dice: &mut Dice,
    ) -> Result<(), Violation> {
        self.mine(chain, blocks, seconds, transactions, (true, false));
        self.read(dice)
    }

    fn fork_and_read(
        &mut self,
        chain: usize,
        depth: usize,
        fates: u16,
        dice: &mut Dice,
    ) -> Result<(), Violation> {
        self.fork(Fork { chain, depth, further: 0, fates, seconds: 12, back: false });
        self.read(dice)
    }

    fn fork(&mut self, fork: Fork) {
        let Fork { chain, depth, further, fates, seconds, back } = fork;
        let chain = &mut self.chains[chain];
        let branch = chain.fork(depth, further);
        if back {
            chain.take_back_fork();
            chain.scan();
            return;
        }
        let fate =
            |block: usize, place: usize| usize::from(fates >> (((block * 3 + place) * 2) % 16)) & 3;
        chain.mine_anew(branch, seconds, fate);
        if fates & 1 == 0 {
            chain.scan();
        }
        self.now = self.now.max(chain.clock().micros());
    }
}

fn contract(other: bool) -> Address {
    if other { OTHER_CONTRACT } else { CONTRACT }
}

/// Amount rule at checkout: one of three amounts below a cent.
fn digits_of(order: OrderId) -> AmountRule {
    let draws = Draws([order.0.as_bytes()[15]; 32]);
    let limit = Amount::parse("0.003").unwrap();
    AmountRule { exact_first: false, digits: 3, limit, draws }
}

/// Row in a command about an order: only of an ended order.
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
