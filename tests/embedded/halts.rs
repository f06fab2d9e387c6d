//! Recovery of a halted chain: expired records, and a reorganisation below finality.

use std::path::Path;
use std::sync::Arc;

use alloy_primitives::TxHash;
use devnet::{Chain as Node, Devnet, Reorg};
use log::Log;
use log::embedded::EmbeddedLog;
use schemas::Topic;
use serde_json::{Value, json};
use testkit::MovedClock;
use testkit::harness::{
    Chain, Client, LAYOUT, Tidemark, WALLET, WEBHOOK, errand, eventually, evm_node, exits,
    mine_now, mine_until_order_is, mining_until, pay_order,
};

const YEAR_MICROS: i64 = 365 * 24 * 3600 * 1_000_000;

async fn node(chain_id: u64) -> Devnet {
    evm_node(chain_id, 600, 60).await
}

fn chain(blockchain: &'static str, devnet: &Devnet) -> Chain {
    Chain::of(blockchain, devnet, WALLET, "confirmations = 3\nreorg_window = 8\n")
}

async fn create(client: &Client, reference: &str, chain: &str) -> String {
    client.order(reference, "10.00", chain, WEBHOOK).await
}

async fn paid(client: &Client, node: &Node, order: &str) {
    mine_until_order_is("paid", client, node, order).await;
}

/// Moves the clock ahead by a year, which expires the records of `transfers.raw` (91 days).
fn expire(dir: &Path) {
    let clock = MovedClock(YEAR_MICROS.into());
    let log = EmbeddedLog::open(&dir.join("data"), LAYOUT, Arc::new(clock)).unwrap();
    assert!(log.maintain().unwrap().expired > 0);
    for lane in log.layout().lanes_of(schemas::Blockchain::Eth) {
        let of = log::TopicPartition { topic: Topic::TransfersRaw, partition: lane };
        let bounds = log.bounds(of).unwrap();
        assert_eq!(bounds.start, bounds.end);
    }
    log.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_without_records_continues_where_it_was_final() {
    let dir = tempfile::tempdir().unwrap();
    let devnet = node(1).await;
    let node = devnet.chain();
    let chains = [chain("eth", &devnet)];
    let start = || Tidemark::start(dir.path(), &chains, WEBHOOK, "");
    let tidemark = start().await;
    let client = tidemark.client();
    let first = create(&client, "A-1", "eth").await;
    let waiting = create(&client, "B-1", "eth").await;
    let later = create(&client, "C-1", "eth").await;
    pay_order(&client, &node, &first).await;
    mine_now(&node);
    mine_now(&node);
    node.reorg(1, Reorg::Keep).unwrap();
    paid(&client, &node, &first).await;
    pay_order(&client, &node, &waiting).await;
    assert!(tidemark.stop().await.success());

    expire(dir.path());
    mine_now(&node);
    mine_now(&node);
    let tidemark = start().await;
    let client = tidemark.client();
    paid(&client, &node, &waiting).await;
    pay_order(&client, &node, &later).await;
    paid(&client, &node, &later).await;
    assert!(tidemark.stop().await.success());

    let transaction = TxHash::repeat_byte(0xab).to_string();
    let refused = exits(dir.path(), &["chain", "resolve", "eth", &transaction, "--accept"], 1);
    let expected = format!("no transfer of transaction {transaction} is held; nothing is");
    assert!(refused.contains(&expected), "{refused}");
}

/// State of a chain's records at its rewind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Records {
    Whole,
    Gone,
    /// The records had expired at a restart, which began new ones above the fork.
    Anew,
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_that_left_what_was_final_halts_alone() {
    left_what_was_final(Records::Whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_records_it_is_taken_back_as_well() {
    left_what_was_final(Records::Gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rewind_reaches_below_the_first_record() {
    left_what_was_final(Records::Anew).await;
}

async fn transfers(client: &Client) -> Option<Vec<Value>> {
    let path = format!("/wallets/{WALLET}/transfers?blockchain=eth&limit=9");
    let mut rows = client.admin(&path).await.ok()?.as_array()?.clone();
    rows.retain(|row| row["blockchain"] == "eth");
    Some(rows)
}

/// `tidemark chain status --json` of the first chain.
fn status(dir: &Path) -> Value {
    let output = errand(dir, &["chain", "status", "--json"]);
    serde_json::from_slice::<Value>(&output.stdout).unwrap()[0].take()
}

/// Waits until the first chain is halted; the output must name the remedy.
async fn halted(dir: &Path) {
    let halted = eventually("the chain to be halted", || async {
        let text = exits(dir, &["chain", "status"], 0);
        text.lines().find(|line| line.contains("HALTED")).map(str::to_owned)
    })
    .await;
    assert!(
        halted.starts_with("eth: ") && halted.contains("tidemark chain rewind eth --find"),
        "{halted}"
    );
}

/// Mines until the first chain is confirmed up to its present head.
async fn confirmed_to_the_end(dir: &Path, eth: &Node) {
    let end = eth.head().number;
    mining_until("the new fork to be confirmed", eth, async || {
        (status(dir)["confirmed"].as_u64()? >= end).then_some(())
    })
    .await;
}

/// Waits until three payments are matched in their new blocks; the dropped one must have failed.
async fn shown_but_one(client: &Client, gone: TxHash) {
    let shown = eventually("each payment in its new block", || async {
        let shown = transfers(client).await?;
        let is_there = |row: &Value| row["status"] == "matched" && row["orphaned_at"].is_null();
        (shown.iter().filter(|row| is_there(row)).count() == 3).then_some(shown)
    })
    .await;
    let failed: Vec<_> = shown.iter().filter(|row| row["status"] == "failed_to_confirm").collect();
    assert_eq!((shown.len(), failed.len()), (4, 1), "{shown:?}");
    assert_eq!(failed[0]["txn_hash"], gone.to_string());
}

/// `tidemark chain rewind`, by a height if the records are gone; returns its output.
fn taken_back(dir: &Path, records: Records, fork: u64) -> String {
    if records != Records::Whole {
        return exits(dir, &["chain", "rewind", "eth", &fork.to_string(), "--yes"], 0);
    }
    let found = ["chain", "rewind", "eth", "--find", "--yes"];
    let written = exits(dir, &found, 0);
    let again = exits(dir, &found, 1);
    let expected = format!("the endpoints have the last scanned block {fork}: there is nothing");
    assert!(again.contains(&expected), "{again}");
    written
}

async fn left_what_was_final(records: Records) {
    let dir = tempfile::tempdir().unwrap();
    let (eth, polygon) = (node(1).await, node(137).await);
    let chains = [chain("eth", &eth), chain("polygon", &polygon)];
    let start = || Tidemark::start(dir.path(), &chains, WEBHOOK, "[orders]\nttl = \"10m\"\n");
    let tidemark = start().await;
    let client = tidemark.client();
    let (eth, polygon) = (eth.chain(), polygon.chain());
    let fork = eth.head().number;
    let confirmed = create(&client, "A-1", "eth").await;
    let waiting = create(&client, "B-1", "eth").await;
    let open = create(&client, "C-1", "eth").await;
    let elsewhere = create(&client, "D-1", "polygon").await;
    let unpaid = create(&client, "E-1", "eth").await;
    pay_order(&client, &eth, &confirmed).await;
    paid(&client, &eth, &confirmed).await;
    eth.mine(15).unwrap();
    pay_order(&client, &eth, &waiting).await;
    let gone = pay_order(&client, &eth, &unpaid).await;
    mine_now(&eth);
    eventually("the payments to be seen", || async {
        (transfers(&client).await?.len() == 3).then_some(())
    })
    .await;

    eth.reorg(eth.head().number - fork, Reorg::Drop(gone)).unwrap();
    halted(dir.path()).await;
    // The payment is in time on the new fork, which is not scanned yet; then the fork's time passes the deadline.
    pay_order(&client, &eth, &open).await;
    mine_now(&eth);
    eth.mine_at(eth.head().timestamp + 1200).unwrap();
    eth.mine(5).unwrap();
    pay_order(&client, &polygon, &elsewhere).await;
    paid(&client, &polygon, &elsewhere).await;
    for order in [&waiting, &open, &unpaid] {
        client.order_with_status(order, "pending").await;
    }
    assert!(tidemark.stop().await.success());

    let mut epoch = 1;
    if records != Records::Whole {
        expire(dir.path());
    }
    if records == Records::Anew {
        let tidemark = start().await;
        confirmed_to_the_end(dir.path(), &eth).await;
        assert!(tidemark.stop().await.success());
        epoch = 2;
    }
    let written = taken_back(dir.path(), records, fork);
    let said = match records {
        Records::Whole => "takes back 3 transfers, 1 of them confirmed",
        Records::Gone => "the records of the chain are gone",
        Records::Anew => "takes back 2 transfers, 2 of them confirmed",
    };
    assert!(written.contains(said), "{written}");
    let rewound = status(dir.path());
    assert_eq!((&rewound["scanned"], &rewound["epoch"]), (&json!(fork), &json!(epoch)));
    let tidemark = start().await;
    let client = tidemark.client();
    for order in [&confirmed, &waiting, &open] {
        client.order_with_status(order, "paid").await;
    }
    mine_until_order_is("expired", &client, &eth, &unpaid).await;
    shown_but_one(&client, gone).await;
    // The scan has ended the alert.
    assert_eq!(status(dir.path())["halted"], Value::Null);
    assert!(tidemark.stop().await.success());
}
