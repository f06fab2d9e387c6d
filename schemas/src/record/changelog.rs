//! Entries of the processor's changelogs: its state, one entity each. A tombstone deletes its
//! entity. The first entry of a step has the input positions after that step in the header `next`. Also the inputs of
//! each step.

use std::borrow::Cow::{self, Borrowed};

use serde::{Deserialize, Serialize, Serializer};

use super::{Block, Order, PaymentRequest, StopScope, Watch};
use crate::{
    Address, Amount, BlockHash, CloseReason, CommandId, DepositId, Epoch, FulfillmentId, OrderId,
    Stablecoin, TransferId, TransferStatus, TxHash, UnixMicros, UnixSeconds, UnknownReason, binary,
};

/// A value of `processor.matching.changelog`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "MatchingEntryWire<'static>")]
pub enum MatchingEntry {
    /// Key `lane`.
    Lane(LaneEntry),
    /// Key `d/<id>`: one deposit, live or in its late window.
    Deposit(DepositEntry),
    /// Key `t/<id>`: one transfer that may still change.
    Transfer(TransferEntry),
    /// Key `w/<wallet>`: the wallet and contracts watched there.
    Watch(Watch),
}

/// The lane's head and counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(Default))]
pub struct LaneEntry {
    pub epoch: Epoch,
    pub head: Option<Block>,
    /// The chain does not go back below this height.
    pub finalized: i64,
    /// Height confirmed for the smallest amounts; -1 for none yet.
    pub confirmed: i64,
    pub match_window_seconds: i64,
    /// Sequence number of the newest id of a deposit or fulfillment: both share one sequence.
    pub sequence: i64,
    /// Chain time when a head that went back was last ignored, noted at most every ten minutes; none
    /// once the alert about it ended.
    pub went_back_at: Option<UnixSeconds>,
    /// The same for a head that was too far.
    pub too_far_at: Option<UnixSeconds>,
    /// Version clock of the progress that was published last.
    pub progress_at: Option<UnixMicros>,
    /// Time of the head in that progress.
    pub progress_time: Option<UnixSeconds>,
    /// `true` if the next head publishes progress however recent the last is, as after a new watch.
    #[serde(default)]
    pub progress_due: bool,
    /// `true` if the last head has a gap: no deposit opens.
    #[serde(default)]
    pub has_gap: bool,
    /// The newest time of any head: a rewind does not take it back.
    pub newest: Option<UnixSeconds>,
    /// Stops of operators.
    #[serde(default)]
    pub stopped: Vec<StopScope>,
    /// Partition in the lane's ids, if not the lane's own: after a change of the number of lanes.
    #[serde(default)]
    pub id_partition: Option<i32>,
}

/// A deposit, live or in its late window. Ids and addresses are bytes: no other program reads this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepositEntry {
    pub deposit_id: DepositId,
    pub updated_at: UnixMicros,
    #[serde(with = "binary")]
    pub order_id: OrderId,
    pub slot: i32,
    pub close_reason: Option<CloseReason>,
    #[serde(rename = "token")]
    pub stablecoin: Stablecoin,
    /// The contracts whose transfers pay it.
    #[serde(default, with = "binary::list")]
    pub contracts: Vec<Address>,
    #[serde(default, with = "binary::option")]
    pub user_address: Option<Address>,
    #[serde(with = "binary")]
    pub wallet_address: Address,
    pub value: Amount,
    pub started_at: UnixSeconds,
    pub expires_at: UnixSeconds,
    /// Height above which a block is younger than the deposit: the lane's head when it opened, or
    /// the target of a later rewind.
    pub opened_above: i64,
    /// [`LaneEntry::sequence`] when it opened. A transfer with a lower [`TransferEntry::listed_at`] is older.
    pub opened_at: i64,
    pub late_window_seconds: u32,
    #[serde(default)]
    pub accepts_late: bool,
    /// Chain time until which its amount stays reserved after it closed; its deadline if replaced.
    pub release_at: Option<UnixSeconds>,
}

/// A transfer that may still change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferEntry {
    pub transfer_id: TransferId,
    pub updated_at: UnixMicros,
    pub block_number: i64,
    #[serde(with = "binary")]
    pub block_hash: BlockHash,
    pub block_timestamp: UnixSeconds,
    #[serde(rename = "token")]
    pub stablecoin: Stablecoin,
    #[serde(with = "binary")]
    pub contract: Address,
    #[serde(with = "binary")]
    pub from_address: Address,
    #[serde(with = "binary")]
    pub to_address: Address,
    #[serde(with = "binary")]
    pub tx_hash: TxHash,
    pub log_index: i32,
    pub ordinal: i32,
    pub value: Amount,
    pub created_at: UnixSeconds,
    /// [`LaneEntry::sequence`] when it was first seen.
    pub listed_at: i64,
    pub status: TransferStatus,
    pub fulfillment_id: Option<FulfillmentId>,
    #[serde(default, with = "binary::option")]
    pub order_id: Option<OrderId>,
    pub deposit_id: Option<DepositId>,
    pub reason: Option<UnknownReason>,
    #[serde(default, with = "binary::option")]
    pub candidate_order_id: Option<OrderId>,
    /// Epoch of its current inclusion, or of the retract that ended it.
    pub epoch: Epoch,
    /// Time when its block left the chain; none while the chain has it.
    pub orphaned_at: Option<UnixSeconds>,
    /// `true` if no record reports it as orphaned yet: one of the next blocks may include it.
    #[serde(default)]
    pub orphan_due: bool,
    /// `true` while the order's reply to a settle or an attach is pending.
    pub settling: bool,
    /// `true` if the transfer failed before `candidate_order_id` replied, or that order was
    /// forgotten: the order may still expect it.
    #[serde(default)]
    pub unanswered: bool,
    /// Time of the last attach request to an order. Kept after a refusal: the next one must be later.
    pub asked_at: Option<UnixMicros>,
    /// Chain time at which it stops waiting for a deposit, or repeats a request without a reply.
    pub match_deadline: Option<UnixSeconds>,
    /// Minimum chain time until which it is kept; the age of its block may demand more.
    pub forget_at: Option<UnixSeconds>,
    /// `true` if its sender is a configured wallet.
    #[serde(default)]
    pub from_own_wallet: bool,
}

/// A [`MatchingEntry`] as its schema has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename = "MatchingEntry")]
struct MatchingEntryWire<'a> {
    lane: Option<Cow<'a, LaneEntry>>,
    deposit: Option<Cow<'a, DepositEntry>>,
    transfer: Option<Cow<'a, TransferEntry>>,
    watch: Option<Cow<'a, Watch>>,
}

impl Serialize for MatchingEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (lane, deposit, transfer, watch) = match self {
            Self::Lane(lane) => (Some(Borrowed(lane)), None, None, None),
            Self::Deposit(deposit) => (None, Some(Borrowed(deposit)), None, None),
            Self::Transfer(transfer) => (None, None, Some(Borrowed(transfer)), None),
            Self::Watch(watch) => (None, None, None, Some(Borrowed(watch))),
        };
        MatchingEntryWire { lane, deposit, transfer, watch }.serialize(serializer)
    }
}

impl TryFrom<MatchingEntryWire<'_>> for MatchingEntry {
    type Error = &'static str;
    fn try_from(wire: MatchingEntryWire<'_>) -> Result<Self, &'static str> {
        match (wire.lane, wire.deposit, wire.transfer, wire.watch) {
            (Some(lane), None, None, None) => Ok(Self::Lane(lane.into_owned())),
            (None, Some(deposit), None, None) => Ok(Self::Deposit(deposit.into_owned())),
            (None, None, Some(transfer), None) => Ok(Self::Transfer(transfer.into_owned())),
            (None, None, None, Some(watch)) => Ok(Self::Watch(watch.into_owned())),
            _ => Err("it is not one of lane, deposit, transfer and watch"),
        }
    }
}

/// A value of `processor.orders.changelog`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersEntry {
    pub order: Order,
    /// Choices without a reply yet.
    #[serde(default)]
    pub pending: Vec<PendingChoice>,
    /// The longest late window of its requested deposits; 0 while there are none.
    pub late_window_seconds: u32,
    /// Time of the last request to lanes for the state of its open deposits or its candidates.
    pub asked_at: Option<UnixSeconds>,
}

/// A choice of chain and stablecoin that waits for the reply of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingChoice {
    pub slot: i32,
    pub command_id: Option<CommandId>,
    /// Time of the last request to a lane.
    pub asked_at: UnixSeconds,
    /// The choice, with the wallets that are still to be tried.
    pub payment: PaymentRequest,
}

/// A record of `processor.matching.steps` or `processor.orders.steps`: inputs of the machine in one step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessorStep {
    /// In the order in which they were taken. Never empty.
    pub inputs: Vec<InputRun>,
}

/// Inputs of one topic that follow each other, in the partition of the step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRun {
    /// Without the prefix of the installation.
    pub topic: String,
    /// Offset of the first one.
    pub first: i64,
    /// Number of records; their offsets may have gaps.
    pub count: i32,
}
