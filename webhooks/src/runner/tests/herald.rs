//! Alerts to sinks over the embedded log: each by itself, once, and across restarts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord};
use metrics_exporter_prometheus::PrometheusBuilder;
use runtime::{Clock, ManualClock, SystemClock};
use schemas::record::{Alert, DeadLetter, example};
use schemas::{AlertKind, AlertState, Blockchain, Topic, UnixMicros};
use testkit::eventually;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::receiver::{Call, Receiver};
use super::running::{self, Running, read};
use super::scripted::config;
use crate::alerts::config::tests::read_with;
use crate::alerts::{AlertsConfig, test_sink};
use crate::machine::outbox::AGE_MAX_MICROS;
use crate::runner::herald::{ABSENT_RECORDS_MAX, REASON_CHARS_MAX};
use crate::runner::run_herald;

fn start(log: &EmbeddedLog, alerts: &AlertsConfig) -> Running {
    let alerts = alerts.clone();
    let config = crate::Config { timeout: Duration::from_secs(5), ..config() };
    Running::start(log, Arc::new(SystemClock), |context| {
        vec![std::thread::spawn(move || run_herald(&alerts, &config, &context))]
    })
}

async fn receiver(status: u16) -> Receiver {
    Receiver::start(status, Arc::new(SystemClock)).await
}

async fn silent() -> Receiver {
    Receiver::silent(Arc::new(SystemClock)).await
}

impl Receiver {
    /// State and name in each request.
    fn got(&self) -> Vec<String> {
        let words = |call: Call| {
            let value: serde_json::Value = serde_json::from_str(&call.body).unwrap();
            format!("{} {}", value["state"].as_str().unwrap(), value["alert_id"].as_str().unwrap())
        };
        self.calls().into_iter().map(words).collect()
    }

    async fn gets(&self, count: usize) {
        eventually("messages", || async { (self.calls().len() >= count).then_some(()) }).await;
    }

    fn webhook(&self, name: &str) -> String {
        let url = self.keyed_url();
        format!(
            "[[alerts.sinks]]\nname = '{name}'\ntype = 'webhook'\nurl = '{url}'\nsecret = 'sink-secret-0123456789'\n"
        )
    }
}

fn sinks(text: &str) -> AlertsConfig {
    let (config, problems) = read_with(text, &schemas::ReceiverPolicy::anywhere());
    assert_eq!(problems, [""; 0]);
    config
}

fn open(dir: &Path) -> EmbeddedLog {
    running::open(dir, Arc::new(SystemClock))
}

fn raised(subject: &str) -> Alert {
    let (kind, chain) = (AlertKind::ChainHalted, Some(Blockchain::Eth));
    Alert::raise(kind, chain, &subject, format!("no {subject}"), SystemClock.now())
}

async fn write(log: &EmbeddedLog, alert: &Alert) {
    let record = NewRecord::encode(Topic::Alerts, schemas::Partition(0), "", alert).unwrap();
    log.produce(vec![record]).await.unwrap();
}

fn end(alert: &Alert) -> Alert {
    alert.clone().resolve("over".to_owned(), SystemClock.now())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_beginning_and_end_is_sent_once() {
    let dir = tempfile::tempdir().unwrap();
    let (log, inbox) = (open(dir.path()), receiver(200).await);
    let config = sinks(&inbox.webhook("pager"));
    let first = raised("a");
    write(&log, &first).await;
    let running = start(&log, &config);
    inbox.gets(1).await;
    // The alert is open already, so it is not sent again.
    write(&log, &first).await;
    write(&log, &end(&first)).await;
    inbox.gets(2).await;
    write(&log, &end(&first)).await;
    running.stop();
    write(&log, &first).await;
    let running = start(&log, &config);
    inbox.gets(3).await;
    running.stop();
    let running = start(&log, &config);
    write(&log, &raised("b")).await;
    inbox.gets(4).await;
    running.stop();
    let expected = ["raised chain_halted/eth/a", "resolved chain_halted/eth/a"];
    assert_eq!(inbox.got()[..2], expected);
    assert_eq!(inbox.got()[2..], [expected[0], "raised chain_halted/eth/b"]);
    let calls = inbox.calls();
    let headers = &calls[0].headers;
    assert!(headers.contains_key("service-signature") && headers.contains_key("webhook-id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_sink_holds_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (slow, quick) = (silent().await, receiver(200).await);
    let log = open(dir.path());
    let config = sinks(&format!("{}{}", slow.webhook("slow"), quick.webhook("quick")));
    let running = start(&log, &config);
    for subject in ["a", "b", "c"] {
        write(&log, &raised(subject)).await;
    }
    quick.gets(3).await;
    assert_eq!(slow.got(), ["raised chain_halted/eth/a"], "one at a time");
    running.stop();
    slow.open();
    slow.forget_calls();
    let running = start(&log, &config);
    slow.gets(3).await;
    running.stop();
    assert_eq!(slow.got()[1..], ["raised chain_halted/eth/b", "raised chain_halted/eth/c"]);
    assert_eq!(quick.got().len(), 3, "it is not sent again what it has");
}

/// While a configuration is changed, processes with and without a sink take turns.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_a_sink_keeps_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (silent().await, receiver(200).await);
    let log = open(dir.path());
    let both = sinks(&format!("{}{}", first.webhook("first"), second.webhook("second")));
    let alone = sinks(&second.webhook("second"));
    let running = start(&log, &both);
    write(&log, &raised("a")).await;
    second.gets(1).await;
    running.stop();
    let running = start(&log, &alone);
    write(&log, &raised("b")).await;
    second.gets(2).await;
    running.stop();
    first.open();
    first.forget_calls();
    let running = start(&log, &both);
    first.gets(2).await;
    running.stop();
    assert_eq!(first.got(), ["raised chain_halted/eth/a", "raised chain_halted/eth/b"]);
    assert_eq!(second.got().len(), 2);

    // A sink that was removed for good no longer holds back the group.
    let running = start(&log, &alone);
    let again = NewRecord::encode(Topic::Alerts, schemas::Partition(0), "", &raised("b")).unwrap();
    let many = usize::try_from(ABSENT_RECORDS_MAX + 1).unwrap();
    log.produce(vec![again; many]).await.unwrap();
    write(&log, &raised("c")).await;
    second.gets(3).await;
    running.stop();
    let running = start(&log, &both);
    write(&log, &raised("d")).await;
    first.gets(3).await;
    running.stop();
    assert_eq!(first.got()[2..], ["raised chain_halted/eth/d"]);
}

/// Records received before an aborted step are skipped when they are read again, so their letter must be kept.
#[tokio::test(flavor = "multi_thread")]
async fn the_letter_of_an_aborted_step_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (log, inbox) = (open(dir.path()), receiver(200).await);
    let record = NewRecord::encode(Topic::Alerts, schemas::Partition(0), "", &raised("a")).unwrap();
    let garbage = NewRecord { value: Some(vec![9]), ..record };
    log.produce(vec![garbage]).await.unwrap();
    log.fail_next_commit();
    let running = start(&log, &sinks(&inbox.webhook("pager")));
    let letters = || read::<DeadLetter>(&log, Topic::DeadLetters);
    eventually("the letter", || async { (!letters().is_empty()).then_some(()) }).await;
    running.stop();
    assert_eq!(letters().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_gets_what_it_wants_and_nothing_old() {
    let dir = tempfile::tempdir().unwrap();
    let inbox = receiver(200).await;
    let clock =
        Arc::new(ManualClock::new(UnixMicros(SystemClock.now().0 - AGE_MAX_MICROS - 60_000_000)));
    let old = running::open(dir.path(), clock);
    write(&old, &raised("old")).await;
    drop(old);
    let log = open(dir.path());
    let late = Alert::raise(AlertKind::LateFind, None, &"x", String::new(), SystemClock.now());
    write(&log, &late).await;
    write(&log, &raised("new")).await;
    let config = sinks(&format!("{}kinds = ['chain_halted']\n", inbox.webhook("pager")));
    let running = start(&log, &config);
    inbox.gets(1).await;
    running.stop();
    assert_eq!(inbox.got(), ["raised chain_halted/eth/new"]);
}

/// One alert is open, however many letters the topic has.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_with_dead_letters_has_one_open_alert() {
    let dir = tempfile::tempdir().unwrap();
    let (log, inbox) = (open(dir.path()), receiver(200).await);
    let running = start(&log, &sinks(&inbox.webhook("pager")));
    let letter = |topic: &str| {
        let reason = "x".repeat(REASON_CHARS_MAX + 1);
        let letter = DeadLetter { topic: topic.to_owned(), reason, ..example::dead_letter() };
        NewRecord::encode(Topic::DeadLetters, schemas::Partition(0), "", &letter).unwrap()
    };
    log.produce(vec![letter("orders"), letter("orders"), letter("deposits")]).await.unwrap();
    inbox.gets(2).await;
    log.produce(vec![letter("orders")]).await.unwrap();
    let alerts = || read::<Alert>(&log, Topic::Alerts);
    let first = alerts()[0].clone();
    assert!(first.message.contains("could not process orders/"), "{}", first.message);
    assert_eq!(first.message.matches('x').count(), REASON_CHARS_MAX);
    write(&log, &end(&first)).await;
    inbox.gets(3).await;
    log.produce(vec![letter("orders")]).await.unwrap();
    inbox.gets(4).await;
    running.stop();
    let names: Vec<_> = alerts().into_iter().map(|alert| (alert.alert_id, alert.state)).collect();
    let of = |topic: &str, state| (format!("dead_letter/{topic}"), state);
    assert_eq!(
        names,
        [
            of("orders", AlertState::Raised),
            of("deposits", AlertState::Raised),
            of("orders", AlertState::Resolved),
            of("orders", AlertState::Raised)
        ]
    );
}

/// A restarted herald is behind the alerts, and may read the letter before the end of the earlier alert.
#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_has_ended_hides_no_dead_letter() {
    let dir = tempfile::tempdir().unwrap();
    let (log, inbox) = (open(dir.path()), receiver(200).await);
    let config = sinks(&inbox.webhook("pager"));
    let of = schemas::Partition(0);
    let letter = NewRecord::encode(Topic::DeadLetters, of, "", &example::dead_letter()).unwrap();
    let other = NewRecord::encode(Topic::Alerts, of, "", &raised("a")).unwrap();
    let running = start(&log, &config);
    log.produce(vec![letter.clone()]).await.unwrap();
    inbox.gets(1).await;
    running.stop();
    let newest = || read::<Alert>(&log, Topic::Alerts).pop().unwrap();
    let first = newest();
    // One poll does not reach the end of the alert.
    log.produce(vec![other; 600]).await.unwrap();
    write(&log, &end(&first)).await;
    log.produce(vec![letter]).await.unwrap();
    let running = start(&log, &config);
    eventually("the alert of the second letter", || async {
        let Alert { alert_id, state, .. } = newest();
        (alert_id == first.alert_id && state == AlertState::Raised).then_some(())
    })
    .await;
    running.stop();
}

/// Neither the report for a person nor the metrics contain a key.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_sinks_reach_no_answer_and_no_metric() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    drop(metrics::set_global_recorder(recorder));
    let dir = tempfile::tempdir().unwrap();
    let inbox = receiver(400).await;
    let url = inbox.keyed_url();
    let body = "{\"routing_key\": \"routing-key-0123456789\", \"state\": \"{{state}}\", \"alert_id\": \"{{alert_id}}\"}";
    let config = sinks(&format!(
        "[[alerts.sinks]]\nname = 'chat'\ntype = 'http'\nurl = '{url}'\nheaders = {{ Authorization = 'Bearer key-of-the-header-9' }}\nbody = '{body}'\n"
    ));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = test_sink(&config, &self::config(), clock.clone(), "chat").await.unwrap().unwrap();
    assert!(!report.is_delivered && report.text.starts_with("answered with 400"), "{report:?}");
    assert!(report.text.contains("\"state\": \"raised\""), "{report:?}");
    assert_eq!(test_sink(&config, &self::config(), clock, "other").await.unwrap(), None);
    let log = open(dir.path());
    write(&log, &raised("a")).await;
    let running = start(&log, &config);
    eventually("a failure in the metrics", || async {
        let shown = handle.render();
        let open = "tidemark_webhooks_alerts_open{kind=\"chain_halted\"} 1";
        let waits = "tidemark_webhooks_alerts_waiting{sink=\"chat\"} 1";
        (shown.contains(open) && shown.contains(waits)).then_some(())
    })
    .await;
    inbox.gets(2).await;
    assert_eq!(inbox.calls()[1].headers["authorization"], "Bearer key-of-the-header-9");
    running.stop();
    let shown = handle.render();
    for secret in ["token-of-the-url", "routing-key", "key-of-the-header"] {
        assert!(!shown.contains(secret) && !report.text.contains(secret), "{secret}");
    }
    // Heralds of other tests, in this process, set the same gauge.
    eventually("the gauge of open alerts to be withdrawn", || async {
        handle.render().contains("alerts_open{kind=\"chain_halted\"} NaN").then_some(())
    })
    .await;
}

/// Runs a mail server for one message. Returns all lines it got.
async fn smtp(listener: TcpListener) -> String {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = BufReader::new(stream);
    let say = async |stream: &mut BufReader<TcpStream>, line: &str| {
        stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
    };
    say(&mut stream, "220 mail.test").await;
    let (mut all, mut is_data) = (String::new(), false);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap() == 0 {
            return all;
        }
        all.push_str(&line);
        match line.trim_end() {
            "." => {
                is_data = false;
                say(&mut stream, "250 taken").await;
            }
            _ if is_data => {}
            "DATA" => {
                is_data = true;
                say(&mut stream, "354 go").await;
            }
            "QUIT" => return all,
            _ => say(&mut stream, "250 ok").await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_has_the_alert() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!(
        "[[alerts.sinks]]\nname = 'mail'\ntype = 'mail'\nhost = '127.0.0.1'\nport = {port}\ntls = 'none'\nfrom = 'tidemark@shop.example'\nto = ['ops@shop.example']\n"
    );
    let (config, server) = (sinks(&text), tokio::spawn(smtp(listener)));
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    write(&log, &raised("a")).await;
    let running = start(&log, &config);
    let got = tokio::time::timeout(Duration::from_secs(30), server).await.unwrap().unwrap();
    running.stop();
    for part in [
        "MAIL FROM:<tidemark@shop.example>",
        "RCPT TO:<ops@shop.example>",
        "Subject: [tidemark] raised chain_halted: no a",
        "alert: chain_halted/eth/a",
        "Message-ID: <chain-halted-eth-a-raised-",
    ] {
        assert!(got.contains(part), "{part} is not in {got}");
    }
    let gone = test_sink(&config, &self::config(), Arc::new(SystemClock), "mail").await;
    let report = gone.unwrap().unwrap();
    assert!(!report.is_delivered && report.text.contains("refused"), "{report:?}");
}
