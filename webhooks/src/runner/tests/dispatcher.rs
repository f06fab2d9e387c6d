//! The dispatcher, turn by turn, on a log that aborts.

use std::collections::BTreeSet;

use log::consumer::Consumer;
use log::{NewRecord, Offset, StepError};
use metrics_exporter_prometheus::PrometheusBuilder;
use schemas::record::{DeadLetter, Delivery, Order, Transfer, example};
use schemas::{Amount, OrderStatus, Topic, UnknownReason};
use tokio_util::sync::CancellationToken;

use super::deliverer::{DISPATCH, turn_until};
use super::scripted::{LAYOUT, Scripted, config, put};
use crate::config::Config;
use crate::error::Error;
use crate::metrics::DUST;
use crate::runner::dispatcher::Dispatcher;

fn dispatcher(log: &Scripted, url: Option<&str>) -> Consumer<Dispatcher> {
    let unknown_transfer_webhook_url = url.map(str::to_owned);
    configured(log, &Config { unknown_transfer_webhook_url, ..config() })
}

fn configured(log: &Scripted, config: &Config) -> Consumer<Dispatcher> {
    let worker = log.worker(&[Topic::Orders, Topic::TransfersUnknown]);
    Consumer::new(worker, Dispatcher::new(LAYOUT, config), CancellationToken::new())
}

fn paid() -> Order {
    Order { status: OrderStatus::Paid, status_changed: true, ..example::order() }
}

#[test]
fn changes_become_deliveries_in_one_step() {
    let log = Scripted::new();
    let garbage = NewRecord { value: Some(vec![1]), ..put(Topic::Orders, "x", &paid()) };
    log.append(vec![
        put(Topic::Orders, "a", &example::order()),
        garbage,
        put(Topic::Orders, "a", &paid()),
        put(Topic::TransfersUnknown, "t", &example::transfer()),
    ]);
    log.fail_commits([StepError::Aborted("disk full".into())]);
    let mut dispatcher = dispatcher(&log, Some("https://shop.example/unknown"));
    turn_until(&mut dispatcher, || log.committed(Topic::TransfersUnknown).is_some());
    assert_eq!(log.committed(Topic::Orders).unwrap().offset, Offset(3));
    let mut deliveries: Vec<Delivery> = log.read(DISPATCH);
    deliveries.sort_by(|a, b| a.event_id.cmp(&b.event_id));
    let ids: Vec<_> = deliveries.iter().map(|d| d.event_id.as_str()).collect();
    assert_eq!(ids, [format!("{}.2", paid().order_id), "7.unknown".to_owned()]);
    assert_eq!(deliveries[1].url, "https://shop.example/unknown");
    let letters: Vec<DeadLetter> = log.read(Topic::DeadLetters);
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].topic.as_str(), letters[0].offset), ("orders", 1));
    assert_eq!(letters[0].group, "webhooks.dispatcher");
}

/// A change that an older version put aside as a dead letter would never become a webhook.
#[test]
fn a_record_of_a_newer_version_stops_the_dispatcher() {
    let log = Scripted::new();
    let mut newer = put(Topic::Orders, "a", &paid());
    newer.value.as_mut().unwrap()[4] ^= 0xff; // the last byte of the schema's id
    log.append(vec![newer, put(Topic::Orders, "a", &paid())]);
    let mut dispatcher = dispatcher(&log, None);
    let end = (0..100).find_map(|_| dispatcher.turn().err());
    let Some(Error::Newer(newer)) = end else { panic!("{end:?}") };
    assert_eq!(newer.at, "orders/0@0");
    assert_eq!(
        (log.read::<DeadLetter>(Topic::DeadLetters).len(), log.committed(Topic::Orders)),
        (0, None)
    );
}

/// A log that was made anew, or copied to other brokers, has other offsets, so an event's id must not depend on them.
#[test]
fn an_event_keeps_its_name_on_another_log() {
    let ids = |before: usize| {
        let log = Scripted::new();
        log.append(vec![put(Topic::Orders, "a", &example::order()); before]);
        log.append(vec![put(Topic::TransfersUnknown, "t", &example::transfer()); before + 1]);
        log.append(vec![put(Topic::Orders, "a", &paid())]);
        let mut dispatcher = dispatcher(&log, Some("https://shop.example/unknown"));
        let end = Offset(before as i64 + 1);
        turn_until(&mut dispatcher, || {
            let read = |topic| log.committed(topic).map(|at| at.offset);
            read(Topic::Orders) == Some(end) && read(Topic::TransfersUnknown) == Some(end)
        });
        let deliveries: Vec<Delivery> = log.read(DISPATCH);
        deliveries.into_iter().map(|delivery| delivery.event_id).collect::<BTreeSet<_>>()
    };
    assert_eq!(ids(0).len(), 2);
    assert_eq!(ids(3), ids(0));
}

#[test]
fn unknown_transfers_without_a_url_are_skipped() {
    let log = Scripted::new();
    log.append(vec![put(Topic::TransfersUnknown, "t", &example::transfer())]);
    let mut dispatcher = dispatcher(&log, None);
    turn_until(&mut dispatcher, || log.committed(Topic::TransfersUnknown).is_some());
    assert_eq!(log.read::<Delivery>(DISPATCH), []);
}

#[test]
fn dispatcher_retries_an_abort_and_stops_on_doubt() {
    let log = Scripted::new();
    log.append(vec![put(Topic::Orders, "a", &paid())]);
    let errors = [StepError::Aborted("disk full".into()), StepError::Fatal("unknown".into())];
    log.fail_commits(errors);
    let mut dispatcher = dispatcher(&log, None);
    turn_until(&mut dispatcher, || log.failures_left() == 1);
    assert!(matches!(dispatcher.turn(), Err(Error::Step(StepError::Fatal(_)))));
    assert_eq!(log.read::<Delivery>(DISPATCH), []);
}

#[test]
fn dust_is_counted_once_its_step_is_committed() {
    let log = Scripted::new();
    let dust = Transfer { reason: Some(UnknownReason::NoDeposit), ..example::transfer() };
    let threshold = (dust.observation.stablecoin, Amount::parse("1000000").unwrap());
    let config = Config { dust_threshold: [threshold].into(), ..config() };
    log.append(vec![put(Topic::TransfersUnknown, "t", &dust)]);
    log.fail_commits([StepError::Aborted("disk full".into())]);
    let mut dispatcher = configured(&log, &config);
    let recorder = PrometheusBuilder::new().build_recorder();
    let counted = || {
        let (text, line) = (recorder.handle().render(), format!("{DUST}{{stablecoin=\"USDT\"}} 1"));
        assert!(!text.contains(DUST) || text.lines().any(|found| found == line), "{text}");
        text.contains(DUST)
    };
    metrics::with_local_recorder(&recorder, || {
        turn_until(&mut dispatcher, || {
            let is_committed = log.committed(Topic::TransfersUnknown).is_some();
            assert_eq!(counted(), is_committed);
            is_committed
        });
    });
    assert_eq!(log.read::<Delivery>(DISPATCH), []);
}
