//! Messages about a chain without progress, and the backoff after transient failures of the log.

use std::time::Duration;

use schemas::Blockchain;

use crate::machine::Refusal;
use crate::rpc::Failure;

/// First wait after a failure; it doubles each time.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Number of consecutive polls behind after which a message is written.
const BEHIND_POLLS_MAX: u32 = 10;

/// Logs each change of the cause of a delay, and doubles the waits for the log.
pub(super) struct Backoff {
    blockchain: Blockchain,
    delay: Duration,
    cause: Option<String>,
    behind: u32,
}

impl Backoff {
    pub(super) fn new(blockchain: Blockchain) -> Self {
        Self { blockchain, delay: BACKOFF_MIN, cause: None, behind: 0 }
    }

    /// Logs why a request has no answer.
    pub(super) fn failed(&mut self, endpoint: &str, failure: &Failure) {
        if failure.refusal != Refusal::Fatal {
            return self.note(&format!("{endpoint}: {failure}"));
        }
        let name = self.blockchain.as_str();
        if self.is_new(&failure.message) {
            tracing::error!(
                blockchain = name,
                endpoint,
                cause = failure.message,
                "endpoint of {name} refuses a request it must serve: check its URL and plan"
            );
        }
    }

    /// Logs why there is no progress.
    pub(super) fn note(&mut self, cause: &str) {
        let name = self.blockchain.as_str();
        if self.is_new(cause) {
            tracing::warn!(
                blockchain = name,
                cause,
                "following {name} is delayed and will be retried"
            );
        }
    }

    /// The wait after a transient failure of the log.
    pub(super) fn again(&mut self, cause: &str) -> Duration {
        self.note(cause);
        let delay = self.delay;
        self.delay = delay.saturating_mul(2).min(BACKOFF_MAX);
        delay
    }

    /// Counts a poll of an endpoint that lacks blocks already scanned.
    pub(super) fn behind(&mut self) {
        self.behind = self.behind.saturating_add(1);
        if self.behind == BEHIND_POLLS_MAX {
            let name = self.blockchain.as_str();
            let cause = "the endpoint is behind the last scanned block, or behind start_block";
            tracing::warn!(blockchain = name, cause, "following {name} is delayed");
        }
    }

    /// Takes note of progress.
    pub(super) fn clear(&mut self) {
        self.behind = 0;
        if self.cause.take().is_some() {
            let name = self.blockchain.as_str();
            tracing::info!(blockchain = name, "following {name} resumed");
        }
        self.delay = BACKOFF_MIN;
    }

    fn is_new(&mut self, cause: &str) -> bool {
        let new = self.cause.as_deref() != Some(cause);
        if new {
            self.cause = Some(cause.to_owned());
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_its_maximum_then_resets() {
        let mut backoff = Backoff::new(Blockchain::Eth);
        let waits: Vec<_> = (0..8).map(|_| backoff.again("x").as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        backoff.clear();
        assert_eq!(backoff.again("x"), BACKOFF_MIN);
    }

    #[test]
    fn a_cause_is_new_once() {
        let mut backoff = Backoff::new(Blockchain::Eth);
        let new = ["a", "a", "b", "b", "a"].map(|cause| backoff.is_new(cause));
        assert_eq!(new, [true, false, true, false, true]);
        backoff.clear();
        assert!(backoff.is_new("a"));
    }
}
