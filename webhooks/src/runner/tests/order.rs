//! The events of one order, turn by turn: none is sent after a newer one, despite aborts, losses and crashes.

use std::time::Duration;

use log::consumer::Consumer;
use log::{NewRecord, StepError};
use schemas::record::{Delivery, WebhookEntry, example};
use schemas::{AttemptOutcome, RetryLevel, Topic, UnixMicros};
use tokio_util::sync::CancellationToken;

use super::deliverer::{deliverer_of, names, turn_until};
use super::receiver::{Receiver, silent};
use super::scripted::{START, Scripted, config, event, put};
use crate::error::Error;
use crate::runner::deliverer::Deliverer;

const DISPATCH: Topic = Topic::WebhooksDispatch;
const SOON: Topic = Topic::WebhooksRetry(RetryLevel::S1);
const LATE: Topic = Topic::WebhooksRetry(RetryLevel::S512);
const TOPICS: [Topic; 3] = [DISPATCH, SOON, LATE];

fn deliverer(log: &Scripted) -> Consumer<Deliverer> {
    deliverer_of(log, &config(), &TOPICS, &CancellationToken::new())
}

fn append(log: &Scripted, topic: Topic, delivery: &Delivery) {
    log.append(vec![put(topic, &delivery.key(), delivery)]);
}

fn outcome(event: &str, attempt: i32, outcome: AttemptOutcome) -> (String, i32, AttemptOutcome) {
    (event.to_owned(), attempt, outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_12_older_events_never_follow_newer_ones() {
    let log = Scripted::new();
    let status = |event: &str, _| if event == "v5" { 500 } else { 200 };
    let receiver = Receiver::deciding(log.clock(), status).await;
    append(&log, DISPATCH, &event(5, &receiver.url()));
    let mut deliverer = deliverer(&log);
    turn_until(&mut deliverer, || log.attempts().len() == 1);
    append(&log, DISPATCH, &event(6, &receiver.url()));
    turn_until(&mut deliverer, || log.attempts().len() == 2);
    log.clock().advance(Duration::from_secs(1));
    turn_until(&mut deliverer, || log.attempts().len() == 3);
    let wanted = [
        outcome("v5", 1, AttemptOutcome::Status),
        outcome("v6", 1, AttemptOutcome::Delivered),
        outcome("v5", 2, AttemptOutcome::Superseded),
    ];
    assert_eq!(log.outcomes(), wanted);
    assert_eq!(receiver.called(), names(&[("v5", 1), ("v6", 1)]));
    assert_eq!(log.committed(SOON).unwrap().offset.0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_event_waits_for_the_commit_of_the_older() {
    let (log, receiver) = silent().await;
    append(&log, DISPATCH, &event(5, &receiver.url()));
    let mut deliverer = deliverer(&log);
    turn_until(&mut deliverer, || receiver.calls().len() == 1);
    append(&log, DISPATCH, &event(6, &receiver.url()));
    let is_announced = || log.read::<WebhookEntry>(Topic::WebhooksChangelog).len() == 1;
    turn_until(&mut deliverer, is_announced);
    log.fail_commits([StepError::Aborted("disk full".into())]);
    receiver.open();
    turn_until(&mut deliverer, || {
        let (calls, kept) = (receiver.calls().len(), log.attempts().len());
        assert!(calls == 1 || kept >= 1, "v6 was sent before the end of v5 was kept");
        kept == 2
    });
    assert_eq!(log.failures_left(), 0);
    assert_eq!(receiver.called(), names(&[("v5", 1), ("v6", 1)]));
}

/// A retry would send the older status after the newer one.
#[tokio::test(flavor = "multi_thread")]
async fn failure_before_a_newer_event_is_not_retried() {
    let (log, receiver) = silent().await;
    append(&log, DISPATCH, &event(5, &format!("{}/gone", receiver.url())));
    let mut deliverer = deliverer(&log);
    let is_taken = || log.committed(DISPATCH).is_some();
    append(&log, DISPATCH, &event(6, &receiver.url()));
    append(&log, DISPATCH, &event(7, &receiver.url()));
    turn_until(&mut deliverer, is_taken);
    receiver.open();
    turn_until(&mut deliverer, || log.outcomes().len() == 4);
    let mut found = log.outcomes();
    found.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let wanted = [
        outcome("v5", 1, AttemptOutcome::Status),
        outcome("v5", 2, AttemptOutcome::Superseded),
        outcome("v6", 1, AttemptOutcome::Superseded),
        outcome("v7", 1, AttemptOutcome::Delivered),
    ];
    assert_eq!(found, wanted);
    assert_eq!(log.read::<Delivery>(SOON), []);
    assert_eq!(receiver.called(), names(&[("v7", 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_overtaken_stays_so_after_a_crash() {
    for is_committed in [false, true] {
        let log = Scripted::new();
        let receiver = Receiver::silent(log.clock()).await;
        let due_at = UnixMicros(START.0 + 512_000_000);
        let older = Delivery { attempt: 11, due_at, ..event(5, &receiver.url()) };
        append(&log, LATE, &older);
        append(&log, DISPATCH, &event(6, &receiver.url()));
        let mut first = deliverer(&log);
        turn_until(&mut first, || receiver.calls().len() == 1);
        if is_committed {
            receiver.open();
            turn_until(&mut first, || log.attempts().len() == 1);
        }
        drop(first);
        receiver.open();
        log.clock().advance(Duration::from_secs(512));
        let mut second = deliverer(&log);
        turn_until(&mut second, || log.attempts().len() == 2);
        assert!(receiver.called().iter().all(|(event, _)| event == "v6"), "{is_committed}");
        let mut found = log.outcomes();
        found.sort();
        let wanted = [
            outcome("v5", 11, AttemptOutcome::Superseded),
            outcome("v6", 1, AttemptOutcome::Delivered),
        ];
        assert_eq!(found, wanted);
    }
}

/// The process that has the partition now may send a newer event at any moment.
#[tokio::test(flavor = "multi_thread")]
async fn attempts_for_a_lost_partition_are_broken_off() {
    let (log, receiver) = silent().await;
    append(&log, DISPATCH, &event(5, &receiver.url()));
    let mut deliverer = deliverer(&log);
    turn_until(&mut deliverer, || receiver.calls().len() == 1);
    assert_eq!(receiver.broken_off(), 0);
    log.revoke(DISPATCH);
    turn_until(&mut deliverer, || receiver.broken_off() == 1);
}

/// An operator resends an event that fails: the resend runs its schedule, and the old retries end.
#[tokio::test(flavor = "multi_thread")]
async fn a_resend_takes_the_place_of_the_retries() {
    let log = Scripted::new();
    let status = |event: &str, attempt| if (event, attempt) == ("v6", 2) { 200 } else { 500 };
    let receiver = Receiver::deciding(log.clock(), status).await;
    append(&log, DISPATCH, &event(5, &receiver.url()));
    let mut deliverer = deliverer(&log);
    turn_until(&mut deliverer, || log.attempts().len() == 1);
    append(&log, DISPATCH, &Delivery { manual: true, ..event(6, &receiver.url()) });
    turn_until(&mut deliverer, || log.attempts().len() == 2);
    log.clock().advance(Duration::from_secs(1));
    turn_until(&mut deliverer, || log.attempts().len() == 4);
    assert_eq!(receiver.called(), names(&[("v5", 1), ("v6", 1), ("v6", 2)]));
    let found = log.outcomes();
    assert!(found.contains(&outcome("v5", 2, AttemptOutcome::Superseded)), "{found:?}");
    assert!(found.contains(&outcome("v6", 2, AttemptOutcome::Delivered)), "{found:?}");
}

/// Without the changelog, an older status could be sent after a newer one.
#[tokio::test(flavor = "multi_thread")]
async fn a_changelog_that_is_no_changelog_stops_it() {
    let entry = put(Topic::WebhooksChangelog, "order", &example::webhook_entry());
    let no_order = NewRecord { value: None, ..entry.clone() };
    let garbage = NewRecord { value: Some(b"garbage".to_vec()), ..entry };
    for (record, why) in [(garbage, "wire format"), (no_order, "\"order\" is no order")] {
        let log = Scripted::new();
        log.append(vec![record]);
        let mut deliverer = deliverer(&log);
        let end = (0..100).find_map(|_| deliverer.turn().err());
        let Some(Error::Changelog { at, cause }) = end else { panic!("{end:?}") };
        assert!(at == "webhooks.changelog/0@0" && cause.contains(why), "{at}: {cause}");
    }
}
