//! Retries while the log is unavailable.

use std::time::Duration;

use runtime::task::{Backoff, wait};
use tokio_util::sync::CancellationToken;

use crate::Error;

const DELAY: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(5);

/// Calls `attempt` until it does not fail with [`Error::Transient`]; none if `stop` is cancelled first.
/// A cause is logged if it differs from the last one, with the `name` of the caller. Blocks.
///
/// # Errors
/// The first error that is not [`Error::Transient`].
pub fn retry<T>(
    stop: &CancellationToken,
    name: &str,
    mut attempt: impl FnMut() -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let (mut backoff, mut logged) = (Backoff::new(DELAY, DELAY_MAX), None);
    while !stop.is_cancelled() {
        match attempt() {
            Err(Error::Transient(cause)) => {
                let cause = cause.to_string();
                if logged.as_ref() != Some(&cause) {
                    tracing::warn!(cause, "{name} waits for the log");
                    logged = Some(cause);
                }
                wait(stop, backoff.next_delay());
            }
            other => return other.map(Some),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_transient_errors_are_retried() {
        let stop = CancellationToken::new();
        let mut left = 2;
        let answer = retry(&stop, "a stage", || {
            left -= 1;
            if left == 0 { Ok("joined") } else { Err(Error::Transient("away".into())) }
        });
        assert_eq!(answer.unwrap(), Some("joined"));
        let fatal = || Err::<(), _>(Error::Fatal("broken".into()));
        assert!(matches!(retry(&stop, "a stage", fatal), Err(Error::Fatal(_))));
        let stopping = stop.clone();
        let away = move || {
            stopping.cancel();
            Err::<(), _>(Error::Transient("away".into()))
        };
        assert!(retry(&stop, "a stage", away).unwrap().is_none());
    }
}
