//! Which of the driver's failures may pass.

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError, UseKeyspaceError,
};

use crate::Error;

/// Nodes that are away, busy or slow come back; nothing was half written, since every write may be
/// done again. Everything else is a defect, a wrong configuration, or tables that are not ours.
pub(super) fn classify(cause: &ExecutionError) -> Error {
    let passes = match cause {
        ExecutionError::EmptyPlan
        | ExecutionError::RequestTimeout(_)
        | ExecutionError::SchemaAgreementError(_)
        | ExecutionError::MetadataError(_) => true,
        ExecutionError::ConnectionPoolError(cause) => pool_recovers(cause),
        ExecutionError::LastAttemptError(cause) => attempt_passes(cause),
        ExecutionError::PrepareError(cause) => return of_prepare(cause),
        ExecutionError::UseKeyspaceError(cause) => return of_use_keyspace(cause),
        _ => false,
    };
    error(passes, cause)
}

/// Of preparing a statement.
pub(super) fn of_prepare(cause: &PrepareError) -> Error {
    let passes = match cause {
        PrepareError::ConnectionPoolError(cause) => pool_recovers(cause),
        PrepareError::AllAttemptsFailed { first_attempt } => attempt_passes(first_attempt),
        _ => false,
    };
    error(passes, cause)
}

/// Of choosing the keyspace.
pub(super) fn of_use_keyspace(cause: &UseKeyspaceError) -> Error {
    let passes = match cause {
        UseKeyspaceError::RequestError(cause) => attempt_passes(cause),
        UseKeyspaceError::RequestTimeout(_) => true,
        _ => false,
    };
    error(passes, cause)
}

/// Of the first connection.
pub(super) fn of_connecting(cause: &NewSessionError) -> Error {
    let passes = match cause {
        NewSessionError::FailedToResolveAnyHostname(_) => true,
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(cause)) => {
            pool_recovers(cause)
        }
        NewSessionError::MetadataError(_) => true,
        _ => false,
    };
    error(passes, cause)
}

/// Whether the nodes said that there is no such keyspace or table.
pub(super) fn is_missing(cause: &RequestAttemptError) -> bool {
    matches!(cause, RequestAttemptError::DbError(DbError::Invalid, _))
}

fn error(passes: bool, cause: &dyn std::error::Error) -> Error {
    if passes { Error::Transient(cause.to_string()) } else { Error::Fatal(cause.to_string()) }
}

fn pool_recovers(cause: &ConnectionPoolError) -> bool {
    let ConnectionPoolError::Broken { last_connection_error } = cause else { return true };
    let ConnectionError::ConnectionSetupRequestError(setup) = last_connection_error else {
        return true;
    };
    // A node that does not know us will not get to know us by waiting.
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
        ] {
            assert!(matches!(classify(&cause), Error::Transient(_)), "{cause}");
        }
        for cause in [
            answered(DbError::Invalid),
            answered(DbError::SyntaxError),
            answered(DbError::Unauthorized),
            answered(DbError::ConfigError),
        ] {
            assert!(matches!(classify(&cause), Error::Fatal(_)), "{cause}");
        }
    }
}
