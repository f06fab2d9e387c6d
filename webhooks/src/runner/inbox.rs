//! A worker's inbox of returned jobs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use schemas::UnixMicros;

/// Time after a worker's turn in which its jobs may start: well below the time after which a worker that does not poll
/// loses its partitions without being notified.
const OPEN_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct State<B> {
    back: Vec<B>,
    under_way: usize,
    /// Jobs may start until then.
    open_until: Option<Instant>,
    next_due: Option<UnixMicros>,
}

/// The inbox of one worker, which empties it each turn. `B` is the type of its items.
#[derive(Debug)]
pub(super) struct Inbox<B>(Mutex<State<B>>);

impl<B> Inbox<B> {
    pub(super) fn new() -> Self {
        let state = State { back: Vec::new(), under_way: 0, open_until: None, next_due: None };
        Self(Mutex::new(state))
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets jobs start for [`OPEN_FOR`] after a turn of the worker.
    pub(super) fn open(&self, now: Instant) {
        self.state().open_until = Some(now + OPEN_FOR);
    }

    /// Lets no more jobs start.
    pub(super) fn close(&self) {
        self.state().open_until = None;
    }

    /// Starts a job if it may.
    pub(super) fn begin(&self, now: Instant) -> bool {
        let mut state = self.state();
        let may_start = state.open_until.is_some_and(|until| now < until);
        state.under_way += usize::from(may_start);
        may_start
    }

    /// Ends a job that began, and puts its result into the inbox.
    pub(super) fn ended(&self, back: B) {
        let mut state = self.state();
        state.under_way -= 1;
        state.back.push(back);
    }

    pub(super) fn put(&self, back: B) {
        self.state().back.push(back);
    }

    pub(super) fn take(&self) -> Vec<B> {
        std::mem::take(&mut self.state().back)
    }

    /// `true` if no job is under way and the inbox is empty.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.under_way == 0 && state.back.is_empty()
    }

    pub(super) fn under_way(&self) -> usize {
        self.state().under_way
    }

    /// Sets the due time of the first of the worker's records.
    pub(super) fn set_next_due(&self, due: Option<UnixMicros>) {
        self.state().next_due = due;
    }

    pub(super) fn next_due(&self) -> Option<UnixMicros> {
        self.state().next_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_start_for_a_second_after_a_turn() {
        let (inbox, now) = (Inbox::<()>::new(), Instant::now());
        assert!(!inbox.begin(now), "it had no turn");
        inbox.open(now);
        assert!(inbox.begin(now) && !inbox.begin(now + OPEN_FOR));
        inbox.close();
        assert!(!inbox.begin(now));
        assert_eq!(inbox.under_way(), 1);
    }
}
