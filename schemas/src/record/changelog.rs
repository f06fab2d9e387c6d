//! Entries of the processor's changelogs: its state, one entity each. An entry without a value says that
//! its entity is gone. The first one of a step names the step's inputs in the header `inputs`.

use std::borrow::Cow::{self, Borrowed};

use serde::{Deserialize, Serialize};

use super::{Block, Deposit, Order, PaymentRequest, Record, Transfer, plain_record};
use crate::{CommandId, EntryKind, Epoch, SchemaName, UnixSeconds};

/// A value of `processor.matching.changelog`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MatchingEntry {
    /// Key `lane`.
    Lane(LaneEntry),
    /// Key `d/<id>`: one deposit, live or in its late window.
    Deposit(DepositEntry),
    /// Key `t/<id>`: one transfer that may still change.
    Transfer(TransferEntry),
}

/// The lane's head and counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneEntry {
    pub epoch: Epoch,
    pub head: Option<Block>,
    /// The chain does not go back below this height.
    pub finalized: i64,
    pub match_window_seconds: i64,
    /// Ids given so far, one count for all three kinds.
    pub sequence: i64,
}

/// A deposit with what its record does not show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepositEntry {
    pub deposit: Deposit,
    pub skew_seconds: u32,
    pub late_window_seconds: u32,
    /// When closed: until which chain time its amount stays reserved.
    pub release_at: Option<UnixSeconds>,
}

/// A transfer with what its record does not show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferEntry {
    pub transfer: Transfer,
    /// Epoch of its current inclusion.
    pub epoch: Epoch,
    /// Whether its block is still in the chain.
    pub included: bool,
    /// Whether the order was asked and has not answered.
    pub settling: bool,
    /// Chain time at which it stops waiting for a deposit.
    pub match_deadline: Option<UnixSeconds>,
    /// Chain time from which it is forgotten.
    pub forget_at: Option<UnixSeconds>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename = "MatchingEntry")]
#[doc(hidden)]
pub struct MatchingEntryWire<'a> {
    kind: EntryKind,
    lane: Option<Cow<'a, LaneEntry>>,
    deposit: Option<Cow<'a, DepositEntry>>,
    transfer: Option<Cow<'a, TransferEntry>>,
}

impl Record for MatchingEntry {
    const SCHEMA: SchemaName = SchemaName::MatchingEntry;
    type Wire = MatchingEntryWire<'static>;

    fn to_wire(&self) -> impl Serialize {
        let (kind, lane, deposit, transfer) = match self {
            Self::Lane(lane) => (EntryKind::Lane, Some(Borrowed(lane)), None, None),
            Self::Deposit(deposit) => (EntryKind::Deposit, None, Some(Borrowed(deposit)), None),
            Self::Transfer(transfer) => (EntryKind::Transfer, None, None, Some(Borrowed(transfer))),
        };
        MatchingEntryWire { kind, lane, deposit, transfer }
    }

    fn from_wire(wire: MatchingEntryWire<'static>) -> Result<Self, &'static str> {
        match wire.kind {
            EntryKind::Lane => wire.lane.map(Cow::into_owned).map(Self::Lane),
            EntryKind::Deposit => wire.deposit.map(Cow::into_owned).map(Self::Deposit),
            EntryKind::Transfer => wire.transfer.map(Cow::into_owned).map(Self::Transfer),
        }
        .ok_or("the part that its kind needs is missing")
    }
}

/// A value of `processor.orders.changelog`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersEntry {
    pub order: Order,
    /// Choices that are not answered yet.
    #[serde(default)]
    pub pending: Vec<PendingChoice>,
}
plain_record!(OrdersEntry);

/// A choice of chain and stablecoin on its way through the wallets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingChoice {
    pub slot: i32,
    pub command_id: Option<CommandId>,
    /// The choice, with the wallets that are still to be tried.
    pub payment: PaymentRequest,
}
