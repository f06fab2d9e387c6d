//! Unsent alerts of one sink, and the offset before which all were sent or dropped.
//!
//! Only the newest state of each alert waits, and a bounded number of them: a sink that was down
//! for long gets the current states.

use std::collections::BTreeMap;

use log::Offset;
use schemas::UnixMicros;
use schemas::record::Alert;

/// Maximum number of alerts that wait for a sink; the oldest are dropped.
pub(crate) const WAITING_MAX: usize = 100;
/// Maximum age of an alert; older ones are not sent any more.
pub(crate) const AGE_MAX_MICROS: i64 = 24 * 3600 * 1_000_000;
/// Backoff after a failure: it doubles up to the maximum.
const WAIT_MICROS: i64 = 1_000_000;
const WAIT_MAX_MICROS: i64 = 300_000_000;

#[derive(Debug, Clone)]
struct Waiting {
    alert: Alert,
    written_at: UnixMicros,
}

/// Outbox of one sink.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Offset before which everything had been sent or dropped at the start.
    from: Offset,
    waiting: BTreeMap<Offset, Waiting>,
    under_way: Option<Offset>,
    /// Offset of the last attempt. The next one comes after it, so a refused alert does not block
    /// others.
    tried: Option<Offset>,
    failures: u32,
    not_before: UnixMicros,
}

impl Outbox {
    /// Outbox that has sent everything before a position.
    pub(crate) fn from(from: Offset) -> Self {
        Self { from, ..Self::default() }
    }

    /// Adds an alert's new state in place of its older one, unless it is from before the start. Returns the number of
    /// alerts dropped for lack of room.
    pub(crate) fn push(&mut self, at: Offset, alert: &Alert, written_at: UnixMicros) -> u64 {
        if at < self.from {
            return 0;
        }
        let under_way = self.under_way;
        self.waiting.retain(|other, waiting| {
            under_way == Some(*other) || waiting.alert.alert_id != alert.alert_id
        });
        self.waiting.insert(at, Waiting { alert: alert.clone(), written_at });
        let mut dropped = 0;
        while self.waiting.len() > WAITING_MAX {
            let oldest = self.waiting.keys().find(|other| under_way != Some(**other)).copied();
            oldest.and_then(|oldest| self.waiting.remove(&oldest));
            dropped += 1;
        }
        dropped
    }

    /// Drops alerts that are too old, except one under way. Returns their number.
    pub(crate) fn expire(&mut self, now: UnixMicros) -> u64 {
        let (before, under_way) = (self.waiting.len(), self.under_way);
        self.waiting
            .retain(|at, waiting| under_way == Some(*at) || !is_old(waiting.written_at, now));
        (before - self.waiting.len()) as u64
    }

    /// The alert to send now, if there is one: until [`Outbox::ended`] it is under way.
    pub(crate) fn take(&mut self, now: UnixMicros) -> Option<Alert> {
        let left = self.not_before.0.saturating_sub(now.0);
        // A clock that was set back must not lengthen the backoff.
        if self.under_way.is_some() || (0 < left && left <= WAIT_MAX_MICROS) {
            return None;
        }
        let next = self.tried.and_then(|tried| self.waiting.range(tried.next()..).next());
        let (at, waiting) = next.or_else(|| self.waiting.first_key_value())?;
        (self.under_way, self.tried) = (Some(*at), Some(*at));
        Some(waiting.alert.clone())
    }

    /// Ends the alert under way. A failed one is retried after a backoff.
    pub(crate) fn ended(&mut self, is_delivered: bool, now: UnixMicros) {
        let Some(at) = self.under_way.take() else { return };
        if is_delivered {
            self.waiting.remove(&at);
            self.failures = 0;
            return;
        }
        let wait = (WAIT_MICROS << self.failures.min(16)).min(WAIT_MAX_MICROS);
        self.failures = self.failures.saturating_add(1);
        self.not_before = UnixMicros(now.0.saturating_add(wait));
        // A newer state of the same alert supersedes the older one.
        if let Some(failed) = self.waiting.get(&at) {
            let id = failed.alert.alert_id.clone();
            if self.waiting.range(at.next()..).any(|(_, other)| other.alert.alert_id == id) {
                self.waiting.remove(&at);
            }
        }
    }

    /// Offset before which all was sent or dropped, if all before `next` was received.
    pub(crate) fn position(&self, next: Offset) -> Offset {
        self.waiting.keys().next().copied().unwrap_or(next.max(self.from))
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// `true` if a record is too old to be sent.
pub(crate) fn is_old(written_at: UnixMicros, now: UnixMicros) -> bool {
    now.0.saturating_sub(written_at.0) > AGE_MAX_MICROS
}

#[cfg(test)]
mod tests {
    use schemas::{AlertKind, Blockchain};

    use super::*;

    const AT: UnixMicros = UnixMicros(1_790_000_000_000_000);

    fn later(seconds: i64) -> UnixMicros {
        UnixMicros(AT.0 + seconds * 1_000_000)
    }

    fn alert(subject: i64) -> Alert {
        let (kind, chain) = (AlertKind::LateFind, Some(Blockchain::Eth));
        Alert::raise(kind, chain, &subject, String::new(), AT)
    }

    #[test]
    fn a_position_is_that_of_the_first_that_waits() {
        let mut outbox = Outbox::from(Offset(3));
        outbox.push(Offset(2), &alert(0), AT);
        assert_eq!((outbox.waiting(), outbox.position(Offset(3))), (0, Offset(3)), "it had that");
        outbox.push(Offset(5), &alert(1), AT);
        outbox.push(Offset(7), &alert(2), AT);
        assert_eq!(outbox.position(Offset(9)), Offset(5));
        assert_eq!(outbox.take(AT), Some(alert(1)));
        assert_eq!(outbox.take(AT), None, "one at a time");
        outbox.ended(true, AT);
        assert_eq!(outbox.position(Offset(9)), Offset(7));
        assert_eq!(outbox.take(AT), Some(alert(2)));
        outbox.ended(true, AT);
        assert_eq!(outbox.position(Offset(9)), Offset(9));
    }

    #[test]
    fn failures_are_tried_again_ever_later() {
        let mut outbox = Outbox::default();
        outbox.push(Offset(1), &alert(1), AT);
        let mut now = 0;
        for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert!(outbox.take(later(now)).is_some(), "{wait}");
            outbox.ended(false, later(now));
            assert_eq!(outbox.take(later(now + wait - 1)), None, "{wait}");
            now += wait;
        }
        assert!(outbox.take(later(now - 100_000)).is_some(), "the clock was set back");
        outbox.ended(true, AT);
        assert_eq!(outbox.waiting(), 0);
    }

    #[test]
    fn a_refused_alert_holds_no_other() {
        let mut outbox = Outbox::default();
        for at in 1..=3 {
            outbox.push(Offset(at), &alert(at), AT);
        }
        assert_eq!(outbox.take(AT), Some(alert(1)));
        outbox.ended(false, AT);
        for at in [2, 3] {
            assert_eq!(outbox.take(later(1)), Some(alert(at)));
            outbox.ended(true, later(1));
        }
        assert_eq!(outbox.position(Offset(9)), Offset(1), "it is not forgotten");
        assert_eq!(outbox.take(later(1)), Some(alert(1)));
    }

    #[test]
    fn of_an_alert_its_newest_state_waits() {
        let mut outbox = Outbox::default();
        outbox.push(Offset(1), &alert(1), AT);
        let end = alert(1).resolve("over".to_owned(), AT);
        outbox.push(Offset(2), &end, AT);
        assert_eq!((outbox.waiting(), outbox.take(AT)), (1, Some(end.clone())));
        // An older state under way stays; its failure drops it, because a newer state waits.
        outbox.push(Offset(3), &alert(1), AT);
        assert_eq!(outbox.waiting(), 2);
        outbox.ended(false, AT);
        assert_eq!((outbox.waiting(), outbox.position(Offset(9))), (1, Offset(3)));
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_age() {
        let mut outbox = Outbox::default();
        let all = i64::try_from(WAITING_MAX).unwrap() + 5;
        let dropped: u64 = (0..all).map(|at| outbox.push(Offset(at), &alert(at), AT)).sum();
        assert_eq!((outbox.waiting(), dropped), (WAITING_MAX, 5));
        assert_eq!(outbox.take(AT), Some(alert(5)), "the oldest are dropped");
        let day = AGE_MAX_MICROS / 1_000_000;
        assert_eq!(outbox.expire(later(day)), 0);
        assert_eq!(outbox.expire(later(day + 1)), 99, "what is under way stays");
        outbox.ended(false, later(day + 1));
        assert_eq!(outbox.expire(later(day + 1)), 1);
        assert_eq!(outbox.position(Offset(all)), Offset(all));
    }
}
