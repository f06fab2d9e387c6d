//! How often the holder of a checkout link may command: each command is records on the log.

use std::collections::HashMap;

use schemas::{OrderId, UnixMicros};

/// Commands that may come at once.
const BURST: i64 = 8;
/// After that, one in this time.
const INTERVAL_MICROS: i64 = 6_000_000;
/// Orders that are remembered. When as many have commanded in the last minute, all limits begin anew: memory
/// is bounded, and a limit that is forgotten admits one more burst.
const ORDERS_MAX: usize = 50_000;

/// For each order that commanded of late: when it has its whole burst again.
#[derive(Debug, Default)]
pub(crate) struct Limits(HashMap<OrderId, UnixMicros>);

impl Limits {
    /// Whether a command for the order may be sent now. If so, it counts.
    pub(crate) fn admit(&mut self, order_id: OrderId, now: UnixMicros) -> bool {
        if self.0.len() >= ORDERS_MAX {
            self.0.retain(|_, whole_at| *whole_at > now);
        }
        if self.0.len() >= ORDERS_MAX {
            self.0.clear();
        }
        let whole_at = self.0.entry(order_id).or_insert(now);
        // A clock that was set back leaves nobody waiting for longer than a burst.
        let used = whole_at.0.saturating_sub(now.0).clamp(0, BURST * INTERVAL_MICROS);
        let after = used.saturating_add(INTERVAL_MICROS);
        let admitted = after <= BURST * INTERVAL_MICROS;
        *whole_at = UnixMicros(now.0.saturating_add(if admitted { after } else { used }));
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const NOW: UnixMicros = UnixMicros(1_790_000_000_000_000);

    fn order(number: usize) -> OrderId {
        OrderId(Uuid::from_u128(number as u128))
    }

    fn after(seconds: i64) -> UnixMicros {
        UnixMicros(NOW.0 + seconds * 1_000_000)
    }

    fn admitted(limits: &mut Limits, at: UnixMicros) -> usize {
        (0..100).take_while(|_| limits.admit(order(1), at)).count()
    }

    #[test]
    fn a_burst_then_one_at_a_time() {
        let mut limits = Limits::default();
        assert_eq!(admitted(&mut limits, NOW), 8);
        assert!(limits.admit(order(2), NOW), "each order by itself");
        assert_eq!(admitted(&mut limits, after(5)), 0, "and refusals cost nothing");
        assert_eq!(admitted(&mut limits, after(6)), 1);
        assert_eq!(admitted(&mut limits, after(18)), 2);
        assert_eq!(admitted(&mut limits, after(1000)), 8);
    }

    #[test]
    fn a_clock_that_goes_back_locks_nobody_out() {
        let mut limits = Limits::default();
        assert_eq!(admitted(&mut limits, after(3600)), 8);
        assert_eq!(admitted(&mut limits, NOW), 0);
        assert_eq!(admitted(&mut limits, after(48)), 8);
    }

    #[test]
    fn memory_is_bounded() {
        let mut limits = Limits::default();
        for number in 0..ORDERS_MAX {
            assert!(limits.admit(order(number), NOW));
        }
        assert!(limits.admit(order(ORDERS_MAX), after(7)));
        assert_eq!(limits.0.len(), 1, "those with a whole burst are as if they had never come");
        for number in 0..2 * ORDERS_MAX {
            assert!(limits.admit(order(number), after(8)));
            assert!(limits.0.len() <= ORDERS_MAX);
        }
    }
}
