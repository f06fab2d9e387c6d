//! `tidemark tail` beside a running process on the embedded log; on Kafka it is checked together with
//! the other readers in `consumers.rs`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use testkit::harness::{Tidemark, eventually, executable};

const WEBHOOK: &str = "http://127.0.0.1:9/hooks";

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(executable());
    command.arg("tail").args(arguments).arg("--config").arg(dir.join("tidemark.toml"));
    command
}

fn tail(dir: &Path, arguments: &[&str]) -> Output {
    command(dir, arguments).output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn references(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["value"]["merchant_order_id"].as_str()).collect()
}

async fn ended(mut child: Child) -> Option<i32> {
    eventually("tail to end", || {
        let ended = child.try_wait().unwrap();
        async move { ended }
    })
    .await
    .code()
}

/// Creates an order and waits until its first record is on the log.
async fn order(tidemark: &Tidemark, dir: &Path, reference: &str) {
    let body = json!({ "order_id": reference, "amount": "10.00", "webhook_url": WEBHOOK });
    let answer = tidemark.client().service("/orders", &body, &[]).await.unwrap();
    assert_eq!(answer.0, 201, "{}", answer.1);
    let named = format!("merchant_order_id={reference}");
    eventually("the order on the log", || async {
        let found = lines(&tail(dir, &["orders", "--until-end", "--where", &named]));
        (found.len() == 1).then_some(())
    })
    .await;
}

/// A process with three orders.
async fn with_orders(dir: &Path) -> Tidemark {
    let tidemark = Tidemark::start(dir, &[], WEBHOOK, "").await;
    for reference in ["A-1", "B-1", "C-1"] {
        order(&tidemark, dir, reference).await;
    }
    tidemark
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_shown_and_filtered() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tidemark = with_orders(dir).await;
    let show = |arguments: &[&str]| lines(&tail(dir, &[&["orders"], arguments].concat()));

    let all = show(&["--until-end"]);
    assert_eq!(references(&all), ["A-1", "B-1", "C-1"], "the oldest first, whatever partition");
    assert_eq!(all[0]["headers"], json!({}));
    assert_eq!(all[0]["value"]["amount"], "10.00");
    let (key, time) = (all[1]["key"].as_str().unwrap(), all[1]["time"].as_str().unwrap());
    assert_eq!(references(&show(&["--until-end", "--key", key])), ["B-1"]);
    assert_eq!(references(&show(&["--until-end", "--from", time])), ["B-1", "C-1"]);
    assert_eq!(references(&show(&["--until-end", "--from", "0", "--limit", "2"])), ["A-1", "B-1"]);
    assert_eq!(show(&["--until-end", "--from", "end"]), Vec::<Value>::new());
    let beyond = tail(dir, &["orders", "--until-end", "--from", "offset:99"]);
    assert_eq!(beyond.status.code(), Some(1));
    let error = String::from_utf8(beyond.stderr).unwrap();
    assert!(error.contains("was it restored?"), "{error}");
    let named = ["--until-end", "--where", "merchant_order_id=C-1", "--where", "status=pending"];
    assert_eq!(references(&show(&named)), ["C-1"]);
    let partition = all[2]["partition"].to_string();
    let there = show(&["--until-end", "--partition", &partition]);
    assert!(references(&there).contains(&"C-1"));
    assert!(there.iter().all(|line| line["partition"] == all[2]["partition"]));
    let text = tail(dir, &["orders", "--until-end", "--text", "--limit", "1"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(&format!("orders/{}@", all[0]["partition"])), "{text}");

    assert!(tidemark.stop().await.success());
    assert_eq!(show(&["--until-end"]), all, "the same when the process has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_records_are_shown_as_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tidemark = with_orders(dir).await;
    let follow = || {
        let mut command = command(dir, &["orders", "--from", "beginning"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        (child, BufReader::new(output).lines())
    };
    let (stopped, mut shown) = follow();
    let (closed, mut closing) = follow();
    for _ in 0..3 {
        shown.next().unwrap().unwrap();
        closing.next().unwrap().unwrap();
    }
    order(&tidemark, dir, "D-1").await;
    let line: Value = serde_json::from_str(&shown.next().unwrap().unwrap()).unwrap();
    assert_eq!(line["value"]["merchant_order_id"], "D-1");

    let pid = stopped.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(ended(stopped).await, Some(0), "Ctrl-C");
    drop(closing);
    order(&tidemark, dir, "E-1").await;
    assert_eq!(ended(closed).await, Some(0), "a closed pipe");
}

/// Both formats escape alike, and JSON keeps its value.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_obeys_nothing_that_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tidemark = Tidemark::start(dir, &[], WEBHOOK, "").await;
    let reference = "A\u{9b}31m\u{202e}1\u{2028}";
    order(&tidemark, dir, reference).await;
    for format in ["--json", "--text"] {
        let output = tail(dir, &["orders", "--until-end", format]);
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains(r"A\u009b31m\u202e1\u2028"), "{format}: {shown}");
        assert!(!shown.contains(['\u{9b}', '\u{202e}', '\u{2028}']), "{format}: {shown}");
    }
    let read = lines(&tail(dir, &["orders", "--until-end"]));
    assert_eq!(references(&read), [reference]);
    assert!(tidemark.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_shown_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = format!("[data]\ndir = \"{}\"\n", dir.path().join("none").display());
    std::fs::write(dir.path().join("tidemark.toml"), config).unwrap();
    for (arguments, code, expected) in [
        (&["orders", "--until-end"][..], 1, "there is no log at"),
        (&["order"], 64, "there is no such topic; there are transfers.raw, orders.commands"),
        (&["orders", "--from", "noon"], 64, "must be beginning, end, offset:N"),
        (&["orders", "--where", "status"], 64, "must be FIELD=VALUE"),
        (&["orders", "--text", "--json"], 64, "cannot be used with"),
    ] {
        let output = tail(dir.path(), arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
