//! Failures of the log, by the caller's required reaction.

use std::sync::Arc;

/// Cause of a failure: a text for operators, which includes the text of the library's error.
///
/// As with [`std::io::Error`] the wrapped error is reached by [`Cause::get_ref`] and is not part of
/// the error chain, so that printing the chain does not repeat it.
#[derive(Debug, Clone)]
pub struct Cause {
    text: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Cause {
    /// `text` should include the text of `source`.
    pub(crate) fn new(
        text: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { text: text.into(), source: Some(Arc::new(source)) }
    }

    /// Appends `reason` in parentheses.
    pub(crate) fn because(self, reason: &str) -> Self {
        Self { text: format!("{} ({reason})", self.text), ..self }
    }

    /// The error of SQLite or of Kafka's client that caused this, for a `downcast_ref`.
    #[must_use]
    pub fn get_ref(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

impl From<rdkafka::error::KafkaError> for Cause {
    fn from(error: rdkafka::error::KafkaError) -> Self {
        Self::new(error.to_string(), error)
    }
}

impl From<String> for Cause {
    fn from(text: String) -> Self {
        Self { text, source: None }
    }
}

impl From<&str> for Cause {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Failure of a request to the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The log cannot be reached or cannot write now (disk full, broker down): retry later.
    #[error("the log is not available: {0}")]
    Transient(Cause),
    /// Another instance with the same identity took over.
    #[error("fenced: {0}")]
    Fenced(Cause),
    /// A retry cannot help, or could lose or duplicate a record: the process must stop.
    #[error("the log failed: {0}")]
    Fatal(Cause),
}

/// Failure to commit a step.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StepError {
    /// Nothing was written. The worker is at its last committed offsets again: undo what the step did in
    /// memory, then poll.
    #[error("step aborted: {0}")]
    Aborted(Cause),
    /// All partitions of the worker are lost, and the outcome is unknown: drop their state, no
    /// [`Event::Revoked`](crate::Event::Revoked) follows. Polling joins again, unless another
    /// worker took the name.
    #[error("step fenced: {0}")]
    Fenced(Cause),
    /// The outcome is unknown, or the step can never be written: the process must stop.
    #[error("step failed: {0}")]
    Fatal(Cause),
}

impl Error {
    pub(crate) fn transient(cause: impl Into<Cause>) -> Self {
        Self::Transient(cause.into())
    }

    pub(crate) fn fatal(cause: impl Into<Cause>) -> Self {
        Self::Fatal(cause.into())
    }
}

impl From<StepError> for Error {
    fn from(error: StepError) -> Self {
        match error {
            StepError::Aborted(cause) => Self::Transient(cause),
            StepError::Fenced(cause) => Self::Fenced(cause),
            StepError::Fatal(cause) => Self::Fatal(cause),
        }
    }
}
