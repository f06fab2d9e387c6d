//! Classification of the driver's failures: transient or fatal.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the driver's enums grow: what is not known to pass is fatal"
)]

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError, UseKeyspaceError,
};

use crate::Error;
use crate::error::Cause;

/// An error of the driver. Unavailable, busy or slow nodes recover, and writes are idempotent.
/// Everything else is a defect, a wrong configuration, or tables of another program.
pub(super) trait Fault: std::error::Error + Send + Sync + Sized + 'static {
    fn may_pass(&self) -> bool;
}

impl<F: Fault> From<F> for Error {
    fn from(cause: F) -> Self {
        let may_pass = cause.may_pass();
        let cause = Cause::of(cause);
        if may_pass { Self::Transient(cause) } else { Self::Fatal(cause) }
    }
}

impl Fault for ExecutionError {
    fn may_pass(&self) -> bool {
        match self {
            Self::EmptyPlan
            | Self::RequestTimeout(_)
            | Self::SchemaAgreementError(_)
            | Self::MetadataError(_) => true,
            Self::ConnectionPoolError(cause) => pool_recovers(cause),
            Self::LastAttemptError(cause) => attempt_passes(cause),
            Self::PrepareError(cause) => cause.may_pass(),
            Self::UseKeyspaceError(cause) => cause.may_pass(),
            _ => false,
        }
    }
}

impl Fault for PrepareError {
    fn may_pass(&self) -> bool {
        match self {
            Self::ConnectionPoolError(cause) => pool_recovers(cause),
            Self::AllAttemptsFailed { first_attempt } => attempt_passes(first_attempt),
            _ => false,
        }
    }
}

impl Fault for UseKeyspaceError {
    fn may_pass(&self) -> bool {
        match self {
            Self::RequestError(cause) => attempt_passes(cause),
            Self::RequestTimeout(_) => true,
            _ => false,
        }
    }
}

impl Fault for NewSessionError {
    fn may_pass(&self) -> bool {
        match self {
            Self::MetadataError(MetadataError::ConnectionPoolError(cause)) => pool_recovers(cause),
            Self::FailedToResolveAnyHostname(_) | Self::MetadataError(_) => true,
            _ => false,
        }
    }
}

/// `true` if the nodes refused a statement as invalid, as they do without its keyspace or table.
pub(super) fn is_missing(cause: &RequestAttemptError) -> bool {
    matches!(cause, RequestAttemptError::DbError(DbError::Invalid, _))
}

/// A row that does not have the form of its table.
pub(super) fn bad_row(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Fatal(Cause::of(cause).context("a row does not have the form of its table"))
}

fn pool_recovers(cause: &ConnectionPoolError) -> bool {
    let ConnectionPoolError::Broken { last_connection_error } = cause else { return true };
    let ConnectionError::ConnectionSetupRequestError(setup) = last_connection_error else {
        return true;
    };
    // Credentials that a node refuses are refused again.
    !matches!(
        setup.get_error(),
        ConnectionSetupRequestErrorKind::MissingAuthentication
            | ConnectionSetupRequestErrorKind::StartAuthSessionError(_)
            | ConnectionSetupRequestErrorKind::DbError(
                DbError::AuthenticationError | DbError::Unauthorized,
                _
            )
    )
}

fn attempt_passes(cause: &RequestAttemptError) -> bool {
    match cause {
        RequestAttemptError::BrokenConnectionError(_)
        | RequestAttemptError::UnableToAllocStreamId => true,
        RequestAttemptError::DbError(cause, _) => matches!(
            cause,
            DbError::Unavailable { .. }
                | DbError::Overloaded
                | DbError::IsBootstrapping
                | DbError::TruncateError
                | DbError::ReadTimeout { .. }
                | DbError::WriteTimeout { .. }
                | DbError::ReadFailure { .. }
                | DbError::WriteFailure { .. }
                | DbError::RateLimitReached { .. }
                | DbError::ServerError
                // A node that just started may again lose a statement that the driver re-prepared.
                | DbError::Unprepared { .. }
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_may_pass_is_transient_and_the_rest_is_not() {
        let answered = |cause| {
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(cause, "".into()))
        };
        for cause in [
            ExecutionError::EmptyPlan,
            ExecutionError::RequestTimeout(Duration::from_secs(2)),
            ExecutionError::ConnectionPoolError(ConnectionPoolError::Initializing),
            answered(DbError::Overloaded),
            answered(DbError::IsBootstrapping),
            answered(DbError::ServerError),
            answered(DbError::Unprepared { statement_id: vec![1].into() }),
        ] {
            assert!(matches!(Error::from(cause), Error::Transient(_)));
        }
        for cause in [
            answered(DbError::Invalid),
            answered(DbError::SyntaxError),
            answered(DbError::Unauthorized),
            answered(DbError::ConfigError),
        ] {
            let Error::Fatal(cause) = Error::from(cause) else { panic!() };
            assert!(cause.driver().unwrap().is::<ExecutionError>(), "{cause}");
        }
    }
}
