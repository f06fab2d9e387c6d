//! Rebuild of tables in CQL from a log on Kafka by the command, as an operator does it.

use std::path::Path;
use std::sync::Arc;

use log::config::KafkaConfig;
use log::kafka::KafkaLog;
use log::{Log, NewRecord, Offset, TopicPartition};
use oracle::history::history;
use schemas::{Headers, Partition, Topic};
use serde_json::Value;
use store::Change;
use testkit::harness::{Installation, Member, eventually};
use testkit::log_suite::on_kafka;
use testkit::tables::{assert_same, cql};
use uuid::Uuid;

use super::rebuild::{LAYOUT, record};

/// Topics and tables on servers, with a shop's records of a day: each step a transaction, with a marker.
struct Shop {
    installation: Installation,
    log: Arc<dyn Log>,
    keyspace: String,
}

impl Shop {
    fn open(dir: &Path) -> Self {
        let installation = Installation::new(dir, &[], "http://127.0.0.1:1/", "");
        installation.provide();
        let config = on_kafka::config(&on_kafka::brokers());
        let config = KafkaConfig { prefix: installation.prefix(), ..config };
        let log = Arc::new(KafkaLog::open(&config, LAYOUT).unwrap());
        let text = std::fs::read_to_string(installation.file()).unwrap();
        let keyspace = text.split_once("keyspace = \"").unwrap().1.split('"').next().unwrap();
        Self { log, keyspace: keyspace.to_owned(), installation }
    }

    /// The installation with the tables of another keyspace.
    fn on(&self, keyspace: &str) -> Installation {
        self.installation.changed(keyspace, &self.keyspace, keyspace)
    }

    /// Changes the tables by CQL.
    async fn by_hand(&self, statement: &str) {
        let statement = statement.replace("KS", &self.keyspace);
        cql::session().await.query_unpaged(statement, ()).await.unwrap();
    }

    fn publish(&self, changes: &[Change]) {
        let mut writer = self.log.writer("history").unwrap();
        for part in changes.chunks(200) {
            writer.commit(part.iter().map(record).collect()).unwrap();
        }
    }
}

/// Runs a command that ends with this exit code; returns its standard output and standard error.
fn errand(installation: &Installation, arguments: &[&str], code: i32) -> (String, String) {
    let output = installation.errand(arguments);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (printed, said) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}\n{said}");
    (printed, said)
}

/// The projector's lag on a topic in records, from the metrics of a process.
async fn lag(member: &Member, topic: &str) -> Option<String> {
    let url = format!("http://127.0.0.1:{}/metrics", member.telemetry);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let text = http.get(url).send().await.ok()?.text().await.ok()?;
    let name = format!("tidemark_log_lag_records{{group=\"projector\",topic=\"{topic}\"}} ");
    text.lines().find_map(|line| Some(line.strip_prefix(&name)?.to_owned()))
}

/// The end offset of a partition includes the last transaction's marker, which no reader receives.
#[tokio::test(flavor = "multi_thread")]
async fn markers_of_kafka_are_no_lag() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path());
    let changes = history(4);
    shop.publish(&changes);
    let mut projector = shop.installation.start("projector-1", "projector");
    projector.ready().await;
    eventually("a lag of nothing, measured", || async {
        let lags = (lag(&projector, "orders").await?, lag(&projector, "deposits").await?);
        (lags == ("0".into(), "0".into())).then_some(())
    })
    .await;
    assert!(projector.process.stop().await.success());

    let into = format!("t_{}", Uuid::now_v7().simple());
    shop.installation.copy_tables(&into);
    let nodes = cql::nodes();
    let (old, new) = (cql::dump(&nodes, &shop.keyspace).await, cql::dump(&nodes, &into).await);
    assert_same(&old, &new, "in another keyspace");
}

/// A manual deletion is newer than every version of its row: it hides rows rebuilt in place.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_rows_come_back_by_into() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path());
    let changes = history(5);
    shop.publish(&changes);
    let installation = &shop.installation;
    // These tables are still empty.
    let (_, said) = errand(installation, &["tables", "verify"], 2);
    assert!(said.contains("are not as the log has them"), "{said}");
    let (printed, _) = errand(installation, &["tables", "rebuild"], 0);
    assert!(printed.contains("rows are as the log has them"), "{printed}");
    let (printed, _) = errand(installation, &["tables", "verify"], 0);
    assert!(printed.ends_with("rows are as the log has them\n"), "{printed}");

    let order = changes.iter().find_map(|change| match change {
        Change::Order(order) => Some(order.order_id),
        _ => None,
    });
    let transfer = changes.iter().find_map(|change| match change {
        Change::Transfer(transfer) => Some(transfer.transfer_id.0),
        _ => None,
    });
    let (order, transfer) = (order.unwrap(), transfer.unwrap());
    shop.by_hand(&format!("DELETE FROM KS.orders WHERE order_id = {order}")).await;
    shop.by_hand(&format!("DELETE FROM KS.transfers WHERE transfer_id = {transfer}")).await;
    let (printed, _) = errand(installation, &["tables", "verify"], 2);
    for row in
        [format!("orders {order} missing (orders/"), format!("transfers {transfer} missing (")]
    {
        let line = printed.lines().find(|line| line.starts_with(&row));
        assert!(line.is_some_and(|line| line.ends_with("--into KEYSPACE`")), "{row}: {printed}");
    }
    let (printed, _) = errand(installation, &["tables", "verify", "--json"], 2);
    let lines: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_order =
        |line: &&Value| line["id"] == order.to_string() && line["difference"] == "missing";
    assert_eq!(lines.iter().filter(is_order).count(), 1, "{printed}");
    assert_eq!(lines.last().unwrap()["differences"], lines.len() - 1, "{printed}");

    let (_, said) = errand(installation, &["tables", "rebuild"], 2);
    let hidden = "rows are hidden by deletions made outside: run `tidemark tables rebuild --into";
    assert!(said.contains(hidden), "{said}");
    let into = format!("t_{}", Uuid::now_v7().simple());
    installation.copy_tables(&into);
    errand(&shop.on(&into), &["tables", "verify"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_tables_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path());
    shop.publish(&history(6));
    let installation = &shop.installation;
    errand(installation, &["tables", "rebuild"], 0);
    let before = cql::dump(&cql::nodes(), &shop.keyspace).await;
    let mut api = installation.start("api-1", "api");
    api.ready().await;

    shop.by_hand("DROP TABLE KS.orders_by_day").await;
    let lacks = |lines: &[String]| lines.iter().any(|line| line.contains("lacks orders_by_day"));
    api.waiting_for("the table", lacks).await;
    let (_, said) = errand(installation, &["tables", "verify"], 1);
    assert!(said.contains("run `tidemark schema migrate`"), "{said}");
    let (printed, _) = errand(installation, &["schema", "migrate", "--check"], 1);
    assert_eq!(printed, "table orders_by_day was dropped and is to be created again\n");
    // The copy has the dropped table's rows, from the log and other tables.
    let into = format!("t_{}", Uuid::now_v7().simple());
    installation.copy_tables(&into);
    assert_same(&before, &cql::dump(&cql::nodes(), &into).await, "in another keyspace");

    api.waiting_for("nothing: the table is there", |lines| lines.is_empty()).await;
    shop.by_hand("DROP TABLE KS.orders_by_day").await;
    let (printed, _) = errand(installation, &["schema", "migrate"], 0);
    assert!(
        printed.starts_with("created table orders_by_day, which was dropped: run"),
        "{printed}"
    );
    errand(installation, &["tables", "rebuild"], 0);
    assert_same(&before, &cql::dump(&cql::nodes(), &shop.keyspace).await, "in place");
    assert!(api.process.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_continues_behind_a_skipped_record() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path());
    let of = |topic| TopicPartition { topic, partition: Partition(0) };
    let to = of(Topic::WebhooksDispatch);
    // A schema id that no version has, and content that no schema decodes.
    let value = Some(vec![0, 1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff]);
    let record = NewRecord { to, key: b"x".to_vec(), value, headers: Headers::default() };
    shop.log.produce(vec![record]).await.unwrap();
    let place = format!("{to}@0");

    let webhooks = shop.installation.start("webhooks-1", "webhooks").process;
    let status = webhooks.end().await;
    let said = std::fs::read_to_string(dir.path().join("webhooks-1.log")).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("`tidemark dead-letters skip {place}`")), "{said}");
    let (printed, _) = errand(&shop.installation, &["dead-letters", "skip", &place], 0);
    assert!(printed.starts_with(&format!("{place} is in dead-letters")), "{printed}");
    let mut webhooks = shop.installation.start("webhooks-2", "webhooks");
    webhooks.ready().await;
    assert!(webhooks.process.stop().await.success());
    for topic in [Topic::DeadLetters, Topic::Audit] {
        assert_eq!(shop.log.read(of(topic), Offset(0), 9).unwrap().len(), 1, "{topic}");
    }
}
