//! The log, then the tables, are down for longer than session and transaction timeouts, while orders are paid: no
//! process ends, nothing is lost, and `/ready` names the outage.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::json;
use testkit::harness::{Anvil, Chain, Client, Cluster, Installation, Merchant, eventually};
use testkit::process::given_path;
use xtask::{cassandra, kafka};

const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";
/// Shorter than the defaults, in section `[log]`: the outage must exceed each.
const TIMEOUTS: &str = "session_timeout = \"6s\"\ntransaction_timeout = \"4s\"\n";
/// Longer than both [`TIMEOUTS`], and than `max.poll.interval.ms`, which is twice the session time-out.
const OUTAGE: Duration = Duration::from_secs(20);

struct World {
    anvil: Anvil,
    merchant: Merchant,
    cluster: Cluster,
    client: Client,
}

impl World {
    async fn order(&self, reference: &str, amount: &str) -> String {
        self.client.order(reference, amount, "eth", self.merchant.url()).await
    }

    async fn pay(&self, units: u128) {
        self.anvil.transfer(&[(WALLET, units)]).await;
        self.anvil.mine(4).await;
    }

    async fn notified_paid(&self, order: &str) {
        for webhook in self.merchant.awaited("order_id", &json!(order)).await {
            assert!(webhook.is_signed());
            assert_eq!(webhook.event["status"], "paid");
        }
    }

    /// Waits until the attempt is recorded.
    async fn recorded(&self, order: &str) {
        eventually(&format!("the record of the webhook of {order}"), || async {
            let row = self.client.admin(&format!("/orders/{order}")).await.ok()?;
            row["webhook_success_at"].is_i64().then_some(())
        })
        .await;
    }

    /// Checks that each order has one event with one id, delivered once except for `repeated`.
    fn check_webhooks(&self, once: &[&String], repeated: &[&String]) {
        let mut events: BTreeMap<_, BTreeMap<_, usize>> = BTreeMap::new();
        for webhook in self.merchant.received() {
            let of = |field: &str| webhook.event[field].as_str().unwrap().to_owned();
            let ids = events.entry((of("order_id"), of("status"))).or_default();
            *ids.entry(webhook.id).or_default() += 1;
        }
        let paid = |order: &&String| ((*order).clone(), "paid".to_owned());
        let expected: BTreeSet<_> = once.iter().chain(repeated).map(paid).collect();
        assert_eq!(events.keys().cloned().collect::<BTreeSet<_>>(), expected);
        for (event, ids) in &events {
            assert_eq!(ids.len(), 1, "{event:?} has several ids: {ids:?}");
        }
        for event in once.iter().map(paid) {
            let times: Vec<_> = events[&event].values().collect();
            assert_eq!(times, [&1], "{event:?} was sent again");
        }
    }

    /// Waits through the outage, while every process runs.
    async fn endure(&mut self, since: Instant) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        while since.elapsed() < OUTAGE {
            ticks.tick().await;
            self.cluster.assert_running();
        }
    }

    /// Waits until `/ready` of each process of a stage names what is away.
    async fn misses(&mut self, stage: &str, what: &str) {
        for member in self.cluster.members() {
            if member.process.name().starts_with(stage) {
                let is_named = |lines: &[String]| lines.iter().any(|line| line.contains(what));
                member.waiting_for(what, is_named).await;
            }
        }
    }

    /// Checks that a request fails: with 503 for POST, with 500 for others.
    async fn is_refused(&self, method: Method, path: &str, body: &serde_json::Value) {
        // 503 for a create: the command may be on the log without a confirmation, so the client must repeat it.
        let (answer, expected) = if method == Method::POST {
            let answer = self.client.service(path, body, &[]).await;
            (answer, StatusCode::SERVICE_UNAVAILABLE)
        } else {
            let headers = [("Service-Admin-Authorization", testkit::harness::ADMIN_SECRET)];
            let path = format!("/api/v1/admin{path}");
            let answer = self.client.send(method, &path, &headers, None).await;
            (answer, StatusCode::INTERNAL_SERVER_ERROR)
        };
        let (status, text) = answer.expect("an answer");
        assert_eq!(status, expected, "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_log_and_tables() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut kafka =
        kafka::start(&given_path("TIDEMARK_TEST_KAFKA_LIB"), &at("kafka"), "").expect("a broker");
    let mut cql = cassandra::start_durable(&given_path("TIDEMARK_TEST_CASSANDRA_LIB"), &at("cql"))
        .expect("a node");
    let (anvil, merchant) = (Anvil::start().await, Merchant::start().await);
    let chains = [Chain::at("eth", anvil.url(), WALLET, "confirmations = 3")];
    let servers = [kafka.address(), cql.address()];
    let servers = (&*servers[0], &*servers[1]);
    let installation = Installation::on(servers, dir.path(), &chains, merchant.url(), TIMEOUTS);
    let cluster = Cluster::run(installation).await;
    let client = cluster.client();
    let mut world = World { anvil, merchant, cluster, client };

    let before = world.order("before", "1.00").await;
    world.client.deposit(&before).await;
    let waiting = world.order("waiting", "2.00").await;
    world.client.deposit(&waiting).await;
    world.pay(1_000_000).await;
    world.notified_paid(&before).await;
    world.recorded(&before).await;

    kafka.kill();
    let since = Instant::now();
    world.pay(2_000_000).await;
    for stage in ["processor", "projector", "webhooks", "ingest"] {
        world.misses(stage, "the log").await;
    }
    let body = json!({
        "order_id": "too early", "amount": "9.00", "webhook_url": world.merchant.url(),
    });
    world.is_refused(Method::POST, "/orders", &body).await;
    // Rows of the tables can be read meanwhile.
    world.client.admin(&format!("/deposits?order_id={waiting}")).await.unwrap();
    world.endure(since).await;
    kafka.restart().expect("the broker again");
    world.notified_paid(&waiting).await;
    world.client.order_with_status(&waiting, "paid").await;
    world.cluster.ready().await;

    cql.kill();
    let since = Instant::now();
    // Payments do not need the tables.
    let unseen = world.order("unseen", "3.00").await;
    world.pay(3_000_000).await;
    world.notified_paid(&unseen).await;
    // Each projector has something to write, whichever partitions it has.
    for amount in 10..24 {
        world.order(&format!("unpaid-{amount}"), &format!("{amount}.00")).await;
    }
    world.misses("projector", "tables").await;
    world.is_refused(Method::GET, &format!("/deposits?order_id={unseen}"), &json!(null)).await;
    world.endure(since).await;
    cql.restart().expect("the node again");
    world.cluster.ready().await;
    for order in [&before, &waiting, &unseen] {
        world.client.order_with_status(order, "paid").await;
        world.recorded(order).await;
    }
    // A webhook sent while the broker restarted may be repeated, as it was not recorded.
    world.check_webhooks(&[&before, &unseen], &[&waiting]);
    world.cluster.stop().await;
}
