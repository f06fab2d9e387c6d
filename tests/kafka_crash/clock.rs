//! The system's clock, moved: timers of orders are due in real time, and a test has none to waste.

use std::sync::atomic::{AtomicI64, Ordering};

use runtime::{Clock, SystemClock};
use schemas::UnixMicros;

/// The system's clock, so many microseconds ahead.
#[derive(Debug, Default)]
pub(crate) struct MovedClock(pub(crate) AtomicI64);

impl Clock for MovedClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }
}
