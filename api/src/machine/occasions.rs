//! Events that may occur a thousand times a second, and are logged at most once a minute.

use std::sync::{Mutex, PoisonError};

use schemas::UnixSeconds;

/// Minimum time between two lines.
const INTERVAL_SECONDS: i64 = 60;

/// Number of occurrences since the last log line, and its time.
#[derive(Debug, Default)]
pub(crate) struct Occasions(Mutex<(u64, Option<UnixSeconds>)>);

impl Occasions {
    /// Counts an event. Returns the number since the last log line if another line is due.
    pub(crate) fn occurred(&self, now: UnixSeconds) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, logged_at) = &mut *last;
        *count = count.saturating_add(1);
        // A clock that was set back does not suppress the log line.
        let is_recent = |at: UnixSeconds| now.0.abs_diff(at.0) < INTERVAL_SECONDS.unsigned_abs();
        if logged_at.is_some_and(is_recent) {
            return None;
        }
        *logged_at = Some(now);
        Some(std::mem::take(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_is_logged_at_once_and_the_others_together() {
        let occasions = Occasions::default();
        let at = |second| occasions.occurred(UnixSeconds(second));
        assert_eq!([at(100), at(100), at(159)], [Some(1), None, None]);
        assert_eq!([at(160), at(161)], [Some(3), None]);
        assert_eq!([at(7), at(8), at(1000)], [Some(2), None, Some(2)]);
    }
}
