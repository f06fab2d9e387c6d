//! `tidemark tables prune`, beside a process that has the tables open.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use runtime::{Clock, SystemClock};
use schemas::record::{Attempt, Deposit, Order, Transfer, example};
use schemas::{DepositState, OrderId, OrderStatus, UnixSeconds};
use serde_json::Value;
use store::embedded::EmbeddedStore;
use store::prune::Day;
use store::{Change, OrderFilter, Page, Store};
use testkit::harness::{eventually, executable};
use testkit::process::{Killed, text};
use uuid::Uuid;

const PAGE: Page = Page { limit: 10, offset: 0 };

fn prune(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(executable())
        .args(["tables", "prune"])
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap()
}

/// Writes an ended order with its deposit and webhook attempt, a pending order, and a transfer.
async fn write(store: &dyn Store, created_at: UnixSeconds) {
    let order = |number: u128, status| Order {
        order_id: OrderId(Uuid::from_u128(number)),
        status,
        created_at,
        ..example::order()
    };
    let order_id = order(1, OrderStatus::Paid).order_id;
    let state = DepositState::Closed;
    let changes = vec![
        Change::Order(order(1, OrderStatus::Paid)),
        Change::Order(order(2, OrderStatus::Pending)),
        Change::Deposit(Deposit { order_id, state, ..example::deposit() }),
        Change::Attempt(Attempt { order_id: Some(order_id), ..example::attempt() }),
        Change::Transfer(Transfer { created_at, ..example::transfer() }),
    ];
    store.apply(changes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn old_rows_go_to_a_file_beside_a_running_process() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&dir.path().join("data")).unwrap());
    write(&*store, UnixSeconds(1_790_000_000)).await;
    let pruned = prune(dir.path(), &["--before", "2026-09-22", "--export", "old.jsonl"]);
    assert!(pruned.status.success(), "{}", text(&pruned));
    let what = "removed 1 orders, 1 closed deposits, 1 transfers, 1 webhook attempts; kept 1 pending orders";
    let day = format!("2026-09-21: {what}\n");
    assert!(text(&pruned).contains(&day), "{}", text(&pruned));
    let expected = format!("before 2026-09-22: {what}\neach row that went is in old.jsonl\n");
    assert_eq!(String::from_utf8(pruned.stdout).unwrap(), expected);
    let lines = std::fs::read_to_string(dir.path().join("old.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tables: Vec<_> = lines.iter().map(|line| line["table"].as_str().unwrap()).collect();
    assert_eq!(tables, ["orders", "deposits", "attempts", "transfers"]);
    assert_eq!(lines[0]["record"]["order_id"], Uuid::from_u128(1).to_string());
    assert_eq!(lines[0]["record"]["amount"], "10.50");

    let statuses = async || -> Vec<OrderStatus> {
        let listed = store.orders(OrderFilter::default(), PAGE).await.unwrap();
        listed.iter().map(|row| row.order.status).collect()
    };
    assert_eq!(statuses().await, [OrderStatus::Pending]);
    assert_eq!(store.transfer(example::transfer().transfer_id).await.unwrap(), None);
    let day: Day = "2026-09-22".parse().unwrap();
    assert_eq!(store.pruned_before().await.unwrap(), Some(day.start()));
    // The other process can still write.
    write(&*store, SystemClock.now().seconds()).await;
    assert_eq!(statuses().await.len(), 2);

    let again = prune(dir.path(), &["--before", "2026-09-22", "--without-export"]);
    let printed = text(&again);
    assert!(printed.contains("removed 0 orders, 0 closed deposits, 0 transfers"), "{printed}");
    assert!(again.status.success(), "{printed}");
}

#[test]
fn rows_never_go_by_mistake() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("there.jsonl"), "").unwrap();
    let today = Day::of(SystemClock.now().seconds()).to_string();
    let both = ["--before", "2026-09-22", "--export", "new.jsonl", "--without-export"];
    for (arguments, code, part) in [
        (&["--before", "2026-09-22"][..], 64, "--export: name a file"),
        (&["--without-export"], 64, "--before <DAY>"),
        (&["--before", "yesterday", "--without-export"], 64, "must be a day of UTC such as "),
        (&["--before", &today, "--without-export"], 64, "must be in the past: "),
        (&["--before", "2026-09-22", "--export", "there.jsonl"], 64, "is there already"),
        (&both, 64, "cannot be used with"),
        (&["--before", "2026-09-22", "--without-export"], 1, "there are no tables in ./data"),
    ] {
        let refused = prune(dir.path(), arguments);
        let printed = text(&refused);
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(part), "{arguments:?}: {printed}");
    }
    assert!(!dir.path().join("data").exists());
}

/// With a retention the service prunes by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_service_keeps_what_its_retention_says() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("removed");
    std::fs::create_dir(&folder).unwrap();
    let store = EmbeddedStore::open(&dir.path().join("data")).unwrap();
    let now = SystemClock.now().seconds();
    write(&store, now.plus(-94 * 86_400)).await;
    let mut chain = example::chain_progress();
    chain.head.timestamp = now;
    store.apply(vec![Change::Chain(chain)]).await.unwrap();
    let config = "[server]\nlisten = \"127.0.0.1:0\"\n[telemetry]\nlisten = \"\"\n[store]\nretention_days = 92\n\
                  retention_export = \"removed\"\n[admin]\nsecret = \"admin-5vN8xK2qL7wR\"\n[merchant]\nsecret = \"merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5\"\n";
    std::fs::write(dir.path().join("tidemark.toml"), config).unwrap();
    let output = std::fs::File::create(dir.path().join("output")).unwrap();
    let child = Command::new(executable())
        .args(["run", "--config", "tidemark.toml"])
        .current_dir(dir.path())
        .stderr(output.try_clone().unwrap())
        .stdout(output)
        .spawn();
    let _child = Killed(child.unwrap());
    eventually("the old row is gone", || async {
        let listed = store.orders(OrderFilter::default(), PAGE).await.unwrap();
        (listed.len() == 1).then_some(())
    })
    .await;
    // The pending order is kept.
    assert!(store.order(OrderId(Uuid::from_u128(2))).await.unwrap().is_some());
    let files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert!(std::fs::read_to_string(file).unwrap().contains(r#"{"table":"orders","#));
}
