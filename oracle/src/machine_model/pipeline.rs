//! Lanes and orders joined by their command queues, run as the processor's runner does.

use std::collections::{HashMap, HashSet};

use processor::machine::matching::TransferStage;
use processor::machine::{Machine, matching, orders};
use schemas::record::{
    AmountRule, ChainRecord, CreateOrder, Deposit, DepositCommand, DepositCommandBody,
    MatchingEntry, Order, OrderCommand, OrderCommandBody, OrdersEntry, PaymentRequest, Transfer,
};
use schemas::{
    Address, AlertKind, AlertState, Amount, Blockchain, CloseReason, DepositState, Incarnation,
    OrderId, OrderStatus, Partition, TransferId, UnixMicros, UnixSeconds,
};
use testkit::Dice;

use super::chain::{Chain, cents};
use super::delivered::Delivered;
use super::driver::{Driver, Fate, Sabotage};
use super::violation::{Violation, holds, same};

/// A topic with a single consumer. Repetitions of records are marked.
#[derive(Clone)]
pub(super) struct Queue<T> {
    pub(super) records: Vec<(T, bool)>,
    /// Number of records read.
    pub(super) next: usize,
}

impl<T: Clone> Queue<T> {
    fn new() -> Self {
        Self { records: Vec::new(), next: 0 }
    }

    fn push(&mut self, record: T, again: bool) {
        self.records.push((record, again));
    }

    pub(super) fn is_read(&self) -> bool {
        self.next == self.records.len()
    }

    /// The next record if it is not a repetition.
    fn take_new(&mut self) -> Option<T> {
        self.take(false)
    }

    /// The next record if it is a repetition.
    fn take_again(&mut self) -> Option<T> {
        self.take(true)
    }

    fn take(&mut self, is_again: bool) -> Option<T> {
        let (record, _) = self.records.get(self.next).filter(|(_, again)| *again == is_again)?;
        self.next += 1;
        Some(record.clone())
    }
}

/// Disturbances that the adversary may cause besides choosing the interleaving.
#[derive(Debug, Clone, Copy)]
pub struct Tricks {
    /// Steps of several inputs.
    pub batches: bool,
    /// Steps that are aborted or lost in a crash, and retried.
    pub losses: bool,
    /// Repeated records.
    pub repeats: bool,
    /// Loss of some commands between orders and lanes that are repeated until a reply comes. The acceptance of an
    /// attach is never lost: its order may be forgotten after a week, and a chain may be halted for longer than that.
    pub silence: bool,
}

impl Tricks {
    /// No disturbance: everything is read, one by one.
    pub const NONE: Self = Self { batches: false, losses: false, repeats: false, silence: false };
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
        first_version: 1,
        payment,
    })
}

/// Rule for the order's own amount, or up to `most` cents more.
pub fn exact_or_cents(most: u128) -> AmountRule {
    AmountRule { limit: cents(most), ..AmountRule::EXACT }
}

/// The lane of a chain: its machine and its queues.
#[derive(Clone)]
pub(super) struct Lane {
    pub(super) blockchain: Blockchain,
    pub(super) driver: Driver<matching::State>,
    pub(super) raw: Queue<ChainRecord>,
    pub(super) commands: Queue<matching::Input>,
    /// Number of commands read since the last head.
    pub(super) commands_since_head: usize,
}

impl Lane {
    fn new(blockchain: Blockchain, sabotage: Sabotage) -> Self {
        let machine = matching::State::new(blockchain, Partition(blockchain.index()));
        Self {
            blockchain,
            driver: Driver::new(machine, sabotage),
            raw: Queue::new(),
            commands: Queue::new(),
            commands_since_head: 0,
        }
    }
}

/// The machines, their queues, and the delivered inputs.
#[derive(Clone)]
pub struct Pipeline {
    /// Inputs in the order of their first delivery, without repetitions.
    pub delivered: Vec<Delivered>,
    pub(super) tricks: Tricks,
    pub(super) lanes: Vec<Lane>,
    orders: Driver<orders::State>,
    pub(super) order_commands: Queue<OrderCommand>,
    ticking: HashSet<OrderId>,
    /// `true` once orders have read a repetition, which `delivered` lacks.
    altered: bool,
    /// Dice that choose the records to be lost.
    silence: Dice,
    /// Order whose commands are held back, as if its partition had no processor.
    away: Option<OrderId>,
    held: Vec<(OrderCommand, bool)>,
    /// Number of deliveries at each restart from a backup, and the incarnation that began there.
    pub(super) anew: Vec<(usize, Incarnation)>,
}

impl Pipeline {
    /// Machines without inputs, with a lane for each chain.
    pub fn new(blockchains: &[Blockchain], tricks: Tricks, sabotage: Sabotage) -> Self {
        Self {
            delivered: Vec::new(),
            tricks,
            lanes: blockchains.iter().map(|chain| Lane::new(*chain, sabotage)).collect(),
            orders: Driver::new(orders::State::new(), sabotage),
            order_commands: Queue::new(),
            ticking: HashSet::new(),
            altered: false,
            silence: Dice(11),
            away: None,
            held: Vec::new(),
            anew: Vec::new(),
        }
    }

    /// Ends the losses of [`Tricks::silence`]: everything is read from now on.
    pub fn end_silence(&mut self) {
        self.tricks.silence = false;
    }

    /// Holds back all commands of this order.
    pub fn hold(&mut self, order: OrderId) {
        self.away = Some(order);
    }

    pub fn release(&mut self) {
        self.away = None;
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|(command, again)| self.order_commands.push(command, again));
    }

    /// Appends ingest's new records of a chain.
    pub fn write_raw(&mut self, chain: &Chain) {
        let raw = &mut self.lane_mut(chain.blockchain).raw;
        let known = raw.records.len();
        chain.records.iter().skip(known).for_each(|record| raw.push(record.clone(), false));
    }

    fn lane_mut(&mut self, blockchain: Blockchain) -> &mut Lane {
        let lane = self.lanes.iter_mut().find(|lane| lane.blockchain == blockchain);
        lane.expect("a lane for each chain")
    }

    /// Appends a command of the api, or of the runner's timer.
    pub fn write_command(&mut self, order_id: OrderId, body: OrderCommandBody, now: UnixMicros) {
        self.push_command(OrderCommand { order_id, command_id: None, issued_at: now, body }, false);
    }

    /// Appends a command of the api to the lane of a wallet.
    pub fn write_lane_command(&mut self, command: DepositCommand) {
        let lane = self.lane_mut(command.blockchain);
        lane.commands.push(matching::Input::Command(command), false);
    }

    fn push_command(&mut self, command: OrderCommand, again: bool) {
        if self.away == Some(command.order_id) {
            self.held.push((command, again));
        } else {
            self.order_commands.push(command, again);
        }
    }

    /// Appends a tick for each order whose timer is past, as the runner does.
    pub fn write_ticks(&mut self, now: UnixMicros) {
        for order_id in self.orders.machine.due(now.seconds(), 100) {
            if self.away != Some(order_id) && self.ticking.insert(order_id) {
                self.write_command(order_id, OrderCommandBody::Tick, now);
            }
        }
    }

    /// The deposits that were opened, the newest first.
    pub fn opened(&self) -> impl Iterator<Item = &Deposit> {
        self.lane_effects().filter_map(|effect| match effect {
            matching::Effect::Deposit(deposit) => {
                Some(deposit).filter(|deposit| deposit.state == DepositState::Open)
            }
            _ => None,
        })
    }

    /// Effects of the lanes, those of the last input first.
    fn lane_effects(&self) -> impl Iterator<Item = &matching::Effect> {
        self.delivered.iter().rev().flat_map(Delivered::of_lane)
    }

    /// An order as the tables show it: `behind` versions behind, but less than a week.
    pub fn row_of(&self, id: OrderId, behind: usize, now: UnixMicros) -> Option<Order> {
        let effects = self.delivered.iter().flat_map(Delivered::of_orders);
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

    /// The transfers that became unknown, the last one first.
    pub fn unknown(&self) -> impl Iterator<Item = &Transfer> {
        self.lane_effects().filter_map(|effect| match effect {
            matching::Effect::Transfer(TransferStage::Unknown, transfer) => Some(transfer),
            _ => None,
        })
    }

    /// A transfer as the tables show it: `behind` versions behind, but less than a week.
    pub fn transfer_row(&self, id: TransferId, behind: usize, now: UnixMicros) -> Option<Transfer> {
        let versions = self.lane_effects().filter_map(|effect| match effect {
            matching::Effect::Transfer(_, transfer) => {
                (transfer.transfer_id == id).then_some(transfer)
            }
            _ => None,
        });
        let mut versions: Vec<&Transfer> = versions.collect();
        versions.sort_by_key(|transfer| transfer.updated_at);
        for _ in 0..behind {
            versions.pop_if(|newest| now.seconds() < newest.updated_at.seconds().plus(WEEK));
        }
        versions.pop().cloned()
    }

    /// Number of deposits, transfers and orders that the machines hold.
    pub fn rows(&self) -> (usize, usize, usize) {
        let lanes = self.lanes.iter().map(|lane| &lane.driver.machine);
        let deposits = lanes.clone().map(matching::State::deposit_count).sum();
        let transfers = lanes.map(matching::State::transfer_count).sum();
        (deposits, transfers, self.orders.machine.rows())
    }

    /// `true` if a lane keeps a closed deposit's amount after its late window, because of a waiting payment.
    pub fn keeps_longer(&self) -> bool {
        self.lanes.iter().any(|lane| {
            let kept = lane.driver.machine.snapshot();
            let head = kept.iter().find_map(|(_, entry)| match entry {
                MatchingEntry::Lane(lane) => lane.head,
                _ => None,
            });
            let is_over = |entry: &MatchingEntry| {
                let MatchingEntry::Deposit(deposit) = entry else { return false };
                let release_at = deposit.release_at.filter(|_| {
                    // The `release_at` of a replaced deposit is its deadline.
                    deposit.close_reason != Some(CloseReason::Replaced)
                });
                release_at.zip(head).is_some_and(|(at, head)| at < head.timestamp)
            };
            kept.iter().any(|(_, entry)| is_over(entry))
        })
    }

    pub(super) fn step_lane(
        &mut self,
        number: usize,
        count: usize,
        fate: Fate,
        dice: &mut Dice,
    ) -> Result<(), Violation> {
        let lane = &mut self.lanes[number];
        if let Some(input) = lane.commands.take_again() {
            return self.lane_again(number, &[input]);
        }
        let mut inputs = Vec::new();
        for _ in 0..count {
            let raw = |queue: &mut Queue<_>| queue.take_new().map(matching::Input::Chain);
            let input = match dice.below(2) {
                0 => raw(&mut lane.raw).or_else(|| lane.commands.take_new()),
                _ => lane.commands.take_new().or_else(|| raw(&mut lane.raw)),
            };
            let Some(input) = input else { break };
            match &input {
                matching::Input::Chain(_) => lane.commands_since_head = 0,
                matching::Input::Command(_) => lane.commands_since_head += 1,
            }
            inputs.push(input);
        }
        if inputs.is_empty() {
            return Ok(());
        }
        let effects = lane.driver.step(&inputs, fate)?;
        for (input, effects) in inputs.into_iter().zip(effects) {
            self.send_to_orders(&effects, false);
            self.delivered.push(Delivered::Lane(input, effects));
        }
        Ok(())
    }

    pub(super) fn step_orders(&mut self, count: usize, fate: Fate) -> Result<(), Violation> {
        if let Some(command) = self.order_commands.take_again() {
            return self.orders_again(command);
        }
        let commands: Vec<_> =
            std::iter::from_fn(|| self.order_commands.take_new()).take(count).collect();
        if commands.is_empty() {
            return Ok(());
        }
        let effects = self.orders.step(&commands, fate)?;
        if fate != Fate::Commit {
            self.ticking.clear();
        }
        for (command, effects) in commands.into_iter().zip(effects) {
            if command.body == OrderCommandBody::Tick {
                self.ticking.remove(&command.order_id);
            }
            self.send_to_lanes(&effects, false);
            self.delivered.push(Delivered::Orders(command, effects));
        }
        Ok(())
    }

    fn send_to_orders(&mut self, effects: &[matching::Effect], again: bool) {
        for effect in effects {
            if let matching::Effect::Command(command) = effect
                && !(may_ask_again(&command.body) && self.is_never_read())
            {
                self.push_command(command.clone(), again);
            }
        }
    }

    fn send_to_lanes(&mut self, effects: &[orders::Effect], again: bool) {
        for effect in effects {
            let orders::Effect::Command(command) = effect else { continue };
            let is_needed = matches!(command.body, DepositCommandBody::Attached { .. });
            if is_needed || !self.is_never_read() {
                let input = matching::Input::Command(command.clone());
                self.lane_mut(command.blockchain).commands.push(input, again);
            }
        }
    }

    fn is_never_read(&mut self) -> bool {
        self.tricks.silence && self.silence.below(8) == 0
    }

    /// Takes repeated inputs. The state must not change, and only replies and some alerts may be published.
    pub(super) fn lane_again(
        &mut self,
        lane: usize,
        inputs: &[matching::Input],
    ) -> Result<(), Violation> {
        let driver = &mut self.lanes[lane].driver;
        let before = essence(driver.machine.snapshot());
        let effects = driver.step(inputs, Fate::Commit)?.concat();
        let after = essence(driver.machine.snapshot());
        same(5, format_args!("the lane after the repetition of {inputs:?}"), &before, &after)?;
        let is_answer = |effect: &matching::Effect| match effect {
            matching::Effect::Alert(alert) => matches!(
                alert.kind,
                AlertKind::AmountsTaken
                    | AlertKind::HeadWentBack
                    | AlertKind::HeadTooFar
                    | AlertKind::StaleTransfer
            ),
            effect => matches!(effect, matching::Effect::Command(_)),
        };
        let has_answers_alone = effects.iter().all(is_answer);
        holds!(5, has_answers_alone, "the repetition of {inputs:?} published {effects:?}");
        self.send_to_orders(&effects, true);
        Ok(())
    }

    /// Takes a repeated command. Status, payer, candidates and deposits of the orders must not change. An order may be
    /// published again, as a new version.
    pub(super) fn orders_again(&mut self, command: OrderCommand) -> Result<(), Violation> {
        self.altered = true;
        let essence = |snapshot: Vec<(String, OrdersEntry)>| -> Vec<_> {
            let essence = |(id, entry): (String, OrdersEntry)| {
                let order = entry.order;
                (id, order.status, order.paid_by, order.candidates, order.deposits)
            };
            snapshot.into_iter().map(essence).collect()
        };
        let mut before = essence(self.orders.machine.snapshot());
        let effects = self.orders.step(std::slice::from_ref(&command), Fate::Commit)?.concat();
        let after = essence(self.orders.machine.snapshot());
        if matches!(command.body, OrderCommandBody::Tick) {
            // A repeated tick may forget other orders, which ended long ago.
            let is_left = |id: &String| after.iter().any(|(other, ..)| other == id);
            before.retain(|(id, status, ..)| *status == OrderStatus::Pending || is_left(id));
        }
        same(5, format_args!("the orders after the repetition of {command:?}"), &before, &after)?;
        self.send_to_lanes(&effects, true);
        Ok(())
    }

    /// Invariant 5: fresh machines that read the same records one by one, each once, write the same records.
    ///
    /// # Errors
    /// The first record that differs.
    pub fn compare_with_undisturbed(&self) -> Result<(), Violation> {
        let fresh = |lane: &Lane| (lane.blockchain, lane.driver.undisturbed());
        let mut lanes: HashMap<_, _> = self.lanes.iter().map(fresh).collect();
        let mut orders = self.orders.undisturbed();
        for (number, delivered) in self.delivered.iter().enumerate() {
            for (_, incarnation) in self.anew.iter().filter(|(at, _)| *at == number) {
                lanes.values_mut().for_each(|driver| driver.begin_anew(*incarnation));
            }
            match delivered {
                Delivered::Lane(input, effects) => {
                    let lane = lanes.get_mut(&input.blockchain()).expect("a lane for each chain");
                    let undisturbed = without_ends(&lane.take(input)?);
                    let what = format_args!("what came of {input:?}");
                    same(5, what, &undisturbed, &without_ends(effects))?;
                }
                Delivered::Orders(command, effects) => {
                    let mut undisturbed = orders.take(command)?;
                    let mut effects = effects.clone();
                    if self.altered {
                        forget_versions(&mut undisturbed);
                        forget_versions(&mut effects);
                    }
                    same(5, format_args!("what came of {command:?}"), &undisturbed, &effects)?;
                }
            }
        }
        Ok(())
    }
}

/// The lane's state without the times of ignored heads, which a repeated head changes.
fn essence(mut snapshot: Vec<(String, MatchingEntry)>) -> Vec<(String, MatchingEntry)> {
    for (_, entry) in &mut snapshot {
        if let MatchingEntry::Lane(lane) = entry {
            (lane.went_back_at, lane.too_far_at) = (None, None);
        }
    }
    snapshot
}

/// The effects without resolved alerts about heads. The ignored head may be a repetition, which the undisturbed machine
/// has not read.
fn without_ends(effects: &[matching::Effect]) -> Vec<matching::Effect> {
    let is_end = |effect: &&matching::Effect| match effect {
        matching::Effect::Alert(alert) => {
            let of_heads = matches!(alert.kind, AlertKind::HeadWentBack | AlertKind::HeadTooFar);
            of_heads && alert.state == AlertState::Resolved
        }
        _ => false,
    };
    effects.iter().filter(|effect| !is_end(effect)).cloned().collect()
}

/// Maximum lag of the tables in seconds.
const WEEK: i64 = 7 * 24 * 3600;

/// `true` for a request that is repeated until it has a reply, and for the reply to such a request.
fn may_ask_again(body: &OrderCommandBody) -> bool {
    use OrderCommandBody as Body;
    matches!(
        body,
        Body::Settle(_)
            | Body::Attach(..)
            | Body::DepositOpened { .. }
            | Body::DepositRefused { .. }
            | Body::DepositClosed { .. }
            | Body::CandidateGone { .. }
    )
}

/// Clears versions and version clocks of orders, and drops equal neighbours: a repeated choice publishes an additional
/// version of the order as its reply.
fn forget_versions(effects: &mut Vec<orders::Effect>) {
    for effect in effects.iter_mut() {
        if let orders::Effect::Order(order) = effect {
            order.version = 0;
            order.updated_at = UnixMicros(0);
        }
    }
    effects.dedup();
}
