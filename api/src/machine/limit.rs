//! Rate limits: for the holder of a checkout link, whose commands are records on the log, for customers of one address,
//! and for wrong secrets and signatures.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use schemas::UnixMicros;

/// Maximum keys in memory. If this number of keys is limited at once, all limits are reset: each gets one more burst.
const KEYS_MAX: usize = 50_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Maximum requests at once.
    burst: i64,
    /// Microseconds between two requests after a burst.
    interval_micros: i64,
}

impl Rate {
    /// Commands of the holder of a link.
    pub(crate) const LINK: Self = Self { burst: 8, interval_micros: 6_000_000 };

    /// Wrong secrets and signatures of one address: 10 a second, in bursts of 20.
    pub(crate) const REFUSALS: Self = Self { burst: 20, interval_micros: 100_000 };

    /// This number of requests a second, in bursts of twice this number. Above a million there is no limit.
    pub(crate) fn per_second(requests: NonZeroU32) -> Self {
        let requests = i64::from(requests.get());
        Self { burst: 2 * requests, interval_micros: 1_000_000 / requests }
    }
}

/// Limits by key: the time at which each recent key has its whole burst again.
#[derive(Debug)]
pub(crate) struct Limits<K> {
    rate: Rate,
    whole_at: Mutex<HashMap<K, UnixMicros>>,
}

impl<K: Eq + Hash> Limits<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, whole_at: Mutex::default() }
    }

    /// Returns `true`, and counts the request, if its key is within the limit.
    pub(crate) fn admit(&self, key: K, now: UnixMicros) -> bool {
        let Rate { burst, interval_micros } = self.rate;
        let mut all = self.whole_at.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KEYS_MAX {
            all.retain(|_, whole_at| *whole_at > now);
        }
        if all.len() >= KEYS_MAX {
            all.clear();
        }
        let whole_at = all.entry(key).or_insert(now);
        // A clock that was set back delays no key for longer than a burst takes to recover.
        let used = whole_at.0.saturating_sub(now.0).clamp(0, burst * interval_micros);
        let after = used.saturating_add(interval_micros);
        let admitted = after <= burst * interval_micros;
        *whole_at = UnixMicros(now.0.saturating_add(if admitted { after } else { used }));
        admitted
    }
}

#[cfg(test)]
mod tests {
    use schemas::OrderId;
    use uuid::Uuid;

    use super::*;

    const NOW: UnixMicros = UnixMicros(1_790_000_000_654_321);

    fn order(number: usize) -> OrderId {
        OrderId(Uuid::from_u128(number as u128))
    }

    fn after(seconds: i64) -> UnixMicros {
        UnixMicros(NOW.0 + seconds * 1_000_000)
    }

    fn admitted(limits: &Limits<OrderId>, at: UnixMicros) -> usize {
        (0..100).take_while(|_| limits.admit(order(1), at)).count()
    }

    #[test]
    fn a_burst_then_one_at_a_time() {
        let limits = Limits::new(Rate::LINK);
        assert_eq!(admitted(&limits, NOW), 8);
        assert!(limits.admit(order(2), NOW), "each order by itself");
        assert_eq!(admitted(&limits, after(5)), 0, "and refusals cost nothing");
        assert_eq!(admitted(&limits, after(6)), 1);
        assert_eq!(admitted(&limits, after(18)), 2);
        assert_eq!(admitted(&limits, after(1000)), 8);
    }

    #[test]
    fn a_rate_and_twice_as_many_at_once() {
        for requests in [1, 3, 500, 100_000] {
            let limits = Limits::new(Rate::per_second(NonZeroU32::new(requests).unwrap()));
            let admitted = |at| (0..1_000_000).take_while(|_| limits.admit((), at)).count();
            assert_eq!(admitted(NOW), 2 * requests as usize);
            assert_eq!(admitted(after(1)), requests as usize);
        }
    }

    #[test]
    fn a_clock_that_goes_back_locks_nobody_out() {
        let limits = Limits::new(Rate::LINK);
        assert_eq!(admitted(&limits, after(3600)), 8);
        assert_eq!(admitted(&limits, NOW), 0);
        assert_eq!(admitted(&limits, after(48)), 8);
    }

    #[test]
    fn memory_is_bounded() {
        let limits = Limits::new(Rate::LINK);
        for number in 0..KEYS_MAX {
            assert!(limits.admit(order(number), NOW));
        }
        assert!(limits.admit(order(KEYS_MAX), after(7)));
        let count = || limits.whole_at.lock().unwrap().len();
        assert_eq!(count(), 1, "those with a whole burst are as if they had never come");
        for number in 0..2 * KEYS_MAX {
            assert!(limits.admit(order(number), after(8)));
            assert!(count() <= KEYS_MAX);
        }
    }
}
