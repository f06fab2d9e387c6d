//! The system's clock, moved ahead, as timers of orders use real time.

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
