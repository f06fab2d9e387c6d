//! The two machines joined by their command queues, run as the processor's runner does, with an
//! adversary that chooses the interleaving, batches, aborts, crashes and repeats.

use std::collections::HashSet;

use processor::machine::{Machine, matching, orders};
use schemas::record::{
    AmountRule, ChainBody, ChainRecord, CreateOrder, Deposit, MatchingEntry, Order, OrderCommand,
    OrderCommandBody, OrdersEntry, PaymentRequest,
};
use schemas::{Address, AlertKind, Amount, DepositState, OrderId, UnixMicros, UnixSeconds};
use testkit::Dice;

use super::chain::cents;
use super::delivered::Delivered;
use super::station::{Fate, Sabotage, Station};
use super::violation::{Violation, same};

/// A topic as its one consumer reads it. Records that repeat others are marked.
struct Queue<T> {
    records: Vec<(T, bool)>,
    next: usize,
}

impl<T: Clone> Queue<T> {
    fn new() -> Self {
        Self { records: Vec::new(), next: 0 }
    }

    fn push(&mut self, record: T, again: bool) {
        self.records.push((record, again));
    }

    fn is_read(&self) -> bool {
        self.next == self.records.len()
    }

    /// The next record if it is no repetition.
    fn take_new(&mut self) -> Option<T> {
        let (record, again) = self.records.get(self.next)?;
        (!again).then(|| {
            self.next += 1;
            record.clone()
        })
    }

    /// The next record if it is a repetition.
    fn take_again(&mut self) -> Option<T> {
        let (record, again) = self.records.get(self.next)?;
        again.then(|| {
            self.next += 1;
            record.clone()
        })
    }
}

/// What the adversary may do beside choosing the interleaving.
#[derive(Debug, Clone, Copy)]
pub struct Tricks {
    /// Steps of many inputs.
    pub batches: bool,
    /// Steps that are lost and done again.
    pub losses: bool,
    /// Records that come again.
    pub repeats: bool,
}

/// The command of the api that creates an order.
pub fn create_order(
    merchant_order_id: String,
    amount: Amount,
    sender: Option<Address>,
    expires_at: UnixSeconds,
    payment: Option<PaymentRequest>,
) -> OrderCommandBody {
    OrderCommandBody::Create(CreateOrder {
        merchant_order_id,
        amount,
        amount_text: amount.to_string(),
        webhook_url: "https://shop.example/hooks".into(),
        expecting_wallet_address: sender,
        blockchain: payment.as_ref().map(|payment| payment.blockchain),
        stablecoin: payment.as_ref().map(|payment| payment.stablecoin),
        expires_at,
        payment,
    })
}

/// The order's own amount, or up to some cents more.
pub fn exact_or_cents(most: u128) -> AmountRule {
    AmountRule { limit: cents(most), ..AmountRule::EXACT }
}

/// Both machines, their queues, and what was delivered.
pub struct Pipeline {
    /// What was delivered first, without repetitions.
    pub delivered: Vec<Delivered>,
    tricks: Tricks,
    lane: Station<matching::State>,
    orders: Station<orders::State>,
    raw: Queue<ChainRecord>,
    deposit_commands: Queue<matching::Input>,
    order_commands: Queue<OrderCommand>,
    /// How many commands matching read since the last head.
    commands_since_head: usize,
    ticking: HashSet<OrderId>,
    repeated_to_orders: bool,
}

impl Pipeline {
    /// Two machines that have seen nothing.
    pub fn new(tricks: Tricks, sabotage: Sabotage) -> Self {
        Self {
            delivered: Vec::new(),
            tricks,
            lane: Station::new(sabotage),
            orders: Station::new(sabotage),
            raw: Queue::new(),
            deposit_commands: Queue::new(),
            order_commands: Queue::new(),
            commands_since_head: 0,
            ticking: HashSet::new(),
            repeated_to_orders: false,
        }
    }

    /// Appends what is new of everything that ingest wrote.
    pub fn write_raw(&mut self, all: &[ChainRecord]) {
        let known = self.raw.records.len();
        all.iter().skip(known).for_each(|record| self.raw.push(record.clone(), false));
    }

    /// Appends a command of the api.
    pub fn write_command(&mut self, command: OrderCommand) {
        self.order_commands.push(command, false);
    }

    /// Appends a tick for each order whose timer is past, as the runner does.
    pub fn write_ticks(&mut self, now: UnixMicros) {
        for order_id in self.orders.machine.due(now.seconds(), 100) {
            if self.ticking.insert(order_id) {
                let body = OrderCommandBody::Tick;
                self.write_command(OrderCommand {
                    order_id,
                    command_id: None,
                    issued_at: now,
                    body,
                });
            }
        }
    }

    /// The open deposit that was published last for an order.
    pub fn deposit_of(&self, order: OrderId) -> Option<Deposit> {
        self.delivered.iter().rev().find_map(|delivered| match delivered {
            Delivered::Lane(_, effects) => effects.iter().find_map(|effect| match effect {
                matching::Effect::Deposit(deposit)
                    if deposit.order_id == order && deposit.state == DepositState::Open =>
                {
                    Some(deposit.clone())
                }
                _ => None,
            }),
            Delivered::Orders(..) => None,
        })
    }

    /// An order as the tables show it: by some versions behind, but not by a week.
    pub fn row_of(&self, id: OrderId, behind: usize, now: UnixMicros) -> Option<Order> {
        let effects = self.delivered.iter().flat_map(|delivered| match delivered {
            Delivered::Orders(_, effects) => effects.as_slice(),
            Delivered::Lane(..) => &[],
        });
        let versions = effects.filter_map(|effect| match effect {
            orders::Effect::Order(order) => (order.order_id == id).then_some(order),
            orders::Effect::Command(_) => None,
        });
        let mut versions: Vec<&Order> = versions.collect();
        for _ in 0..behind {
            versions.pop_if(|newest| now.seconds() < newest.updated_at.seconds().plus(WEEK));
        }
        versions.pop().cloned()
    }

    /// How many deposits, transfers and orders the machines hold.
    pub fn rows(&self) -> (usize, usize, usize) {
        let lane = &self.lane.machine;
        (lane.deposit_count(), lane.transfer_count(), self.orders.machine.rows())
    }

    /// The adversary continues until nothing is left to read.
    pub fn drain(&mut self, dice: &mut Dice) -> Result<(), Violation> {
        while !(self.raw.is_read()
            && self.deposit_commands.is_read()
            && self.order_commands.is_read())
        {
            self.disturb(dice)?;
        }
        Ok(())
    }

    /// The adversary does one thing.
    pub fn disturb(&mut self, dice: &mut Dice) -> Result<(), Violation> {
        let fate = match dice.below(8) {
            0 if self.tricks.losses => Fate::Abort,
            1 if self.tricks.losses => Fate::Crash,
            _ => Fate::Commit,
        };
        let count = if self.tricks.batches { 1 + dice.below(6) } else { 1 };
        match dice.below(10) {
            0 if self.tricks.repeats => self.repeat(dice),
            0..5 => self.step_lane(count, fate, dice),
            _ => self.step_orders(count, fate),
        }
    }

    fn step_lane(&mut self, count: usize, fate: Fate, dice: &mut Dice) -> Result<(), Violation> {
        if let Some(input) = self.deposit_commands.take_again() {
            return self.lane_again(&[input]);
        }
        let mut inputs = Vec::new();
        for _ in 0..count {
            let raw = |queue: &mut Queue<_>| queue.take_new().map(matching::Input::Chain);
            let input = match dice.below(2) {
                0 => raw(&mut self.raw).or_else(|| self.deposit_commands.take_new()),
                _ => self.deposit_commands.take_new().or_else(|| raw(&mut self.raw)),
            };
            let Some(input) = input else { break };
            match &input {
                matching::Input::Chain(_) => self.commands_since_head = 0,
                matching::Input::Command(_) => self.commands_since_head += 1,
            }
            inputs.push(input);
        }
        let effects = self.lane.step(&inputs, fate)?;
        for (input, effects) in inputs.into_iter().zip(effects) {
            self.send_to_orders(&effects, false);
            self.delivered.push(Delivered::Lane(input, effects));
        }
        Ok(())
    }

    fn step_orders(&mut self, count: usize, fate: Fate) -> Result<(), Violation> {
        if let Some(command) = self.order_commands.take_again() {
            return self.orders_again(command);
        }
        let commands: Vec<_> =
            std::iter::from_fn(|| self.order_commands.take_new()).take(count).collect();
        let effects = self.orders.step(&commands, fate)?;
        if fate != Fate::Commit {
            self.ticking.clear();
        }
        for (command, effects) in commands.into_iter().zip(effects) {
            if command.body == OrderCommandBody::Tick {
                self.ticking.remove(&command.order_id);
            }
            self.send_to_lane(&effects, false);
            self.delivered.push(Delivered::Orders(command, effects));
        }
        Ok(())
    }

    fn send_to_orders(&mut self, effects: &[matching::Effect], again: bool) {
        for effect in effects {
            if let matching::Effect::Command(command) = effect {
                self.order_commands.push(command.clone(), again);
            }
        }
    }

    fn send_to_lane(&mut self, effects: &[orders::Effect], again: bool) {
        for effect in effects {
            if let orders::Effect::Command(command) = effect {
                self.deposit_commands.push(matching::Input::Command(command.clone()), again);
            }
        }
    }

    /// The last few records of a topic come again.
    fn repeat(&mut self, dice: &mut Dice) -> Result<(), Violation> {
        match dice.below(4) {
            0 => {
                let read = &self.raw.records[..self.raw.next];
                let count = (1 + dice.below(12)).min(read.len());
                let newest = read.iter().map(|(record, _)| record.block.timestamp).max();
                let last_head =
                    read.iter().rev().find(|(r, _)| matches!(r.body, ChainBody::Head(_)));
                // The last head, reported again, is new: the chain is no further than it was.
                let is_old = |record: &ChainRecord| {
                    newest.is_none_or(|at| record.block.timestamp > at.plus(-REPEAT_SECONDS))
                        && !(matches!(record.body, ChainBody::Head(_))
                            && last_head.is_some_and(|(head, _)| head.block == record.block))
                };
                let records: Vec<_> = read[read.len() - count..]
                    .iter()
                    .map(|(record, _)| record.clone())
                    .filter(is_old)
                    .map(matching::Input::Chain)
                    .collect();
                self.lane_again(&records)
            }
            1 => {
                let queue = &self.deposit_commands;
                let count = (1 + dice.below(6)).min(self.commands_since_head).min(queue.next);
                let records = &queue.records[queue.next - count..queue.next];
                let records: Vec<_> = records.iter().map(|(input, _)| input.clone()).collect();
                self.lane_again(&records)
            }
            2 => self.wrong_head(dice),
            _ => {
                let last = self.order_commands.next.checked_sub(1);
                let Some(last) = last else { return Ok(()) };
                let command = self.order_commands.records[last].0.clone();
                self.orders_again(command)
            }
        }
    }

    /// Another ingestor writes a head that is below the last one, or beyond what the chain can have.
    fn wrong_head(&mut self, dice: &mut Dice) -> Result<(), Violation> {
        let read = self.raw.records[..self.raw.next].iter().rev().map(|(record, _)| record);
        let Some(last) = read.into_iter().find(|r| matches!(r.body, ChainBody::Head(_))) else {
            return Ok(());
        };
        let mut wrong = last.clone();
        wrong.block.number += if dice.below(2) == 0 { -1 } else { 100_000 };
        self.lane_again(&[matching::Input::Chain(wrong)])
    }

    /// A repetition leaves matching as it is and publishes nothing; an answer may come again, and a head that
    /// is ignored is reported.
    fn lane_again(&mut self, inputs: &[matching::Input]) -> Result<(), Violation> {
        let before = essence(self.lane.machine.snapshot());
        let effects = self.lane.step(inputs, Fate::Commit)?.concat();
        let after = essence(self.lane.machine.snapshot());
        same(5, &format!("the lane after the repetition of {inputs:?}"), &before, &after)?;
        let is_answer = |effect: &matching::Effect| match effect {
            matching::Effect::Alert(alert) => matches!(
                alert.kind,
                AlertKind::AmountsTaken | AlertKind::HeadWentBack | AlertKind::HeadTooFar
            ),
            effect => matches!(effect, matching::Effect::Command(_)),
        };
        if !effects.iter().all(is_answer) {
            let text = format!("the repetition of {inputs:?} published {effects:?}");
            return Err(Violation { invariant: 5, text });
        }
        self.send_to_orders(&effects, true);
        Ok(())
    }

    /// A repetition leaves of an order what matters: its status, payer, candidates and deposits. The
    /// order may be published once more, which counts as a version.
    fn orders_again(&mut self, command: OrderCommand) -> Result<(), Violation> {
        self.repeated_to_orders = true;
        let essence = |snapshot: Vec<(String, OrdersEntry)>| -> Vec<_> {
            let essence = |(id, entry): (String, OrdersEntry)| {
                let order = entry.order;
                (id, order.status, order.paid_by, order.candidates, order.deposits)
            };
            snapshot.into_iter().map(essence).collect()
        };
        let before = essence(self.orders.machine.snapshot());
        let effects = self.orders.step(std::slice::from_ref(&command), Fate::Commit)?.concat();
        let after = essence(self.orders.machine.snapshot());
        same(5, &format!("the orders after the repetition of {command:?}"), &before, &after)?;
        self.send_to_lane(&effects, true);
        Ok(())
    }

    /// Invariant 5: two fresh machines that read the same records, one by one, each once, write the
    /// same, record by record.
    ///
    /// # Errors
    /// The first record that differs.
    pub fn compare_with_undisturbed(&self) -> Result<(), Violation> {
        let (mut lane, mut orders) = (self.lane.undisturbed(), self.orders.undisturbed());
        for delivered in &self.delivered {
            match delivered {
                Delivered::Lane(input, effects) => {
                    let undisturbed =
                        lane.step(std::slice::from_ref(input), Fate::Commit)?.concat();
                    same(5, &format!("what came of {input:?}"), &undisturbed, effects)?;
                }
                Delivered::Orders(command, effects) => {
                    let mut undisturbed =
                        orders.step(std::slice::from_ref(command), Fate::Commit)?.concat();
                    let mut effects = effects.clone();
                    if self.repeated_to_orders {
                        forget_versions(&mut undisturbed);
                        forget_versions(&mut effects);
                    }
                    same(5, &format!("what came of {command:?}"), &undisturbed, &effects)?;
                }
            }
        }
        Ok(())
    }
}

/// The lane's state, but for whether a head was ignored.
fn essence(mut snapshot: Vec<(String, MatchingEntry)>) -> Vec<(String, MatchingEntry)> {
    for (_, entry) in &mut snapshot {
        if let MatchingEntry::Lane(lane) = entry {
            lane.head_ignored = false;
        }
    }
    snapshot
}

/// By less than this the tables are behind.
const WEEK: i64 = 7 * 24 * 3600;

/// Repetitions are recent: nothing that a machine may have forgotten by intent comes again.
const REPEAT_SECONDS: i64 = 12 * 3600;

/// Drops what a repeated choice publishes again: the answer, as one more version of the order.
fn forget_versions(effects: &mut Vec<orders::Effect>) {
    for effect in effects.iter_mut() {
        if let orders::Effect::Order(order) = effect {
            order.version = 0;
            order.updated_at = UnixMicros(0);
        }
    }
    effects.dedup();
}
