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
use testkit::harness::{Installation, LAYOUT, Member, eventually};
use testkit::log_suite::on_kafka;
use testkit::process::text;
use testkit::tables::{Dump, assert_same, cql};

use super::rebuild::record;

/// Topics and tables on servers, for a shop's records: each step is a transaction, so it ends with a marker.
struct Shop {
    installation: Installation,
    log: Arc<dyn Log>,
}

impl Shop {
    fn open(dir: &Path) -> Self {
        let installation = Installation::new(dir, &[], "http://127.0.0.1:1/", "");
        installation.provide();
        let config = on_kafka::config(&on_kafka::brokers());
        let config = KafkaConfig { prefix: installation.prefix(), ..config };
        let log = Arc::new(KafkaLog::open(&config, LAYOUT).unwrap());
        Self { log, installation }
    }

    /// The rows of a keyspace, by default its own.
    async fn rows(&self, keyspace: Option<&str>) -> Dump {
        let own = self.installation.keyspace();
        cql::dump(&cql::nodes(), keyspace.unwrap_or(&own)).await
    }

    /// Changes the tables by CQL.
    async fn by_hand(&self, statement: &str) {
        let statement = statement.replace("KS", &self.installation.keyspace());
        cql::session().await.query_unpaged(statement, ()).await.unwrap();
    }

    fn publish(&self, changes: &[Change]) {
        let mut writer = self.log.writer("history").unwrap();
        for part in changes.chunks(200) {
            writer.commit(part.iter().map(record).collect()).unwrap();
        }
    }
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

    let into = shop.installation.copy_tables();
    assert_same(&shop.rows(None).await, &shop.rows(Some(&into)).await, "in another keyspace");
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
    let said = installation.exits(&["tables", "verify"], 2);
    assert!(said.contains("are not as the log has them"), "{said}");
    let printed = installation.exits(&["tables", "rebuild"], 0);
    assert!(printed.contains("rows are as the log has them"), "{printed}");
    let printed = installation.exits(&["tables", "verify"], 0);
    assert!(printed.contains("rows are as the log has them\n"), "{printed}");

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
    let printed = installation.exits(&["tables", "verify"], 2);
    for row in
        [format!("orders {order} missing (orders/"), format!("transfers {transfer} missing (")]
    {
        let line = printed.lines().find(|line| line.starts_with(&row));
        assert!(line.is_some_and(|line| line.ends_with("--into KEYSPACE`")), "{row}: {printed}");
    }
    let output = installation.errand(&["tables", "verify", "--json"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_order =
        |line: &&Value| line["id"] == order.to_string() && line["difference"] == "missing";
    assert_eq!(lines.iter().filter(is_order).count(), 1, "{printed}");
    assert_eq!(lines.last().unwrap()["differences"], lines.len() - 1, "{printed}");

    let said = installation.exits(&["tables", "rebuild"], 2);
    let hidden = "rows are hidden by deletions made outside: run `tidemark tables rebuild --into";
    assert!(said.contains(hidden), "{said}");
    let into = installation.copy_tables();
    installation.on_keyspace(&into).exits(&["tables", "verify"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_tables_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path());
    shop.publish(&history(6));
    let installation = &shop.installation;
    installation.exits(&["tables", "rebuild"], 0);
    let before = shop.rows(None).await;
    let mut api = installation.start("api-1", "api");
    api.ready().await;

    shop.by_hand("DROP TABLE KS.orders_by_day").await;
    let lacks = |lines: &[String]| lines.iter().any(|line| line.contains("lacks orders_by_day"));
    api.waiting_for("the table", lacks).await;
    let said = installation.exits(&["tables", "verify"], 1);
    assert!(said.contains("run `tidemark schema migrate`"), "{said}");
    let printed = installation.exits(&["schema", "migrate", "--check"], 1);
    assert_eq!(printed, "table orders_by_day was dropped and is to be created again\n");
    // The copy has the dropped table's rows, from the log and other tables.
    let into = installation.copy_tables();
    assert_same(&before, &shop.rows(Some(&into)).await, "in another keyspace");

    api.waiting_for("nothing: the table is there", |lines| lines.is_empty()).await;
    shop.by_hand("DROP TABLE KS.orders_by_day").await;
    let printed = installation.exits(&["schema", "migrate"], 0);
    assert!(
        printed.starts_with("created table orders_by_day, which was dropped: run"),
        "{printed}"
    );
    installation.exits(&["tables", "rebuild"], 0);
    assert_same(&before, &shop.rows(None).await, "in place");
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

    let said = shop.installation.start("webhooks-1", "webhooks").process.refused().await;
    assert!(said.contains(&format!("`tidemark dead-letters skip {place}`")), "{said}");
    let printed = shop.installation.exits(&["dead-letters", "skip", &place], 0);
    assert!(printed.starts_with(&format!("{place} is in dead-letters")), "{printed}");
    let mut webhooks = shop.installation.start("webhooks-2", "webhooks");
    webhooks.ready().await;
    assert!(webhooks.process.stop().await.success());
    for topic in [Topic::DeadLetters, Topic::Audit] {
        assert_eq!(shop.log.read(of(topic), Offset(0), 9).unwrap().len(), 1, "{topic}");
    }
}
