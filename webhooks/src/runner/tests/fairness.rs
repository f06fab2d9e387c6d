//! No receiver delays another: turn by turn, with a clock that only the test moves.

use std::time::Duration;

use runtime::Clock;
use schemas::record::Delivery;
use schemas::{SchemaName, Topic};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::deliverer::{
    DEFER, DEFER_SECOND, DISPATCH, deliverer, deliverer_of, dispatch, names, turn_until,
};
use super::receiver::{Receiver, answering, silent};
use super::scripted::{START, Scripted, config, delivery, put};
use crate::config::Config;

/// One event for each of a thousand hosts of `receiver`.
fn dispatch_to_all(log: &Scripted, kind: &str, receiver: &Receiver) {
    let record = |host| {
        let name = format!("{kind}-{host}");
        put(DISPATCH, &name, &delivery(&name, &receiver.url_of(host)))
    };
    log.append((0..1000).map(record).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_silent_receivers_delay_no_healthy_one() {
    let log = Scripted::new();
    let silent = Receiver::silent(log.clock()).await;
    let quick = Receiver::start(200, log.clock()).await;
    let mut deliverer = deliverer(&log, &config());
    dispatch_to_all(&log, "first", &quick);
    turn_until(&mut deliverer, || log.attempts().len() == 1000);
    dispatch_to_all(&log, "lost", &silent);
    dispatch_to_all(&log, "second", &quick);
    turn_until(&mut deliverer, || log.attempts().len() == 2000);
    assert!(silent.calls().len() <= 32, "half of what may be under way");
    assert_eq!(log.read::<Delivery>(DEFER), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_receiver_is_deferred_without_an_attempt() {
    let log = Scripted::new();
    let silent = Receiver::silent(log.clock()).await;
    let quick = Receiver::start(200, log.clock()).await;
    let config = Config { concurrency_per_host: 1, ..config() };
    let events: Vec<String> = (0..12).map(|n| format!("slow-{n}")).collect();
    dispatch(&log, &events, &silent.url());
    dispatch(&log, &["quick"], &quick.url());
    let mut deliverer = deliverer(&log, &config);
    // One is under way, eleven wait for a moment, then they are deferred.
    let deferred = || log.read::<Delivery>(DEFER);
    turn_until(&mut deliverer, || log.attempts().len() == 1);
    assert_eq!((quick.calls().len(), deferred().len()), (1, 0));
    log.clock().advance(Duration::from_secs(1));
    turn_until(&mut deliverer, || deferred().len() == 11);
    turn_until(&mut deliverer, || silent.calls().len() == 1);
    assert!(deferred().iter().all(|delivery| delivery.attempt == 1));
    silent.open();
    turn_until(&mut deliverer, || log.attempts().len() == 2);
    log.clock().advance(Duration::from_secs(5));
    turn_until(&mut deliverer, || log.attempts().len() == 13);
    let mut called = silent.called();
    called.sort();
    called.dedup();
    assert_eq!(called.len(), 12);
    assert_eq!(silent.calls().len(), 12, "each exactly once");
    assert!(called.iter().all(|(_, attempt)| *attempt == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_deferred_again_waits_a_minute_each_time() {
    let (log, receiver) = silent().await;
    let config = Config { concurrency_per_host: 1, ..config() };
    dispatch(&log, &["a", "b"], &receiver.url());
    let mut deliverer = deliverer(&log, &config);
    turn_until(&mut deliverer, || receiver.calls().len() == 1);
    let (clock, tick) = (log.clock(), Duration::from_millis(100));
    let deferred = |topic| log.read::<Delivery>(topic);
    turn_until(&mut deliverer, || {
        clock.advance(tick);
        deferred(DEFER_SECOND).len() == 3
    });
    let written = |topic: Topic| {
        let delay = i64::from(topic.spec().delay_seconds) * 1_000_000;
        deferred(topic).into_iter().map(move |delivery| delivery.due_at.0 - delay)
    };
    let times: Vec<_> =
        std::iter::once(START.0).chain(written(DEFER)).chain(written(DEFER_SECOND)).collect();
    let waits: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
    assert_eq!(waits, [1, 6, 61, 61], "after the wait of its topic a second for its host");
    let b = delivery("b", &receiver.url());
    for (again, deferrals) in deferred(DEFER_SECOND).into_iter().zip(2..) {
        let wanted = Delivery { due_at: again.due_at, deferrals, ..b.clone() };
        assert_eq!(again, wanted, "the same, and no attempt");
    }
    assert_eq!(log.attempts(), []);
    receiver.open();
    turn_until(&mut deliverer, || log.attempts().len() == 1);
    clock.advance(Duration::from_secs(60));
    turn_until(&mut deliverer, || log.attempts().len() == 2);
    assert_eq!(receiver.called(), names(&[("a", 1), ("b", 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_for_a_quick_receiver_is_not_deferred() {
    let (log, receiver) = answering(200).await;
    let events: Vec<String> = (0..600).map(|n| format!("burst-{n}")).collect();
    dispatch(&log, &events, &receiver.url());
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || log.attempts().len() == 600);
    assert_eq!(log.read::<Delivery>(DEFER), []);
    assert_eq!(receiver.calls().len(), 600);
}

/// More events than may wait in memory for one host: the rest is deferred, and is taken early once there is room.
#[tokio::test(flavor = "multi_thread")]
async fn quick_receivers_backlog_waits_for_no_delay() {
    const EVENTS: usize = 6000;
    let (log, receiver) = answering(200).await;
    let mut deliverer = deliverer(&log, &config());
    dispatch(&log, &["first"], &receiver.url());
    turn_until(&mut deliverer, || log.attempts().len() == 1);
    let events: Vec<String> = (0..EVENTS).map(|n| format!("event-{n}")).collect();
    dispatch(&log, &events, &receiver.url());
    turn_until(&mut deliverer, || receiver.calls().len() == 1 + EVENTS);
    assert!(log.read::<Delivery>(DEFER).len() > 1000, "there was no room for all");
    assert_eq!(log.clock().now(), START);
}

#[tokio::test(flavor = "multi_thread")]
async fn fresh_events_do_not_overtake_for_ever() {
    let (log, receiver) = silent().await;
    let config = Config { concurrency_per_host: 1, ..config() };
    dispatch(&log, &["first", "deferred"], &receiver.url());
    let mut deliverer = deliverer(&log, &config);
    turn_until(&mut deliverer, || receiver.calls().len() == 1);
    log.clock().advance(Duration::from_secs(1));
    turn_until(&mut deliverer, || log.read::<Delivery>(DEFER).len() == 1);
    log.clock().advance(Duration::from_secs(5));
    let fresh = |name: &String| {
        let delivery =
            Delivery { emitted_at: log.clock().now(), ..delivery(name, &receiver.url()) };
        put(DISPATCH, name, &delivery)
    };
    let names: Vec<_> = (0..50).map(|number| format!("fresh-{number}")).collect();
    log.append(names.iter().map(fresh).collect());
    deliverer.turn().unwrap();
    receiver.open();
    turn_until(&mut deliverer, || log.attempts().len() == 52);
    assert_eq!(receiver.called()[1].0, "deferred");
}

/// URL at which nobody listens.
async fn dead_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/hooks", listener.local_addr().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manual_resend_is_sent_while_the_breaker_is_open() {
    let log = Scripted::new();
    let url = dead_url().await;
    dispatch(&log, &["a", "b", "c", "d", "e"], &url);
    let mut deliverer = deliverer(&log, &config());
    turn_until(&mut deliverer, || log.attempts().len() == 5);
    dispatch(&log, &["f"], &url);
    let by_hand = Delivery { manual: true, ..delivery("g", &url) };
    log.append(vec![put(DISPATCH, "g", &by_hand)]);
    turn_until(&mut deliverer, || log.attempts().len() == 6);
    assert_eq!(log.attempts()[5], ("g".to_owned(), 1));
    let deferred: Vec<Delivery> = log.read(DEFER);
    assert_eq!(deferred.len(), 1);
    assert_eq!((deferred[0].event_id.as_str(), deferred[0].deferrals), ("f", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_receiver_costs_few_records() {
    const EVENTS: usize = 300;
    let log = Scripted::new();
    let events: Vec<_> = (0..EVENTS).map(|number| format!("event-{number}")).collect();
    dispatch(&log, &events, &dead_url().await);
    let topics: Vec<_> = Topic::ALL
        .iter()
        .copied()
        .filter(|topic| {
            topic.spec().schema == SchemaName::Delivery && *topic != Topic::WebhooksDead
        })
        .collect();
    let mut deliverer = deliverer_of(&log, &config(), &topics, &CancellationToken::new());
    let dead = || log.read::<Delivery>(Topic::WebhooksDead);
    let clock = log.clock();
    turn_until(&mut deliverer, || {
        let open = topics.iter().flat_map(|topic| log.open(*topic));
        let next = open.map(|delivery| delivery.due_at.0).min().unwrap_or_default();
        // Advances to the next due delivery, and by 30 s at least.
        let wait = (next - clock.now().0).max(30_000_000);
        clock.advance(Duration::from_micros(wait.cast_unsigned()));
        dead().len() == EVENTS
    });
    let hours = (clock.now().0 - START.0) / 3_600_000_000;
    assert!(hours < 28, "{hours} hours");
    let records: usize = topics.iter().map(|topic| log.read::<Delivery>(*topic).len()).sum();
    assert!(records < 120 * EVENTS, "{records} records");
    let sent: Vec<_> = dead().into_iter().filter(|delivery| delivery.requests > 0).collect();
    assert!(!sent.is_empty());
    assert!(sent.iter().all(|delivery| delivery.attempt == 12));
}
