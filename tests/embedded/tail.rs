//! `tidemark tail` beside a running process on the embedded log; on Kafka it is checked together with
//! the other readers in `consumers.rs`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use serde_json::{Value, json};
use testkit::harness::{Tidemark, WEBHOOK, command, errand, eventually, exits};
use testkit::process::signal;

fn tail(dir: &Path, arguments: &[&str]) -> Output {
    errand(dir, &[&["tail"], arguments].concat())
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
    tidemark.client().unpriced_order(reference, "10.00", WEBHOOK).await;
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
    let error = exits(dir, &["tail", "orders", "--until-end", "--from", "offset:99"], 1);
    assert!(error.contains("was it restored?"), "{error}");
    let named = ["--until-end", "--where", "merchant_order_id=C-1", "--where", "status=pending"];
    assert_eq!(references(&show(&named)), ["C-1"]);
    let partition = all[2]["partition"].to_string();
    let there = show(&["--until-end", "--partition", &partition]);
    assert!(references(&there).contains(&"C-1"));
    assert!(there.iter().all(|line| line["partition"] == all[2]["partition"]));
    let text = exits(dir, &["tail", "orders", "--until-end", "--text", "--limit", "1"], 0);
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
        let mut command = command(dir, &["tail", "orders", "--from", "beginning"]);
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

    signal(stopped.id(), "INT");
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
        let shown = exits(dir, &["tail", "orders", "--until-end", format], 0);
        assert!(shown.contains(r"A\u009b31m\u202e1\u2028"), "{format}: {shown}");
        assert!(!shown.contains(['\u{9b}', '\u{202e}', '\u{2028}']), "{format}: {shown}");
    }
    let read = lines(&tail(dir, &["orders", "--until-end"]));
    assert_eq!(references(&read), [reference]);
    assert!(tidemark.stop().await.success());
}
