//! `tidemark stop`: with a running process, without one, and while the chain is not followed. Also
//! contracts that are not offered.

use std::path::Path;

use alloy_primitives::{TxHash, U256};
use devnet::{Chain as Node, Config, Devnet, Token};
use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::harness::{
    Chain, Client, Tidemark, USDT, WALLET, WEBHOOK, errand, eventually, exits, mine_until_order_is,
    mining_until, now, payable, units, usdt,
};
use testkit::process::text;

/// USDT of a bridge on Optimism: a known contract that the configuration does not choose.
const BRIDGED: &str = "0x94b008aA00579c1307B0EF2c499aD98a8ce58e58";
const NOT_FOLLOWED: &str = "payments on the selected chain cannot be seen at present";

/// Optimism with two USDT contracts.
async fn node() -> Devnet {
    let bridged = Token { address: BRIDGED.parse().unwrap(), ..usdt() };
    let config = Config {
        chain_id: 10,
        genesis_timestamp: now().unsigned_abs() - 600,
        block_interval_secs: 1,
        tokens: vec![usdt(), bridged],
        ..Config::default()
    };
    let devnet = Devnet::start(config, ([127, 0, 0, 1], 0).into()).await.unwrap();
    devnet.chain().mine(60).unwrap();
    devnet
}

fn chain(devnet: &Devnet) -> Chain {
    Chain::of("op", devnet, WALLET, "confirmations = 3\nreorg_window = 8\n")
}

/// Queues an order's payment in this token contract.
async fn pay(client: &Client, node: &Node, order: &str, contract: &str) -> TxHash {
    let units = units(&client.deposit(order).await["value"]);
    let (token, to) = (contract.parse().unwrap(), WALLET.parse().unwrap());
    node.transfer(token, [0x22; 20].into(), to, U256::from(units)).unwrap()
}

async fn create(client: &Client, reference: &str) -> String {
    client.order(reference, "10.00", "op", WEBHOOK).await
}

/// The reason of a transaction's transfer and the order that it was meant for.
async fn unknown(client: &Client, node: &Node, tx: TxHash) -> (Value, Value) {
    mining_until("the transfer to be unknown", node, async || {
        let list = client.admin(&format!("/wallets/{WALLET}/transfers")).await.ok()?;
        let found = list.as_array()?.iter().find(|of| of["txn_hash"] == tx.to_string())?.clone();
        let is_unknown = found["status"] == "no_matched_deposit";
        is_unknown.then(|| (found["reason"].clone(), found["candidate_order_id"].clone()))
    })
    .await
}

/// Runs `tidemark stop`; returns its standard output.
#[track_caller]
fn stop(dir: &Path, arguments: &[&str]) -> String {
    let output = errand(dir, &[&["stop"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits for a stop in the list.
async fn in_force(client: &Client, dir: &Path, what: &str) {
    eventually(&format!("{what:?} to be in force"), || async {
        let listed = stop(dir, &[]);
        client.is_healthy().await.then_some(()).filter(|()| listed.contains(what))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stopped_pays_nothing_until_it_ends() {
    let (dir, devnet) = (tempfile::tempdir().unwrap(), node().await);
    let (node, chains) = (devnet.chain(), [chain(&devnet)]);
    let start = || Tidemark::start(dir.path(), &chains, WEBHOOK, "");
    let tidemark = start().await;
    let client = tidemark.client();
    let (first, second) = (create(&client, "A-1").await, create(&client, "B-1").await);
    assert_eq!(stop(dir.path(), &[]), "nothing is stopped\n");
    let stranger = "0x7777777777777777777777777777777777777777";
    let refused = exits(dir.path(), &["stop", stranger], 64);
    assert!(refused.contains("is no wallet and no contract of a chain"), "{refused}");

    // A running process.
    let asked = stop(dir.path(), &["USDT", "--chain", "op"]);
    assert!(asked.contains("USDT on op stopped: asked of the process"), "{asked}");
    in_force(&client, dir.path(), "op: USDT is stopped").await;
    let tx = pay(&client, &node, &first, USDT).await;
    let found = unknown(&client, &node, tx).await;
    assert_eq!(found, (json!("stopped"), json!(first)));
    client.order_with_status(&first, "pending").await;
    let body = payable("C-1", "10.00", "op", WEBHOOK);
    eventually("the choice to be refused", || async {
        let (status, text) = client.service("/orders", &body, &[]).await.ok()?;
        (status == StatusCode::CONFLICT).then(|| assert!(text.starts_with(NOT_FOLLOWED), "{text}"))
    })
    .await;
    let health = client.admin("/health?verbose=1").await.unwrap();
    assert_eq!(health["chains"][0]["stopped"][0]["token"], "USDT", "{health}");

    // The stop survives the process.
    assert!(tidemark.stop().await.success());
    let written = stop(dir.path(), &[WALLET]);
    assert!(written.contains("stopped: written"), "{written}");
    let written = stop(dir.path(), &["USDT", "--chain", "op", "--end"]);
    assert!(written.contains("USDT on op resumed: written"), "{written}");
    let mut tidemark = Tidemark::spawn(dir.path(), &chains, WEBHOOK, "", &[]);
    tidemark.healthy().await;
    let client = tidemark.client();
    in_force(&client, dir.path(), &format!("op: {WALLET} is stopped")).await;
    assert!(!stop(dir.path(), &[]).contains("USDT"), "that one has ended");
    let tx = pay(&client, &node, &second, USDT).await;
    assert_eq!(unknown(&client, &node, tx).await, (json!("stopped"), json!(second)));

    // A transfer after the end of the stop pays; one that was stopped stays unknown.
    stop(dir.path(), &[WALLET, "--end"]);
    in_force(&client, dir.path(), "nothing is stopped").await;
    pay(&client, &node, &second, USDT).await;
    mine_until_order_is("paid", &client, &node, &second).await;
    client.order_with_status(&first, "pending").await;
    let alerts = exits(dir.path(), &["tail", "alerts", "--until-end"], 0);
    assert_eq!(alerts.matches("\"payments_stopped\"").count(), 4, "{alerts}");
    let audit = exits(dir.path(), &["tail", "audit", "--until-end"], 0);
    let counts = ["\"stop\"", "\"resume\""].map(|kind| audit.matches(kind).count());
    assert_eq!(counts, [2, 2], "{audit}");
    assert!(tidemark.stop().await.success());
}

/// Without a process, no lane has read the command that begins it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_nobody_has_read_can_be_ended() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Tidemark::start(dir.path(), &[], WEBHOOK, "").await.stop().await.success());
    stop(dir.path(), &["USDC"]);
    assert_eq!(stop(dir.path(), &[]), "nothing is stopped\n");
    for other in [&["DAI"][..], &["USDC", "--chain", "op"]] {
        let refused = exits(dir.path(), &[&["stop", "--end"], other].concat(), 64);
        assert!(refused.contains("is not stopped"), "{refused}");
    }
    let written = stop(dir.path(), &["USDC", "--end"]);
    assert!(written.contains("USDC resumed: written"), "{written}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_contract_that_is_not_chosen_is_reported() {
    let (dir, devnet) = (tempfile::tempdir().unwrap(), node().await);
    let (node, chains) = (devnet.chain(), [chain(&devnet)]);
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    let client = tidemark.client();
    let order = create(&client, "A-1").await;
    let tx = pay(&client, &node, &order, BRIDGED).await;
    assert_eq!(unknown(&client, &node, tx).await, (json!("other_contract"), json!(order)));
    client.order_with_status(&order, "pending").await;
    pay(&client, &node, &order, USDT).await;
    mine_until_order_is("paid", &client, &node, &order).await;
    assert!(tidemark.stop().await.success());
}

/// Open deposits of the retired contract are paid in it; new deposits use the other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_retired_contract_pays_what_was_offered_with_it() {
    let (dir, devnet) = (tempfile::tempdir().unwrap(), node().await);
    let (node, before) = (devnet.chain(), chain(&devnet));
    let tidemark = Tidemark::start(dir.path(), &[chain(&devnet)], WEBHOOK, "").await;
    let client = tidemark.client();
    let old = create(&client, "A-1").await;
    assert!(tidemark.stop().await.success());

    let tokens = format!(
        "tokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6, retired = true }}, \
         {{ coin = \"USDT\", contract = \"{BRIDGED}\", decimals = 6 }}]\n"
    );
    let more = format!("{tokens}confirmations = 3\nreorg_window = 8\n");
    let chains = [Chain { more, ..before }];
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    let client = tidemark.client();
    let new = create(&client, "B-1").await;
    let tx = pay(&client, &node, &new, USDT).await;
    assert_eq!(unknown(&client, &node, tx).await, (json!("other_contract"), json!(new)));
    pay(&client, &node, &old, USDT).await;
    pay(&client, &node, &new, BRIDGED).await;
    for order in [&old, &new] {
        mine_until_order_is("paid", &client, &node, order).await;
    }
    assert!(tidemark.stop().await.success());
}
