//! Wakes readers: a count of changes and a condition to wait on.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Raised after each commit and each change of a group's members.
///
/// A reader takes [`Signal::seen`], checks for work, and waits with that count: a change in between ends
/// the wait at once, so none is missed.
#[derive(Debug, Default)]
pub(super) struct Signal {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    pub(super) fn seen(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn raise(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.wrapping_add(1);
        drop(count);
        self.changed.notify_all();
    }

    /// Waits until there was a change after `seen`, at most `timeout`.
    pub(super) fn wait(&self, seen: u64, timeout: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        // Woken or timed out: the caller checks again either way.
        drop(self.changed.wait_timeout_while(count, timeout, |count| *count == seen));
    }
}
