//! Wakes readers, each for the topics that it reads.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use schemas::Topic;

/// Signal that is raised after each commit with records, and after each change of a group's
/// members.
#[derive(Debug, Default)]
pub(super) struct Signal {
    listeners: Mutex<Vec<Weak<Listener>>>,
}

/// Wake-up signal of one reader.
///
/// The reader takes [`Listener::seen`], checks for work, and waits with that count: a change in
/// between ends the wait at once, so none is missed.
#[derive(Debug)]
pub(super) struct Listener {
    topics: Vec<Topic>,
    count: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    /// Listens until the result is dropped.
    pub(super) fn listen(&self, topics: &[Topic]) -> Arc<Listener> {
        let (count, changed) = (Mutex::default(), Condvar::new());
        let listener = Arc::new(Listener { topics: topics.to_vec(), count, changed });
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&listener));
        listener
    }

    pub(super) fn raise(&self, topics: &[Topic]) {
        self.wake(|listener| listener.topics.iter().any(|topic| topics.contains(topic)));
    }

    pub(super) fn raise_for_all(&self) {
        self.wake(|_| true);
    }

    fn wake(&self, is_meant: impl Fn(&Listener) -> bool) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for listener in listeners.iter().filter_map(Weak::upgrade).filter(|one| is_meant(one)) {
            let mut count = listener.count.lock().unwrap_or_else(PoisonError::into_inner);
            *count = count.wrapping_add(1);
            drop(count);
            listener.changed.notify_all();
        }
    }
}

impl Listener {
    pub(super) fn seen(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there was a change after `seen`, at most `timeout`.
    pub(super) fn wait(&self, seen: u64, timeout: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        // Woken or timed out: the caller checks again either way.
        drop(self.changed.wait_timeout_while(count, timeout, |count| *count == seen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readers_of_the_topics_are_woken() {
        let signal = Signal::default();
        let orders = signal.listen(&[Topic::Orders, Topic::Chains]);
        let alerts = signal.listen(&[Topic::Alerts]);
        signal.raise(&[Topic::Deposits, Topic::Orders]);
        assert_eq!((orders.seen(), alerts.seen()), (1, 0));
        signal.raise_for_all();
        assert_eq!((orders.seen(), alerts.seen()), (2, 1));
        drop(alerts);
        signal.raise(&[Topic::Alerts]);
        assert_eq!(orders.seen(), 2);
    }

    #[test]
    fn a_change_before_the_wait_ends_it() {
        let signal = Signal::default();
        let listener = signal.listen(&[Topic::Orders]);
        let seen = listener.seen();
        signal.raise(&[Topic::Orders]);
        listener.wait(seen, Duration::from_secs(3600));
    }
}
