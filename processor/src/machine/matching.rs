//! Matching: which transfer fits which deposit, on one lane.
//!
//! A symmetric join: whichever side comes first waits for the other. Deposits hold a reservation of
//! (wallet, stablecoin, amount) that is unique among open ones and those in their late window. Transfers go
//! from seen to confirmed by heads, then ask the order they fit; the order alone decides.
//!
//! **Invariants** (`design` 11): 1 every confirmed transfer ends matched or unknown; 3 nothing is
//! confirmed above the policy or after a retract; 8 a deposit expires only when the chain's own time has
//! passed its deadline; 10 reservations are unique.

mod chain;
mod command;
mod deposits;
mod transfers;
mod verdict;

use schemas::record::{
    Alert, Block, ChainBody, ChainRecord, Deposit, DepositCommand, DepositCommandBody,
    DepositEntry, LaneEntry, MatchingEntry, OrderCommand, OrderCommandBody, Transfer,
    TransferEntry,
};
use schemas::{
    Blockchain, DepositId, Epoch, OrderId, Partition, TransferId, UnixMicros, UnixSeconds,
};

use deposits::{DepositRow, Deposits};
use transfers::{TransferRow, Transfers};

/// How long, in chain time, a settled transfer is remembered: an observation of it that comes again is
/// a duplicate, one that comes later is too old to be acted upon without a person.
pub const FORGET_SECONDS: i64 = 24 * 3600;

/// What the machine takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// From `transfers.raw`.
    Chain(ChainRecord),
    /// From `deposits.commands`.
    Command(DepositCommand),
}

/// Where a transfer's new state is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransferStage {
    /// `transfers.detected`.
    Detected,
    /// `transfers.confirmed`.
    Confirmed,
    /// `transfers.matched`.
    Matched,
    /// `transfers.unknown`.
    Unknown,
    /// `transfers.failed`.
    Failed,
}

/// What the machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Publish a transfer.
    Transfer(TransferStage, Transfer),
    /// Publish a deposit.
    Deposit(Deposit),
    /// Tell the order.
    Command(OrderCommand),
    /// Call for a person.
    Alert(Alert),
}

/// The lane's own row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Lane {
    epoch: Epoch,
    head: Option<Block>,
    finalized: i64,
    match_window_seconds: i64,
    sequence: u64,
}

/// Everything the machine knows of one lane.
#[derive(Debug, Clone)]
pub struct State {
    blockchain: Blockchain,
    partition: Partition,
    lane: Lane,
    lane_before: Option<Lane>,
    deposits: Deposits,
    transfers: Transfers,
}

impl State {
    /// A lane that has seen nothing.
    #[must_use]
    pub fn new(blockchain: Blockchain, partition: Partition) -> Self {
        Self {
            blockchain,
            partition,
            lane: Lane { finalized: -1, ..Lane::default() },
            lane_before: None,
            deposits: Deposits::default(),
            transfers: Transfers::default(),
        }
    }

    /// Takes one input and adds what follows from it to `effects`.
    pub fn decide(&mut self, input: &Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Chain(record) if record.blockchain != self.blockchain => {}
            Input::Chain(record) => match &record.body {
                ChainBody::Transfer(seen) => self.observe(record, seen, effects),
                ChainBody::Retract(seen) => self.retract(record, seen, effects),
                ChainBody::Head(head) => self.advance(record, head, effects),
            },
            Input::Command(command) => match &command.body {
                DepositCommandBody::Open(open) => self.open(command, open, effects),
                DepositCommandBody::Close { reason } => self.close(command, *reason, effects),
                DepositCommandBody::Settled { transfer_id } => {
                    self.settled(command, *transfer_id, effects);
                }
                DepositCommandBody::Refused { transfer_id, reason } => {
                    self.refused(command, *transfer_id, *reason, effects);
                }
            },
        }
    }

    /// Open deposits and those in their late window.
    #[must_use]
    pub fn deposit_count(&self) -> usize {
        self.deposits.len()
    }

    /// Transfers that may still change or come again.
    #[must_use]
    pub fn transfer_count(&self) -> usize {
        self.transfers.len()
    }

    /// What the step changed, for the changelog: key, and the entry or none where it is gone.
    #[must_use]
    pub fn changes(&self) -> Vec<(String, Option<MatchingEntry>)> {
        let mut changes = Vec::new();
        if self.lane_before.is_some() {
            changes.push((LANE_KEY.to_owned(), Some(MatchingEntry::Lane(self.lane_entry()))));
        }
        for id in self.deposits.touched() {
            let entry = self.deposits.get(id).map(|row| self.deposit_entry(id, row));
            changes.push((format!("d/{id}"), entry.map(MatchingEntry::Deposit)));
        }
        for id in self.transfers.touched() {
            let entry = self.transfers.get(id).map(|row| self.transfer_entry(row));
            changes.push((format!("t/{id}"), entry.map(MatchingEntry::Transfer)));
        }
        changes
    }

    /// The step is committed.
    pub fn commit(&mut self) {
        self.lane_before = None;
        self.deposits.commit();
        self.transfers.commit();
    }

    /// The step did not happen: the state is as it was before it.
    pub fn undo(&mut self) {
        if let Some(lane) = self.lane_before.take() {
            self.lane = lane;
        }
        self.deposits.undo();
        self.transfers.undo();
    }

    /// Takes an entry of the changelog.
    ///
    /// # Errors
    /// The key, if there is no such kind of entry.
    pub fn restore(&mut self, key: &str, entry: Option<&MatchingEntry>) -> Result<(), String> {
        match (entry, key.split_once('/')) {
            (Some(MatchingEntry::Lane(lane)), _) => self.lane = lane_row(lane),
            (Some(MatchingEntry::Deposit(entry)), _) => {
                self.deposits.set(entry.deposit.deposit_id, Some(deposit_row(entry)));
            }
            (Some(MatchingEntry::Transfer(entry)), _) => {
                self.transfers.set(entry.transfer.transfer_id, Some(transfer_row(entry)));
            }
            (None, Some((kind, id))) => {
                let id: i64 = id.parse().map_err(|_| key.to_owned())?;
                match kind {
                    "d" => self.deposits.set(DepositId(id), None),
                    "t" => self.transfers.set(TransferId(id), None),
                    _ => return Err(key.to_owned()),
                }
            }
            (None, None) => return Err(key.to_owned()),
        }
        self.commit();
        Ok(())
    }

    /// The whole state as changelog entries, in a fixed order: two states are equal exactly when these
    /// are.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(String, MatchingEntry)> {
        let mut all = vec![(LANE_KEY.to_owned(), MatchingEntry::Lane(self.lane_entry()))];
        for (id, row) in self.deposits.sorted() {
            all.push((format!("d/{id}"), MatchingEntry::Deposit(self.deposit_entry(*id, row))));
        }
        for (id, row) in self.transfers.sorted() {
            all.push((format!("t/{id}"), MatchingEntry::Transfer(self.transfer_entry(row))));
        }
        all
    }

    /// The chain's time: that of the last head.
    fn chain_time(&self) -> Option<UnixSeconds> {
        self.lane.head.map(|head| head.timestamp)
    }

    fn lane_mut(&mut self) -> &mut Lane {
        if self.lane_before.is_none() {
            self.lane_before = Some(self.lane.clone());
        }
        &mut self.lane
    }

    fn next_sequence(&mut self) -> u64 {
        let lane = self.lane_mut();
        lane.sequence = lane.sequence.saturating_add(1);
        lane.sequence
    }

    fn tell_order(
        effects: &mut Vec<Effect>,
        order_id: OrderId,
        issued_at: UnixMicros,
        body: OrderCommandBody,
    ) {
        effects.push(Effect::Command(OrderCommand { order_id, command_id: None, issued_at, body }));
    }

    /// Stores a transfer's new state and publishes it.
    fn publish(&mut self, stage: TransferStage, row: TransferRow, effects: &mut Vec<Effect>) {
        effects.push(Effect::Transfer(stage, self.transfer_record(&row)));
        self.transfers.set(row.id, Some(row));
    }

    fn transfer_record(&self, row: &TransferRow) -> Transfer {
        Transfer {
            transfer_id: row.id,
            updated_at: row.updated_at,
            blockchain: self.blockchain,
            block: row.block,
            observation: row.seen,
            value_text: row.seen.value.to_string(),
            blockchain_confirmed: row.is_confirmed(),
            created_at: row.created_at,
            status: row.status,
            fulfillment_id: row.fulfillment,
            order_id: row.order,
            deposit_id: row.deposit,
            reason: row.reason,
            candidate_order_id: row.candidate_order,
        }
    }

    fn deposit_record(&self, id: DepositId, row: &DepositRow) -> Deposit {
        Deposit {
            deposit_id: id,
            updated_at: row.updated_at,
            order_id: row.order,
            slot: row.slot,
            state: row.state(),
            close_reason: row.closed.map(|closed| closed.reason),
            blockchain: self.blockchain,
            stablecoin: row.stablecoin,
            user_address: row.user_address,
            wallet_address: row.wallet,
            value: row.value,
            value_text: row.value.to_string(),
            started_at: row.started_at,
            expires_at: row.expires_at,
        }
    }

    fn lane_entry(&self) -> LaneEntry {
        LaneEntry {
            epoch: self.lane.epoch,
            head: self.lane.head,
            finalized: self.lane.finalized,
            match_window_seconds: self.lane.match_window_seconds,
            sequence: self.lane.sequence.cast_signed(),
        }
    }

    fn deposit_entry(&self, id: DepositId, row: &DepositRow) -> DepositEntry {
        DepositEntry {
            deposit: self.deposit_record(id, row),
            skew_seconds: i64::from(row.skew_seconds),
            late_window_seconds: i64::from(row.late_window_seconds),
            release_at: row.closed.map(|closed| closed.release_at),
        }
    }

    fn transfer_entry(&self, row: &TransferRow) -> TransferEntry {
        TransferEntry {
            transfer: self.transfer_record(row),
            epoch: row.epoch,
            included: row.included,
            settling: row.settling,
            match_deadline: row.match_deadline,
            forget_at: row.forget_at,
        }
    }
}

const LANE_KEY: &str = "lane";

fn lane_row(entry: &LaneEntry) -> Lane {
    Lane {
        epoch: entry.epoch,
        head: entry.head,
        finalized: entry.finalized,
        match_window_seconds: entry.match_window_seconds,
        sequence: entry.sequence.unsigned_abs(),
    }
}

fn deposit_row(entry: &DepositEntry) -> DepositRow {
    let deposit = &entry.deposit;
    DepositRow {
        order: deposit.order_id,
        slot: deposit.slot,
        stablecoin: deposit.stablecoin,
        wallet: deposit.wallet_address,
        user_address: deposit.user_address,
        value: deposit.value,
        started_at: deposit.started_at,
        expires_at: deposit.expires_at,
        updated_at: deposit.updated_at,
        skew_seconds: seconds_u32(entry.skew_seconds),
        late_window_seconds: seconds_u32(entry.late_window_seconds),
        closed: deposit
            .close_reason
            .zip(entry.release_at)
            .map(|(reason, release_at)| deposits::Closed { reason, release_at }),
    }
}

fn transfer_row(entry: &TransferEntry) -> TransferRow {
    let transfer = &entry.transfer;
    TransferRow {
        id: transfer.transfer_id,
        updated_at: transfer.updated_at,
        block: transfer.block,
        seen: transfer.observation,
        created_at: transfer.created_at,
        status: transfer.status,
        fulfillment: transfer.fulfillment_id,
        order: transfer.order_id,
        deposit: transfer.deposit_id,
        reason: transfer.reason,
        candidate_order: transfer.candidate_order_id,
        epoch: entry.epoch,
        included: entry.included,
        settling: entry.settling,
        match_deadline: entry.match_deadline,
        forget_at: entry.forget_at,
    }
}

/// Windows are a few days at most; anything else is a mistake that must not wrap around.
fn seconds_u32(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}
