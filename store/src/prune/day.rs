//! Days of UTC.

use std::fmt;
use std::str::FromStr;

use schemas::{UnixMicros, UnixSeconds};

const DAY_SECONDS: i64 = 86_400;
/// Number of characters of the day in a time of RFC 3339.
const LETTERS: usize = 10;

/// A day of UTC, by its number since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub(crate) i32);

impl Day {
    /// The day that a time is in.
    #[must_use]
    pub fn of(at: UnixSeconds) -> Self {
        let day = at.0.div_euclid(DAY_SECONDS);
        // Only times millions of years away are clamped, so that every time has a day.
        Self(i32::try_from(day).unwrap_or(if day < 0 { i32::MIN } else { i32::MAX }))
    }

    /// Its first second.
    #[must_use]
    pub fn start(self) -> UnixSeconds {
        UnixSeconds(i64::from(self.0) * DAY_SECONDS)
    }

    /// The day after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The day that is some days before it.
    #[must_use]
    pub fn back(self, days: u32) -> Self {
        Self(self.0.saturating_sub_unsigned(days))
    }
}

/// Writes a day such as 2026-09-21.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.start().micros().to_rfc3339();
        f.write_str(time.get(..LETTERS).unwrap_or(&time))
    }
}

/// A text that is not a day of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a day of UTC such as 2026-09-21")]
pub struct NotADay;

impl FromStr for Day {
    type Err = NotADay;

    fn from_str(text: &str) -> Result<Self, NotADay> {
        if text.len() != LETTERS {
            return Err(NotADay);
        }
        let start: UnixMicros = format!("{text}T00:00:00Z").parse().map_err(|_| NotADay)?;
        Ok(Self::of(start.seconds()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_and_written() {
        for (text, number) in [("1970-01-01", 0), ("1969-12-31", -1), ("2026-09-21", 20_717)] {
            assert_eq!(text.parse(), Ok(Day(number)));
            assert_eq!(Day(number).to_string(), text);
        }
        for text in ["", "2026-9-21", "2026-02-30", "2026-09-21Z", "21.09.2026", "2026-09-21T00"] {
            assert_eq!(text.parse::<Day>(), Err(NotADay), "{text}");
        }
    }

    #[test]
    fn a_day_begins_at_midnight() {
        let day: Day = "2026-09-21".parse().unwrap();
        let start = day.start();
        assert_eq!([Day::of(start), Day::of(start.plus(86_399))], [day, day]);
        assert_eq!(Day::of(start.plus(-1)), day.back(1));
        assert_eq!(Day::of(start.plus(86_400)), day.next());
    }
}
