//! A method that an endpoint may lack for a while: a load balancer may have nodes of several versions behind it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time after a refusal until the method is requested again.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(600);
/// Time of `null` about blocks that the endpoint shows, after which the method counts as missing. Most nodes need
/// seconds to index a new block.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Support {
    state: Mutex<State>,
}

/// Failures since the method was served.
#[derive(Debug, Default)]
struct State {
    /// Time of the last refusal.
    lacked_at: Option<Instant>,
    /// First and last time of `null`.
    silent: Option<(Instant, Instant)>,
}

impl Support {
    /// Returns `true` if the method is worth a request.
    pub(super) fn is_expected(&self, now: Instant) -> bool {
        self.lock().lacked_at.is_none_or(|at| now.saturating_duration_since(at) >= ASK_AGAIN)
    }

    pub(super) fn served(&self) {
        *self.lock() = State::default();
    }

    /// Takes note of a refusal; returns `true` for the first one since the method was served.
    pub(super) fn lacked(&self, now: Instant) -> bool {
        self.lock().lacked_at.replace(now).is_none()
    }

    /// Takes note of `null` about a block that the endpoint shows; returns `true` once that lasts too long.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        let mut state = self.lock();
        // An earlier `null` that was not repeated says nothing about this block.
        let is_recent = |last: Instant| now.saturating_duration_since(last) < 2 * SILENT_MAX;
        let begun = state.silent.filter(|(_, last)| is_recent(*last));
        let since = begun.map_or(now, |(since, _)| since);
        state.silent = Some((since, now));
        now.saturating_duration_since(since) >= SILENT_MAX
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn null_is_a_refusal_only_if_it_lasts() {
        let (support, start) = (Support::default(), Instant::now());
        let end = start + SILENT_MAX;
        assert!(!support.is_silent(start));
        assert!(!support.is_silent(end - Duration::from_secs(1)));
        assert!(support.is_silent(end));
        assert!(!support.is_silent(end + ASK_AGAIN), "the last one was long ago");
        assert!(support.is_silent(end + ASK_AGAIN + SILENT_MAX));
        support.served();
        assert!(!support.is_silent(end), "it was served in between");
    }
}
