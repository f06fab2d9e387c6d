//! Damages of an installation on Kafka and CQL: each is planted beside its processes, found by a command that prints
//! the cure, and no longer found after the cure. `docs/operate/damages.md` lists them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use devnet::{Chain as Node, Devnet};
use reqwest::Method;
use schemas::record::{Order, example};
use schemas::{OrderId, OrderStatus, UnixSeconds};
use serde_json::{Value, json};
use testkit::harness::{
    Chain, Client, Installation, LAYOUT, Member, Receiver, Reply, evm_node, mine_now, now,
    received, transfer_usdt, units,
};
use testkit::tables::cql;
use testkit::{Pace, eventually, eventually_or};
use uuid::Uuid;

use super::{WALLET, text, tools};

const STAGES: [&str; 5] = ["ingest", "processor", "projector", "webhooks", "api"];
/// Settings of section `[log]`: a group is inactive after its members' session timeout.
const SESSION: &str = "session_timeout = \"6s\"\ntransaction_timeout = \"4s\"\n";
/// Interval of mined blocks. Each adds a minute of chain time, which must not run two hours ahead of the clock before
/// the required blocks are confirmed.
const BLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// A process of each stage, a chain, and a shop whose receiver may be down.
struct Shop {
    devnet: Devnet,
    receiver: Receiver,
    is_down: Arc<AtomicBool>,
    installation: Installation,
    members: BTreeMap<&'static str, Member>,
    /// Beginning of the period that is reconciled.
    from: i64,
    pace: Pace,
    starts: usize,
    /// Keeps the folder.
    _dir: tempfile::TempDir,
}

impl Shop {
    async fn open() -> Self {
        let (dir, devnet) = (tempfile::tempdir().unwrap(), evm_node(1, 600, 60).await);
        let is_down = Arc::new(AtomicBool::new(false));
        let down = is_down.clone();
        let reply =
            move |_: &str, _| Reply::Status(if down.load(Ordering::SeqCst) { 503 } else { 200 });
        let receiver = Receiver::start(reply).await;
        let chains = [Chain::of("eth", &devnet, WALLET, "confirmations = 3\n")];
        let sections = format!("{SESSION}[matching]\nmatch_window = \"5s\"\n");
        let once = [("TIDEMARK__WEBHOOKS__MAX_ATTEMPTS", "1".to_owned())];
        let installation = Installation::new(dir.path(), &chains, &receiver.url(1), &sections);
        let installation = installation.with_variables(&once);
        installation.provide();
        let (from, pace) = (now() - 3600, Pace::of(BLOCK_INTERVAL));
        let (members, starts, _dir) = (BTreeMap::new(), 0, dir);
        let mut shop =
            Self { devnet, receiver, is_down, installation, members, from, pace, starts, _dir };
        for stage in STAGES {
            shop.start(stage);
        }
        shop.ready(&STAGES).await;
        shop
    }

    fn start(&mut self, stage: &'static str) {
        self.starts += 1;
        let member = self.installation.start(&format!("{stage}-{}", self.starts), stage);
        self.members.insert(stage, member);
    }

    async fn ready(&mut self, stages: &[&'static str]) {
        for stage in stages {
            self.members.get_mut(stage).unwrap().ready().await;
        }
    }

    async fn stop(&mut self, stage: &'static str) {
        let process = self.members.remove(stage).unwrap().process;
        assert!(process.stop().await.success(), "{stage}");
    }

    fn client(&self) -> Client {
        Client::new(&self.installation.api()).on_servers()
    }

    fn node(&self) -> Node {
        self.devnet.chain()
    }

    fn pay(&self, units: u128) -> String {
        let hash = transfer_usdt(&self.node(), WALLET, units);
        mine_now(&self.node());
        hash.to_string()
    }

    /// Runs a printed cure, and returns its output.
    fn cure(&self, command: &str, more: &[&str]) -> String {
        let arguments = command.strip_prefix("tidemark ").unwrap().split(' ');
        let arguments: Vec<_> = arguments.chain(more.iter().copied()).collect();
        self.installation.exits(&arguments, 0)
    }

    fn report(&self) -> (Option<i32>, Value) {
        self.reconcile(&self.installation, self.from, &[])
    }

    fn reconcile(
        &self,
        installation: &Installation,
        from: i64,
        more: &[&str],
    ) -> (Option<i32>, Value) {
        let (from, to) = (from.to_string(), (now() + 7200).to_string());
        let period = ["reconcile", "--from", &from, "--to", &to, "--json"];
        let output = installation.errand(&[&period, more].concat());
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(json!(printed)))
    }

    /// Mines until a report matches.
    async fn reports<T>(
        &self,
        what: &str,
        is_wanted: impl Fn(Option<i32>, &Value) -> Option<T>,
    ) -> T {
        let last = Mutex::new(Value::Null);
        let check = || async {
            if self.pace.is_due() {
                self.node().mine_at(self.node().head().timestamp + 60).unwrap();
            }
            let (code, report) = self.report();
            let found = is_wanted(code, &report);
            *last.lock().unwrap() = report;
            found
        };
        eventually_or(what, check, || format!("{:#}", last.lock().unwrap())).await
    }

    /// Mines until all agrees, with this number of transfers.
    async fn agrees(&self, transfers: u64) -> Value {
        let wanted = |code, report: &Value| {
            (code == Some(0) && received(report) == transfers).then(|| report.clone())
        };
        self.reports("the period to agree", wanted).await
    }

    /// Mines until there is exactly one difference; returns it.
    async fn differs(&self) -> Value {
        let wanted = |code, report: &Value| {
            let differences = report["differences"].as_array()?;
            (code == Some(2) && differences.len() == 1).then(|| differences[0].clone())
        };
        self.reports("one difference", wanted).await
    }

    /// Waits until a time of the chain is settled.
    async fn settled(&self, time: u64) {
        let wanted =
            |_, report: &Value| (report["chains"][0]["settled_to"].as_u64()? >= time).then_some(());
        self.reports("the block to be settled", wanted).await;
    }
}

/// Starts a stage that ends at once with exit code 1, and returns its log.
async fn refusal(installation: &Installation, name: &str, stage: &str) -> String {
    installation.start(name, stage).process.refused().await
}

/// Plants the damages in sequence on one installation, because its start takes longer than most of them.
#[tokio::test(flavor = "multi_thread")]
async fn damages_are_found_and_mended_on_servers() {
    let mut shop = Shop::open().await;
    let (client, url, from) = (shop.client(), shop.receiver.url(1), shop.from);
    client.offers(&["eth"]).await;
    let mut orders = Vec::new();
    for reference in ["A-1", "D-1"] {
        orders.push(client.keyed_order(reference, "10.00", "eth", &url).await);
    }
    let (paid, cancelled) = (&orders[0], &orders[1]);
    let due = units(&client.deposit(paid).await["value"]);
    shop.pay(due);
    shop.pay(3_330_000);
    let report = shop.agrees(2).await;
    let (first, last) = (&report["statement"][0], report["statement"].as_array().unwrap().last());
    assert_eq!((&first["opening"], &last.unwrap()["closing"]), (&json!("0.00"), &json!("13.33")));

    let backup = shop.installation.copy_tables();
    webhook_lost(&shop, cancelled).await;
    topic_truncated(&mut shop).await;
    group_reset(&mut shop, paid).await;
    tables_restored(&mut shop, &backup).await;
    rows_changed(&shop, from, [paid, cancelled]).await;
    for stage in STAGES {
        shop.stop(stage).await;
    }
    what_does_not_fit_is_refused(&shop.installation).await;
}

/// Tables of another log, and tables older than their log.
async fn what_does_not_fit_is_refused(installation: &Installation) {
    let prefix = installation.prefix();
    let other = installation.changed("other-log", &prefix, &format!("other-{prefix}"));
    other.exits(&["topics", "create"], 0);
    let logged = refusal(&other, "other-log", "projector").await;
    assert!(logged.contains("the tables are those of another installation"), "{logged}");

    let empty = installation.changed("empty", "keyspace = \"t_", "keyspace = \"t_empty_");
    empty.exits(&["schema", "migrate"], 0);
    let logged = refusal(&empty, "empty", "projector").await;
    assert!(logged.contains("run `tidemark tables rebuild`"), "{logged}");
}

async fn webhook_lost(shop: &Shop, order: &str) {
    shop.is_down.store(true, Ordering::SeqCst);
    let (status, answer) = shop.client().user(Method::POST, order, "cancel", None).await;
    assert!(status.is_success(), "{answer}");
    let found = shop.differs().await;
    let cure = format!("tidemark webhook dead redrive --order {order}");
    assert_eq!((&found["kind"], &found["command"]), (&json!("dead"), &json!(cure)));
    shop.is_down.store(false, Ordering::SeqCst);
    let printed = shop.cure(&cure, &[]);
    assert!(printed.contains("1 of 1 were queued"), "{printed}");
    shop.agrees(2).await;
}

/// Records expired while the processor was stopped.
async fn topic_truncated(shop: &mut Shop) {
    shop.stop("processor").await;
    let hash = shop.pay(9_000_000);
    let (number, time) = (shop.node().head().number, shop.node().head().timestamp);
    let installation = &shop.installation;
    eventually("the payment to be published", || async {
        let records = installation.errand(&["tail", "transfers.raw", "--until-end"]);
        text(&records).contains(&hash).then_some(())
    })
    .await;
    tools::delete_records(installation, "transfers.raw", 0);
    shop.start("processor");
    shop.ready(&["processor"]).await;
    // The topic has lost decided transfers, too, so the reconciled period begins after them.
    shop.from = i64::try_from(time).unwrap();
    shop.settled(time).await;
    let log = shop.members["processor"].process.log();
    let line = log.lines().find(|line| line.contains("records expired before the group read them"));
    assert!(line.is_some_and(|line| line.contains("`tidemark reconcile`")), "{log}");
    let found = shop.differs().await;
    let cure = format!("tidemark rescan eth {number} {number}");
    assert_eq!((&found["kind"], &found["command"]), (&json!("not_in_log"), &json!(cure)));
    // A rescan is refused: without the expired records, nothing shows which transfers of the block were published.
    let block = number.to_string();
    let refused = shop.installation.exits(&["rescan", "eth", &block, &block, "--yes"], 1);
    assert!(refused.contains("`tidemark chain rewind CHAIN HEIGHT`"), "{refused}");
    shop.cure(&format!("tidemark chain rewind eth {}", number - 1), &["--yes"]);
    shop.agrees(1).await;
}

/// A group's position is set back, or deleted, by Kafka's own tool.
async fn group_reset(shop: &mut Shop, order: &str) {
    let prefix = shop.installation.prefix();
    let topic = format!("{prefix}orders.commands:{}", LAYOUT.order(order).0);
    let own = format!("{prefix}processor.orders");
    let of = ["--group", &own, "--topic", &topic];
    let back = [&of[..], &["--reset-offsets", "--to-earliest", "--execute"]].concat();
    let delete = [&of[..], &["--delete-offsets"]].concat();
    let damages =
        [("set-back", back, "has set the group back"), ("deleted", delete, "has deleted it")];
    for (name, damage, words) in damages {
        shop.stop("processor").await;
        let plant = async || tools::consumer_groups(&damage);
        eventually("the group to be inactive", plant).await;
        let logged = refusal(&shop.installation, name, "processor").await;
        assert!(logged.contains(words), "{logged}");
        let (_, cure) = logged.rsplit_once("`kafka-consumer-groups.sh ").unwrap();
        let cure = cure.split('`').next().unwrap().replace("<log.prefix>", &prefix);
        let cure: Vec<_> = cure.split(' ').collect();
        let mend = async || tools::consumer_groups(&cure);
        eventually("the group to be inactive", mend).await;
        shop.start("processor");
        shop.ready(&["processor"]).await;
    }
    shop.agrees(1).await;
}

/// Old tables: the projector's group has advanced since.
async fn tables_restored(shop: &mut Shop, backup: &str) {
    for stage in ["projector", "api"] {
        shop.stop(stage).await;
    }
    shop.installation = shop.installation.on_keyspace(backup);
    let logged = refusal(&shop.installation, "projector-restored", "projector").await;
    assert!(logged.contains("run `tidemark tables rebuild`"), "{logged}");
    let printed = shop.cure("tidemark tables rebuild", &[]);
    assert!(printed.contains("rows are as the log has them"), "{printed}");
    for stage in ["projector", "api"] {
        shop.start(stage);
    }
    shop.ready(&["projector", "api"]).await;
    shop.agrees(1).await;
}

/// One order was deleted manually, and another changed.
async fn rows_changed(shop: &Shop, from: i64, [deleted, changed]: [&str; 2]) {
    let keyspace = shop.installation.keyspace();
    let forged = Order {
        order_id: OrderId(changed.parse().unwrap()),
        status: OrderStatus::Paid,
        updated_at: UnixSeconds(now()).micros(),
        ..example::order()
    };
    let record: String =
        schemas::encode(&forged).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let session = cql::session().await;
    for statement in [
        format!("DELETE FROM {keyspace}.orders WHERE order_id = {deleted}"),
        format!("UPDATE {keyspace}.orders SET record = 0x{record} WHERE order_id = {changed}"),
    ] {
        session.query_unpaged(statement, ()).await.unwrap();
    }
    let compared = |installation: &Installation| {
        let (code, report) = shop.reconcile(installation, from, &["--against", "topics,tables"]);
        let found = report["differences"].as_array().unwrap_or_else(|| panic!("{report:#}"));
        let found = found.iter().map(|one| ["kind", "command"].map(|key| one[key].clone()));
        (code, found.collect::<Vec<_>>())
    };
    let missing = ["row_missing", "tidemark tables rebuild --into NEW_KEYSPACE"].map(Value::from);
    let anew = "set store.keyspace to a new one, and run `tidemark schema migrate` and `tidemark tables rebuild`";
    let differs = ["row_differs", anew].map(Value::from);
    let (code, mut found) = compared(&shop.installation);
    found.sort_by_key(|[kind, _]| kind.to_string());
    assert_eq!((code, found), (Some(2), vec![differs.clone(), missing]));

    let copy = shop.installation.on_keyspace(&shop.installation.copy_tables());
    assert_eq!(compared(&copy), (Some(2), vec![differs]), "a copy has the change");
    let made = shop.installation.on_keyspace(&format!("t_{}", Uuid::now_v7().simple()));
    for arguments in [["schema", "migrate"], ["tables", "rebuild"]] {
        made.exits(&arguments, 0);
    }
    assert_eq!(compared(&made), (Some(0), vec![]));
}
