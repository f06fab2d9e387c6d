//! Receivers that have acknowledged nothing for a long time, reported to the operator once a day.

use std::collections::HashMap;
use std::time::Duration;

use schemas::UnixMicros;

/// Interval between two reports of the same failing endpoint.
const AGAIN_MICROS: i64 = 24 * 3600 * 1_000_000;
/// Length of a span, in microseconds: longer than any delay of a retry or deferral, so that each waiting delivery is
/// seen in every span.
const SPAN_MICROS: i64 = 2048 * 1_000_000;
/// Maximum number of failing endpoints that are tracked. Others are not reported.
const ENDPOINTS_MAX: usize = 20_000;
/// Time of an event that no span has.
const NEVER: UnixMicros = UnixMicros(i64::MAX);

/// An endpoint to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failing {
    /// Time of its first failure after the last 200.
    pub(crate) since: UnixMicros,
    /// The oldest event that waits for it.
    pub(crate) oldest: UnixMicros,
}

#[derive(Debug)]
struct Endpoint {
    since: UnixMicros,
    /// Oldest event seen in the current span, and in the previous one.
    oldest: [UnixMicros; 2],
    span_ends: UnixMicros,
    named_at: Option<UnixMicros>,
}

impl Endpoint {
    fn saw(&mut self, emitted_at: UnixMicros, now: UnixMicros) {
        if now >= self.span_ends {
            self.oldest = self.spans(now);
            self.span_ends = UnixMicros(now.0.saturating_add(SPAN_MICROS));
        }
        self.oldest[0] = self.oldest[0].min(emitted_at);
    }

    /// Oldest event seen in the span of `now`, and in the one before.
    fn spans(&self, now: UnixMicros) -> [UnixMicros; 2] {
        if now < self.span_ends {
            return self.oldest;
        }
        let has_lapsed = now.0.saturating_sub(self.span_ends.0) >= SPAN_MICROS;
        [NEVER, if has_lapsed { NEVER } else { self.oldest[0] }]
    }

    /// The oldest event that waits; [`NEVER`] if none was seen lately: all were given up, or another process has them.
    fn oldest(&self, now: UnixMicros) -> UnixMicros {
        let [latest, before] = self.spans(now);
        latest.min(before)
    }
}

/// The endpoints that fail, by host and port.
#[derive(Debug)]
pub(crate) struct Endpoints {
    after_micros: i64,
    failing: HashMap<String, Endpoint>,
}

impl Endpoints {
    /// Reports endpoints that have failed for at least `after`.
    pub(crate) fn new(after: Duration) -> Self {
        let after_micros = i64::try_from(after.as_micros()).unwrap_or(i64::MAX);
        Self { after_micros, failing: HashMap::new() }
    }

    /// Notes a failure. Returns the endpoint if it is to be reported.
    pub(crate) fn failed(
        &mut self,
        host: &str,
        emitted_at: UnixMicros,
        now: UnixMicros,
    ) -> Option<Failing> {
        if !self.failing.contains_key(host) {
            if self.failing.len() >= ENDPOINTS_MAX {
                return None;
            }
            let span_ends = UnixMicros(now.0.saturating_add(SPAN_MICROS));
            let oldest = [emitted_at, NEVER];
            let endpoint = Endpoint { since: now, oldest, span_ends, named_at: None };
            self.failing.insert(host.to_owned(), endpoint);
        }
        let endpoint = self.failing.get_mut(host)?;
        endpoint.saw(emitted_at, now);
        let was_named_lately =
            endpoint.named_at.is_some_and(|at| now.0.saturating_sub(at.0) < AGAIN_MICROS);
        if was_named_lately || now.0.saturating_sub(endpoint.since.0) < self.after_micros {
            return None;
        }
        endpoint.named_at = Some(now);
        Some(Failing { since: endpoint.since, oldest: endpoint.oldest(now) })
    }

    /// Notes a deferred event of a failing endpoint; ignores one of another endpoint.
    pub(crate) fn deferred(&mut self, host: &str, emitted_at: UnixMicros, now: UnixMicros) {
        if let Some(endpoint) = self.failing.get_mut(host) {
            endpoint.saw(emitted_at, now);
        }
    }

    /// The oldest event that waits for any failing endpoint.
    pub(crate) fn oldest(&self, now: UnixMicros) -> Option<UnixMicros> {
        let all = self.failing.values().map(|endpoint| endpoint.oldest(now));
        all.filter(|oldest| *oldest < NEVER).min()
    }

    /// Notes an acknowledgement, which ends the failure. Returns the failure's start if it was reported.
    pub(crate) fn acknowledged(&mut self, host: &str) -> Option<UnixMicros> {
        let endpoint = self.failing.remove(host)?;
        endpoint.named_at.map(|_| endpoint.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn at(seconds: i64) -> UnixMicros {
        UnixMicros(1_790_000_000_000_000 + seconds * 1_000_000)
    }

    fn endpoints() -> Endpoints {
        Endpoints::new(Duration::from_secs(3600))
    }

    #[test]
    fn it_is_named_after_an_hour_and_once_a_day() {
        let mut endpoints = endpoints();
        let named: Vec<i64> = (0..50)
            .filter(|hour| endpoints.failed("shop:443", at(0), at(hour * HOUR)).is_some())
            .collect();
        assert_eq!(named, [1, 25, 49]);
        assert_eq!(endpoints.failed("other:443", at(0), at(50 * HOUR)), None);
    }

    #[test]
    fn acknowledgement_ends_a_reported_failure() {
        let mut endpoints = endpoints();
        endpoints.failed("shop:443", at(0), at(0));
        assert_eq!(endpoints.acknowledged("shop:443"), None);
        endpoints.failed("shop:443", at(0), at(10));
        assert_eq!(endpoints.failed("shop:443", at(0), at(HOUR)), None, "it counts anew");
        assert!(endpoints.failed("shop:443", at(0), at(10 + HOUR)).is_some());
        assert_eq!(endpoints.acknowledged("shop:443"), Some(at(10)));
        assert_eq!(endpoints.acknowledged("shop:443"), None);
    }

    #[test]
    fn the_oldest_event_is_one_that_still_waits() {
        let mut endpoints = endpoints();
        endpoints.failed("shop:443", at(-500), at(0));
        for minute in 1..60 {
            endpoints.deferred("shop:443", at(-10), at(minute * 60));
        }
        let failing = endpoints.failed("shop:443", at(60), at(2 * HOUR)).unwrap();
        assert_eq!(failing, Failing { since: at(0), oldest: at(60) }, "the others are over");
        endpoints.failed("other:443", at(30), at(2 * HOUR));
        assert_eq!(endpoints.oldest(at(2 * HOUR)), Some(at(30)));
        endpoints.acknowledged("other:443");
        assert_eq!(endpoints.oldest(at(2 * HOUR)), Some(at(60)));
        let mut waiting = self::endpoints();
        for minute in 0..60 {
            assert_eq!(waiting.failed("shop:443", at(-500), at(minute * 60)), None);
        }
        let failing = waiting.failed("shop:443", at(60), at(HOUR)).unwrap();
        assert_eq!(failing.oldest, at(-500));
    }

    #[test]
    fn nothing_waits_for_an_endpoint_that_gets_nothing() {
        let span = SPAN_MICROS / 1_000_000;
        let mut endpoints = endpoints();
        endpoints.failed("shop:443", at(0), at(0));
        for (now, oldest) in [(-HOUR, Some(at(0))), (2 * span - 1, Some(at(0))), (2 * span, None)] {
            assert_eq!(endpoints.oldest(at(now)), oldest, "{now}");
        }
        endpoints.deferred("shop:443", at(5), at(2 * span));
        assert_eq!(endpoints.oldest(at(2 * span)), Some(at(5)));
    }

    #[test]
    fn endpoints_beyond_the_limit_are_not_followed() {
        let mut endpoints = endpoints();
        for number in 0..=ENDPOINTS_MAX {
            endpoints.failed(&format!("{number}:443"), at(0), at(0));
        }
        for (number, is_named) in [(ENDPOINTS_MAX - 1, true), (ENDPOINTS_MAX, false)] {
            let named = endpoints.failed(&format!("{number}:443"), at(0), at(HOUR));
            assert_eq!(named.is_some(), is_named, "{number}");
        }
        assert!(endpoints.acknowledged("0:443").is_none());
        endpoints.failed("new:443", at(0), at(0));
        assert!(endpoints.failed("new:443", at(0), at(HOUR)).is_some(), "a place came free");
    }
}
