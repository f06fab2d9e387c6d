//! Errors that end the following of a chain. Temporary failures are retried instead.

use schemas::{Address, Blockchain, CodecError, Stablecoin};

/// Fatal: the process must stop, unless another one acquired the chain ([`Error::is_fenced`]). Only [`Error::ChainId`]
/// or [`Error::Contract`] of every endpoint, [`Error::Restore`] and, after the start, [`Error::Vanished`] concern a
/// single chain: they halt it with an alarm that repeats their text, and [`crate::follow`] does not end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the endpoint of {blockchain} serves chain id {found}, not {expected}")]
    ChainId { blockchain: Blockchain, expected: u64, found: u64 },
    /// Amounts would be misread, or no payment seen.
    #[error(
        "chains.{blockchain}.tokens: {stablecoin} at {contract} {found} where decimals() = {expected} is \
         configured"
    )]
    Contract {
        blockchain: Blockchain,
        stablecoin: Stablecoin,
        contract: Address,
        expected: u8,
        found: String,
    },
    #[error("cannot make an HTTP client: check the root certificates of this system")]
    Client(#[source] reqwest::Error),
    /// A permanent failure of the log, or fencing by another ingest.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// A step failed and cannot be retried.
    #[error(transparent)]
    Step(#[from] log::StepError),
    /// A record does not fit its schema: a defect of this program.
    #[error("cannot encode a record: {0}")]
    Encode(#[from] CodecError),
    /// The past records cannot be read back. Guessing their end could lose a payment.
    #[error("cannot restore {blockchain} from {position}: {cause}")]
    Restore {
        blockchain: Blockchain,
        /// Topic, partition and offset.
        position: String,
        #[source]
        cause: RestoreError,
    },
    /// A watch of the log is missing in the configuration: payments to it would no longer be seen.
    #[error(
        "the log says that {what} of {blockchain} is watched, and the configuration does not have it: {remedy}"
    )]
    Vanished { blockchain: Blockchain, what: String, remedy: &'static str },
    #[error("a blocking task ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Difference between the records of a chain and those that ingest writes.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A record of a newer version: skipping it could lose a payment.
    #[error("{0}: a newer version wrote it, start that version")]
    Newer(String),
    #[error("a record of {0}")]
    OtherChain(Blockchain),
    #[error("some lanes of the chain are empty")]
    EmptyLane,
    #[error("the lanes of the chain end at different heads")]
    Heads,
}

impl Error {
    /// Text with its code of `docs/operate/errors.md`, for the halt of a chain.
    pub(crate) fn coded(&self) -> String {
        let code = match self {
            Self::ChainId { .. } => "TM-401",
            Self::Contract { .. } => "TM-402",
            Self::Restore { .. } => "TM-403",
            Self::Vanished { .. } => "TM-404",
            Self::Client(_) | Self::Log(_) | Self::Step(_) | Self::Encode(_) | Self::Task(_) => {
                return self.to_string();
            }
        };
        format!("{self} [{code}]")
    }

    /// Returns `true` if another process acquired the chain. Nothing was lost or doubled.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        use log::{Error as LogError, StepError};
        matches!(self, Self::Log(LogError::Fenced(_)) | Self::Step(StepError::Fenced(_)))
    }
}
