//! Request rate of an endpoint.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Spaces calls evenly: providers count each call of a batch.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    /// Earliest time of the next request.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub(super) fn new(calls_per_second: u64) -> Self {
        let interval = Duration::from_micros(1_000_000 / calls_per_second.max(1));
        Self { interval, next: Mutex::new(None) }
    }

    /// Reserves the time of some calls. Returns the wait before they are sent.
    pub(super) fn take(&self, calls: usize, now: Instant) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = next.map_or(now, |next| next.max(now));
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        *next = Some(start + self.interval.saturating_mul(calls));
        start.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_the_time_of_its_calls() {
        let pace = Pace::new(10);
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let taken = [(3, 0), (1, 100), (1, 350), (2, 2000), (1, 2000)]
            .map(|(calls, millis)| pace.take(calls, at(millis)).as_millis());
        assert_eq!(taken, [0, 200, 50, 0, 200]);
    }
}
