//! `tidemark reconcile` beside a running process: a period that agrees, and each damage as one line with its cure.

use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alloy_primitives::{TxHash, U256};
use devnet::{Chain as Node, Devnet, Reorg};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::harness::{
    Chain, Client, Merchant, Receiver, Reply, Tidemark, USDT, WALLET, WEBHOOK, errand, eventually,
    evm_node, exits, mine_now, now, received, units,
};
use testkit::process::text;
use testkit::tables::change_by_hand;
use testkit::{Pace, eventually_or};

/// Interval of mined blocks. Each adds a minute of chain time, which must not run two hours ahead of the clock before
/// the required blocks are confirmed.
const BLOCK_INTERVAL: Duration = Duration::from_secs(2);
const MORE: &str = "[matching]\nmatch_window = \"5s\"\n";

/// Sum of a statement, which has a line per day in UTC.
fn total(report: &Value) -> Value {
    let days = report["statement"].as_array().unwrap();
    let part = |name: &str| {
        let cents = |day: &Value| {
            day[name]["amount"].as_str().unwrap().replace('.', "").parse::<u64>().unwrap()
        };
        let cents: u64 = days.iter().map(cents).sum();
        let count: u64 = days.iter().map(|day| day[name]["count"].as_u64().unwrap()).sum();
        json!({ "count": count, "amount": format!("{}.{:02}", cents / 100, cents % 100) })
    };
    let first = days.first().map_or(Value::Null, |day| day["opening"].clone());
    let last = days.last().map_or(Value::Null, |day| day["closing"].clone());
    let [matched, unknown, other, sent] = ["matched", "unknown", "other", "sent"].map(part);
    json!({
        "opening": first, "closing": last,
        "matched": matched, "unknown": unknown, "other": other, "sent": sent,
    })
}

/// An installation with a node, a merchant, and the period that began before it.
struct World {
    dir: tempfile::TempDir,
    devnet: Devnet,
    merchant: Merchant,
    from: String,
    pace: Pace,
}

impl World {
    async fn new() -> Self {
        let devnet = evm_node(1, 600, 60).await;
        let (dir, merchant) = (tempfile::tempdir().unwrap(), Merchant::start().await);
        Self {
            dir,
            devnet,
            merchant,
            from: (now() - 3600).to_string(),
            pace: Pace::of(BLOCK_INTERVAL),
        }
    }

    fn node(&self) -> Node {
        self.devnet.chain()
    }

    /// Starts it with one attempt per webhook.
    async fn start(&self) -> Tidemark {
        let chains = [Chain::of("eth", &self.devnet, WALLET, "confirmations = 3\n")];
        let once = [("TIDEMARK__WEBHOOKS__MAX_ATTEMPTS", "1".to_owned())];
        let url = self.merchant.url();
        let mut tidemark = Tidemark::spawn(self.dir.path(), &chains, url, MORE, &once);
        tidemark.healthy().await;
        tidemark
    }

    fn reconcile(&self, more: &[&str]) -> Output {
        let to = (now() + 7200).to_string();
        let period = ["reconcile", "--from", &self.from, "--to", &to];
        errand(self.dir.path(), &[&period, more].concat())
    }

    /// A reconciliation that must exit with this code; returns its output.
    fn reconciled(&self, more: &[&str], code: i32) -> String {
        let output = self.reconcile(more);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        text(&output)
    }

    fn report(&self) -> (Option<i32>, Value) {
        let output = self.reconcile(&["--json"]);
        let report = serde_json::from_slice(&output.stdout);
        (output.status.code(), report.unwrap_or_else(|_| panic!("{}", text(&output))))
    }

    /// Mines until all agrees with this number of transfers; returns the report.
    async fn agrees(&self, transfers: u64) -> Value {
        let last = Mutex::new(Value::Null);
        let check = || async {
            self.mine_on();
            let (code, report) = self.report();
            let agrees = code == Some(0) && received(&report) == transfers;
            last.lock().unwrap().clone_from(&report);
            agrees.then_some(report)
        };
        let explain = || format!("{:#}", last.lock().unwrap());
        eventually_or("the period to agree", check, explain).await
    }

    /// The only difference; checks the exit code.
    fn differs(&self) -> Value {
        let (code, report) = self.report();
        assert_eq!(code, Some(2), "{report:#}");
        let [difference] = report["differences"].as_array().unwrap().as_slice() else {
            panic!("{report:#}")
        };
        difference.clone()
    }

    fn transfer(&self, from: [u8; 20], to: &str, units: u128) -> TxHash {
        let (token, to) = (USDT.parse().unwrap(), to.parse().unwrap());
        self.node().transfer(token, from.into(), to, U256::from(units)).unwrap()
    }

    fn pay(&self, units: u128) -> TxHash {
        self.transfer([0x22; 20], WALLET, units)
    }

    fn mine(&self) {
        mine_now(&self.node());
    }

    /// Mines a block a minute later in the chain's time, if one is due: a head two hours ahead of the clock is refused.
    fn mine_on(&self) {
        if self.pace.is_due() {
            self.node().mine_at(self.node().head().timestamp + 60).unwrap();
        }
    }

    /// Mines until an order has a status.
    async fn ended(&self, client: &Client, order: &str, status: &str) {
        eventually(&format!("the order to be {status}"), || async {
            self.mine();
            (client.shown(order).await?["status"] == status).then_some(())
        })
        .await;
    }

    async fn order(&self, client: &Client, reference: &str, amount: &str) -> (String, u128) {
        let id = client.order(reference, amount, "eth", self.merchant.url()).await;
        let units = units(&client.deposit(&id).await["value"]);
        (id, units)
    }

    /// Payments of every kind: matched, unknown, orphaned, late; and a sweep.
    async fn day(&self, client: &Client) -> String {
        self.mine();
        client.offers(&["eth"]).await;
        let (paid, due) = self.order(client, "A-1", "10.00").await;
        self.pay(due);
        self.ended(client, &paid, "paid").await;
        self.pay(3_330_000);
        let gone = self.pay(4_440_000);
        self.mine();
        client.transfer_with_status(WALLET, &gone.to_string(), "waiting_for_confirmation").await;
        self.node().reorg(1, Reorg::Drop(gone)).unwrap();
        let (late, due) = self.order(client, "L-1", "20.00").await;
        self.transfer([0x5a; 20], "0x2222222222222222222222222222222222222222", 1);
        self.sweep(5_000_000);
        // Beyond the order's expiry.
        self.node().mine_at(now().unsigned_abs() + 2000).unwrap();
        self.ended(client, &late, "expired").await;
        self.pay(due);
        paid
    }

    fn sweep(&self, units: u128) {
        let wallet: alloy_primitives::Address = WALLET.parse().unwrap();
        self.transfer(wallet.into_array(), "0x3333333333333333333333333333333333333333", units);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_agrees_and_each_damage_is_one_line() {
    let world = World::new().await;
    let process = world.start().await;
    let paid = world.day(&process.client()).await;
    let report = world.agrees(3).await;
    let line = total(&report);
    assert_eq!(line["matched"], json!({ "count": 1, "amount": "10.00" }), "{report:#}");
    assert_eq!(line["unknown"], json!({ "count": 2, "amount": "23.33" }), "{report:#}");
    assert_eq!(line["sent"], json!({ "count": 1, "amount": "5.00" }), "{report:#}");
    assert_eq!((&line["opening"], &line["closing"]), (&json!("0.00"), &json!("28.33")));
    let total = |join: &str, item: &str| {
        let all = report["totals"].as_array().unwrap();
        let found = all.iter().find(|one| one["join"] == join && one["item"] == item);
        found.map_or(0, |one| one["count"].as_u64().unwrap())
    };
    assert_eq!(total("chain = raw", "transfers"), 3);
    assert_eq!(total("raw = verdicts", "unknown"), 2);
    assert_eq!(total("verdicts = orders", "orders"), 1);
    assert_eq!((total("topics = tables", "orders"), total("topics = tables", "transfers")), (2, 4));
    assert_eq!(total("events = webhooks", "delivered"), 4, "paid, expired, two unknown");

    books(&world, &paid);
    assert!(process.stop().await.success());
    rows(&world, &paid);
    let process = world.start().await;
    webhooks(&world, &process.client()).await;
    assert!(process.stop().await.success());
}

/// The shop's own books against the orders.
fn books(world: &World, paid: &str) {
    let file = world.dir.path().join("books.csv");
    let with = |lines: &str, code| {
        std::fs::write(&file, format!("order_id,status,amount\n{lines}")).unwrap();
        world.reconciled(&["--books", file.to_str().unwrap()], code)
    };
    let printed = with(&format!("{paid},paid,10.00\nL-1,expired,20\n"), 0);
    assert!(printed.contains("all of it agrees"), "{printed}");
    for (lines, expected) in [
        (format!("{paid},paid,10.01\n"), "10.01 in the books, 10.00 on the topics"),
        (format!("{paid},expired,10.00\n"), "expired in the books, paid on the topics"),
        (String::new(), "(A-1): paid 10.00, not in the books"),
        (format!("{paid},paid,10\n=Z,paid,1\n"), "order =Z: in the books, not among the orders"),
    ] {
        let printed = with(&lines, 2);
        let differs: Vec<_> = printed.lines().filter(|line| line.contains("DIFFERS")).collect();
        assert_eq!((differs.len(), differs[0].contains(expected)), (1, true), "{printed}");
    }
    let printed = with("A-1,payed,10\n", 1);
    assert!(printed.contains("line 2: status: \"payed\" is not one of"), "{printed}");
    let csv = text(&world.reconcile(&["--csv", "--books", file.to_str().unwrap()]));
    assert!(csv.contains("line 2"), "{csv}");
    std::fs::write(&file, "order_id,status,amount\n=Z,paid,1\n").unwrap();
    let csv = text(&world.reconcile(&["--csv", "--books", file.to_str().unwrap()]));
    assert!(csv.contains("\"statement\",") && csv.contains(",\"closing\",,\"28.33\""), "{csv}");
    assert!(csv.contains("\"difference\",\"orders = books\""), "{csv}");
}

/// Rows that were deleted or changed manually.
fn rows(world: &World, paid: &str) {
    let data = world.dir.path().join("data");
    for (sql, kind) in [
        ("DELETE FROM orders WHERE merchant_order_id = 'A-1'", "row_missing"),
        ("UPDATE orders SET status = 'cancelled' WHERE merchant_order_id = 'A-1'", "row_differs"),
        ("DELETE FROM transfers WHERE status = 'matched'", "row_missing"),
    ] {
        change_by_hand(&data, sql);
        let found = world.differs();
        assert_eq!(
            (&found["kind"], &found["command"]),
            (&json!(kind), &json!("tidemark tables rebuild"))
        );
        let is_order = sql.contains("orders");
        assert_eq!(found["what"].as_str().unwrap().contains(paid), is_order, "{found}");
        exits(world.dir.path(), &["tables", "rebuild"], 0);
        world.reconciled(&[], 0);
    }
    // A node without an archive: the rest is still compared.
    world.node().forget_states();
    let printed = world.reconciled(&[], 1);
    let unknown = "NOT KNOWN: eth: opening and closing balances are not known";
    assert!(printed.contains(unknown), "{printed}");
    world.reconciled(&["--against", "chain,raw,topics,tables,webhooks"], 0);
    world.node().clear_faults();
    // A chain removed from the configuration.
    let file = world.dir.path().join("tidemark.toml");
    let whole = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = whole.split_once("[[wallets]]").unwrap();
    let (_, after) = rest.split_once("[telemetry]").unwrap();
    std::fs::write(&file, format!("{before}[telemetry]{after}")).unwrap();
    let printed = world.reconciled(&[], 1);
    let unknown =
        "NOT KNOWN: eth: the log has blocks of the period, and the configuration no section";
    assert!(printed.contains(unknown), "{printed}");
    std::fs::write(&file, whole).unwrap();
}

/// An abandoned webhook, resent once its receiver is up.
async fn webhooks(world: &World, client: &Client) {
    let calls = AtomicUsize::new(0);
    let first_fails = move |_: &str, _| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Status(503),
        _ => Reply::Status(200),
    };
    let receiver = Receiver::start(first_fails).await;
    let id = client.unpriced_order("D-1", "5", &receiver.url(1)).await;
    client.user(Method::POST, &id, "cancel", None).await;
    let found = eventually("the webhook to be given up", || async {
        let (code, report) = world.report();
        let differences = report["differences"].as_array()?;
        (code == Some(2) && differences.len() == 1).then(|| differences[0].clone())
    })
    .await;
    assert_eq!(found["kind"], "dead", "{found}");
    let cure = format!("tidemark webhook dead redrive --order {id}");
    assert_eq!(found["command"], cure.as_str());
    assert_eq!(found["what"].as_str().unwrap().matches(&id).count(), 1);
    let arguments: Vec<_> = cure.split(' ').skip(1).collect();
    let sent = exits(world.dir.path(), &arguments, 0);
    assert!(sent.contains("1 of 1 were queued"), "{sent}");
    eventually("the period to agree", || async { (world.report().0 == Some(0)).then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_fail_hide_no_difference() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(Tidemark::start(dir, &[], WEBHOOK, "").await.stop().await.success());
    std::fs::write(dir.join("data/tables.sqlite"), "no tables").unwrap();
    let books = dir.join("books.csv");
    std::fs::write(&books, "order_id,status,amount\nZ-9,paid,1\n").unwrap();
    let books = ["--books", books.to_str().unwrap()];
    let printed =
        exits(dir, &[&["reconcile", "--against", "topics,tables"], &books[..]].concat(), 2);
    assert!(printed.contains("NOT KNOWN: the tables cannot be compared: "), "{printed}");
    assert!(printed.contains("order Z-9: in the books, not among the orders"), "{printed}");
}

/// The node leaves the logs of a payment out until the payment's block is settled.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_transfer_is_found_and_mended() {
    let world = World::new().await;
    let process = world.start().await;
    world.mine();
    process.client().offers(&["eth"]).await;
    world.pay(2_000_000);
    world.agrees(1).await;
    // The node's logs lag beyond any check, and no receipts show the transfer.
    world.node().lag_logs(1_000_000);
    world.node().refuse_block_receipts();
    let hidden = world.pay(7_000_000);
    world.mine();
    let (number, time) = (world.node().head().number, world.node().head().timestamp);
    eventually("the block to be settled", || async {
        world.mine_on();
        let (_, report) = world.report();
        (report["chains"][0]["settled_to"].as_u64()? >= time).then_some(())
    })
    .await;
    assert!(process.stop().await.success());
    world.node().clear_faults();
    let found = world.differs();
    assert_eq!(found["kind"], "not_in_log", "{found}");
    assert!(found["what"].as_str().unwrap().contains(&hidden.to_string()), "{found}");
    let command = found["command"].as_str().unwrap();
    assert_eq!(command, format!("tidemark rescan eth {number} {number}"));
    let arguments: Vec<_> = command.split(' ').skip(1).chain(["--yes"]).collect();
    exits(world.dir.path(), &arguments, 0);
    assert_eq!(world.differs()["kind"], "no_verdict", "the processor does not run");
    let process = world.start().await;
    world.agrees(2).await;
    assert!(process.stop().await.success());
}
