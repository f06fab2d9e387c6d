//! Which of SQLite's failures may pass.

use rusqlite::ErrorCode;

use crate::Error;

/// Full disks, busy files and failing devices may recover, and nothing was half written:
/// transactions see to that. Everything else is a defect, or a damaged file.
pub(super) fn classify(cause: &rusqlite::Error) -> Error {
    match cause.sqlite_error_code() {
        Some(
            ErrorCode::DiskFull
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted,
        ) => Error::Transient(cause.to_string()),
        _ => Error::Fatal(cause.to_string()),
    }
}
