//! What operators read: alerts and dead letters.

use serde::{Deserialize, Serialize};

use super::plain_record;
use crate::{AlertKind, Blockchain, OrderId, TransferId, UnixMicros};

/// A record of `alerts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// What happened.
    pub kind: AlertKind,
    /// On which chain.
    pub blockchain: Blockchain,
    /// To which transfer.
    pub transfer_id: Option<TransferId>,
    /// To which order.
    pub order_id: Option<OrderId>,
    /// In a sentence.
    pub message: String,
    /// When it was seen.
    pub raised_at: UnixMicros,
}
plain_record!(Alert);

/// A record of `dead-letters`: another record, as it was, that could not be processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Where it was.
    pub topic: String,
    /// Where in the topic.
    pub partition: i32,
    /// Where in the partition.
    pub offset: i64,
    /// The consumer group that gave it up.
    pub group: String,
    /// Why.
    pub reason: String,
    /// Its key.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// Its value.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    /// When it was given up.
    pub failed_at: UnixMicros,
}
plain_record!(DeadLetter);
