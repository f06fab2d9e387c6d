//! Classification of SQLite's failures: transient or fatal.

use rusqlite::ErrorCode;

use crate::Error;
use crate::error::Cause;

/// Full disks, busy files and failing devices may recover, and transactions leave nothing half
/// written. Everything else is a defect, or a damaged file. The writer itself stops after a failing
/// device (`Disk::fail`).
impl From<rusqlite::Error> for Error {
    fn from(cause: rusqlite::Error) -> Self {
        let may_pass = matches!(
            cause.sqlite_error_code(),
            Some(
                ErrorCode::DiskFull
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::CannotOpen
                    | ErrorCode::OutOfMemory
                    | ErrorCode::OperationInterrupted
            )
        );
        let cause = Cause::of(cause);
        if may_pass { Self::Transient(cause) } else { Self::Fatal(cause) }
    }
}
