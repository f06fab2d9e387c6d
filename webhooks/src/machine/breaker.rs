//! Circuit breaker of a receiver: while it fails, it gets only an occasional probe request.

use schemas::UnixMicros;

/// Consecutive failures that open the breaker.
const FAILURES_MAX: u32 = 5;
/// Initial open time (5 s), doubled after each failed probe up to the maximum (60 s).
const WAIT_MICROS: i64 = 5_000_000;
const WAIT_MAX_MICROS: i64 = 60_000_000;

/// Opened by failures, closed by any answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Breaker {
    /// Consecutive failures. Failures while the breaker is open and no probe is due do not count.
    failures: u32,
    until: UnixMicros,
}

impl Breaker {
    pub(crate) fn is_open(self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// `true` if an open breaker lets a request through. Also `true` if the clock was set back so far that more than
    /// the maximum wait is left.
    pub(crate) fn may_probe(self, now: UnixMicros) -> bool {
        let left = self.until.0.saturating_sub(now.0);
        left <= 0 || left > WAIT_MAX_MICROS
    }

    pub(crate) fn answered(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn failed(&mut self, now: UnixMicros) {
        if self.is_open() && !self.may_probe(now) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.saturating_sub(FAILURES_MAX).min(8);
        let wait = (WAIT_MICROS << doublings).min(WAIT_MAX_MICROS);
        self.until = UnixMicros(now.0.saturating_add(wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> UnixMicros {
        UnixMicros(seconds * 1_000_000)
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        (0..5).for_each(|_| breaker.failed(at(0)));
        breaker
    }

    #[test]
    fn opens_after_five_in_a_row() {
        let mut breaker = Breaker::default();
        (0..4).for_each(|_| breaker.failed(at(0)));
        breaker.answered();
        (0..4).for_each(|_| breaker.failed(at(0)));
        assert!(!breaker.is_open());
        breaker.failed(at(0));
        assert!(breaker.is_open() && !breaker.may_probe(at(4)) && breaker.may_probe(at(5)));
    }

    #[test]
    fn doubles_to_a_minute() {
        let (mut breaker, mut now) = (opened(), 0);
        for wait in [5, 10, 20, 40, 60, 60] {
            assert!(!breaker.may_probe(at(now + wait - 1)), "{wait}");
            now += wait;
            assert!(breaker.may_probe(at(now)), "{wait}");
            breaker.failed(at(now));
        }
    }

    #[test]
    fn failures_of_earlier_requests_do_not_lengthen_it() {
        let mut breaker = opened();
        (0..50).for_each(|_| breaker.failed(at(1)));
        assert!(breaker.may_probe(at(5)));
    }

    #[test]
    fn any_answer_closes_it() {
        let mut breaker = opened();
        breaker.answered();
        assert_eq!(breaker.is_open(), Breaker::default().is_open());
        breaker.failed(at(9));
        assert!(!breaker.is_open(), "and it counts from the beginning");
    }

    #[test]
    fn a_clock_that_was_set_back_holds_no_probe_back() {
        assert!(opened().may_probe(at(-100)));
    }
}
