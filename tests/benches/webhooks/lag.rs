//! The time from events to their 200s.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use testkit::measure::percentile;

use crate::engine::Engine;
use crate::receivers::Receivers;

/// Maximum wait for a 200; a missing one counts as this late.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sorted times; a missing 200 counts as [`PATIENCE`].
pub(crate) struct Lags {
    times: Vec<Duration>,
    missing: usize,
}

impl Lags {
    /// Waits for the watched events, chosen by their number among `events`; returns their times.
    pub(crate) async fn of(
        engine: &Engine,
        receivers: &mut Receivers,
        events: Range<usize>,
        is_watched: impl Fn(usize) -> bool,
    ) -> Self {
        let watched: Vec<_> =
            events.clone().filter(|event| is_watched(event - events.start)).collect();
        let mut arrivals = HashMap::new();
        let since = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        loop {
            ticks.tick().await;
            // First arrivals count.
            receivers.take().into_iter().for_each(|(event, time)| {
                arrivals.entry(event).or_insert(time);
            });
            let is_there = |event: &usize| arrivals.contains_key(event);
            if since.elapsed() > PATIENCE || watched.iter().all(is_there) {
                break;
            }
        }
        let lag = |event: &usize| {
            let micros = arrivals.get(event)?.0 - engine.sent_at(*event).0;
            Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
        };
        let mut times: Vec<_> =
            watched.iter().map(|event| lag(event).unwrap_or(PATIENCE)).collect();
        times.sort_unstable();
        let missing = watched.iter().filter(|event| lag(event).is_none()).count();
        Self { times, missing }
    }

    fn percentile(&self, percent: usize) -> Duration {
        percentile(&self.times, percent)
    }
}

impl fmt::Display for Lags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |percent| self.percentile(percent).as_secs_f64() * 1000.0;
        write!(f, "p50 {:.1} ms, p99 {:.1} ms", millis(50), millis(99))?;
        let (count, missing) = (self.times.len(), self.missing);
        if missing > 0 {
            write!(f, " ({missing} of {count} not after {} s)", PATIENCE.as_secs())?;
        }
        Ok(())
    }
}

/// A change of the 99th percentile.
pub(crate) fn change(before: &Lags, after: &Lags) -> String {
    let ratio = after.percentile(99).as_secs_f64() / before.percentile(99).as_secs_f64();
    format!("{:+.0} %", (ratio - 1.0) * 100.0)
}
