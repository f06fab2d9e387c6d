//! Delays of webhooks. Each has a topic, named after it, so that no webhook waits behind one that
//! is due later. `webhooks.max_attempts` may end the attempts earlier.

use crate::vocabulary::vocabulary;

vocabulary! {
    /// The wait after a failed attempt (spec 6.3.3, counted as `docs/decisions/0002` says), by the name
    /// of its topic: one second after the first, doubled after each further one.
    RetryLevel {
        S1 = "webhooks.retry.1s",
        S2 = "webhooks.retry.2s",
        S4 = "webhooks.retry.4s",
        S8 = "webhooks.retry.8s",
        S16 = "webhooks.retry.16s",
        S32 = "webhooks.retry.32s",
        S64 = "webhooks.retry.64s",
        S128 = "webhooks.retry.128s",
        S256 = "webhooks.retry.256s",
        S512 = "webhooks.retry.512s",
        S1024 = "webhooks.retry.1024s",
    }

    /// Wait of a webhook that is deferred without an attempt, by the name of its topic.
    DeferLevel {
        /// The first deferral.
        First = "webhooks.defer.5s",
        Second = "webhooks.defer.60s",
        /// The third deferral and later ones if the receiver is down and the webhook was never sent; otherwise the
        /// eleventh and later ones.
        Further = "webhooks.defer.900s",
    }
}

impl RetryLevel {
    /// The wait after failed attempt `number`, counted from 1; none after the last one or below 1.
    pub fn after(number: i32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
    }

    pub(super) const fn delay_seconds(self) -> u32 {
        1 << self as u32
    }
}

impl DeferLevel {
    pub(super) const fn delay_seconds(self) -> u32 {
        match self {
            Self::First => 5,
            Self::Second => 60,
            Self::Further => 900,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cleanup, Topic};

    #[test]
    fn retries_double_from_one_second() {
        for (number, level) in (1..).zip(RetryLevel::ALL.iter().copied()) {
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
    fn deferrals_wait_longer_each_time() {
        for (level, delay) in DeferLevel::ALL.iter().copied().zip([5, 60, 900]) {
            let topic = Topic::WebhooksDefer(level);
            let spec = topic.spec();
            assert!(Topic::ALL.contains(&topic));
            assert_eq!(spec.delay_seconds, delay);
            assert_eq!(spec.name, format!("webhooks.defer.{delay}s"));
            assert_eq!(spec.cleanup, Cleanup::Delete { hours: 7 * 24 });
        }
    }
}
