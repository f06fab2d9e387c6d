//! The system's clock, moved ahead: timers of orders use real time, which a test cannot wait for.

use std::sync::atomic::{AtomicI64, Ordering};

use runtime::{Clock, SystemClock};
use schemas::UnixMicros;

/// The system's clock, this many microseconds ahead.
#[derive(Debug, Default)]
pub struct MovedClock(pub AtomicI64);

impl Clock for MovedClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }
}
