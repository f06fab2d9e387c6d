//! Points in time as the interface and the records carry them.

use serde::{Deserialize, Serialize};

/// Unix time in whole seconds, as every timestamp of the interface (spec 2).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixSeconds(pub i64);

/// Unix time in microseconds: the resolution of version clocks.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMicros(pub i64);

impl UnixMicros {
    /// The second that this time is in.
    pub fn seconds(self) -> UnixSeconds {
        UnixSeconds(self.0.div_euclid(1_000_000))
    }

    /// The version clock of a row's next change: never before `event`, always after `self`, so that
    /// every version of a row has its own write timestamp.
    #[must_use]
    pub fn next(self, event: Self) -> Self {
        Self(self.0.saturating_add(1).max(event.0))
    }

    /// RFC 3339 in UTC with microseconds, by the civil-from-days method (proleptic Gregorian).
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let (seconds, micros) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
        let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{micros:06}Z")
    }
}

/// A text that is not an RFC 3339 timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a time such as 2026-09-21T14:13:32Z")]
pub struct NotATime;

/// Reads RFC 3339, in any offset, to the microsecond; no leap second, which Unix time does not have.
impl std::str::FromStr for UnixMicros {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        let time = chrono::DateTime::parse_from_rfc3339(text).map_err(|_| NotATime)?;
        let is_leap = time.timestamp_subsec_nanos() >= 1_000_000_000;
        if is_leap { Err(NotATime) } else { Ok(Self(time.timestamp_micros())) }
    }
}

impl UnixSeconds {
    /// The beginning of this second.
    pub fn micros(self) -> UnixMicros {
        UnixMicros(self.0.saturating_mul(1_000_000))
    }

    /// This time moved by a signed number of seconds, saturating.
    #[must_use]
    pub fn plus(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

impl std::fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_clock_never_stops_and_never_goes_back() {
        assert_eq!(UnixMicros(10).next(UnixMicros(50)), UnixMicros(50));
        assert_eq!(UnixMicros(50).next(UnixMicros(50)), UnixMicros(51));
        assert_eq!(UnixMicros(50).next(UnixMicros(10)), UnixMicros(51));
    }

    #[test]
    fn seconds_round_towards_the_past() {
        assert_eq!(UnixMicros(1_999_999).seconds(), UnixSeconds(1));
        assert_eq!(UnixMicros(-1).seconds(), UnixSeconds(-1));
    }

    #[test]
    fn times_are_rfc3339() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_827_696_123_456, "2000-02-29T12:34:56.123456Z"),
            (1_767_225_599_999_999, "2025-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(UnixMicros(micros).to_rfc3339(), text);
            assert_eq!(text.parse(), Ok(UnixMicros(micros)));
        }
        // Every day of eight centuries, at a time of its own.
        for day in -146_097_i64..146_097 {
            let time =
                UnixMicros(day * 86_400_000_000 + (day * 7_919_000_001).rem_euclid(86_400_000_000));
            assert_eq!(time.to_rfc3339().parse(), Ok(time));
        }
    }

    #[test]
    fn times_are_read_in_every_offset_and_nothing_else_is() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:00z", 0),
            ("1970-01-01 00:00:01.5Z", 1_500_000),
            ("1970-01-01T00:00:00.123456789Z", 123_456),
            ("1970-01-01T02:30:00+02:30", 0),
            ("1969-12-31T23:00:00-01:00", 0),
        ] {
            assert_eq!(text.parse(), Ok(UnixMicros(micros)), "{text}");
        }
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-13-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.Z0",
            "+970-01-01T00:00:00Z",
            "1970-01-01T00:00:00+1:00",
            "1970-01-01T00:00:00é",
            "1970-01-01T00:00:00.5",
        ] {
            assert_eq!(text.parse::<UnixMicros>(), Err(NotATime), "{text}");
        }
    }
}
