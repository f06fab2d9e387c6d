//! Audit trail of the operators' commands.

use serde::{Deserialize, Serialize};

use crate::{AuditAction, CommandId, OrderId, TransferId, UnixMicros};

/// Operator in the entry of a command of the executable.
pub const COMMAND_LINE: &str = "command line";

/// A command of an operator, written before it is carried out (`audit_entry.avsc`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The name of the secret that was given, never the secret; or [`COMMAND_LINE`].
    pub operator: String,
    /// The address that the request came from (`server.trusted_proxies`).
    pub client: Option<String>,
    pub action: AuditAction,
    pub order_id: Option<OrderId>,
    pub transfer_id: Option<TransferId>,
    /// The command on `orders.commands`, if it is one.
    pub command_id: Option<CommandId>,
    /// The scope that is stopped or resumed, as it was given; the position of a record that is
    /// skipped or put back; the name of an alert.
    pub subject: Option<String>,
    pub requested_at: UnixMicros,
}
