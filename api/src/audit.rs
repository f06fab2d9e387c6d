//! Audit entries of operator actions, written before the action.

use log::NewRecord;
use schemas::record::{AuditEntry, COMMAND_LINE};
use schemas::{AuditAction, CodecError, Partition, Topic, UnixMicros};

use crate::auth::Operator;

/// Requester of an audited action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    name: String,
    /// Client of the request; `None` for a command of the executable.
    client: Option<String>,
}

impl Asker {
    /// Requester of the commands of the `tidemark` executable.
    #[must_use]
    pub fn command_line() -> Self {
        Self { name: COMMAND_LINE.to_owned(), client: None }
    }

    /// Name of the requester.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Entry of an action, without a subject yet.
    #[must_use]
    pub fn entry(&self, action: AuditAction, now: UnixMicros) -> AuditEntry {
        AuditEntry {
            operator: self.name.clone(),
            client: self.client.clone(),
            action,
            order_id: None,
            transfer_id: None,
            command_id: None,
            subject: None,
            requested_at: now,
        }
    }
}

impl From<&Operator> for Asker {
    fn from(by: &Operator) -> Self {
        Self { name: by.name.to_string(), client: by.client.map(|client| client.to_string()) }
    }
}

/// The record of an entry.
pub fn record(entry: &AuditEntry) -> Result<NewRecord, CodecError> {
    NewRecord::encode(Topic::Audit, Partition(0), entry.operator.as_str(), entry)
}
