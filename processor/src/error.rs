//! What may end the processor.

/// Why a machine's runner stopped. All of them are fatal: nothing uncommitted is lost, a restart goes on
/// from the last step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// It is not known whether the last step was written.
    #[error("the outcome of a step is not known: {0}")]
    Step(String),
    /// An output does not fit its schema.
    #[error("an output cannot be encoded: {0}")]
    Encode(#[from] schemas::CodecError),
    /// The changelog holds something that this version did not write, or that does not fit the places of
    /// the group.
    #[error("the changelog {partition} cannot be restored: {cause}")]
    Changelog {
        /// Which changelog.
        partition: log::TopicPartition,
        /// What is wrong with it.
        cause: String,
    },
}
