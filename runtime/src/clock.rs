//! The wall clock, injectable. Only code with I/O reads it: state machines get time as an argument.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use schemas::UnixMicros;

/// The source of the time.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> UnixMicros;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> UnixMicros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// A clock that moves only when it is set, for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Makes a clock that shows `now`.
    #[must_use]
    pub fn new(now: UnixMicros) -> Self {
        Self(AtomicI64::new(now.0))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: std::time::Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(self.0.load(Ordering::SeqCst))
    }
}
