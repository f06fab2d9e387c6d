//! One machine as the processor's runner drives it: steps that are committed, undone or lost, and a
//! changelog to restore from. And defects to put into it from outside.

use std::collections::BTreeMap;
use std::fmt::Debug;

use processor::machine::{matching, orders};
use schemas::record::{ChainBody, DepositCommandBody, MatchingEntry, OrderCommand, OrdersEntry};
use schemas::{Blockchain, OrderCause, OrderStatus, Partition, UnknownReason};

use super::check::Violation;

/// A machine whose steps can be undone and whose state can be rebuilt.
pub(super) trait Machine: Sized {
    type Input: Clone + Debug;
    type Effect: Clone + PartialEq + Debug;
    type Entry: Clone + PartialEq + Debug;

    fn fresh(sabotage: Sabotage) -> Self;
    fn decide(&mut self, input: &Self::Input) -> Vec<Self::Effect>;
    fn changes(&self) -> Vec<(String, Option<Self::Entry>)>;
    fn commit(&mut self);
    fn undo(&mut self);
    fn restore(&mut self, key: &str, entry: Option<&Self::Entry>);
    fn snapshot(&self) -> Vec<(String, Self::Entry)>;
}

/// A defect put into a machine from outside, to see that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The machines as they are.
    None,
    /// Matching never hears of a retract.
    SwallowRetracts,
    /// Matching hears of one more confirmed block.
    ConfirmEarly,
    /// Matching believes the chain's time to be later.
    ExpireEarly,
    /// Confirmed transfers never stop waiting for a deposit.
    WaitForEver,
    /// An aborted step of matching stays.
    ForgetUndo,
    /// Matching is rebuilt without what was removed being removed.
    KeepRemoved,
    /// A second payer of an order is told that it paid.
    SettleTwice,
    /// A cancel ends orders that had ended.
    CancelAlways,
    /// Deposits are announced with the amount that was asked for, reserved or not.
    AnnounceAsked,
    /// The fifth input of a step of matching is lost.
    LoseInBatch,
}

/// Matching on the one lane.
pub(super) struct Lane {
    pub(super) state: matching::State,
    sabotage: Sabotage,
    in_step: usize,
}

impl Lane {
    fn altered(&self, input: &matching::Input) -> Option<matching::Input> {
        let mut input = input.clone();
        if let matching::Input::Chain(record) = &mut input {
            match (&mut record.body, self.sabotage) {
                (ChainBody::Retract(_), Sabotage::SwallowRetracts) => return None,
                (ChainBody::Head(head), Sabotage::ConfirmEarly) => {
                    head.confirmed.iter_mut().for_each(|tier| tier.number += 1);
                }
                (ChainBody::Head(_), Sabotage::ExpireEarly) => {
                    record.block.timestamp = record.block.timestamp.plus(2_000);
                }
                (ChainBody::Head(head), Sabotage::WaitForEver) => {
                    head.match_window_seconds = i64::from(u32::MAX);
                }
                _ => {}
            }
        }
        let lost = self.sabotage == Sabotage::LoseInBatch && self.in_step == 5;
        (!lost).then_some(input)
    }
}

impl Machine for Lane {
    type Input = matching::Input;
    type Effect = matching::Effect;
    type Entry = MatchingEntry;

    fn fresh(sabotage: Sabotage) -> Self {
        let state = matching::State::new(Blockchain::Eth, Partition(0));
        Self { state, sabotage, in_step: 0 }
    }

    fn decide(&mut self, input: &matching::Input) -> Vec<matching::Effect> {
        let mut effects = Vec::new();
        self.in_step += 1;
        if let Some(input) = self.altered(input) {
            self.state.decide(&input, &mut effects);
        }
        if self.sabotage == Sabotage::AnnounceAsked
            && let matching::Input::Command(command) = input
            && let DepositCommandBody::Open(open) = &command.body
        {
            for effect in &mut effects {
                if let matching::Effect::Deposit(deposit) = effect {
                    deposit.value = open.value;
                }
            }
        }
        effects
    }

    fn changes(&self) -> Vec<(String, Option<MatchingEntry>)> {
        let mut changes = self.state.changes();
        if self.sabotage == Sabotage::KeepRemoved {
            changes.retain(|(_, entry)| entry.is_some());
        }
        changes
    }

    fn commit(&mut self) {
        self.in_step = 0;
        self.state.commit();
    }

    fn undo(&mut self) {
        self.in_step = 0;
        match self.sabotage {
            Sabotage::ForgetUndo => self.state.commit(),
            _ => self.state.undo(),
        }
    }

    fn restore(&mut self, key: &str, entry: Option<&MatchingEntry>) {
        self.state.restore(key, entry).unwrap();
    }

    fn snapshot(&self) -> Vec<(String, MatchingEntry)> {
        self.state.snapshot()
    }
}

/// The one partition of orders.
pub(super) struct Orders {
    pub(super) state: orders::State,
    sabotage: Sabotage,
}

impl Machine for Orders {
    type Input = OrderCommand;
    type Effect = orders::Effect;
    type Entry = OrdersEntry;

    fn fresh(sabotage: Sabotage) -> Self {
        Self { state: orders::State::new(), sabotage }
    }

    fn decide(&mut self, command: &OrderCommand) -> Vec<orders::Effect> {
        let mut effects = Vec::new();
        self.state.decide(command, &mut effects);
        for effect in &mut effects {
            match (effect, self.sabotage) {
                (orders::Effect::Command(command), Sabotage::SettleTwice) => {
                    if let DepositCommandBody::Refused { transfer_id, reason } = command.body
                        && reason == UnknownReason::AlreadyPaid
                    {
                        command.body = DepositCommandBody::Settled { transfer_id };
                    }
                }
                (orders::Effect::Order(order), Sabotage::CancelAlways)
                    if order.cause == OrderCause::NotPending =>
                {
                    order.status = OrderStatus::Cancelled;
                }
                _ => {}
            }
        }
        effects
    }

    fn changes(&self) -> Vec<(String, Option<OrdersEntry>)> {
        self.state.changes()
    }

    fn commit(&mut self) {
        self.state.commit();
    }

    fn undo(&mut self) {
        self.state.undo();
    }

    fn restore(&mut self, key: &str, entry: Option<&OrdersEntry>) {
        self.state.restore(key, entry).unwrap();
    }

    fn snapshot(&self) -> Vec<(String, OrdersEntry)> {
        self.state.snapshot()
    }
}

/// What becomes of a step before it is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Commit,
    /// The log refuses it; it is undone and done again.
    Abort,
    /// The process dies; another restores the changelog and does it.
    Crash,
}

/// A machine with its changelog.
pub(super) struct Station<M: Machine> {
    pub(super) machine: M,
    pub(super) sabotage: Sabotage,
    changelog: Vec<(String, Option<M::Entry>)>,
    compacted: BTreeMap<String, Option<M::Entry>>,
}

impl<M: Machine> Station<M> {
    pub(super) fn new(sabotage: Sabotage) -> Self {
        let machine = M::fresh(sabotage);
        Self { machine, sabotage, changelog: Vec::new(), compacted: BTreeMap::new() }
    }

    /// One step: the effects of each input.
    pub(super) fn step(
        &mut self,
        inputs: &[M::Input],
        fate: Fate,
    ) -> Result<Vec<Vec<M::Effect>>, Violation> {
        let mut lost = None;
        if fate != Fate::Commit {
            let before = self.machine.snapshot();
            lost = Some(self.decide(inputs));
            match fate {
                Fate::Abort => self.machine.undo(),
                _ => self.machine = self.rebuilt(&before)?,
            }
            same(6, "the state after a lost step", &before, &self.machine.snapshot())?;
        }
        let effects = self.decide(inputs);
        if let Some(lost) = lost {
            same(5, "the effects of a step done again", &lost, &effects)?;
        }
        for (key, entry) in self.machine.changes() {
            self.changelog.push((key.clone(), entry.clone()));
            self.compacted.insert(key, entry);
        }
        self.machine.commit();
        Ok(effects)
    }

    fn decide(&mut self, inputs: &[M::Input]) -> Vec<Vec<M::Effect>> {
        inputs.iter().map(|input| self.machine.decide(input)).collect()
    }

    /// The machine as two other processes restore it: from the whole changelog, and from what
    /// compaction leaves of it, in another order.
    fn rebuilt(&self, before: &[(String, M::Entry)]) -> Result<M, Violation> {
        let mut whole = M::fresh(self.sabotage);
        self.changelog.iter().for_each(|(key, entry)| whole.restore(key, entry.as_ref()));
        same(6, "the state of the whole changelog", before, &whole.snapshot())?;
        let mut machine = M::fresh(self.sabotage);
        let newest = self.compacted.iter().rev();
        newest.for_each(|(key, entry)| machine.restore(key, entry.as_ref()));
        Ok(machine)
    }
}

pub(super) fn same<T: PartialEq + Debug + ?Sized>(
    invariant: u8,
    what: &str,
    left: &T,
    right: &T,
) -> Result<(), Violation> {
    if left == right {
        return Ok(());
    }
    Err(Violation { invariant, text: format!("{what} differs:\n{left:?}\n{right:?}") })
}
