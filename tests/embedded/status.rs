//! `tidemark status` on planted installations: each problem, and the exit codes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord};
use runtime::{Clock, ManualClock, SystemClock};
use schemas::record::{
    Alert, Attempt, Block, ChainBody, ChainProgress, ChainRecord, Delivery, Head, Order, Record,
    StopScope, example,
};
use schemas::{
    AlertKind, AttemptOutcome, Blockchain, OrderId, OrderStatus, Partition, RetryLevel, Stablecoin,
    Topic, UnixMicros, UnixSeconds,
};
use serde_json::{Value, json};
use store::embedded::EmbeddedStore;
use store::{Change, Store};
use testkit::harness::{
    Chain, LAYOUT, Tidemark, WALLET, WEBHOOK, command, errand, eventually, evm_node, exits,
    free_port, now,
};
use testkit::process::{signal, text};
use uuid::Uuid;

const FIRST: Partition = Partition(0);

/// Runs `tidemark status`, which must exit with this code; returns its output.
#[track_caller]
fn status(dir: &Path, arguments: &[&str], code: i32) -> String {
    exits(dir, &[&["status"], arguments].concat(), code)
}

/// Runs `tidemark status --json`; returns its document.
#[track_caller]
fn document(dir: &Path, code: i32) -> Value {
    serde_json::from_str(&status(dir, &["--json"], code)).unwrap()
}

fn configure(dir: &Path, listen: &str) {
    let data = dir.join("data");
    let text = format!(
        "[telemetry]\nlisten = \"{listen}\"\n[data]\ndir = \"{}\"\n[chains.eth]\nrpc = \"http://127.0.0.1:9\"\n",
        data.display()
    );
    std::fs::write(dir.join("tidemark.toml"), text).unwrap();
}

/// A healthy installation without a process.
struct Planted {
    log: EmbeddedLog,
    tables: EmbeddedStore,
    now: UnixSeconds,
}

impl Planted {
    /// Its records are appended as if this many seconds ago.
    async fn well(dir: &Path, ago: i64) -> Self {
        configure(dir, "");
        let now = SystemClock.now().seconds();
        let (data, clock) = (dir.join("data"), ManualClock::new(now.plus(-ago).micros()));
        let log = EmbeddedLog::open(&data, LAYOUT, Arc::new(clock)).unwrap();
        let planted = Self { log, tables: EmbeddedStore::open(&data).unwrap(), now };
        let progress = planted.progress();
        planted.write(Topic::Chains, "eth", &progress).await;
        planted
    }

    fn ago(&self, seconds: i64) -> UnixMicros {
        self.now.plus(-seconds).micros()
    }

    fn progress(&self) -> ChainProgress {
        let (head, updated_at) = (self.block(), self.ago(5));
        ChainProgress { head, updated_at, ..example::chain_progress() }
    }

    fn block(&self) -> Block {
        Block { timestamp: self.now.plus(-5), ..example::chain_progress().head }
    }

    /// Writes a record to the first partition.
    async fn write<R: Record>(&self, topic: Topic, key: &str, record: &R) {
        self.log
            .produce(vec![NewRecord::encode(topic, FIRST, key, record).unwrap()])
            .await
            .unwrap();
    }
}

/// A head whose confirmed blocks are as old as its own block.
fn head(block: Block) -> Head {
    let ChainBody::Head(mut head) = example::chain_head().body else { panic!("no head") };
    head.confirmed.iter_mut().for_each(|tier| tier.timestamp = Some(block.timestamp));
    head
}

/// The only problem, and its remedy.
#[track_caller]
fn wrong(dir: &Path) -> (String, String) {
    let document = document(dir, 1);
    assert_eq!(document["well"], false);
    let problems = document["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{document}");
    let word = |key: &str| problems[0][key].as_str().unwrap().to_owned();
    let (problem, help) = (word("text"), word("help"));
    let screen = status(dir, &[], 1);
    // A second may have passed.
    let plain = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    let first = plain(&format!("\n! {problem}\n    {help}\n"));
    assert!(screen.starts_with("NOT WELL: 1  ") && plain(&screen).contains(&first), "{screen}");
    (problem, help)
}

#[track_caller]
fn is_wrong(dir: &Path, text: &str, help: &str) {
    let (problem, helps) = wrong(dir);
    assert!(problem.contains(text) && helps.contains(help), "{problem}: {helps}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_wrong_is_one_screen_and_exit_0() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 0).await;
    let pending = Order {
        created_at: planted.now.plus(-95),
        expires_at: planted.now.plus(1705),
        ..example::order()
    };
    planted.tables.apply(vec![Change::Order(pending)]).await.unwrap();
    let text = status(dir.path(), &[], 0);
    assert!(text.starts_with("WELL  "), "{text}");
    let rows: Vec<_> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let has = |start: &str, end: &str| {
        let found = rows.iter().any(|row| row.starts_with(start) && row.ends_with(end));
        assert!(found, "{start} … {end} is not in {text}");
    };
    has("chains eth ", " s old at block 21000000, confirmed 20999988, final 20999936, 1 endpoints");
    has("stages processor.matching lag 0 records,", "0 s");
    has("projector lag 1 records,", " s");
    has("orders 1 pending, the oldest ", " s old");
    has("webhooks 0 wait,", "0 given up and not delivered since");
    has("records 0 open alerts,", "0 dead letters in all, 0 stops");
    has("disk ", "data");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_chain_is_shown_first() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 0).await;
    let message = "no endpoint answers \u{9b}31m".to_owned();
    let (kind, chain) = (AlertKind::ChainHalted, Some(Blockchain::Eth));
    let halted = Alert::raise(kind, chain, &"", message, planted.ago(4));
    planted.write(Topic::Alerts, "", &halted).await;
    let shown = document(dir.path(), 1);
    assert_eq!(shown["chains"][0]["halted"], json!(halted.message));
    let [problem, help] = ["text", "help"].map(|key| shown["problems"][0][key].to_string());
    assert!(
        problem.contains("eth is halted since ") && help.contains("A halted chain"),
        "{problem}"
    );
    let screen = status(dir.path(), &[], 1);
    assert!(screen.contains("no endpoint answers \\u009b31m"), "{screen}");
    // A later scan does not end the alert: its owner does.
    let later = ChainProgress { updated_at: planted.ago(0), ..planted.progress() };
    planted.write(Topic::Chains, "eth", &later).await;
    status(dir.path(), &[], 1);
    let end = halted.resolve("scanned again".to_owned(), planted.ago(0));
    planted.write(Topic::Alerts, "", &end).await;
    status(dir.path(), &[], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_chain_lacks_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 0).await;
    let write = async |held: bool, has_gap| {
        let block = planted.block();
        let held = if held { head(block).held } else { vec![] };
        let body = ChainBody::Head(Head { held, has_gap, ..head(block) });
        let record = ChainRecord { block, body, ..example::chain_head() };
        planted.write(Topic::TransfersRaw, "eth", &record).await;
    };
    write(true, false).await;
    is_wrong(dir.path(), "endpoints of eth disagree about 1 transfers", "chain resolve eth 0xbbbb");
    write(false, true).await;
    is_wrong(dir.path(), "blocks of eth are gone from every endpoint", "has deleted");
    write(false, false).await;
    let lane = ChainProgress {
        lane: Some(0),
        stopped: vec![StopScope {
            blockchain: None,
            stablecoin: Some(Stablecoin::Usdc),
            address: None,
        }],
        ..planted.progress()
    };
    planted.write(Topic::Chains, "eth/0", &lane).await;
    is_wrong(dir.path(), "payments are stopped: eth: ", "tidemark stop SUBJECT --end");
}

/// An unreadable record may hide the progress of a chain: the rest is still shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_nobody_can_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 0).await;
    let record = NewRecord::encode(Topic::Chains, FIRST, "eth", &planted.progress()).unwrap();
    let garbage = NewRecord { value: Some(b"garbage".to_vec()), ..record };
    planted.log.produce(vec![garbage]).await.unwrap();
    let text = status(dir.path(), &[], 2);
    assert!(text.starts_with("UNKNOWN: 1  ") && text.contains("\n? chains/0@1: "), "{text}");
    assert!(text.contains("s old at block 21000000, confirmed 20999988"), "{text}");
    let text = exits(dir.path(), &["chain", "status"], 1);
    assert!(text.contains("eth: scanned to 21000000") && text.contains("chains/0@1: "), "{text}");
    let text = exits(dir.path(), &["stop"], 1);
    assert!(text.contains("chains/0@1: ") && !text.contains("nothing is stopped"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_ahead_of_the_clock_is_0_s_old() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 0).await;
    let head = Block { timestamp: planted.now.plus(600), ..planted.block() };
    let progress = ChainProgress { head, ..planted.progress() };
    planted.write(Topic::Chains, "eth", &progress).await;
    let text = status(dir.path(), &[], 0);
    assert!(text.contains(" 0 s old at block 21000000"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_webhook_is_wrong_until_it_is_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 30).await;
    let order_id = Some(OrderId(Uuid::from_u128(1)));
    planted.write(Topic::WebhooksDead, "1", &Delivery { order_id, ..example::delivery() }).await;
    is_wrong(dir.path(), "1 webhooks were given up and not", "tidemark webhook dead redrive");
    let attempt = |ago, outcome| {
        let attempted_at = planted.ago(ago);
        Change::Attempt(Attempt { order_id, attempted_at, outcome, ..example::attempt() })
    };
    let earlier = attempt(31, AttemptOutcome::Delivered);
    planted.tables.apply(vec![earlier]).await.unwrap();
    is_wrong(dir.path(), "1 webhooks were given up and not", "tidemark webhook dead redrive");
    let Change::Attempt(later) = attempt(29, AttemptOutcome::Delivered) else { panic!("attempt") };
    let later = Attempt { attempt: 9, manual: true, ..later };
    planted.tables.apply(vec![Change::Attempt(later)]).await.unwrap();
    status(dir.path(), &[], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_wait_for_long_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 30).await;
    let topic = Topic::WebhooksRetry(RetryLevel::ALL[0]);
    let waiting = |ago| Delivery { emitted_at: planted.ago(ago), ..example::delivery() };
    planted.write(topic, "1", &waiting(60)).await;
    assert_eq!(document(dir.path(), 0)["webhooks"]["waiting"], 1);
    planted.write(topic, "2", &waiting(700)).await;
    is_wrong(dir.path(), "2 webhooks wait, the oldest for 70", "tidemark webhook test");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_counts_until_it_is_resolved() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 0).await;
    let week = 7 * 24 * 3600;
    let alert = Alert { raised_at: planted.ago(week), ..example::alert() };
    planted.write(Topic::Alerts, "", &alert).await;
    let help = format!("tidemark alerts resolve {}", alert.alert_id);
    is_wrong(dir.path(), "confirmed_transfer_retracted since", &help);
    let end = alert.resolve("refunded".to_owned(), planted.ago(1));
    planted.write(Topic::Alerts, "", &end).await;
    status(dir.path(), &[], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_that_is_behind_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 120).await;
    let text = status(dir.path(), &[], 1);
    assert!(text.contains("! projector is 12"), "nobody has read the record of the chain: {text}");
    planted.write(Topic::OrdersCommands, "1", &example::order_command()).await;
    let text = status(dir.path(), &[], 1);
    assert!(text.contains("s behind: 1 records wait for group processor.orders"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_does_not_end_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 0).await;
    let of = |number, overdue: i64, status| {
        let order_id = OrderId(Uuid::from_u128(number));
        let expires_at = planted.now.plus(-overdue);
        Change::Order(Order { order_id, expires_at, status, ..example::order() })
    };
    let ended = of(1, 7200, OrderStatus::Expired);
    planted.tables.apply(vec![ended, of(2, 3000, OrderStatus::Pending)]).await.unwrap();
    status(dir.path(), &[], 0);
    planted.tables.apply(vec![of(3, 3700, OrderStatus::Pending)]).await.unwrap();
    let id = Uuid::from_u128(3).to_string();
    is_wrong(dir.path(), "1 orders are pending an hour after their deadline", &id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_does_not_answer_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 0).await;
    let listen = format!("127.0.0.1:{}", free_port());
    configure(dir.path(), &listen);
    is_wrong(dir.path(), &format!("is not ready: http://{listen}/ready"), "tidemark run");
    planted.log.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_not_known_has_its_own_code() {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), "");
    let text = status(dir.path(), &[], 2);
    assert!(text.contains("there is no log at"), "{text}");
    let planted = Planted::well(dir.path(), 0).await;
    // Only the tables have the attempts of a dead webhook.
    planted.write(Topic::WebhooksDead, "1", &example::delivery()).await;
    let Planted { log, tables, .. } = planted;
    drop(tables);
    log.close();
    std::fs::write(dir.path().join("data/tables.sqlite"), "no tables").unwrap();
    let text = status(dir.path(), &[], 2);
    assert!(text.starts_with("UNKNOWN: 2  ") && text.contains("\n? the tables: "), "{text}");
    assert!(text.contains("\n? the webhooks that were given up: "), "{text}");
    assert!(text.contains("0 wait, an unknown number given up"), "{text}");
    std::fs::remove_file(dir.path().join("data/tables.sqlite")).unwrap();
    let text = status(dir.path(), &[], 2);
    assert!(text.contains("\n? the tables: there are none\n"), "{text}");
    status(dir.path(), &["--colour"], 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_waits_for_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::well(dir.path(), 0).await;
    let process = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    configure(dir.path(), &process.local_addr().unwrap().to_string());
    let mut watch = command(dir.path(), &["status", "--watch", "--json"]);
    let child = watch.stdout(Stdio::piped()).spawn().unwrap();
    // The first request is refused, the second one held.
    drop(process.accept().await.unwrap());
    let _held = process.accept().await.unwrap();
    signal(child.id(), "INT");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended));
    assert_eq!(ended.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "the first screen");
    planted.log.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_installation_is_watched() {
    let dir = tempfile::tempdir().unwrap();
    let devnet = evm_node(1, 600, 60).await;
    devnet.chain().mine_at(now().unsigned_abs()).unwrap();
    let chains = [Chain::of("eth", &devnet, WALLET, "")];
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    eventually("the status to be well", || async {
        let status = errand(dir.path(), &["status"]);
        let is_read = text(&status).contains("projector            lag 0 records");
        (status.status.success() && is_read).then_some(())
    })
    .await;
    let mut watch = command(dir.path(), &["status", "--watch"]);
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        while !line.starts_with("\u{1b}[H\u{1b}[2JWELL  ") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended");
        }
    }
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(0), "Ctrl-C");

    let mut watch = command(dir.path(), &["status", "--watch", "--json"]);
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0), "its reader closed the pipe");
    assert!(tidemark.stop().await.success());
}
