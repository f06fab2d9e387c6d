//! Why following a chain stopped. Everything that may pass is retried and never gets here.

use schemas::Blockchain;

/// Fatal: the process must stop, unless another one took the chain over ([`Error::is_fenced`]). Only [`Error::ChainId`] and [`Error::Restore`] are about one chain
/// alone: they halt it with an alarm that repeats their text, and [`crate::follow`] does not end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The endpoint serves another chain than the configuration says.
    #[error("the endpoint of {blockchain} serves chain id {found}, not {expected}")]
    ChainId {
        /// The configured chain.
        blockchain: Blockchain,
        /// Its id.
        expected: u64,
        /// What `eth_chainId` answered.
        found: u64,
    },
    /// No HTTP client could be made, for example because the system has no root certificates.
    #[error("cannot make an HTTP client: {0}")]
    Client(String),
    /// The log refused for good, or another ingest of the same chain took over.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// A step neither happened nor can be tried again.
    #[error(transparent)]
    Step(#[from] log::StepError),
    /// A record does not fit its schema: a defect of this program.
    #[error("cannot encode a record: {0}")]
    Encode(#[source] schemas::CodecError),
    /// The past records cannot be read back. Guessing where to go on could lose a payment.
    #[error("cannot restore {blockchain} from {place}: {cause}")]
    Restore {
        /// The chain.
        blockchain: Blockchain,
        /// Topic, partition and offset.
        place: String,
        /// What is wrong there.
        cause: String,
    },
    /// A thread of this process ended without an answer.
    #[error("a blocking task ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Error {
    /// Whether another process took the chain over. Nothing was lost or doubled.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        use log::{Error as LogError, StepError};
        matches!(self, Self::Log(LogError::Fenced(_)) | Self::Step(StepError::Fenced(_)))
    }
}
