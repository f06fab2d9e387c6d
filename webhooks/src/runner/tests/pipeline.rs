//! Both loops on their threads over the embedded log: the schedule, restarts, fairness.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::Log;
use log::embedded::EmbeddedLog;
use runtime::{Clock, ManualClock};
use schemas::record::{Attempt, Delivery, Order, Transfer, example};
use schemas::{AttemptOutcome, DeferLevel, OrderId, OrderStatus, Topic, TransferId};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::receiver::{Call, Receiver};
use super::running::{Running, open, read};
use super::scripted::{START, config, delivery, put};
use crate::config::Config;
use crate::runner::{Engine, run_deliverer, run_dispatcher};

/// Both loops, on their threads.
fn start(log: &EmbeddedLog, config: &Config, clock: Arc<dyn Clock>) -> Running {
    let engine = Engine::new(config, clock.clone(), Handle::current()).unwrap();
    let config = config.clone();
    Running::start(log, clock, |context| {
        let dispatched = context.clone();
        vec![
            std::thread::spawn(move || run_dispatcher(&config, &dispatched)),
            std::thread::spawn(move || run_deliverer(&engine, &context)),
        ]
    })
}

fn attempts(log: &EmbeddedLog) -> Vec<Attempt> {
    read(log, Topic::WebhooksAttempts)
}

/// Polls until `done`.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        tick.tick().await;
    }
}

fn paid(number: u128, url: &str) -> Order {
    Order {
        order_id: OrderId(Uuid::from_u128(number)),
        status: OrderStatus::Paid,
        status_changed: true,
        webhook_url: url.to_owned(),
        updated_at: START,
        ..example::order()
    }
}

/// The event of [`paid`].
fn order_event(number: u128) -> String {
    let order = paid(number, "");
    format!("{}.{}", order.order_id, order.version)
}

async fn change(log: &EmbeddedLog, order: &Order) {
    log.produce(vec![put(Topic::Orders, &order.order_id.to_string(), order)]).await.unwrap();
}

async fn unknown(log: &EmbeddedLog, number: i64) {
    let transfer = Transfer { transfer_id: TransferId(number), ..example::transfer() };
    log.produce(vec![put(Topic::TransfersUnknown, "", &transfer)]).await.unwrap();
}

/// The calls of each event.
fn by_event(receiver: &Receiver) -> BTreeMap<String, Vec<Call>> {
    let mut events: BTreeMap<_, Vec<Call>> = BTreeMap::new();
    for call in receiver.calls() {
        events.entry(call.event_id.clone()).or_default().push(call);
    }
    events
}

fn numbers(calls: &[Call]) -> Vec<i32> {
    calls.iter().map(|call| call.attempt).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_9_spec_6_3_3_twelve_attempts_then_dead() {
    let clock = Arc::new(ManualClock::new(START));
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path(), clock.clone());
    let failing = Receiver::start(500, clock.clone()).await;
    let quick = Receiver::start(200, clock.clone()).await;
    let config = Config { unknown_transfer_webhook_url: Some(failing.url()), ..config() };
    let running = start(&log, &config, clock.clone());
    change(&log, &paid(1, &failing.url())).await;
    unknown(&log, 1).await;
    let mut canaries = 0;
    let milli = Duration::from_millis(1);
    for failed in 1..=11 {
        let is_ours = |attempt: &&Attempt| !attempt.event_id.starts_with("canary");
        let count = || attempts(&log).iter().filter(is_ours).count();
        until("both attempts", || count() == 2 * failed).await;
        clock.advance(Duration::from_secs(1 << (failed - 1)) - milli);
        // A delivery that is due now shows that the deliverer has seen this moment.
        canaries += 1;
        let name = format!("canary-{canaries}");
        let canary = put(Topic::WebhooksDispatch, &name, &delivery(&name, &quick.url()));
        log.produce(vec![canary]).await.unwrap();
        until("the canary", || quick.calls().len() == canaries).await;
        assert_eq!(failing.calls().len(), 2 * failed, "not before they are due");
        clock.advance(milli);
        until("the next attempts", || failing.calls().len() == 2 * (failed + 1)).await;
    }
    until("death", || read::<Delivery>(&log, Topic::WebhooksDead).len() == 2).await;
    running.stop();
    let events = by_event(&failing);
    assert_eq!(events.keys().collect::<Vec<_>>(), [order_event(1).as_str(), "1.unknown"]);
    for (event, calls) in events {
        assert_eq!(numbers(&calls), (1..=12).collect::<Vec<_>>(), "{event}");
        let seconds: Vec<_> =
            calls.windows(2).map(|pair| (pair[1].at.0 - pair[0].at.0) / 1_000_000).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], "{event}");
        assert!(calls.iter().all(|call| call.body == calls[0].body), "{event}");
    }
    let dead: Vec<Delivery> = read(&log, Topic::WebhooksDead);
    assert!(dead.iter().all(|delivery| delivery.attempt == 12));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_between_attempts_keeps_their_number() {
    let clock = Arc::new(ManualClock::new(START));
    let dir = tempfile::tempdir().unwrap();
    let failing = Receiver::start(503, clock.clone()).await;
    let mut made = 0;
    for _ in 0..3 {
        let log = open(dir.path(), clock.clone());
        let running = start(&log, &config(), clock.clone());
        if made == 0 {
            change(&log, &paid(1, &failing.url())).await;
        }
        for _ in 0..2 {
            clock.advance(Duration::from_secs(if made == 0 { 0 } else { 1 << (made - 1) }));
            made += 1;
            until("the attempt", || attempts(&log).len() == made).await;
        }
        running.stop();
    }
    let calls = failing.calls();
    assert_eq!(numbers(&calls), (1..=6).collect::<Vec<_>>());
    assert!(calls.iter().all(|call| call.event_id == order_event(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_receiver_delays_nobody_else() {
    let clock = Arc::new(ManualClock::new(START));
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path(), clock.clone());
    let silent = Receiver::silent(clock.clone()).await;
    let quick = Receiver::start(200, clock.clone()).await;
    let running = start(&log, &config(), clock.clone());
    for number in 0..40 {
        let url = if number % 2 == 0 { silent.url() } else { quick.url() };
        change(&log, &paid(number, &url)).await;
    }
    until("delivery to the quick one", || quick.calls().len() == 20).await;
    until("its attempts", || attempts(&log).len() == 20).await;
    assert!(attempts(&log).iter().all(|a| a.outcome == AttemptOutcome::Delivered));
    // One event waits for its answer. The others wait a second for a permit, then five more as deferred.
    until("a call", || silent.calls().len() == 1).await;
    clock.advance(Duration::from_secs(1));
    until("the deferral", || {
        read::<Delivery>(&log, Topic::WebhooksDefer(DeferLevel::First)).len() == 19
    })
    .await;
    silent.open();
    clock.advance(Duration::from_secs(5));
    until("delivery to the other one", || attempts(&log).len() == 40).await;
    running.stop();
    assert_eq!(silent.calls().len(), 20);
}

/// Number of failures of an event's POST before its acknowledgement; 9 exceeds the maximum number
/// of attempts.
fn failures(event_id: &str) -> i32 {
    let subject = event_id.split('.').next().unwrap();
    let number =
        subject.parse().unwrap_or_else(|_| subject.parse::<OrderId>().unwrap().0.as_u128() as i32);
    if number % 7 == 6 { 9 } else { number % 4 }
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_9_each_event_is_attempted_never_early() {
    const ROUNDS: i64 = 4;
    // Unknown transfers in a round, which also has two orders for each.
    const UNKNOWN: i64 = 10;
    /// Time that passes with each poll.
    const STEP: Duration = Duration::from_millis(20);
    let clock = Arc::new(ManualClock::new(START));
    let dir = tempfile::tempdir().unwrap();
    let status = |event: &str, attempt| if attempt > failures(event) { 200 } else { 500 };
    let receiver = Receiver::deciding(clock.clone(), status).await;
    let config =
        Config { max_attempts: 5, unknown_transfer_webhook_url: Some(receiver.url()), ..config() };
    let wanted = |event: &str| (failures(event) + 1).min(5);
    let numbers_sent = UNKNOWN..(ROUNDS + 1) * UNKNOWN;
    let orders = (2 * numbers_sent.start..2 * numbers_sent.end).map(|n| order_event(n as u128));
    let unknowns = numbers_sent.map(|number| format!("{number}.unknown"));
    let events: BTreeSet<String> = orders.chain(unknowns).collect();
    let total: i32 = events.iter().map(|event| wanted(event)).sum();
    let total = usize::try_from(total).unwrap();
    for round in 1..=ROUNDS {
        let log = open(dir.path(), clock.clone());
        let running = start(&log, &config, clock.clone());
        for number in round * UNKNOWN..(round + 1) * UNKNOWN {
            unknown(&log, number).await;
            for order in [2 * number, 2 * number + 1] {
                change(&log, &paid(order.cast_unsigned().into(), &receiver.url())).await;
            }
        }
        let begun = usize::try_from(3 * UNKNOWN * round).unwrap();
        let enough = if round == ROUNDS { total } else { begun };
        until("attempts", || {
            clock.advance(STEP);
            attempts(&log).len() >= enough
        })
        .await;
        running.stop();
    }
    let log = open(dir.path(), clock);
    let seen = by_event(&receiver);
    assert_eq!(seen.keys().cloned().collect::<BTreeSet<_>>(), events);
    for (event, calls) in &seen {
        assert_eq!(numbers(calls), (1..=wanted(event)).collect::<Vec<_>>(), "{event}");
        for (pair, failed) in calls.windows(2).zip(0..) {
            let waited = pair[1].at.0 - pair[0].at.0;
            assert!(waited >= 1_000_000 << failed, "{event}: {waited} us after {:?}", pair[0]);
        }
    }
    let recorded = attempts(&log).len();
    assert_eq!(recorded, total, "each POST is a record");
    let dead: Vec<Delivery> = read(&log, Topic::WebhooksDead);
    let hopeless = events.iter().filter(|event| failures(event) == 9).count();
    assert_eq!(dead.len(), hopeless);
}
