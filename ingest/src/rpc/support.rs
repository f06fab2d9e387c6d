//! A method that an endpoint may lack for a while: a load balancer has nodes of several versions behind it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time without requests for a method that the endpoint lacked.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(600);

/// Knowledge of one method.
#[derive(Debug, Default)]
pub(super) struct Support {
    /// Time of the last refusal; none if it was served since.
    lacked_at: Mutex<Option<Instant>>,
}

impl Support {
    /// Returns `true` if the method is worth a request.
    pub(super) fn is_expected(&self, now: Instant) -> bool {
        self.lock().is_none_or(|at| now.saturating_duration_since(at) >= ASK_AGAIN)
    }

    pub(super) fn served(&self) {
        *self.lock() = None;
    }

    /// Takes note of a refusal; returns `true` for the first one since the method was served.
    pub(super) fn lacked(&self, now: Instant) -> bool {
        self.lock().replace(now).is_none()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.lacked_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_was_lacking_is_asked_for_again() {
        let (support, start) = (Support::default(), Instant::now());
        assert!(support.is_expected(start));
        support.served();
        assert!(support.lacked(start), "also after it was served");
        let later = start + ASK_AGAIN;
        assert!(!support.is_expected(later - Duration::from_secs(1)));
        assert!(support.is_expected(later));
        assert!(!support.lacked(later), "no second line of the log");
        assert!(!support.is_expected(later));
        support.served();
        assert!(support.is_expected(later) && support.lacked(later));
    }
}
