//! The last resort: aborts the process when a call of the client library does not return.
//!
//! Calls of transactions return in time, since the settings of their producer (`idle_max`) make the library query
//! again where it would wait for ever. Should one not return all the same, its thread cannot be freed. The
//! group reassigns its partitions, so nothing is lost; but this process makes no steps until it is
//! restarted.
//!
//! Time is counted in ticks of the watchdog itself, so that a suspension of the process does not count as
//! a late call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

const TICK: Duration = Duration::from_secs(1);

/// Watches the calls of one log.
#[derive(Debug)]
pub(crate) struct Watchdog {
    calls: Arc<Calls>,
    ticks: u64,
}

#[derive(Debug, Default)]
struct Calls(Mutex<(u64, HashMap<u64, Call>)>);

#[derive(Debug)]
struct Call {
    name: &'static str,
    ticks_left: u64,
}

/// A call that is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    calls: Arc<Calls>,
    number: u64,
}

impl Watchdog {
    /// Aborts the process once a call has taken about `limit`, which counts in whole seconds.
    pub(crate) fn new(limit: Duration) -> Self {
        let calls = Arc::new(Calls::default());
        let watched = Arc::downgrade(&calls);
        let thread = std::thread::Builder::new().name("log-watchdog".to_owned());
        if let Err(error) = thread.spawn(move || run(&watched)) {
            tracing::warn!(%error, "calls of Kafka's client are not watched");
        }
        Self { calls, ticks: limit.as_secs().max(1) }
    }

    pub(crate) fn watch(&self, name: &'static str) -> Watched {
        let mut calls = self.calls.lock();
        calls.0 += 1;
        let number = calls.0;
        calls.1.insert(number, Call { name, ticks_left: self.ticks });
        Watched { calls: self.calls.clone(), number }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.calls.lock().1.remove(&self.number);
    }
}

/// Counts ticks until the log is dropped.
fn run(calls: &Weak<Calls>) {
    loop {
        std::thread::park_timeout(TICK);
        let Some(calls) = calls.upgrade() else { return };
        if let Some(name) = calls.tick() {
            tracing::error!(
                kafka.call = name,
                "a call of Kafka's client did not return in time; the process aborts and must be \
                 restarted; nothing is lost, its partitions move to other members"
            );
            std::process::abort();
        }
    }
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<u64, Call>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts down, and returns the name of a call that has no time left.
    fn tick(&self) -> Option<&'static str> {
        let mut calls = self.lock();
        calls.1.values_mut().for_each(|call| call.ticks_left = call.ticks_left.saturating_sub(1));
        calls.1.values().find(|call| call.ticks_left == 0).map(|call| call.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_takes_too_long_is_late() {
        let watchdog = Watchdog { calls: Arc::default(), ticks: 3 };
        let long = watchdog.watch("long");
        assert_eq!(watchdog.calls.tick(), None);
        let short = watchdog.watch("short");
        assert_eq!(watchdog.calls.tick(), None);
        drop(short);
        assert_eq!(watchdog.calls.tick(), Some("long"));
        drop(long);
        assert_eq!(watchdog.calls.tick(), None);
    }
}
