//! What operators asked for.

use serde::{Deserialize, Serialize};

use super::plain_record;
use crate::{AuditAction, CommandId, OrderId, TransferId, UnixMicros};

/// A command of an operator, written before it is carried out (`audit_entry.avsc`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The name of the secret that was given; never the secret.
    pub operator: String,
    /// The address that the request came from (`server.trusted_proxies`).
    pub client: Option<String>,
    pub action: AuditAction,
    pub order_id: Option<OrderId>,
    pub transfer_id: Option<TransferId>,
    /// The command on `orders.commands`, if it is one.
    pub command_id: Option<CommandId>,
    pub requested_at: UnixMicros,
}
plain_record!(AuditEntry);
