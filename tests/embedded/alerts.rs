//! Alerts as operators see them: listed, sent to a sink, resolved by a command.

use serde_json::{Value, json};
use testkit::harness::{
    Chain, MERCHANT_SECRET, Merchant, Received, Tidemark, WALLET, WEBHOOK, eventually, evm_node,
    exits,
};

const STOPPED: &str = "payments_stopped/eth/USDT/alone";

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
    assert_eq!(exits(dir, &["alerts", "list"], 0), "no alert is open\n");
    let text = exits(dir, &["alerts", "test"], 0);
    assert!(text.starts_with("pager took it: answered with 200"), "{text}");
    let text = exits(dir, &["alerts", "test", "nobody"], 1);
    assert!(text.contains("has no sink \"nobody\""), "{text}");

    exits(dir, &["stop", "USDT", "--chain", "eth"], 0);
    let sent = |state: &str| sink.with("state", &json!(state));
    let stopped = |event: &Value| event["alert_id"] == STOPPED;
    let count = |state: &str| sent(state).iter().filter(|got| stopped(&got.event)).count();
    eventually("the message", || async { (count("raised") == 1).then_some(()) }).await;
    assert!(sent("raised").iter().all(Received::is_signed));
    let listed = exits(dir, &["alerts", "list"], 0);
    assert!(listed.contains(&format!("  raised    {STOPPED}  an operator stopped")), "{listed}");
    let object = exits(dir, &["alerts", "list", "--json"], 0);
    let object: Value = serde_json::from_str(object.trim()).unwrap();
    assert_eq!((&object["state"], &object["kind"]), (&json!("raised"), &json!("payments_stopped")));

    // While a process runs, the command sends the request to its API.
    let resolve = ["alerts", "resolve", STOPPED, "--reason", "seen"];
    let text = exits(dir, &resolve, 0);
    assert!(text.starts_with(&format!("resolved {STOPPED}\n")), "{text}");
    eventually("its end", || async { (count("resolved") == 1).then_some(()) }).await;
    assert_eq!(sent("resolved")[0].event["message"], "resolved by admin: seen");
    assert_eq!(exits(dir, &["alerts", "list"], 0), "no alert is open\n");
    let text = exits(dir, &resolve, 1);
    assert!(text.contains("no alert \"payments_stopped"), "{text}");
    exits(dir, &["alerts", "resolve", "x", "--reason", "a\nb"], 64);
    let key = "key-of-the-pager";
    assert!(!tidemark.log().contains(key), "{}", tidemark.log());
    assert!(tidemark.stop().await.success());

    // Without a process, the command opens the log itself.
    let text = exits(dir, &resolve, 1);
    assert!(text.contains("no alert \"payments_stopped"), "{text}");
    let all = exits(dir, &["alerts", "list", "--all"], 0);
    assert_eq!(all.lines().count(), 2, "{all}");
    let audit = exits(dir, &["tail", "audit", "--until-end"], 0);
    assert_eq!(audit.matches("\"resolve_alert\"").count(), 1);
    let twice = (count("raised"), count("resolved"));
    assert_eq!(twice, (1, 1), "nothing is sent twice");
}
