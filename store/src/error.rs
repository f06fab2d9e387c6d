//! What may go wrong with the tables.

/// Why the tables could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may pass: try again later, and do not commit offsets.
    #[error("the store is not available: {0}")]
    Transient(String),
    /// It will not pass by itself.
    #[error("the store failed: {0}")]
    Fatal(String),
}
