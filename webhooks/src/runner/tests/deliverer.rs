//! The deliverer, turn by turn, on a log that aborts, fences and revokes partitions.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use log::consumer::{Consumer, Handler};
use log::{NewRecord, Offset, StepError};
use runtime::Clock;
use schemas::record::{Alert, Attempt, DeadLetter, Delivery};
use schemas::{
    AlertKind, AlertState, AttemptOutcome, DeferLevel, DeliveryKind, RetryLevel, Topic, UnixMicros,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::receiver::{Receiver, answering, silent};
use super::scripted::{LAYOUT, Scripted, config, delivery, put};
use crate::config::Config;
use crate::error::Error;
use crate::runner::deliverer::Deliverer;
use crate::runner::engine::Engine;

pub(super) const DISPATCH: Topic = Topic::WebhooksDispatch;
pub(super) const RETRY: Topic = Topic::WebhooksRetry(RetryLevel::ALL[0]);
pub(super) const DEFER: Topic = Topic::WebhooksDefer(DeferLevel::First);
pub(super) const DEFER_SECOND: Topic = Topic::WebhooksDefer(DeferLevel::Second);
const TOPICS: [Topic; 4] = [DISPATCH, RETRY, DEFER, DEFER_SECOND];

pub(super) fn deliverer(log: &Scripted, config: &Config) -> Consumer<Deliverer> {
    deliverer_until(log, config, &CancellationToken::new())
}

pub(super) fn deliverer_until(
    log: &Scripted,
    config: &Config,
    stop: &CancellationToken,
) -> Consumer<Deliverer> {
    deliverer_of(log, config, &TOPICS, stop)
}

pub(super) fn deliverer_of(
    log: &Scripted,
    config: &Config,
    topics: &[Topic],
    stop: &CancellationToken,
) -> Consumer<Deliverer> {
    let engine = Engine::new(config, log.clock(), Handle::current()).unwrap();
    Consumer::new(log.worker(topics), Deliverer::new(LAYOUT, &engine), stop.clone())
}

pub(super) fn dispatch(log: &Scripted, names: &[impl AsRef<str>], url: &str) {
    let names = names.iter().map(AsRef::as_ref);
    let records = names.map(|name: &str| put(DISPATCH, name, &delivery(name, url)));
    log.append(records.collect());
}

/// Runs turns of the consumer until `done`.
#[track_caller]
pub(super) fn turn_until<H: Handler<Error: Debug>>(
    consumer: &mut Consumer<H>,
    mut done: impl FnMut() -> bool,
) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !done() {
        assert!(Instant::now() < deadline, "it did not happen");
        consumer.turn().unwrap();
    }
}

pub(super) fn names(of: &[(&str, i32)]) -> Vec<(String, i32)> {
    of.iter().map(|(name, attempt)| ((*name).to_owned(), *attempt)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_step_is_committed_without_another_post() {
    let log = Scripted::new();
    let status = |event: &str, _| if event == "b" { 500 } else { 200 };
    let receiver = Receiver::deciding(log.clock(), status).await;
    log.fail_commits([StepError::Aborted("disk full".into())]);
    dispatch(&log, &["a", "b"], &receiver.url());
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || log.attempts().len() == 2);
    let mut called = receiver.called();
    called.sort();
    assert_eq!(called, names(&[("a", 1), ("b", 1)]));
    let retries: Vec<Delivery> = log.read(RETRY);
    let due_at = UnixMicros(log.clock().now().0 + 1_000_000);
    let failed = Delivery {
        attempt: 2,
        due_at,
        requests: 1,
        last_outcome: Some(AttemptOutcome::Status),
        last_status: Some(500),
        ..delivery("b", &receiver.url())
    };
    assert_eq!(retries, [failed]);
    assert_eq!(log.committed(DISPATCH).unwrap().offset, Offset(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_started_while_results_cannot_be_kept() {
    let (log, receiver) = answering(200).await;
    log.fail_commits([StepError::Aborted("disk full".into())]);
    dispatch(&log, &["a"], &receiver.url());
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || receiver.calls().len() == 1);
    turn_until(&mut deliverer, || log.failures_left() == 0);
    dispatch(&log, &["b"], &receiver.url());
    turn_until(&mut deliverer, || {
        let calls = receiver.calls().len();
        assert!(calls < 2 || !log.attempts().is_empty(), "b was sent before a was kept");
        calls == 2
    });
    turn_until(&mut deliverer, || log.attempts().len() == 2);
    assert_eq!(receiver.called(), names(&[("a", 1), ("b", 1)]));
}

/// Another process may have the partitions by then, and have sent a newer event.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_started_while_the_log_cannot_be_read() {
    let (log, receiver) = answering(500).await;
    dispatch(&log, &["a"], &receiver.url());
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || log.attempts().len() == 1);
    deliverer.turn().unwrap();
    log.clock().advance(Duration::from_secs(1));
    log.fail_polls(2);
    deliverer.turn().unwrap();
    deliverer.turn().unwrap();
    assert_eq!(receiver.calls().len(), 1);
    turn_until(&mut deliverer, || receiver.calls().len() == 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_fence_the_new_owner_makes_its_own_attempt() {
    let (log, receiver) = answering(200).await;
    log.fail_commits([StepError::Fenced("another member".into())]);
    dispatch(&log, &["a"], &receiver.url());
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || log.failures_left() == 0);
    assert_eq!(log.attempts(), []);
    log.assign(&TOPICS);
    turn_until(&mut deliverer, || log.attempts().len() == 1);
    assert_eq!(receiver.called(), names(&[("a", 1), ("a", 1)]));
    assert_eq!(log.committed(DISPATCH).unwrap().offset, Offset(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_revoked_partitions_are_dropped() {
    let (log, receiver) = silent().await;
    let config = Config { concurrency_per_host: 1, ..config() };
    dispatch(&log, &["a", "b"], &receiver.url());
    let stop = CancellationToken::new();
    let mut deliverer = deliverer_until(&log, &config, &stop);
    turn_until(&mut deliverer, || receiver.calls().len() == 1);
    log.revoke(DISPATCH);
    turn_until(&mut deliverer, || !log.has_events());
    receiver.open();
    stop.cancel();
    deliverer.run().unwrap();
    assert_eq!(receiver.called(), names(&[("a", 1)]), "b waited and was forgotten");
    assert_eq!(log.attempts(), []);
    assert_eq!(log.committed(DISPATCH), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_repeats_only_what_was_not_complete() {
    let log = Scripted::new();
    let silent = Receiver::silent(log.clock()).await;
    let quick = Receiver::start(200, log.clock()).await;
    dispatch(&log, &["slow"], &silent.url());
    dispatch(&log, &["a", "b", "c"], &quick.url());
    let mut first = deliverer(&log, &config());
    turn_until(&mut first, || log.attempts().len() == 3 && silent.calls().len() == 1);
    let committed = log.committed(DISPATCH).unwrap();
    assert_eq!(committed.offset, Offset(0), "the slow one is not complete");
    drop(first);
    silent.open();
    let mut second = deliverer(&log, &config());
    turn_until(&mut second, || log.attempts().len() == 4);
    assert_eq!(silent.called(), names(&[("slow", 1), ("slow", 1)]));
    assert_eq!(quick.calls().len(), 3);
    assert_eq!(log.committed(DISPATCH).unwrap().offset, Offset(4));
}

/// The receiver processed the event, but the connection broke before its answer arrived.
#[tokio::test(flavor = "multi_thread")]
async fn event_with_a_lost_200_comes_again_under_its_id() {
    let log = Scripted::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hooks", listener.local_addr().unwrap());
    let (heads, received) = std::sync::mpsc::channel();
    tokio::spawn(async move {
        let mut lost = true;
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut text, mut bytes) = (String::new(), [0; 4096]);
            while !text.ends_with('}') {
                let read = stream.read(&mut bytes).await.unwrap();
                text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
            }
            if !lost {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
            lost = false;
            heads.send(text).unwrap();
        }
    });
    dispatch(&log, &["a"], &url);
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || log.attempts().len() == 1);
    log.clock().advance(Duration::from_secs(1));
    turn_until(&mut deliverer, || log.attempts().len() == 2);
    let outcome = |number, outcome| ("a".to_owned(), number, outcome);
    let wanted = [outcome(1, AttemptOutcome::Protocol), outcome(2, AttemptOutcome::Delivered)];
    assert_eq!(log.outcomes(), wanted);
    for number in 1..=2 {
        let head = received.recv().unwrap();
        assert!(head.contains("webhook-id: a\r\n"), "{head}");
        assert!(head.contains(&format!("webhook-attempt: {number}\r\n")), "{head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_our_own_is_no_attempt() {
    let log = Scripted::new();
    // The broadcast address cannot be connected to.
    let broadcast = "http://255.255.255.255/hooks";
    dispatch(&log, &["a"], broadcast);
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || log.committed(DISPATCH).is_some());
    let deferred: Vec<Delivery> = log.read(DEFER);
    assert_eq!(deferred.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [1]);
    assert_eq!(log.attempts(), []);
    assert_eq!(log.committed(DISPATCH).unwrap().offset, Offset(1));
}

/// Records are dated by the broker, whose clock may differ from ours.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_of_the_log_that_is_off_changes_no_due_time() {
    for skew in [600, -600] {
        let log = Scripted::new();
        log.skew(skew);
        let failing = Receiver::start(500, log.clock()).await;
        dispatch(&log, &["a"], &failing.url());
        let retries = RetryLevel::ALL.iter().copied().map(Topic::WebhooksRetry);
        let topics: Vec<_> = std::iter::once(DISPATCH).chain(retries).collect();
        let mut deliverer = deliverer_of(&log, &config(), &topics, &CancellationToken::new());
        for attempt in 1..=12 {
            turn_until(&mut deliverer, || log.attempts().len() == attempt);
            log.clock().advance(Duration::from_secs(1 << (attempt - 1)));
        }
        let times: Vec<_> = failing.calls().iter().map(|call| call.at.0).collect();
        let waits: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], "{skew}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_delivery_becomes_a_dead_letter() {
    let (log, receiver) = answering(200).await;
    let no_value = NewRecord { value: None, ..put(DISPATCH, "x", &delivery("x", "")) };
    let garbage = NewRecord { value: Some(vec![9; 9]), ..no_value.clone() };
    let numberless = put(DISPATCH, "y", &Delivery { attempt: 13, ..delivery("y", "http://a/") });
    log.append(vec![no_value, garbage, numberless]);
    dispatch(&log, &["a"], &receiver.url());
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || log.attempts().len() == 1);
    let letters: Vec<DeadLetter> = log.read(Topic::DeadLetters);
    let places: Vec<_> = letters.iter().map(|l| (l.topic.as_str(), l.offset)).collect();
    assert_eq!(
        places,
        [("webhooks.dispatch", 0), ("webhooks.dispatch", 1), ("webhooks.dispatch", 2)]
    );
    assert!(letters.iter().all(|letter| letter.group == "webhooks.deliverer"));
    assert_eq!(log.committed(DISPATCH).unwrap().offset, Offset(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_url_applies_to_waiting_unknown_transfers() {
    let log = Scripted::new();
    let old = Receiver::start(200, log.clock()).await;
    let new = Receiver::start(200, log.clock()).await;
    let unknown = |name| {
        let kind = DeliveryKind::UnknownTransfer;
        put(RETRY, name, &Delivery { kind, ..delivery(name, &old.url()) })
    };
    log.append(vec![unknown("a")]);
    let changed = Config { unknown_transfer_webhook_url: Some(new.url()), ..config() };
    let mut first = deliverer(&log, &changed);
    turn_until(&mut first, || {
        log.clock().advance(Duration::from_secs(1));
        log.attempts().len() == 1
    });
    assert_eq!((old.calls().len(), new.called()), (0, names(&[("a", 1)])));
    drop(first);
    log.append(vec![unknown("b")]);
    let mut second = deliverer(&log, &config());
    turn_until(&mut second, || {
        log.clock().advance(Duration::from_secs(1));
        log.attempts().len() == 2
    });
    let attempts: Vec<Attempt> = log.read(Topic::WebhooksAttempts);
    assert_eq!(attempts[1].outcome, AttemptOutcome::Forbidden);
    assert_eq!(attempts[1].cause, "merchant.unknown_transfer_webhook_url is not set any more");
    assert_eq!(log.read::<Delivery>(Topic::WebhooksDead).len(), 1);
    assert_eq!((old.calls().len(), new.calls().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_requests_and_starts_none() {
    let (log, receiver) = silent().await;
    dispatch(&log, &["a"], &receiver.url());
    let stop = CancellationToken::new();
    let mut deliverer = deliverer_until(&log, &config(), &stop);
    turn_until(&mut deliverer, || receiver.calls().len() == 1);
    stop.cancel();
    dispatch(&log, &["b"], &receiver.url());
    receiver.open();
    deliverer.run().unwrap();
    assert_eq!(receiver.called(), names(&[("a", 1)]));
    assert_eq!(log.attempts(), names(&[("a", 1)]));
    assert_eq!(log.committed(DISPATCH).unwrap().offset, Offset(1));
}

/// Events fail for 26 hours, every minute, then every 20 minutes. Then one is acknowledged, and others fail for less
/// than an hour.
#[tokio::test(flavor = "multi_thread")]
async fn failing_endpoint_is_named_once_a_day() {
    let log = Scripted::new();
    let status = |event: &str, _| if event == "good" { 200 } else { 500 };
    let receiver = Receiver::deciding(log.clock(), status).await;
    let mut deliverer = deliverer(&log, &Config { max_attempts: 1, ..config() });
    let mut sent = 0;
    let mut send = |name: &str, minutes: u64| {
        let emitted_at = log.clock().now();
        let event = Delivery { emitted_at, ..delivery(name, &receiver.url()) };
        log.append(vec![put(DISPATCH, name, &event)]);
        sent += 1;
        turn_until(&mut deliverer, || log.attempts().len() == sent);
        log.clock().advance(Duration::from_secs(minutes * 60));
    };
    let of = |kind: AlertKind, state: AlertState| {
        let alerts = log.read::<Alert>(Topic::Alerts);
        let of_kind = alerts.into_iter().filter(|alert| (alert.kind, alert.state) == (kind, state));
        of_kind.collect::<Vec<_>>()
    };
    let alerts = || of(AlertKind::EndpointFailing, AlertState::Raised);
    (0..60).for_each(|_| send("bad", 1));
    assert_eq!(alerts(), [], "not for an hour");
    (0..75).for_each(|_| send("bad", 20));
    assert_eq!(alerts().len(), 2);
    send("good", 1);
    assert_eq!(of(AlertKind::EndpointFailing, AlertState::Resolved).len(), 1);
    (0..60).for_each(|_| send("bad", 1));
    assert_eq!(of(AlertKind::DeadWebhook, AlertState::Raised).len(), 1, "one for the receiver");
    let alerts = alerts();
    assert_eq!(alerts.len(), 2, "it counts from the last 200");
    assert!(alerts[0].message.starts_with("127."), "{}", alerts[0].message);
}

/// The attempt under way is completed, and no other is started. The newer version reads the record again.
#[tokio::test(flavor = "multi_thread")]
async fn newer_record_version_stops_the_deliverer() {
    let (log, receiver) = silent().await;
    dispatch(&log, &["a"], &receiver.url());
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || receiver.calls().len() == 1);
    let mut newer = put(DISPATCH, "b", &delivery("b", &receiver.url()));
    newer.value.as_mut().unwrap()[4] ^= 0xff; // the last byte of the schema's id
    log.append(vec![newer]);
    dispatch(&log, &["c"], &receiver.url());
    for _ in 0..20 {
        deliverer.turn().unwrap();
    }
    receiver.open();
    let deadline = Instant::now() + Duration::from_secs(120);
    let error = loop {
        assert!(Instant::now() < deadline, "it did not stop");
        if let Err(error) = deliverer.turn() {
            break error;
        }
    };
    let Error::Newer(newer) = error else { panic!("{error}") };
    assert_eq!(newer.at, "webhooks.dispatch/0@1");
    assert_eq!(log.attempts(), names(&[("a", 1)]));
    assert_eq!(log.committed(DISPATCH).unwrap().offset, Offset(1));
    assert_eq!(receiver.called(), names(&[("a", 1)]));
}
