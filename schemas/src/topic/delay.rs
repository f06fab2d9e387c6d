//! How long a webhook waits: one topic for each delay, so that none waits behind a later one.

/// The wait after a failed attempt (spec 6.3.3, counted as `docs/decisions/0002` says): one second after
/// the first, doubled after each further one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryLevel(u8);

impl RetryLevel {
    /// The first one to the last one.
    pub const ALL: [Self; 11] = [
        Self(0),
        Self(1),
        Self(2),
        Self(3),
        Self(4),
        Self(5),
        Self(6),
        Self(7),
        Self(8),
        Self(9),
        Self(10),
    ];
    const TOPICS: [&str; Self::ALL.len()] = [
        "webhooks.retry.1s",
        "webhooks.retry.2s",
        "webhooks.retry.4s",
        "webhooks.retry.8s",
        "webhooks.retry.16s",
        "webhooks.retry.32s",
        "webhooks.retry.64s",
        "webhooks.retry.128s",
        "webhooks.retry.256s",
        "webhooks.retry.512s",
        "webhooks.retry.1024s",
    ];

    /// The wait after failed attempt `number`, counted from 1; none after the last attempt.
    #[must_use]
    pub fn after(number: i32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
    }

    pub(super) const fn topic_name(self) -> &'static str {
        Self::TOPICS[self.0 as usize]
    }

    pub(super) const fn delay_seconds(self) -> u32 {
        1 << self.0
    }
}

/// The wait for a receiver that is busy, which is not an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeferLevel {
    /// A webhook that did not wait for its receiver before.
    First,
    /// One that did.
    Further,
}

impl DeferLevel {
    pub(super) const fn topic_name(self) -> &'static str {
        match self {
            Self::First => "webhooks.defer.5s",
            Self::Further => "webhooks.defer.60s",
        }
    }

    pub(super) const fn delay_seconds(self) -> u32 {
        match self {
            Self::First => 5,
            Self::Further => 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cleanup, Topic};

    #[test]
    fn retries_double_from_one_second() {
        for (number, level) in (1..).zip(RetryLevel::ALL) {
            let spec = Topic::WebhooksRetry(level).spec();
            assert_eq!(RetryLevel::after(number), Some(level));
            assert_eq!(spec.delay_seconds, 1 << (number - 1));
            assert_eq!(spec.name, format!("webhooks.retry.{}s", spec.delay_seconds));
        }
        for number in [i32::MIN, -1, 0, 12, i32::MAX] {
            assert_eq!(RetryLevel::after(number), None);
        }
    }

    #[test]
    fn deferrals_wait_five_seconds_then_a_minute() {
        for (level, delay) in [(DeferLevel::First, 5), (DeferLevel::Further, 60)] {
            let topic = Topic::WebhooksDefer(level);
            let spec = topic.spec();
            assert!(Topic::ALL.contains(&topic));
            assert_eq!(spec.delay_seconds, delay);
            assert_eq!(spec.name, format!("webhooks.defer.{delay}s"));
            assert_eq!(spec.cleanup, Cleanup::Delete { hours: 7 * 24 });
        }
    }
}
