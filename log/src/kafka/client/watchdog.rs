//! The last resort: ends the process when a call of the client library does not return.
//!
//! Calls of transactions return in time, since the settings of their producer make the library ask again
//! where it would wait for ever. Should one not return all the same, its thread cannot be freed. The group
//! takes the partitions away meanwhile, so nothing is lost; but nobody works on them in this process until
//! it is started again.
//!
//! Time is counted in ticks of the watchdog itself: a process that was stopped for a while and goes on
//! is not late.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often calls are counted down.
const TICK: Duration = Duration::from_secs(1);

/// Watches the calls of one log.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    ticks: u64,
}

#[derive(Debug, Default)]
struct Shared {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    last: u64,
    started: bool,
    ended: bool,
    running: HashMap<u64, Call>,
}

#[derive(Debug)]
struct Call {
    name: &'static str,
    ticks_left: u64,
}

/// A call that is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Watchdog {
    /// One that lets calls take `limit`.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { shared: Arc::default(), ticks: limit.as_secs().max(1) }
    }

    /// Watches a call.
    pub(crate) fn watch(&self, name: &'static str) -> Watched<'_> {
        let mut calls = self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if !calls.started {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("log-watchdog".to_owned());
            match thread.spawn(move || shared.run()) {
                Ok(_) => calls.started = true,
                Err(error) => tracing::warn!(%error, "calls of Kafka's client are not watched"),
            }
        }
        calls.last += 1;
        let number = calls.last;
        calls.running.insert(number, Call { name, ticks_left: self.ticks });
        self.shared.changed.notify_all();
        Watched { shared: &self.shared, number }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut calls = self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.running.remove(&self.number);
    }
}

impl Shared {
    fn run(&self) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        while !calls.ended {
            if calls.running.is_empty() {
                calls = self.changed.wait(calls).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // A wait that a new call ends early is no tick.
            let waited = self.changed.wait_timeout(calls, TICK);
            let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
            calls = guard;
            if !result.timed_out() {
                continue;
            }
            if let Some(name) = calls.tick() {
                tracing::error!(
                    kafka.call = name,
                    "a call of Kafka's client did not return in time; the process aborts and must be \
                     started again; nothing is lost, its partitions move to other members"
                );
                std::process::abort();
            }
        }
    }
}

impl Calls {
    /// Counts down, and tells the name of a call that has no time left.
    fn tick(&mut self) -> Option<&'static str> {
        let mut late = None;
        for call in self.running.values_mut() {
            call.ticks_left = call.ticks_left.saturating_sub(1);
            if call.ticks_left == 0 {
                late = Some(call.name);
            }
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_goes_on_too_long_is_late() {
        let watchdog = Watchdog::new(Duration::from_secs(3));
        let long = watchdog.watch("long");
        let tick = || watchdog.shared.calls.lock().unwrap().tick();
        assert_eq!(tick(), None);
        let short = watchdog.watch("short");
        assert_eq!(tick(), None);
        drop(short);
        assert_eq!(tick(), Some("long"));
        drop(long);
        assert_eq!(tick(), None);
    }
}
