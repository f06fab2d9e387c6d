//! Alerts as operators see them: listed, sent to a sink, resolved by a command.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::harness::{
    Chain, MERCHANT_SECRET, Merchant, Tidemark, eventually, evm_node, executable,
};

const WEBHOOK: &str = "http://127.0.0.1:9/hooks";
const WALLET: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
const STOPPED: &str = "payments_stopped/eth/USDT/alone";

/// The exit code and the output of a command.
fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(executable());
    let output = command.args(arguments).arg("--config").arg(dir.join("tidemark.toml")).output();
    let output = output.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), text)
}

fn topic(dir: &Path, name: &str) -> String {
    run(dir, &["tail", name, "--until-end"]).1
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_sent_and_resolved_once() {
    let (dir, devnet) = (tempfile::tempdir().unwrap(), evm_node(1, 600, 60).await);
    let chain = Chain::of("eth", &devnet, WALLET, "confirmations = 3\n");
    let (dir, sink) = (dir.path(), Merchant::start().await);
    let sinks = format!(
        "[[alerts.sinks]]\nname = \"pager\"\ntype = \"webhook\"\nurl = \"{}?key=key-of-the-pager-1234\"\nsecret = \"{MERCHANT_SECRET}\"\n",
        sink.url()
    );
    let tidemark = Tidemark::start(dir, &[chain], WEBHOOK, &sinks).await;
    assert_eq!(run(dir, &["alerts", "list"]), (Some(0), "no alert is open\n".to_owned()));
    let (code, text) = run(dir, &["alerts", "test"]);
    assert!(code == Some(0) && text.starts_with("pager took it: answered with 200"), "{text}");
    let (code, text) = run(dir, &["alerts", "test", "nobody"]);
    assert!(code == Some(1) && text.contains("has no sink \"nobody\""), "{text}");

    assert_eq!(run(dir, &["stop", "USDT", "--chain", "eth"]).0, Some(0));
    let sent = |state: &str| sink.with("state", &json!(state));
    let stopped = |event: &Value| event["alert_id"] == STOPPED;
    let count = |state: &str| sent(state).iter().filter(|got| stopped(&got.event)).count();
    eventually("the message", || async { (count("raised") == 1).then_some(()) }).await;
    assert!(sent("raised").iter().all(testkit::harness::Received::is_signed));
    let listed = run(dir, &["alerts", "list"]).1;
    assert!(listed.contains(&format!("  raised    {STOPPED}  an operator stopped")), "{listed}");
    let object: Value =
        serde_json::from_str(run(dir, &["alerts", "list", "--json"]).1.trim()).unwrap();
    assert_eq!((&object["state"], &object["kind"]), (&json!("raised"), &json!("payments_stopped")));

    // By the process that runs.
    let resolve = ["alerts", "resolve", STOPPED, "--reason", "seen"];
    let (code, text) = run(dir, &resolve);
    assert!(code == Some(0) && text.starts_with(&format!("resolved {STOPPED}\n")), "{text}");
    eventually("its end", || async { (count("resolved") == 1).then_some(()) }).await;
    assert_eq!(sent("resolved")[0].event["message"], "resolved by admin: seen");
    assert_eq!(run(dir, &["alerts", "list"]).1, "no alert is open\n");
    let (code, text) = run(dir, &resolve);
    assert!(code == Some(1) && text.contains("no alert \"payments_stopped"), "{text}");
    assert_eq!(run(dir, &["alerts", "resolve", "x", "--reason", "a\nb"]).0, Some(64));
    let key = "key-of-the-pager";
    assert!(!tidemark.log().contains(key), "{}", tidemark.log());
    assert!(tidemark.stop().await.success());

    // By the command without a process.
    let (code, text) = run(dir, &resolve);
    assert!(code == Some(1) && text.contains("no alert \"payments_stopped"), "{text}");
    let all = run(dir, &["alerts", "list", "--all"]).1;
    assert_eq!(all.lines().count(), 2, "{all}");
    assert_eq!(topic(dir, "audit").matches("\"resolve_alert\"").count(), 1);
    let twice = (count("raised"), count("resolved"));
    assert_eq!(twice, (1, 1), "nothing is sent twice");
}
