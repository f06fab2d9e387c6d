//! A transfer after a change.

use serde::{Deserialize, Serialize};

use super::{Block, Observation};
use crate::{
    Blockchain, DepositId, FulfillmentId, OrderId, TransferId, TransferStatus, UnixMicros,
    UnixSeconds, UnknownReason,
};

/// A record of the `transfers.*` topics after `transfers.raw`: the whole transfer (spec 2.5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Its id: stays the same when its transaction moves to another block.
    pub transfer_id: TransferId,
    /// Version clock: strictly increasing per transfer.
    pub updated_at: UnixMicros,
    pub blockchain: Blockchain,
    /// The block that holds it, or held it last.
    pub block: Block,
    pub observation: Observation,
    pub value_text: String,
    pub blockchain_confirmed: bool,
    pub created_at: UnixSeconds,
    pub status: TransferStatus,
    pub fulfillment_id: Option<FulfillmentId>,
    pub order_id: Option<OrderId>,
    /// The deposit it fits; when matched, the one it paid.
    pub deposit_id: Option<DepositId>,
    /// Reason why it pays nothing, when unknown.
    pub reason: Option<UnknownReason>,
    /// The order it was most likely meant for, when unknown; when failed, the order that had not
    /// replied to its settle, if any.
    pub candidate_order_id: Option<OrderId>,
    /// Time when its block left the chain; none while the chain has it.
    pub orphaned_at: Option<UnixSeconds>,
}
