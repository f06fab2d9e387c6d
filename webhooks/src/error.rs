//! Errors that stop a part of this stage. Receivers that fail are outcomes, not errors.

use schemas::CodecError;

/// Error for which the process must stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log failed for good.
    #[error("webhooks cannot read the log")]
    Log(#[from] log::Error),
    /// The step failed for good. It may have been committed.
    #[error("webhooks cannot commit")]
    Step(#[from] log::StepError),
    /// A record has a schema or an enum value of a newer version.
    #[error(transparent)]
    Newer(#[from] log::NewerRecord),
    /// The changelog holds an invalid entry.
    #[error("webhooks cannot restore the order of events from {at}: {cause}")]
    Changelog { at: String, cause: String },
    /// A record of ours does not fit its schema: a defect of this program.
    #[error("webhooks made a record that cannot be encoded")]
    Codec(#[from] CodecError),
    /// The HTTP client cannot be made, for example because the system has no trusted certificates.
    #[error("webhooks cannot make the HTTP client")]
    Client(#[from] reqwest::Error),
    /// A sink of alerts cannot be sent mail, for example because the system has no trusted certificates.
    #[error("webhooks cannot make the client of a mail server")]
    Mail(#[source] lettre::transport::smtp::Error),
    /// The code of an attempt panicked: a defect of this program.
    #[error("a webhook attempt broke off")]
    Attempt(#[from] tokio::task::JoinError),
}
