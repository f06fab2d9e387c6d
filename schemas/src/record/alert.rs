//! What needs an operator.

use serde::{Deserialize, Serialize};

use super::plain_record;
use crate::{AlertKind, Blockchain, OrderId, TransferId, UnixMicros};

/// Something that needs a person (`alert.avsc`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub kind: AlertKind,
    #[serde(default)]
    pub blockchain: Option<Blockchain>,
    pub transfer_id: Option<TransferId>,
    pub order_id: Option<OrderId>,
    pub message: String,
    pub raised_at: UnixMicros,
}
plain_record!(Alert);
