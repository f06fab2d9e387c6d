//! The period of time that is compared.

use schemas::{UnixMicros, UnixSeconds};

const DAY: i64 = 86_400;
/// Maximum number of days of a period: balances are queried at the end of each day.
const DAYS_MAX: i64 = 366;

/// Half-open period of time: `from` is included, `to` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub from: UnixSeconds,
    pub to: UnixSeconds,
}

impl Period {
    /// Creates a period of at most 366 days.
    ///
    /// # Errors
    /// The end is not after the beginning, or the period is too long.
    pub fn new(from: UnixSeconds, to: UnixSeconds) -> Result<Self, String> {
        match to.0.saturating_sub(from.0) {
            ..=0 => Err("the period must begin before it ends".to_owned()),
            seconds if seconds > DAYS_MAX * DAY => {
                Err(format!("the period must have at most {DAYS_MAX} days"))
            }
            _ => Ok(Self { from, to }),
        }
    }

    /// Parses a day in UTC, such as 2026-11-25.
    ///
    /// # Errors
    /// The text is not a day.
    pub fn day(text: &str) -> Result<Self, &'static str> {
        let start: Result<UnixMicros, _> = format!("{text}T00:00:00Z").parse();
        let from = start.map_err(|_| "must be a day such as 2026-11-25")?.seconds();
        Ok(Self { from, to: from.plus(DAY) })
    }

    /// Returns the UTC day before the one of `now`.
    #[must_use]
    pub fn day_before(now: UnixSeconds) -> Self {
        let to = UnixSeconds(now.0.div_euclid(DAY) * DAY);
        Self { from: to.plus(-DAY), to }
    }

    /// `true` for a second in the period.
    #[must_use]
    pub fn contains(&self, second: UnixSeconds) -> bool {
        (self.from..self.to).contains(&second)
    }

    /// Returns the part before a time; `None` if the period begins at that time or later.
    #[must_use]
    pub fn before(&self, end: UnixSeconds) -> Option<Self> {
        (self.from < end).then_some(Self { from: self.from, to: self.to.min(end) })
    }

    /// Returns its beginning, every midnight (UTC) in it, and its end.
    #[must_use]
    pub fn bounds(&self) -> Vec<UnixSeconds> {
        let first = self.from.0.div_euclid(DAY).saturating_add(1) * DAY;
        let midnights = (0..).map(|day| UnixSeconds(first + day * DAY));
        let inner = midnights.take_while(|midnight| *midnight < self.to);
        [self.from].into_iter().chain(inner).chain([self.to]).collect()
    }
}

/// Formats a time in UTC without fractions, such as 2026-11-25T14:00:00Z.
#[must_use]
pub fn rfc3339(second: UnixSeconds) -> String {
    let text = second.micros().to_rfc3339();
    text.split('.').next().map_or_else(|| text.clone(), |whole| format!("{whole}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: UnixSeconds = UnixSeconds(1_790_000_000 - 1_790_000_000 % DAY + DAY / 2);

    #[test]
    fn a_period_is_cut_at_midnight() {
        let midnight = NOON.plus(DAY / 2);
        let period = Period::new(NOON, midnight.plus(DAY + 5)).unwrap();
        assert_eq!(period.bounds(), [NOON, midnight, midnight.plus(DAY), midnight.plus(DAY + 5)]);
        let whole = Period { from: midnight, to: midnight.plus(DAY) };
        assert_eq!(whole.bounds(), [midnight, midnight.plus(DAY)]);
        assert_eq!(Period::day_before(midnight.plus(DAY + 7)), whole);
        let day = rfc3339(midnight);
        assert_eq!(Period::day(day.split('T').next().unwrap()), Ok(whole));
        assert!(whole.contains(midnight) && !whole.contains(whole.to));
        assert_eq!(whole.before(midnight), None);
        assert_eq!(whole.before(midnight.plus(9)).unwrap().to, midnight.plus(9));
        assert_eq!(whole.before(midnight.plus(2 * DAY)), Some(whole));
    }

    #[test]
    fn a_period_that_makes_no_sense_is_refused() {
        let refusal = |to| Period::new(NOON, to).unwrap_err();
        assert_eq!(refusal(NOON), "the period must begin before it ends");
        assert!(Period::new(NOON, NOON.plus(DAYS_MAX * DAY)).is_ok());
        let too_long = NOON.plus(DAYS_MAX * DAY + 1);
        assert_eq!(refusal(too_long), "the period must have at most 366 days");
        for text in ["", "yesterday", "2026-13-01", "2026-11-25T00:00:00Z"] {
            assert!(Period::day(text).is_err(), "{text}");
        }
    }
}
