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
    /// The second this instant lies in.
    #[must_use]
    pub fn seconds(self) -> UnixSeconds {
        UnixSeconds(self.0.div_euclid(1_000_000))
    }

    /// The version clock of a row's next change: never before `event`, always after `self`, so that
    /// every version of a row has its own write timestamp.
    #[must_use]
    pub fn next(self, event: Self) -> Self {
        Self(self.0.saturating_add(1).max(event.0))
    }
}

impl UnixSeconds {
    /// The first microsecond of this second.
    #[must_use]
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
    fn version_clock_never_stands_still_and_never_goes_back() {
        assert_eq!(UnixMicros(10).next(UnixMicros(50)), UnixMicros(50));
        assert_eq!(UnixMicros(50).next(UnixMicros(50)), UnixMicros(51));
        assert_eq!(UnixMicros(50).next(UnixMicros(10)), UnixMicros(51));
    }

    #[test]
    fn seconds_round_towards_the_past() {
        assert_eq!(UnixMicros(1_999_999).seconds(), UnixSeconds(1));
        assert_eq!(UnixMicros(-1).seconds(), UnixSeconds(-1));
    }
}
