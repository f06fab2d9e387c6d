//! Matching of transfers with deposits, on one lane.
//!
//! Deposits wait for transfers; a confirmed transfer that fits none keeps its amount from new ones, then ends unknown.
//! No two deposits that are open or in their late window reserve one amount of a coin at a wallet, but for two senders.
//! Transfers are confirmed by heads, then settle with the order they fit; the order alone decides.
//!
//! **Invariants** (`docs/internals/invariants.md`): 1 every confirmed transfer ends matched or unknown; 3 nothing is
//! confirmed above the height that the policy allows, after a retract or while a head holds it; 8 a deposit expires
//! only when the chain's own time has passed its deadline; 10 reservations are unique; 14 a transfer of another
//! contract, or covered by a stop, pays nothing.

mod amounts;
mod attach;
mod chain;
mod command;
mod deposits;
mod entry;
mod expiry;
mod heads;
mod relaid;
mod stop;
mod transfers;
mod verdict;
mod watches;

use std::collections::BTreeMap;

use schemas::record::{
    Alert, ChainBody, ChainProgress, ChainRecord, Deposit, DepositCommand, DepositCommandBody,
    LaneEntry, MatchingEntry, OrderCommand, OrderCommandBody, Transfer,
};
use schemas::{
    Blockchain, CommandId, FORGET_SECONDS, OrderId, Partition, Stablecoin, TransferStatus,
    UnixMicros,
};

use super::{Broken, FORGOTTEN, Machine, RestoreError};
pub use amounts::Share;
use deposits::{DepositRow, Deposits};
use entry::Key;
pub use entry::LANE_KEY;
use heads::fresh_lane;
pub use relaid::{lane_anew, lane_of, wallet_of};
use transfers::{TransferRow, Transfers};
use watches::Watches;

/// Retention, counted from its block, of an orphaned transfer with a verdict, and of any transfer that an order may
/// count on without having replied: the transaction may be mined again, and must not pay twice.
pub const FORGET_ORPHANED_SECONDS: i64 = 30 * FORGET_SECONDS;

/// Chain time after which an unanswered request to an order is repeated. Replies take seconds.
pub const ASK_AGAIN_SECONDS: i64 = 600;

/// Minimum retention of an attached transfer, in chain time: tables may be a week behind and show
/// it as unmatched.
const ATTACHED_KEPT_SECONDS: i64 = 8 * FORGET_SECONDS;

/// Inputs of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// From `transfers.raw`.
    Chain(ChainRecord),
    /// From `deposits.commands`.
    Command(DepositCommand),
}

impl Input {
    /// Chain of the lane that reads it.
    #[must_use]
    pub fn blockchain(&self) -> Blockchain {
        match self {
            Self::Chain(record) => record.blockchain,
            Self::Command(command) => command.blockchain,
        }
    }

    fn time(&self) -> UnixMicros {
        match self {
            Self::Chain(record) => record.observed_at,
            Self::Command(command) => command.issued_at,
        }
    }
}

/// Stage at which a transfer's new state is published: the topic `transfers.*` of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransferStage {
    Detected,
    Confirmed,
    Matched,
    Unknown,
    Failed,
}

impl TransferStage {
    /// `true` if a transfer of status `before` may be published here as `after`. Matched and
    /// unknown are final, also when the transfer moves to another block. One exception: an unknown
    /// transfer is matched if an operator attaches it to an order, or if a late reply of an order
    /// accepts it.
    fn admits(self, before: Option<TransferStatus>, after: TransferStatus) -> bool {
        use TransferStatus as Status;
        match self {
            Self::Detected => match before {
                None | Some(Status::WaitingForConfirmation | Status::FailedToConfirm) => {
                    after == Status::WaitingForConfirmation
                }
                Some(Status::WaitingForMatch) => {
                    matches!(after, Status::WaitingForMatch | Status::WaitingForConfirmation)
                }
                Some(end @ (Status::Matched | Status::NoMatchedDeposit)) => after == end,
            },
            Self::Confirmed => {
                matches!(before, None | Some(Status::WaitingForConfirmation))
                    && after == Status::WaitingForMatch
            }
            Self::Matched => {
                matches!(before, Some(Status::WaitingForMatch | Status::NoMatchedDeposit))
                    && after == Status::Matched
            }
            Self::Unknown => {
                (before, after) == (Some(Status::WaitingForMatch), Status::NoMatchedDeposit)
            }
            Self::Failed => {
                // A confirmed one may be orphaned while it settles.
                matches!(before, Some(Status::WaitingForConfirmation | Status::WaitingForMatch))
                    && after == Status::FailedToConfirm
            }
        }
    }
}

/// Effects that the machine publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Transfer(TransferStage, Transfer),
    Deposit(Deposit),
    /// To the order.
    Command(OrderCommand),
    /// A person has to act, or no longer has to.
    Alert(Alert),
    /// Progress of the lane.
    Progress(ChainProgress),
}

/// State of the machine for one lane.
#[derive(Debug, Clone)]
pub struct State {
    blockchain: Blockchain,
    partition: Partition,
    lane: LaneEntry,
    lane_before: Option<LaneEntry>,
    deposits: Deposits,
    transfers: Transfers,
    watches: Watches,
    /// Metric: no decision depends on it.
    shares: BTreeMap<Stablecoin, Share>,
    /// Time of the input under way, and its effects so far.
    now: UnixMicros,
    effects: Vec<Effect>,
}

impl State {
    /// Creates an empty lane.
    #[must_use]
    pub fn new(blockchain: Blockchain, partition: Partition) -> Self {
        Self {
            blockchain,
            partition,
            lane: fresh_lane(),
            lane_before: None,
            deposits: Deposits::default(),
            transfers: Transfers::default(),
            watches: Watches::default(),
            shares: BTreeMap::new(),
            now: UnixMicros(0),
            effects: Vec::new(),
        }
    }

    /// The chain of the lane.
    #[must_use]
    pub fn blockchain(&self) -> Blockchain {
        self.blockchain
    }

    /// Number of deposits in memory: open, replaced, or in their late window.
    #[must_use]
    pub fn deposit_count(&self) -> usize {
        self.deposits.len()
    }

    /// Transfers kept in memory.
    #[must_use]
    pub fn transfer_count(&self) -> usize {
        self.transfers.len()
    }

    fn lane_entry(&self) -> MatchingEntry {
        MatchingEntry::Lane(self.lane.clone())
    }

    /// Partition number in new ids: the lane's own, unless the number of lanes was changed.
    fn id_partition(&self) -> Partition {
        let other = self.lane.id_partition.and_then(|number| u32::try_from(number).ok());
        other.map_or(self.partition, Partition)
    }

    fn next_sequence(&mut self) -> u64 {
        let lane = self.lane_mut();
        lane.sequence = lane.sequence.saturating_add(1);
        lane.sequence.cast_unsigned()
    }

    fn command_order(&mut self, order_id: OrderId, body: OrderCommandBody) {
        self.command_order_by((order_id, None), self.now, body);
    }

    /// Commands an order. `command_id` is that of the api command that waits for the order's reply, if any.
    fn command_order_by(
        &mut self,
        (order_id, command_id): (OrderId, Option<CommandId>),
        issued_at: UnixMicros,
        body: OrderCommandBody,
    ) {
        self.effects.push(Effect::Command(OrderCommand { order_id, command_id, issued_at, body }));
    }

    /// Stores a transfer's new state and publishes it.
    fn publish(&mut self, stage: TransferStage, row: TransferRow) -> Result<(), Broken> {
        let (id, status) = (row.id, row.status);
        let before = self.transfers.get(id).map(|row| row.status);
        let admitted = stage.admits(before, status);
        invariant!(1, admitted, "transfer {id} became {status} as {stage:?}, it was {before:?}");
        self.effects.push(Effect::Transfer(stage, row.record(self.blockchain)));
        self.transfers.put(row)
    }

    /// Stores a deposit's new state and publishes it.
    fn publish_deposit(&mut self, row: DepositRow) -> Result<(), Broken> {
        let record = row.record(self.blockchain, self.deposits.contracts(&row));
        self.effects.push(Effect::Deposit(record));
        self.deposits.put(row)
    }

    /// Applies an input, and appends its effects to [`State::effects`].
    fn take(&mut self, input: &Input) -> Result<(), Broken> {
        self.now = input.time();
        match input {
            Input::Chain(record) if record.blockchain != self.blockchain => Ok(()),
            Input::Chain(record) => match &record.body {
                ChainBody::Transfer(seen) => self.observe(record, seen),
                ChainBody::Retract(seen) => self.retract(record, seen),
                ChainBody::Head(head) => self.advance(record, head),
                ChainBody::Watch(watch) => {
                    if self.watches.add(watch) {
                        self.lane_mut().progress_due = true;
                    }
                    Ok(())
                }
            },
            Input::Command(command) => match &command.body {
                DepositCommandBody::Open(open) => self.open(command, open),
                DepositCommandBody::Close { reason } => self.close(command, *reason),
                DepositCommandBody::Candidate { transfer_id } => {
                    self.candidate(command, *transfer_id)
                }
                DepositCommandBody::Settled { transfer_id } => self.settled(command, *transfer_id),
                DepositCommandBody::Refused { transfer_id, reason } => {
                    self.refused(command, *transfer_id, *reason)
                }
                DepositCommandBody::Attach(attach) => self.attach(command, attach),
                DepositCommandBody::Attached { transfer_id } => {
                    self.attached(command, *transfer_id)
                }
                DepositCommandBody::AttachRefused { transfer_id } => {
                    self.attach_refused(command, *transfer_id)
                }
                DepositCommandBody::Stop(scope) => self.stop(*scope, true),
                DepositCommandBody::Resume(scope) => self.stop(*scope, false),
            },
        }
    }
}

impl Machine for State {
    type Input = Input;
    type Effect = Effect;
    type Entry = MatchingEntry;

    fn decide(&mut self, input: &Input, effects: &mut Vec<Effect>) -> Result<(), Broken> {
        std::mem::swap(&mut self.effects, effects);
        let taken = self.take(input);
        std::mem::swap(&mut self.effects, effects);
        taken
    }

    fn changes(&self) -> Vec<(String, Option<MatchingEntry>)> {
        let lane = self.lane_before.iter().map(|_| (Key::Lane, Some(self.lane_entry())));
        let entry = |row: DepositRow| row.entry(self.deposits.contracts(&row));
        let deposits = self.deposits.touched();
        let deposits = deposits.map(|(id, row)| (Key::Deposit(id), row.map(entry)));
        let transfers = self.transfers.touched();
        let transfers = transfers.map(|(id, row)| (Key::Transfer(id), row.map(|row| row.entry())));
        let watches = self.watches.touched();
        let watches =
            watches.map(|w| (Key::Watch(w.wallet_address), Some(MatchingEntry::Watch(w))));
        let all = lane.chain(deposits).chain(transfers).chain(watches);
        all.map(|(key, entry)| (key.to_string(), entry)).collect()
    }

    fn commit(&mut self) {
        self.lane_before = None;
        self.deposits.commit();
        self.transfers.commit();
        self.watches.commit();
    }

    fn undo(&mut self) -> Result<(), Broken> {
        if let Some(lane) = self.lane_before.take() {
            self.lane = lane;
        }
        self.watches.undo();
        self.deposits.undo()?;
        self.transfers.undo()
    }

    fn restore(&mut self, key: &str, entry: Option<&MatchingEntry>) -> Result<(), RestoreError> {
        let unknown = || RestoreError::Key(key.to_owned());
        let named = Key::parse(key).ok_or_else(unknown)?;
        if entry.is_some_and(|entry| Key::of(entry) != named) {
            return Err(unknown());
        }
        match (named, entry) {
            (Key::Deposit(id), None) => self.deposits.remove(id)?,
            (Key::Transfer(id), None) => self.transfers.remove(id)?,
            (Key::Lane | Key::Watch(_), None) => return Err(unknown()),
            (_, Some(MatchingEntry::Lane(lane))) if lane.sequence < 0 => return Err(unknown()),
            (_, Some(MatchingEntry::Lane(lane))) => self.lane = lane.clone(),
            (_, Some(MatchingEntry::Deposit(entry))) => {
                let contracts = self.deposits.contracts_number(&entry.contracts)?;
                let row = DepositRow::of(entry, contracts).ok_or_else(unknown)?;
                self.deposits.put(row)?;
            }
            (_, Some(MatchingEntry::Transfer(entry))) => {
                self.transfers.put(TransferRow::of(entry))?;
            }
            (_, Some(MatchingEntry::Watch(watch))) => {
                self.watches.add(watch);
            }
        }
        self.commit();
        Ok(())
    }

    fn snapshot(&self) -> Vec<(String, MatchingEntry)> {
        let entry = |row: DepositRow| row.entry(self.deposits.contracts(&row));
        let deposits = self.deposits.sorted().into_iter().map(entry);
        let transfers = self.transfers.sorted().into_iter().map(TransferRow::entry);
        let watches = self.watches.all().map(MatchingEntry::Watch);
        let rows = deposits.chain(transfers).chain(watches);
        let all = std::iter::once(self.lane_entry()).chain(rows);
        all.map(|entry| (Key::of(&entry).to_string(), entry)).collect()
    }

    fn shares(&self) -> Vec<(Blockchain, Stablecoin, Share)> {
        let share = |(stablecoin, share): (&_, &_)| (self.blockchain, *stablecoin, *share);
        self.shares.iter().map(share).collect()
    }

    fn rows(&self) -> usize {
        self.deposits.len().saturating_add(self.transfers.len())
    }

    fn stops(&self) -> Option<(Blockchain, usize)> {
        Some((self.blockchain, self.lane.stopped.len()))
    }
}
