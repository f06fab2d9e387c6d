//! Retries for jobs that run for hours, so that one time-out does not end a job.

use std::future::Future;
use std::time::Duration;

use crate::Error;

/// Maximum number of tries: together longer than a node's restart takes.
const TRIES_MAX: usize = 60;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Runs `attempt` until it does not fail with [`Error::Transient`], at most 60 times, a second apart.
///
/// # Errors
/// Error of the last attempt.
pub async fn retry<T, F>(attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    for _ in 1..TRIES_MAX {
        match attempt().await {
            Err(Error::Transient(cause)) => {
                tracing::warn!(%cause, "the tables are not available now; will retry");
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
            }
            outcome => return outcome,
        }
    }
    attempt().await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Runs work that fails this number of times. Returns its outcome and the number of attempts.
    async fn attempts(failures: usize, failure: fn() -> Error) -> (Result<(), Error>, usize) {
        let made = Cell::new(0);
        let outcome = retry(|| {
            made.set(made.get() + 1);
            let fails = made.get() <= failures;
            async move { if fails { Err(failure()) } else { Ok(()) } }
        });
        (outcome.await, made.get())
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_waited_for_and_nothing_else() {
        let transient = || Error::Transient("late".into());
        assert!(matches!(attempts(0, transient).await, (Ok(()), 1)));
        assert!(matches!(attempts(59, transient).await, (Ok(()), 60)));
        assert!(matches!(attempts(60, transient).await, (Err(Error::Transient(_)), 60)));
        let fatal = || Error::Fatal("refused".into());
        assert!(matches!(attempts(1, fatal).await, (Err(Error::Fatal(_)), 1)));
    }
}
