//! A machine driven as by the processor's runner: steps that commit, are undone or are lost, and restores from a
//! changelog. Defects can be injected.

use std::collections::{BTreeMap, HashMap};

use processor::machine::matching::TransferStage;
use processor::machine::{Broken, Machine, matching, orders};
use schemas::record::{
    Block, ChainBody, ChainRecord, DepositCommand, DepositCommandBody, MatchingEntry, OrderCommand,
    OrderCommandBody, OrderDeposit, OrdersEntry,
};
use schemas::{
    DepositId, DepositState, FulfillmentId, Incarnation, OrderCause, OrderId, OrderStatus,
    TransferId, TransferStatus, UnixSeconds, UnknownReason,
};
use uuid::Uuid;

use super::chain::{CONTRACT, OTHER_CONTRACT, account, cents};
use super::violation::{Violation, same};

/// Injected defect of a machine, to test that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// No defect.
    None,
    /// Matching gets neither retracts nor lower heads, the two signs of a reorganisation.
    SwallowReorgs,
    /// Matching gets a head with one more confirmed block.
    ConfirmEarly,
    /// Matching gets heads without their list of held transfers.
    ForgetHolds,
    /// Matching ignores gaps of a chain.
    IgnoreGaps,
    /// Matching treats a forgotten transfer that was retracted as a known one.
    NameTakenBack,
    /// Matching uses the last head's time as the newest.
    ForgetNewest,
    /// Matching gets every transfer as confirmed by its own record.
    ConfirmAtSight,
    /// Matching gets a later chain time.
    ExpireEarly,
    /// Matching gets the head's time as the confirmed time.
    ExpireByTip,
    /// Matching gets the watch of another wallet.
    WatchAnother,
    /// Matching opens deposits, however old the head is.
    BelieveOldHeads,
    /// Confirmed transfers never stop waiting for a deposit.
    WaitForEver,
    /// An aborted step is committed.
    ForgetUndo,
    /// The changelog lacks removals.
    KeepRemoved,
    /// A second payer of an order is accepted.
    SettleTwice,
    /// A transfer that an order refused is published as one that paid it.
    MatchTwice,
    /// A command to an order that has already ended publishes it as cancelled.
    CancelAlways,
    /// Deposits are published with the requested amount, reserved or not.
    AnnounceAsked,
    /// A lane does not publish its watches.
    HideWatched,
    /// A lane publishes no oldest unconfirmed transfer.
    HideUnconfirmed,
    /// An orphaned transfer is published as included.
    HideOrphans,
    /// Matching forgets closed deposits at once, and gives their amounts to others.
    ReuseAtOnce,
    /// A new deposit may get the amount of a waiting transfer.
    ClaimLoose,
    /// Deposits count as opened before the chain's first block.
    OpenEarlier,
    /// Deposits count as opened at a future block.
    OpenLater,
    /// Transfers count as first seen after all deposits opened.
    ForgetListed,
    /// An orphaned transfer is not published as such before it fails.
    HideGone,
    /// An order that is marked paid forgets its candidates.
    ForgetMarked,
    /// Matching ignores the sender that an order requires.
    IgnoreSender,
    /// Matching treats the merchant's own money as payments.
    IgnoreOwnWallet,
    /// Matching raises amounts beyond their limit.
    RaiseBeyondLimit,
    /// Matching loses the fifth input of a step.
    LoseInBatch,
    /// Matching forgets the order that has not replied about a failed transfer.
    ForgetAsked,
    /// An unknown transfer is published without its likely order.
    HideCandidate,
    /// Matching forgets orphans with a verdict after a day.
    ForgetOrphans,
    /// Matching forgets failed transfers after a day, although an order may count on them.
    ForgetCountedOn,
    /// Matching fails orphans that settle without waiting a day.
    FailAtOnce,
    /// Matching forgets that an order has accepted a transfer which had failed.
    ForgetLateAnswer,
    /// A lane reports waiting candidates as gone.
    DenyCandidates,
    /// The alert of an order paid by a failed transfer lacks the order.
    HideLateAnswer,
    /// A refusal that comes after the transfer has failed is ignored.
    IgnoreLateRefusal,
    /// Orders are forgotten as soon as they have ended.
    ForgetEarly,
    /// The row that a command carries replaces a newer state of the order.
    ReviveStale,
    /// Matching takes late payments for shops that do not accept them.
    AcceptLate,
    /// An order does not wait for a deposit that was replaced.
    ForgetReplaced,
    /// Matching accepts every contract of a coin.
    AnyContractPays,
    /// Matching ignores stops.
    ForgetStop,
    /// Matching ignores ends of stops.
    StopForEver,
    /// A lane does not publish its stops.
    HideStopped,
    /// Matching attaches a transfer to another order than the operator named.
    AttachElsewhere,
    /// Matching attaches the merchant's own money.
    AttachOwnMoney,
    /// A restored lane continues the ids of its backup.
    RestartIds,
}

/// A machine that can be given a defect: in its inputs, in its effects, or in its entries.
pub(super) trait Sabotaged: Machine + Clone {
    /// Returns the inputs that replace `input`, the `number`th of its step; none if it is lost.
    fn alter(&self, input: Self::Input, number: usize, sabotage: Sabotage) -> Vec<Self::Input>;

    /// Alters the effects of an input. `asked` maps each transfer to the deposit of its last settle.
    fn spoil(
        input: &Self::Input,
        effects: &mut [Self::Effect],
        sabotage: Sabotage,
        asked: &mut HashMap<TransferId, DepositId>,
    );

    /// Alters an entry. Returns `true` if it did.
    fn corrupt(entry: &mut Self::Entry, sabotage: Sabotage) -> bool;
}

/// Matching on one lane.
impl Sabotaged for matching::State {
    fn alter(
        &self,
        mut input: matching::Input,
        number: usize,
        sabotage: Sabotage,
    ) -> Vec<matching::Input> {
        if sabotage == Sabotage::LoseInBatch && number == 5 {
            return Vec::new();
        }
        let is_lost = match &mut input {
            matching::Input::Chain(record) => alter_record(self, record, sabotage),
            matching::Input::Command(command) => alter_command(self, command, sabotage),
        };
        if is_lost { Vec::new() } else { vec![input] }
    }

    fn corrupt(entry: &mut MatchingEntry, sabotage: Sabotage) -> bool {
        if let MatchingEntry::Lane(lane) = entry
            && sabotage == Sabotage::ForgetNewest
        {
            return lane.newest.take().is_some();
        }
        if let MatchingEntry::Deposit(kept) = entry {
            let opening = (kept.opened_above, kept.opened_at);
            match sabotage {
                Sabotage::OpenEarlier => (kept.opened_above, kept.opened_at) = (-1, -1),
                Sabotage::OpenLater => kept.opened_above = 1 << 40,
                _ => {}
            }
            return opening != (kept.opened_above, kept.opened_at);
        }
        let MatchingEntry::Transfer(kept) = entry else { return false };
        let before = kept.clone();
        let has_failed = kept.status == TransferStatus::FailedToConfirm;
        let has_left = kept.orphaned_at.is_some();
        match sabotage {
            Sabotage::ForgetAsked if has_failed => kept.candidate_order_id = None,
            Sabotage::ForgetLateAnswer if has_failed => kept.order_id = None,
            Sabotage::ForgetOrphans if !has_failed && has_left && kept.forget_at.is_some() => {
                kept.block_timestamp = UnixSeconds(0);
            }
            Sabotage::ForgetCountedOn if has_failed && kept.candidate_order_id.is_some() => {
                kept.block_timestamp = UnixSeconds(0);
            }
            Sabotage::NameTakenBack if kept.status == TransferStatus::NoMatchedDeposit => {
                kept.reason = kept.reason.or(Some(UnknownReason::Late));
            }
            Sabotage::AttachOwnMoney => kept.from_own_wallet = false,
            Sabotage::ClaimLoose if kept.deposit_id.is_none() => kept.from_own_wallet = true,
            Sabotage::ForgetListed => kept.listed_at = i64::MAX,
            Sabotage::HideGone => kept.orphan_due = false,
            Sabotage::FailAtOnce if kept.settling && has_left => {
                kept.block_timestamp = UnixSeconds(0);
            }
            _ => {}
        }
        before != *kept
    }

    fn spoil(
        input: &matching::Input,
        effects: &mut [matching::Effect],
        sabotage: Sabotage,
        asked: &mut HashMap<TransferId, DepositId>,
    ) {
        let command = match input {
            matching::Input::Command(command) => Some(&command.body),
            matching::Input::Chain(_) => None,
        };
        for effect in effects {
            match (effect, sabotage) {
                (matching::Effect::Command(answer), Sabotage::DenyCandidates) => {
                    if let OrderCommandBody::CandidateSeen { transfer_id } = answer.body
                        && command.is_some()
                    {
                        answer.body = OrderCommandBody::CandidateGone { transfer_id };
                    }
                }
                (matching::Effect::Command(command), _) => {
                    if let OrderCommandBody::Settle(settle) = &command.body {
                        asked.insert(settle.transfer_id, settle.deposit_id);
                    }
                }
                (matching::Effect::Transfer(stage, transfer), Sabotage::MatchTwice)
                    if transfer.reason == Some(UnknownReason::AlreadyPaid)
                        && asked.contains_key(&transfer.transfer_id) =>
                {
                    *stage = TransferStage::Matched;
                    transfer.status = TransferStatus::Matched;
                    transfer.order_id = transfer.candidate_order_id;
                    transfer.deposit_id = asked.get(&transfer.transfer_id).copied();
                    transfer.fulfillment_id = Some(FulfillmentId(transfer.transfer_id.0));
                }
                (matching::Effect::Transfer(_, transfer), Sabotage::HideCandidate) => {
                    transfer.candidate_order_id = None;
                }
                (matching::Effect::Transfer(_, transfer), Sabotage::HideOrphans) => {
                    transfer.orphaned_at = None;
                }
                (matching::Effect::Progress(progress), Sabotage::HideWatched) => {
                    progress.watched.clear();
                }
                (matching::Effect::Progress(progress), Sabotage::HideStopped) => {
                    progress.stopped.clear();
                }
                (matching::Effect::Progress(progress), Sabotage::HideUnconfirmed) => {
                    progress.oldest_unconfirmed = None;
                }
                (matching::Effect::Alert(alert), Sabotage::HideLateAnswer) => {
                    alert.order_id = alert.order_id.filter(|_| command.is_none());
                }
                (matching::Effect::Deposit(deposit), _) => match (command, sabotage) {
                    (Some(DepositCommandBody::Open(open)), Sabotage::AnyContractPays) => {
                        deposit.contracts.clone_from(&open.contracts);
                    }
                    (Some(DepositCommandBody::Open(open)), Sabotage::AnnounceAsked) => {
                        deposit.value = open.value;
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

/// Alters a record of the chain. Returns `true` if it is lost.
fn alter_record(lane: &matching::State, record: &mut ChainRecord, sabotage: Sabotage) -> bool {
    match (&mut record.body, sabotage) {
        (ChainBody::Retract(_), Sabotage::SwallowReorgs) => return true,
        (ChainBody::Head(_), Sabotage::SwallowReorgs) => return goes_back(lane, record.block),
        (ChainBody::Head(head), Sabotage::ConfirmEarly) => {
            head.confirmed.iter_mut().for_each(|tier| tier.number += 1);
        }
        (ChainBody::Head(head), Sabotage::ForgetHolds) => head.held.clear(),
        (ChainBody::Head(head), Sabotage::IgnoreGaps) => head.has_gap = false,
        (ChainBody::Transfer(_), Sabotage::ConfirmAtSight) => record.confirmed = true,
        (ChainBody::Head(head), Sabotage::ExpireEarly) => {
            record.block.timestamp = record.block.timestamp.plus(2_000);
            let later = |time: UnixSeconds| time.plus(2_000);
            head.confirmed.iter_mut().for_each(|t| t.timestamp = t.timestamp.map(later));
        }
        (ChainBody::Head(head), Sabotage::ExpireByTip) => {
            let tip = Some(record.block.timestamp);
            head.confirmed.iter_mut().for_each(|tier| tier.timestamp = tip);
        }
        (ChainBody::Head(head), Sabotage::WaitForEver) => {
            head.match_window_seconds = i64::from(u32::MAX);
        }
        (ChainBody::Transfer(seen), Sabotage::IgnoreOwnWallet) => seen.from_own_wallet = false,
        (ChainBody::Watch(watch), Sabotage::WatchAnother) => watch.wallet_address = account(0x12),
        _ => {}
    }
    false
}

/// Alters a command to a lane. Returns `true` if it is lost.
fn alter_command(lane: &matching::State, command: &mut DepositCommand, sabotage: Sabotage) -> bool {
    match (&mut command.body, sabotage) {
        (DepositCommandBody::Open(open), Sabotage::ReuseAtOnce) => open.late_window_seconds = 0,
        (DepositCommandBody::Open(open), Sabotage::IgnoreSender) => open.user_address = None,
        (DepositCommandBody::Open(open), Sabotage::RaiseBeyondLimit) => {
            open.amounts.limit = cents(100);
        }
        (DepositCommandBody::Open(open), Sabotage::BelieveOldHeads) => {
            open.head_age_max_seconds = u32::MAX;
        }
        (DepositCommandBody::Open(open), Sabotage::AcceptLate) => open.accepts_late = true,
        (DepositCommandBody::Open(open), Sabotage::AnyContractPays) => {
            open.contracts = vec![CONTRACT, OTHER_CONTRACT];
        }
        (DepositCommandBody::Attach(_), Sabotage::AttachElsewhere) => {
            command.order_id = OrderId(Uuid::from_u128(command.order_id.0.as_u128() ^ 3));
        }
        (DepositCommandBody::Stop(_), Sabotage::ForgetStop)
        | (DepositCommandBody::Resume(_), Sabotage::StopForEver) => return true,
        (DepositCommandBody::Refused { transfer_id, .. }, Sabotage::IgnoreLateRefusal) => {
            return is_answered(lane, *transfer_id);
        }
        _ => {}
    }
    false
}

/// Orders in one partition.
impl Sabotaged for orders::State {
    fn alter(
        &self,
        command: OrderCommand,
        _number: usize,
        sabotage: Sabotage,
    ) -> Vec<OrderCommand> {
        use OrderCommandBody as Body;
        let carries =
            matches!(command.body, Body::MarkPaid(Some(_)) | Body::ResendWebhook(Some(_)));
        let forgets = match sabotage {
            Sabotage::ForgetEarly => true,
            Sabotage::ReviveStale => carries,
            _ => false,
        };
        // No order has this id, so the tick only forgets ended orders.
        let tick = OrderCommand {
            order_id: OrderId(Uuid::nil()),
            command_id: None,
            issued_at: UnixSeconds(i64::from(u32::MAX)).micros(),
            body: Body::Tick,
        };
        forgets.then_some(tick).into_iter().chain([command]).collect()
    }

    fn corrupt(entry: &mut OrdersEntry, sabotage: Sabotage) -> bool {
        let order = &mut entry.order;
        let is_marked = order.status == OrderStatus::Paid && order.paid_by.is_none();
        if sabotage == Sabotage::ForgetMarked && is_marked && !order.candidates.is_empty() {
            order.candidates.clear();
            return true;
        }
        let is_replaced = |of: &&mut OrderDeposit| of.state == DepositState::Replaced;
        let deposits = order.deposits.iter_mut();
        let replaced = deposits.filter(|_| sabotage == Sabotage::ForgetReplaced);
        replaced.filter(is_replaced).map(|of| of.state = DepositState::Closed).count() > 0
    }

    fn spoil(
        _command: &OrderCommand,
        effects: &mut [orders::Effect],
        sabotage: Sabotage,
        _asked: &mut HashMap<TransferId, DepositId>,
    ) {
        for effect in effects {
            match (effect, sabotage) {
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
    }
}

/// `true` if the block is below the lane's head.
fn goes_back(machine: &matching::State, block: Block) -> bool {
    machine.snapshot().iter().any(|(_, entry)| {
        matches!(entry, MatchingEntry::Lane(lane) if lane.head.is_some_and(|head| head.number > block.number))
    })
}

/// `true` if the transfer's settle is no longer in flight.
fn is_answered(machine: &matching::State, id: TransferId) -> bool {
    machine.snapshot().iter().any(|(_, entry)| {
        matches!(entry, MatchingEntry::Transfer(kept) if kept.transfer_id == id && !kept.settling)
    })
}

/// Outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Commit,
    /// The log refuses it; it is undone and retried.
    Abort,
    /// The process dies; another restores the state and retries.
    Crash,
}

/// A change for the changelog.
type Change<M> = (String, Option<<M as Machine>::Entry>);

/// A machine with its changelog.
#[derive(Clone)]
pub(super) struct Driver<M: Sabotaged> {
    pub(super) machine: M,
    /// The machine before its first input.
    fresh: M,
    sabotage: Sabotage,
    asked: HashMap<TransferId, DepositId>,
    /// The changelog since the last crash.
    changelog: Vec<Change<M>>,
    /// The machine restored from the whole changelog up to that crash.
    restored: M,
    /// The changelog up to that crash, as compaction leaves it.
    compacted: BTreeMap<String, Option<M::Entry>>,
}

impl Driver<matching::State> {
    /// Continues a lane from a backup.
    pub(super) fn begin_anew(&mut self, incarnation: Incarnation) {
        if self.sabotage == Sabotage::RestartIds {
            return;
        }
        let lane = self.machine.snapshot().into_iter().find_map(|(_, entry)| match entry {
            MatchingEntry::Lane(lane) => Some(lane),
            _ => None,
        });
        let (key, entry) = matching::lane_anew(lane, incarnation);
        self.amend(key, entry);
    }
}

impl<M: Sabotaged> Driver<M> {
    pub(super) fn new(fresh: M, sabotage: Sabotage) -> Self {
        Self {
            machine: fresh.clone(),
            restored: fresh.clone(),
            fresh,
            sabotage,
            asked: HashMap::new(),
            changelog: Vec::new(),
            compacted: BTreeMap::new(),
        }
    }

    /// Returns a driver without inputs, with the same defect.
    pub(super) fn undisturbed(&self) -> Self {
        Self::new(self.fresh.clone(), self.sabotage)
    }

    /// Takes an entry of the changelog that no step made.
    fn amend(&mut self, key: String, entry: M::Entry) {
        self.machine.restore(&key, Some(&entry)).expect("an entry of the machine");
        self.changelog.push((key, Some(entry)));
    }

    /// Runs one step, and returns the effects of each input.
    pub(super) fn step(
        &mut self,
        inputs: &[M::Input],
        fate: Fate,
    ) -> Result<Vec<Vec<M::Effect>>, Violation> {
        let mut lost = None;
        if fate != Fate::Commit {
            let before = self.machine.snapshot();
            lost = Some(self.decide(inputs)?);
            match fate {
                Fate::Crash => self.machine = self.rebuilt(&before)?,
                Fate::Abort | Fate::Commit if self.sabotage == Sabotage::ForgetUndo => {
                    self.machine.commit();
                }
                Fate::Abort | Fate::Commit => self.machine.undo()?,
            }
            same(
                6,
                format_args!("the state after a lost step"),
                &before,
                &self.machine.snapshot(),
            )?;
        }
        let effects = self.decide(inputs)?;
        if let Some(lost) = lost {
            same(5, format_args!("the effects of a step done again"), &lost, &effects)?;
        }
        self.keep();
        Ok(effects)
    }

    /// Commits; a defect may alter the entries.
    fn keep(&mut self) {
        let mut changes = self.changes();
        self.machine.commit();
        for (key, entry) in &mut changes {
            if let Some(entry) = entry
                && self.sabotage != Sabotage::None
                && M::corrupt(entry, self.sabotage)
            {
                self.machine.restore(key, Some(entry)).expect("an entry of the machine");
            }
        }
        self.changelog.extend(changes);
    }

    /// Runs a step of one input that commits.
    pub(super) fn take(&mut self, input: &M::Input) -> Result<Vec<M::Effect>, Broken> {
        let effects = self.decide_one(input, 1)?;
        self.keep();
        Ok(effects)
    }

    fn decide(&mut self, inputs: &[M::Input]) -> Result<Vec<Vec<M::Effect>>, Broken> {
        inputs.iter().zip(1..).map(|(input, number)| self.decide_one(input, number)).collect()
    }

    fn decide_one(&mut self, input: &M::Input, number: usize) -> Result<Vec<M::Effect>, Broken> {
        let mut effects = Vec::new();
        for altered in self.machine.alter(input.clone(), number, self.sabotage) {
            self.machine.decide(&altered, &mut effects)?;
        }
        M::spoil(input, &mut effects, self.sabotage, &mut self.asked);
        Ok(effects)
    }

    fn changes(&self) -> Vec<Change<M>> {
        let mut changes = self.machine.changes();
        if self.sabotage == Sabotage::KeepRemoved {
            changes.retain(|(_, entry)| entry.is_some());
        }
        changes
    }

    /// Restores the machine from the compacted entries, in another order. First checks that the whole changelog
    /// restores the state before the step.
    fn rebuilt(&mut self, before: &[(String, M::Entry)]) -> Result<M, Violation> {
        for (key, entry) in self.changelog.drain(..) {
            restore(&mut self.restored, &key, entry.as_ref())?;
            self.compacted.insert(key, entry);
        }
        let whole = self.restored.snapshot();
        same(6, format_args!("the state of the whole changelog"), before, &whole)?;
        let mut machine = self.fresh.clone();
        for (key, entry) in self.compacted.iter().rev() {
            restore(&mut machine, key, entry.as_ref())?;
        }
        Ok(machine)
    }
}

fn restore<M: Machine>(
    machine: &mut M,
    key: &str,
    entry: Option<&M::Entry>,
) -> Result<(), Violation> {
    let restored = machine.restore(key, entry);
    restored.map_err(|error| Violation { invariant: 6, text: error.to_string() })
}
