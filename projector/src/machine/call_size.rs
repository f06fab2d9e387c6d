//! Number of rows that one call to the tables writes: fewer while they are slow, so that a call
//! ends well before the projector must poll again. A member that does not poll is evicted, and the
//! next owner writes the same rows to the same slow tables.

use std::time::Duration;

/// Maximum number of rows of one call.
pub(crate) const ROWS_MAX: usize = 512;
/// Minimum number of rows of one call, for tables that hardly answer.
const ROWS_MIN: usize = 16;
/// Duration above which the next call is halved.
const SLOW: Duration = Duration::from_millis(500);
/// Duration up to which the next call is doubled.
const QUICK: Duration = Duration::from_millis(200);

/// The adaptive size of a call, in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallSize(usize);

impl CallSize {
    pub(crate) fn new() -> Self {
        Self(ROWS_MAX)
    }

    pub(crate) fn rows(self) -> usize {
        self.0
    }

    /// Adapts the size to a call's time. A call below the size can only shrink it.
    pub(crate) fn took(&mut self, rows: usize, time: Duration) {
        if time > SLOW {
            self.0 = (self.0.min(rows) / 2).max(ROWS_MIN);
        } else if time <= QUICK && rows >= self.0 {
            self.0 = (self.0 * 2).min(ROWS_MAX);
        }
    }

    /// Drops to the least size.
    pub(crate) fn failed(&mut self) {
        self.0 = ROWS_MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_become_small_and_quick_ones_large_again() {
        let mut size = CallSize::new();
        let sizes = [512, 256, 128, 64, 32, 16].map(|rows| {
            size.took(rows, SLOW * 2);
            size.rows()
        });
        assert_eq!(sizes, [256, 128, 64, 32, 16, 16]);
        size.took(16, QUICK + Duration::from_millis(1));
        assert_eq!(size.rows(), 16, "neither slow nor quick");
        size.took(15, QUICK);
        assert_eq!(size.rows(), 16, "a larger call may be slow");
        let sizes = [16, 32, 64, 128, 256, 512].map(|rows| {
            size.took(rows, QUICK);
            size.rows()
        });
        assert_eq!(sizes, [32, 64, 128, 256, 512, 512]);
        size.took(100, SLOW * 2);
        assert_eq!(size.rows(), 50, "few rows that are slow halve what they were");
        size.failed();
        assert_eq!(size.rows(), ROWS_MIN, "tables that fail get the smallest calls");
    }
}
