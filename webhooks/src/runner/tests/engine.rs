//! State that workers share: requests under way, and knowledge of receivers.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use log::consumer::Consumer;
use log::{Offset, Record};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use runtime::Clock;
use schemas::record::{Alert, Delivery};
use schemas::{AlertKind, Headers, Topic, UnixMicros};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::subscriber::NoSubscriber;

use super::deliverer::{DISPATCH, dispatch, turn_until};
use super::receiver::{Receiver, answering, silent};
use super::scripted::{LAYOUT, START, Scripted, at, config, delivery};
use crate::config::Config;
use crate::guard::host_key;
use crate::machine::partitions::{Ownership, Position};
use crate::runner::deliverer::Deliverer;
use crate::runner::engine::Engine;
use crate::runner::job::{Back, Inbox, Job};

const HOUR: Duration = Duration::from_secs(3600);

fn engine(log: &Scripted, config: &Config) -> Engine {
    Engine::new(config, log.clock(), Handle::current()).unwrap()
}

/// An open inbox.
fn inbox(engine: &Engine) -> Arc<Inbox> {
    let inbox = engine.open_inbox();
    inbox.open(Instant::now() + HOUR);
    inbox
}

fn job(inbox: &Arc<Inbox>, name: &str, url: &str) -> Job {
    let (from, ownership) = (at(DISPATCH), Ownership::default());
    let record = Record {
        from,
        offset: Offset(0),
        appended_at: START,
        key: Vec::new(),
        value: None,
        headers: Headers::default(),
    };
    let position = Position { from, offset: record.offset, ownership };
    Job {
        position,
        record: Arc::new(record),
        delivery: delivery(name, url),
        host: host_key(url).into(),
        inbox: inbox.clone(),
        lost: CancellationToken::new(),
    }
}

/// Events whose request has ended.
async fn ended(inbox: &Inbox, count: usize) -> Vec<String> {
    let (mut names, begun) = (Vec::new(), Instant::now());
    while names.len() < count {
        assert!(begun.elapsed() < Duration::from_secs(120), "only {names:?} ended");
        for back in inbox.take() {
            let Back::Ended(ended) = back else { panic!("{back:?}") };
            names.push(ended.unwrap().0.delivery.event_id);
        }
        tokio::task::yield_now().await;
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_request_starts_the_next_of_any_worker() {
    let (log, receiver) = answering(200).await;
    let engine = engine(&log, &Config { concurrency_per_host: 1, ..config() });
    let (one, other) = (inbox(&engine), inbox(&engine));
    engine.offer(job(&one, "a", &receiver.url()), START);
    engine.offer(job(&other, "b", &receiver.url()), START);
    engine.offer(job(&one, "c", &receiver.url()), START);
    engine.turn(START);
    assert_eq!(ended(&one, 2).await, ["a", "c"]);
    assert_eq!(ended(&other, 1).await, ["b"]);
    assert!(one.is_empty() && other.is_empty());
}

/// The worker may have lost its partitions.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_starts_for_a_worker_that_has_no_turn() {
    let (log, receiver) = answering(200).await;
    let engine = engine(&log, &Config { concurrency_per_host: 1, ..config() });
    let (gone, here) = (inbox(&engine), inbox(&engine));
    gone.close();
    for name in ["a", "b"] {
        engine.offer(job(&gone, name, &receiver.url()), START);
    }
    engine.offer(job(&here, "c", &receiver.url()), START);
    engine.turn(START);
    assert_eq!(ended(&here, 1).await, ["c"]);
    let unsent = |back: &Back| matches!(back, Back::Unsent(_));
    assert_eq!(gone.take().iter().filter(|back| unsent(back)).count(), 2);
    assert_eq!(receiver.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_too_long_goes_back_to_its_own_worker() {
    let (log, receiver) = silent().await;
    let engine = engine(&log, &Config { concurrency_per_host: 1, ..config() });
    let (one, other) = (inbox(&engine), inbox(&engine));
    engine.offer(job(&one, "a", &receiver.url()), START);
    engine.offer(job(&other, "b", &receiver.url()), START);
    engine.turn(START);
    engine.turn(UnixMicros(START.0 + 1_000_000));
    assert!(matches!(other.take()[..], [Back::Spilled(..)]));
    assert!(one.take().is_empty());
}

/// Their worker may be gone, and their inbox with it.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_of_lost_partitions_are_forgotten() {
    let (log, receiver) = silent().await;
    let engine = engine(&log, &Config { concurrency_per_host: 1, ..config() });
    let inbox = inbox(&engine);
    let losses = ["a", "b", "c"].map(|name| {
        let job = job(&inbox, name, &receiver.url());
        let lost = job.lost.clone();
        engine.offer(job, START);
        lost
    });
    engine.turn(START);
    losses[1].cancel();
    engine.turn(UnixMicros(START.0 + 1_000_000));
    let back = inbox.take();
    let [Back::Spilled(job, _)] = &back[..] else { panic!("{back:?}") };
    assert_eq!(job.delivery.event_id, "c");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_named_once_by_all_workers() {
    let logs = [Scripted::new(), Scripted::new()];
    let clock = logs[0].clock();
    let receiver = Receiver::start(500, clock.clone()).await;
    let engine = engine(&logs[0], &Config { max_attempts: 1, ..config() });
    let worker = |log: &Scripted| {
        let deliverer = Deliverer::new(LAYOUT, &engine);
        Consumer::new(log.worker(&[DISPATCH]), deliverer, CancellationToken::new())
    };
    let mut workers = logs.each_ref().map(worker);
    for round in 1..=3 {
        for (log, worker) in logs.iter().zip(&mut workers) {
            dispatch(log, &["a"], &receiver.url());
            turn_until(worker, || log.read::<Delivery>(Topic::WebhooksDead).len() == round);
        }
        clock.advance(HOUR);
    }
    let alerts = logs.iter().flat_map(|log| log.read::<Alert>(Topic::Alerts));
    let kinds: Vec<_> = alerts.map(|alert| alert.kind).collect();
    assert_eq!(kinds, [AlertKind::DeadWebhook, AlertKind::EndpointFailing]);
}

/// The bytes of log lines.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// On one thread, whose log lines are collected.
#[tokio::test]
async fn line_of_an_attempt_names_its_event_once() {
    let (written, log) = (Written::default(), Scripted::new());
    let writer = written.clone();
    // With only one dispatcher, tracing disables a callsite for all threads if another thread hits it first.
    let _second = tracing::Dispatch::new(NoSubscriber::default());
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let _collected = tracing::subscriber::set_default(lines.finish());
    let receiver = Receiver::start(500, log.clock()).await;
    let engine = engine(&log, &config());
    let inbox = inbox(&engine);
    engine.offer(job(&inbox, "a", &receiver.url()), START);
    engine.turn(START);
    assert_eq!(ended(&inbox, 1).await, ["a"]);
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let line = text.lines().find(|line| line.contains("attempt 1 of a webhook failed"));
    let line = line.unwrap_or_else(|| panic!("no line in {text}"));
    assert_eq!(line.matches("webhook.id=\"a\"").count(), 1, "{line}");
    assert_eq!(line.matches("webhook.id").count(), 1, "{line}");
}

fn value(handle: &PrometheusHandle, name: &str) -> f64 {
    let text = handle.render();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gauges_are_of_all_workers() {
    let (log, receiver) = silent().await;
    let engine = engine(&log, &Config { concurrency_per_host: 1, ..config() });
    let (one, other) = (inbox(&engine), inbox(&engine));
    let recorder = PrometheusBuilder::new().build_recorder();
    let gauge = |name| {
        metrics::with_local_recorder(&recorder, || engine.report());
        value(&recorder.handle(), name)
    };
    let is = |name, wanted: u32| (gauge(name) - f64::from(wanted)).abs() < 1e-9;
    assert!(is("tidemark_webhooks_oldest_undelivered_seconds", 0));
    for name in ["a", "b", "c"] {
        engine.offer(job(&one, name, &receiver.url()), START);
    }
    engine.turn(START);
    log.clock().advance(Duration::from_secs(7));
    let due = |seconds: i64| Some(UnixMicros(log.clock().now().0 - seconds * 1_000_000));
    one.set_next_due(due(5));
    other.set_next_due(due(3));
    assert!(is("tidemark_webhooks_in_flight", 1));
    assert!(is("tidemark_webhooks_waiting", 2));
    assert!(is("tidemark_webhooks_oldest_due_seconds", 5));
    drop(one);
    let begun = Instant::now();
    while !is("tidemark_webhooks_oldest_undelivered_seconds", 7) {
        assert!(begun.elapsed() < Duration::from_secs(120), "it is not written");
        tokio::task::yield_now().await;
    }
}
