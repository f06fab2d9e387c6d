//! Waiting for a condition, never for time.

use std::cell::Cell;
use std::future::Future;
use std::time::{Duration, Instant};

/// Longer than any awaited condition takes on a busy machine; reached only by failures.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// Interval between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Interval of mined blocks while a condition is polled.
const BLOCK_INTERVAL: Duration = Duration::from_millis(250);

/// The pace at which blocks are mined while a condition is polled. Each block adds a second of chain time: one per poll
/// would let chain time run ahead of the clock, and orders expire before blocks are old enough to be confirmed.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    last: Cell<Option<Instant>>,
}

impl Default for Pace {
    fn default() -> Self {
        Self::of(BLOCK_INTERVAL)
    }
}

impl Pace {
    /// Allows at most one block per interval.
    #[must_use]
    pub const fn of(interval: Duration) -> Self {
        Self { interval, last: Cell::new(None) }
    }

    /// `true` if the next block is due, which restarts the interval.
    pub fn is_due(&self) -> bool {
        let is_due = self.last.get().is_none_or(|last| last.elapsed() >= self.interval);
        if is_due {
            self.last.set(Some(Instant::now()));
        }
        is_due
    }
}

/// Waits until `check` finds something; panics after [`DEADLINE`].
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    check: impl FnMut() -> F,
) -> T {
    eventually_or(what, check, String::new).await
}

/// As [`eventually`]; `explain` returns the details for the panic.
pub async fn eventually_or<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut check: impl FnMut() -> F,
    explain: impl FnOnce() -> String,
) -> T {
    let search = async {
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(found) = check().await {
                return found;
            }
        }
    };
    match tokio::time::timeout(DEADLINE, search).await {
        Ok(found) => found,
        Err(_) => panic!("waited {DEADLINE:?} in vain for {what}\n{}", explain()),
    }
}

/// Blocks until `check` is true; panics after [`DEADLINE`].
pub fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let started = Instant::now();
    while !check() {
        assert!(started.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain until {what}");
        std::thread::park_timeout(CHECK_INTERVAL);
    }
}
