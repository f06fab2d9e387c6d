//! An operator works on the console of a running Tidemark, in a real Chromium: `console.cjs` is the operator and the
//! buyers.

use std::path::Path;
use std::sync::Arc;

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord, TopicPartition};
use runtime::{Clock, SystemClock};
use schemas::record::{
    Alert, Attempt, DeadLetter, Delivery, OrderCommand, OrderCommandBody, example,
};
use schemas::{AlertKind, Blockchain, Headers, OrderId, Partition, Topic};
use testkit::harness::{ADMIN_SECRET, Chain, LAYOUT, Merchant, Tidemark, evm_node, free_port};

use crate::{CHAIN_ID, chain, play};

/// Admin secret with the scope `read`.
const READER: &str = "books-9pT4hD6sJ3mZ2kLw8vQx";

/// Prepares failures: an abandoned webhook of a paid order, a dead-letter command, an open alert.
async fn trouble(dir: &Path, chains: &[Chain], webhook: &str) -> OrderId {
    let tidemark = Tidemark::start(dir, chains, webhook, "").await;
    let client = tidemark.client();
    let id = client.order("B-2001", "7.00", "eth", webhook).await;
    let (status, text) = client.admin_post(&format!("/orders/{id}/mark-paid")).await;
    assert!(status.is_success(), "{text}");
    assert!(tidemark.stop().await.success());
    let order_id = id.parse().unwrap();
    let log = EmbeddedLog::open(&dir.join("data"), LAYOUT, Arc::new(SystemClock)).unwrap();
    let now = SystemClock.now();
    let event_id = format!("{id}.9");
    let attempt = Attempt {
        event_id: event_id.clone(),
        order_id: Some(order_id),
        attempted_at: now,
        answer: "<h1>the shop is closed</h1>".to_owned(),
        ..example::attempt()
    };
    let delivery = Delivery {
        event_id,
        order_id: Some(order_id),
        url: format!("{webhook}/secret-path"),
        body: format!(
            "{{\"event_type\":\"order_status_changed\",\"order_id\":\"{id}\",\"status\":\"paid\"}}"
        ),
        emitted_at: now,
        ..example::delivery()
    };
    let at = LAYOUT.webhook(&delivery.key());
    let cancel = OrderCommandBody::Cancel;
    let command = OrderCommand { issued_at: now, body: cancel, ..example::order_command() };
    let to = TopicPartition { topic: Topic::OrdersCommands, partition: Partition(0) };
    let (key, value) = (b"key".to_vec(), schemas::encode(&command).unwrap());
    let letter = DeadLetter {
        topic: to.topic.name().to_owned(),
        partition: 0,
        offset: log.bounds(to).unwrap().end.0,
        group: "processor.orders".to_owned(),
        reason: "order_command: unknown kind".to_owned(),
        key: key.clone(),
        value: value.clone(),
        failed_at: now,
    };
    let late = "a second check of block 7 had a transfer more".to_owned();
    let alert = Alert::raise(AlertKind::LateFind, Some(Blockchain::Eth), &"7", late, now);
    let key_of = delivery.key();
    let records = vec![
        NewRecord { to, key, value: Some(value), headers: Headers::default() },
        NewRecord::encode(Topic::WebhooksAttempts, at, key_of.as_str(), &attempt).unwrap(),
        NewRecord::encode(Topic::WebhooksDead, at, key_of, &delivery).unwrap(),
        NewRecord::encode(Topic::DeadLetters, Partition(0), "x", &letter).unwrap(),
        NewRecord::encode(Topic::Alerts, Partition(0), "eth", &alert).unwrap(),
    ];
    for record in records {
        log.produce(vec![record]).await.unwrap();
    }
    order_id
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_on_the_console() {
    let devnet = evm_node(CHAIN_ID, 60, 60).await;
    let chains = [chain("eth", devnet.url(), CHAIN_ID)];
    let (dir, merchant) = (tempfile::tempdir().unwrap(), Merchant::start().await);
    let more = format!(
        "[matching]\nmatch_window = \"30s\"\n[[admin.secrets]]\nname = \"books\"\nscope = \"read\"\nsecret = \"{READER}\"\n"
    );
    let address = format!("127.0.0.1:{}", free_port());
    let variables = [
        ("TIDEMARK__SERVER__ADMIN_LISTEN", address.clone()),
        ("TIDEMARK__SERVER__PUBLIC_URL", "https://pay.shop.test".to_owned()),
    ];
    let dead = trouble(dir.path(), &chains, merchant.url()).await.to_string();
    let tidemark =
        Tidemark::start_with(dir.path(), &chains, merchant.url(), &more, &variables).await;
    let base = format!("http://{}", tidemark.address());
    let variables = [
        ("BASE", &*base),
        ("CONSOLE", &format!("http://{address}")),
        ("CHAIN", devnet.url()),
        ("WEBHOOK", merchant.url()),
        ("ADMIN", ADMIN_SECRET),
        ("READER", READER),
        ("DEAD", &dead),
    ];
    play("console.cjs", &variables).await;
    assert!(!tidemark.log().contains(ADMIN_SECRET) && !tidemark.log().contains(READER));
    assert!(tidemark.stop().await.success());
    devnet.shutdown().await;
}
