//! Opening what the log may not have yet.

use std::time::Duration;

use runtime::task;
use tokio_util::sync::CancellationToken;

use crate::Error;

/// First and longest wait of [`insist`]; it doubles each time.
const INSIST_DELAY: Duration = Duration::from_millis(100);
const INSIST_DELAY_MAX: Duration = Duration::from_secs(5);

/// Tries until it does not fail in a way that may pass, on a thread of its own; none if `stop` came
/// first. Each new cause is logged once, as what keeps `who` waiting.
///
/// # Errors
/// The first error that is not [`Error::Transient`].
pub fn insist<T>(
    stop: &CancellationToken,
    who: &str,
    mut attempt: impl FnMut() -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let (mut delay, mut told) = (INSIST_DELAY, None);
    while !stop.is_cancelled() {
        match attempt() {
            Err(Error::Transient(cause)) => {
                if told.as_ref() != Some(&cause) {
                    tracing::warn!(cause, "{who} waits for the log");
                    told = Some(cause);
                }
                task::wait(stop, delay);
                delay = (delay * 2).min(INSIST_DELAY_MAX);
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
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let stop = CancellationToken::new();
        let mut left = 2;
        let answer = insist(&stop, "a stage", || {
            left -= 1;
            if left == 0 { Ok("joined") } else { Err(Error::Transient("away".to_owned())) }
        });
        assert_eq!(answer.unwrap(), Some("joined"));
        let fatal = || Err::<(), _>(Error::Fatal("broken".to_owned()));
        assert!(matches!(insist(&stop, "a stage", fatal), Err(Error::Fatal(_))));
        let told = stop.clone();
        let away = move || {
            told.cancel();
            Err::<(), _>(Error::Transient("away".to_owned()))
        };
        assert!(insist(&stop, "a stage", away).unwrap().is_none());
    }
}
