//! Errors that end the processor.

use crate::machine::Broken;

/// Error with which a machine's runner stopped. All are fatal: a restart resumes after the last committed step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The last step may have been committed.
    #[error("the outcome of a step is not known: {0}")]
    Step(#[from] log::StepError),
    /// An output does not fit its schema.
    #[error("an output cannot be encoded: {0}")]
    Encode(#[from] schemas::CodecError),
    /// The changelog has an invalid entry, contradicts the positions of the group, or is not in the layout.
    #[error("the changelog {partition} cannot be restored: {cause}")]
    Changelog { partition: log::TopicPartition, cause: String },
    /// An input has a schema or an enum value of a newer version.
    #[error(transparent)]
    Newer(#[from] log::NewerRecord),
    /// A decision breaks an invariant of its machine.
    #[error(
        "{cause} (at {at}). The partition stops before anything of this step is committed: this \
         version has a defect, or its changelog was damaged. Keep the log as it is and report it; a \
         restart stops at the same record, a corrected version continues from it"
    )]
    Broken {
        /// Input at which it was found; the changelog partition if an undo failed.
        at: String,
        cause: Broken,
    },
}
