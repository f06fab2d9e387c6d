//! A record that a stage could not process.

use serde::{Deserialize, Serialize};

use crate::UnixMicros;

/// A record of `dead-letters`: another record, as it was, that could not be processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    /// Consumer group that rejected it.
    pub group: String,
    pub reason: String,
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    pub failed_at: UnixMicros,
}
