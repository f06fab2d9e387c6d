//! Consequences of an attempt: its record and the time of the next one (spec 6.3.3, read as `lib.rs`
//! explains).

use std::time::Duration;

use schemas::record::{Attempt, Delivery};
use schemas::{AttemptOutcome, DeferLevel, RetryLevel, Topic, UnixMicros};

use crate::config::ATTEMPTS_MAX;

/// Maximum number of deferrals in a row, about a day, before an event is given up. Applies to an event that was never
/// sent because its receiver is down, and to one whose receiver alone cannot be reached.
const DEFERRALS_MAX: i32 = 100;
/// Cap of the count of deferrals that are not the receiver's fault: enough for the longest deferral, and far below
/// [`DEFERRALS_MAX`].
const BLAMELESS_DEFERRALS_MAX: i32 = 11;

/// Result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub outcome: AttemptOutcome,
    pub http_status: Option<u16>,
    pub attempted_at: UnixMicros,
    /// Time to the status or the failure.
    pub took: Duration,
    /// Reason why there was no status, for a person.
    pub cause: Option<String>,
    /// Beginning of the answer's body.
    pub answer: String,
}

/// Records that an attempt leads to, or those for an attempt that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// For `webhooks.attempts`.
    pub(crate) attempt: Option<Attempt>,
    /// The delivery again, for a retry or defer topic or `webhooks.dead`.
    pub(crate) next: Option<(Topic, Delivery)>,
}

/// Reason for a deferral.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its receiver gives no answers.
    Down,
    /// Other requests, to its receiver or to others, come first.
    Busy,
    /// A failure on this side.
    Local,
    /// A failure on this side, for this receiver alone.
    Unreachable,
}

/// Checks that a delivery can be processed.
///
/// # Errors
/// A description of the defect; such a delivery was not made by this program.
pub(crate) fn check(delivery: &Delivery) -> Result<(), &'static str> {
    if !(1..=ATTEMPTS_MAX).contains(&delivery.attempt) {
        return Err("the attempt is not one of 1 to 12");
    }
    // The event id is sent as a header.
    let id = &delivery.event_id;
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the event id is not visible ASCII");
    }
    Ok(())
}

/// Decides the consequences of `answer` for `delivery`. A dead delivery keeps the number of its
/// last attempt.
pub(crate) fn decide(delivery: &Delivery, answer: &Answer, max_attempts: i32) -> Verdict {
    let failed = answer.outcome != AttemptOutcome::Delivered;
    let next = failed.then(|| decide_next(delivery, answer, max_attempts));
    Verdict { attempt: Some(attempt(delivery, answer)), next }
}

/// Attempt record of a `delivery` that is not sent: a newer event of its order replaces it.
pub(crate) fn supersede(delivery: &Delivery, now: UnixMicros) -> Attempt {
    let cause = "a newer event of the order is delivered in its place".to_owned();
    attempt(delivery, &not_made(AttemptOutcome::Superseded, cause, now))
}

/// Gives `delivery` up: this process's configuration has no URL for it, or forbids its URL.
pub(crate) fn give_up(delivery: &Delivery, cause: String, now: UnixMicros) -> Verdict {
    decide(delivery, &not_made(AttemptOutcome::Forbidden, cause, now), 0)
}

/// Cause of a failed attempt, for a person; without one, the status; without an answer, the outcome.
pub(crate) fn cause_of(attempt: &Attempt) -> String {
    match attempt.http_status {
        _ if !attempt.cause.is_empty() => attempt.cause.clone(),
        Some(status) => format!("status {status}"),
        None => attempt.outcome.as_str().to_owned(),
    }
}

fn not_made(outcome: AttemptOutcome, cause: String, now: UnixMicros) -> Answer {
    Answer {
        outcome,
        http_status: None,
        attempted_at: now,
        took: Duration::ZERO,
        cause: Some(cause),
        answer: String::new(),
    }
}

fn attempt(delivery: &Delivery, answer: &Answer) -> Attempt {
    Attempt {
        event_id: delivery.event_id.clone(),
        kind: delivery.kind,
        order_id: delivery.order_id,
        transfer_id: delivery.transfer_id,
        attempt: delivery.attempt,
        manual: delivery.manual,
        attempted_at: answer.attempted_at,
        outcome: answer.outcome,
        http_status: answer.http_status.map(i32::from),
        duration_ms: i64::try_from(answer.took.as_millis()).unwrap_or(i64::MAX),
        cause: answer.cause.clone().unwrap_or_default(),
        answer: answer.answer.clone(),
    }
}

/// Defers a `delivery` that cannot be sent soon, by 5 s, 60 s and finally 15 minutes. While its receiver is down, a
/// delivery that was sent before uses up an attempt after two deferrals, and one that was never sent is given up after
/// about a day. So is one whose receiver alone cannot be reached. No delivery is given up because its receiver is busy,
/// or for a failure of our own that affects other receivers, too.
pub(crate) fn decide_deferral(
    delivery: &Delivery,
    reason: Reason,
    now: UnixMicros,
    max_attempts: i32,
) -> Verdict {
    let is_local = matches!(reason, Reason::Local | Reason::Unreachable);
    let was_local = delivery.last_outcome == Some(AttemptOutcome::Local);
    // Local deferrals are counted from the first local failure; earlier deferrals had another reason.
    let before = if is_local && !was_local { 0 } else { delivery.deferrals };
    let next = before.saturating_add(1);
    // Those that are not the receiver's fault count up to a low limit only: after days without a route, a receiver that
    // is down for a moment must not end the event.
    let deferrals = match reason {
        Reason::Busy | Reason::Local => next.min(BLAMELESS_DEFERRALS_MAX).max(before),
        Reason::Down | Reason::Unreachable => next,
    };
    let is_down = reason == Reason::Down;
    let is_over = (is_down || reason == Reason::Unreachable) && deferrals > DEFERRALS_MAX;
    if is_over || is_down && delivery.requests > 0 && deferrals > 2 {
        let cause = format!("its receiver could not be asked {deferrals} times");
        let answer = not_made(AttemptOutcome::CircuitOpen, cause, now);
        return decide(delivery, &answer, if is_over { 0 } else { max_attempts });
    }
    let level = match deferrals {
        1 => DeferLevel::First,
        2 => DeferLevel::Second,
        3..=10 if !is_down => DeferLevel::Second,
        _ => DeferLevel::Further,
    };
    let last_outcome = if is_local { Some(AttemptOutcome::Local) } else { delivery.last_outcome };
    let again = Delivery { deferrals, last_outcome, ..delivery.clone() };
    Verdict { attempt: None, next: Some((Topic::WebhooksDefer(level), again)) }
}

fn decide_next(delivery: &Delivery, answer: &Answer, max_attempts: i32) -> (Topic, Delivery) {
    let failed = delivery.attempt;
    let next = Delivery {
        deferrals: 0,
        requests: delivery.requests.saturating_add(i32::from(answer.outcome.is_request())),
        last_outcome: Some(answer.outcome),
        last_status: answer.http_status.map(i32::from),
        ..delivery.clone()
    };
    match RetryLevel::after(failed) {
        Some(level) if failed < max_attempts => {
            (Topic::WebhooksRetry(level), Delivery { attempt: failed + 1, ..next })
        }
        _ => (Topic::WebhooksDead, next),
    }
}

/// Due time of a record written to `topic` now: after the topic's delay.
pub(crate) fn due_at(topic: Topic, now: UnixMicros) -> UnixMicros {
    let delay = i64::from(topic.spec().delay_seconds).saturating_mul(1_000_000);
    UnixMicros(now.0.saturating_add(delay))
}

/// Due time of a record of `topic` that was read at `seen_at`. Its writer, mostly this very process, set it. If it did
/// not, or if its clock was ahead, the record waits for at most the topic's delay from `seen_at`; if the clock was
/// behind, the record is sent early by the difference. The broker's clock is not used: it may be minutes off.
pub(crate) fn due_after(topic: Topic, written: UnixMicros, seen_at: UnixMicros) -> UnixMicros {
    let latest = due_at(topic, seen_at);
    if written == UnixMicros(0) { latest } else { written.min(latest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::record::example;

    fn answer(outcome: AttemptOutcome) -> Answer {
        Answer {
            outcome,
            http_status: None,
            attempted_at: UnixMicros(5),
            took: Duration::from_millis(31),
            cause: None,
            answer: String::new(),
        }
    }

    fn delivery(attempt: i32, manual: bool) -> Delivery {
        Delivery { attempt, manual, ..example::delivery() }
    }

    #[test]
    fn only_delivered_ends_it_failures_go_a_level_later() {
        for outcome in AttemptOutcome::ALL {
            for attempt in 1..=12 {
                let given = delivery(attempt, false);
                let verdict = decide(&given, &answer(*outcome), 12);
                let record = verdict.attempt.unwrap();
                assert_eq!((record.attempt, record.outcome), (attempt, *outcome));
                let Some((topic, next)) = verdict.next else {
                    assert_eq!(*outcome, AttemptOutcome::Delivered, "spec 6.3.1");
                    continue;
                };
                assert_ne!(*outcome, AttemptOutcome::Delivered, "spec 6.3.1");
                let requests = given.requests + i32::from(outcome.is_request());
                let given =
                    Delivery { requests, last_outcome: Some(*outcome), last_status: None, ..given };
                if attempt == 12 {
                    assert_eq!((topic, next), (Topic::WebhooksDead, given), "spec 6.3.4");
                } else {
                    let wait = due_at(topic, UnixMicros(0));
                    assert_eq!(wait.0, 1_000_000 << (attempt - 1), "spec 6.3.3");
                    assert_eq!(next, Delivery { attempt: attempt + 1, ..given });
                }
            }
        }
    }

    #[test]
    fn every_failure_has_a_cause() {
        let found = |answer: Answer| cause_of(&attempt(&delivery(1, false), &answer));
        let refused = Answer { http_status: Some(500), ..answer(AttemptOutcome::Status) };
        assert_eq!(found(refused), "status 500");
        let cause = Some("no answer in time".to_owned());
        let silent = Answer { cause, ..answer(AttemptOutcome::Timeout) };
        assert_eq!(found(silent), "no answer in time");
        assert_eq!(found(answer(AttemptOutcome::Protocol)), "protocol");
    }

    #[test]
    fn fewer_attempts_apply_to_what_is_under_way() {
        for (attempt, max, dead) in [(1, 1, true), (2, 3, false), (3, 3, true), (9, 3, true)] {
            let verdict = decide(&delivery(attempt, false), &answer(AttemptOutcome::Timeout), max);
            let (topic, _) = verdict.next.unwrap();
            assert_eq!(topic == Topic::WebhooksDead, dead, "{attempt} of {max}");
        }
    }

    #[test]
    fn a_manual_resend_runs_the_whole_schedule() {
        for number in 1..=12 {
            let failed = answer(AttemptOutcome::Timeout);
            let by_hand = decide(&delivery(number, true), &failed, 12);
            let (topic, next) = by_hand.next.unwrap();
            let by_itself = decide(&delivery(number, false), &failed, 12).next.unwrap();
            assert!(by_hand.attempt.unwrap().manual && next.manual);
            assert_eq!((topic, Delivery { manual: false, ..next }), by_itself);
        }
    }

    #[test]
    fn the_attempt_says_what_happened() {
        let given = Answer { http_status: Some(503), ..answer(AttemptOutcome::Status) };
        let from = delivery(2, false);
        let attempt = decide(&from, &given, 12).attempt.unwrap();
        assert_eq!(attempt.event_id, from.event_id);
        assert_eq!((attempt.order_id, attempt.transfer_id), (from.order_id, from.transfer_id));
        assert_eq!((attempt.attempted_at, attempt.duration_ms), (UnixMicros(5), 31));
        assert_eq!(attempt.http_status, Some(503));
    }

    #[test]
    fn a_delay_is_the_one_that_the_topic_names() {
        assert_eq!(due_at(Topic::WebhooksDispatch, UnixMicros(7)), UnixMicros(7));
        let retries = RetryLevel::ALL.iter().copied().map(Topic::WebhooksRetry);
        for topic in retries.chain(DeferLevel::ALL.iter().copied().map(Topic::WebhooksDefer)) {
            let name = topic.spec().name;
            let seconds = name.rsplit('.').next().and_then(|last| last.strip_suffix('s'));
            let seconds: i64 = seconds.unwrap().parse().unwrap();
            assert_eq!(due_at(topic, UnixMicros(7)).0, 7 + seconds * 1_000_000, "{name}");
        }
    }

    #[test]
    fn due_by_the_writers_time_within_the_delay() {
        let retry = Topic::WebhooksRetry(RetryLevel::ALL[3]); // 8 s
        let due = |topic, written, seen: i64| {
            due_after(topic, UnixMicros(written), UnixMicros(seen * 1_000_000)).0
        };
        assert_eq!(due(retry, 100_000_001, 93), 100_000_001);
        assert_eq!(due(retry, 100_000_001, 200), 100_000_001);
        assert_eq!(due(retry, 700_000_000, 93), 101_000_000, "its writer was ahead");
        assert_eq!(due(retry, 0, 93), 101_000_000, "nobody said when");
        assert_eq!(due(Topic::WebhooksDispatch, 0, 93), 93_000_000, "at once");
    }

    /// Topics that a delivery passes while it is deferred, up to the first that is not a defer topic.
    fn deferred(delivery: Delivery, reason: Reason) -> Vec<Topic> {
        let (mut delivery, mut topics) = (delivery, Vec::new());
        loop {
            let verdict = decide_deferral(&delivery, reason, UnixMicros(5), 12);
            let (topic, next) = verdict.next.unwrap();
            topics.push(topic);
            let is_deferred = matches!(topic, Topic::WebhooksDefer(_));
            let recorded = verdict.attempt.map(|attempt| attempt.outcome);
            assert_eq!(recorded, (!is_deferred).then_some(AttemptOutcome::CircuitOpen));
            if !is_deferred {
                assert_eq!((next.deferrals, next.requests), (0, delivery.requests));
                return topics;
            }
            assert_eq!(next, Delivery { deferrals: delivery.deferrals + 1, ..delivery });
            delivery = next;
        }
    }

    #[test]
    fn a_deferral_ends() {
        use DeferLevel::{First, Further, Second};
        let seconds = |topics: &[Topic]| -> u32 {
            topics.iter().map(|topic| topic.spec().delay_seconds).sum()
        };
        let (fresh, retry) = (delivery(1, false), Delivery { requests: 2, ..delivery(3, false) });
        let fresh = Delivery { requests: 0, ..fresh };
        let [first, second, further] = [First, Second, Further].map(Topic::WebhooksDefer);
        let sent_before = deferred(retry.clone(), Reason::Down);
        assert_eq!(sent_before, [first, second, Topic::WebhooksRetry(RetryLevel::ALL[2])]);
        let last = Delivery { requests: 11, ..delivery(12, false) };
        assert_eq!(deferred(last, Reason::Down), [first, second, Topic::WebhooksDead]);
        let never_sent = deferred(fresh.clone(), Reason::Down);
        assert_eq!(never_sent[..4], [first, second, further, further]);
        let all = DEFERRALS_MAX as usize + 1;
        assert_eq!((never_sent.len(), never_sent.last()), (all, Some(&Topic::WebhooksDead)));
        assert!((80_000..90_000).contains(&seconds(&never_sent)), "about a day");
        // Only a receiver that is down, or that alone cannot be reached, costs an attempt or the event.
        for reason in [Reason::Busy, Reason::Local] {
            for delivery in [&fresh, &retry] {
                let after = |deferrals| {
                    let delivery = Delivery { deferrals, ..delivery.clone() };
                    let verdict = decide_deferral(&delivery, reason, UnixMicros(5), 12);
                    assert_eq!(verdict.attempt, None);
                    verdict.next.unwrap().0
                };
                if reason == Reason::Busy {
                    assert_eq!([0, 1, 9].map(after), [first, second, second]);
                    // Deferrals for a busy host never bring a delivery near the limit for an outage.
                    let most = BLAMELESS_DEFERRALS_MAX;
                    for (before, expected) in [(most - 1, most), (most, most), (100, 100)] {
                        let delivery = Delivery { deferrals: before, ..delivery.clone() };
                        let verdict = decide_deferral(&delivery, reason, UnixMicros(5), 12);
                        assert_eq!(verdict.next.unwrap().1.deferrals, expected);
                    }
                }
                let waited = if reason == Reason::Busy { [further; 3] } else { [first; 3] };
                assert_eq!([10, 100, i32::MAX].map(after), waited);
            }
        }
    }

    #[test]
    fn unreachable_receiver_is_given_up_after_a_day() {
        let fail = |delivery: &Delivery, reason| {
            let verdict = decide_deferral(delivery, reason, UnixMicros(5), 12);
            verdict.next.unwrap()
        };
        let busy = Delivery { deferrals: 100, last_outcome: None, ..delivery(3, false) };
        let (mut topic, mut next) = fail(&busy, Reason::Unreachable);
        assert_eq!(next.deferrals, 1, "it was busy before");
        let mut seconds = 0;
        while next.deferrals < DEFERRALS_MAX {
            seconds += topic.spec().delay_seconds;
            (topic, next) = fail(&next, Reason::Unreachable);
            assert_eq!((next.attempt, next.last_outcome), (3, Some(AttemptOutcome::Local)));
        }
        assert!((80_000..90_000).contains(&seconds), "about a day");
        assert!(matches!(fail(&next, Reason::Local).0, Topic::WebhooksDefer(_)));
        let (topic, next) = fail(&next, Reason::Unreachable);
        assert_eq!(topic, Topic::WebhooksDead);
        assert_eq!(next.requests, busy.requests, "none was made");
    }

    /// After days without a route of our own, no receiver has answered yet, and some are still down.
    #[test]
    fn an_outage_of_our_own_brings_no_end_near() {
        let mut delivery = Delivery { requests: 0, ..delivery(1, false) };
        for _ in 0..2 * DEFERRALS_MAX {
            let verdict = decide_deferral(&delivery, Reason::Local, UnixMicros(5), 12);
            delivery = verdict.next.unwrap().1;
        }
        for reason in [Reason::Down, Reason::Unreachable] {
            let topics = deferred(delivery.clone(), reason);
            assert!(topics.len() > 80, "{reason:?}: given up after {} deferrals", topics.len());
        }
    }

    #[test]
    fn deliveries_nobody_here_made_are_refused() {
        assert_eq!(check(&delivery(12, false)), Ok(()));
        assert!(check(&delivery(0, false)).is_err());
        assert!(check(&delivery(13, false)).is_err());
        for event_id in ["", "a b", "a\nb", "\u{e9}"] {
            let wrong = Delivery { event_id: event_id.into(), ..example::delivery() };
            assert!(check(&wrong).is_err(), "{event_id:?}");
        }
    }
}
