//! Failures of the log's file.

use rusqlite::ErrorCode;

use crate::{Cause, Error, StepError};

#[derive(Debug, thiserror::Error)]
pub(super) enum StorageError {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The disk returned other bytes than were written.
    #[error(
        "{0} is damaged: its checksum does not match; restore the file from a backup (`tidemark restore`)"
    )]
    Damaged(String),
}

impl StorageError {
    /// `true` if a retry cannot succeed.
    fn is_fatal(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                None | Some(
                    ErrorCode::DatabaseCorrupt
                        | ErrorCode::NotADatabase
                        | ErrorCode::ConstraintViolation
                )
            ),
        }
    }

    /// `true` if reading or writing failed below SQLite.
    pub(super) fn is_of_the_disk(&self) -> bool {
        let Self::Sqlite(error) = self else { return false };
        sqlite::is_of_the_disk(error)
    }

    /// Logs a failure of the disk, and returns it as the cause for which all later writes are
    /// refused. After a failed write the system may drop the data and still report success, so
    /// later transactions could be lost in a power cut.
    pub(super) fn of_the_disk(self) -> Cause {
        let text = format!("the disk failed: {self}; a restart recovers what was acknowledged");
        tracing::error!("{text}");
        Cause::new(text, self)
    }
}

impl From<StorageError> for StepError {
    fn from(error: StorageError) -> Self {
        let is_fatal = error.is_fatal();
        let cause = Cause::new(error.to_string(), error);
        if is_fatal { Self::Fatal(cause) } else { Self::Aborted(cause) }
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        StepError::from(error).into()
    }
}
