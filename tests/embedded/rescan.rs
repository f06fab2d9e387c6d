//! `tidemark rescan` finds transfers omitted from confirmed blocks by the endpoint, proves them, and publishes each
//! once.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use alloy_primitives::U256;
use devnet::{Chain as Node, Devnet, NativeFault};
use schemas::Blockchain;
use serde_json::{Value, json};
use testkit::Pace;
use testkit::faults::{NodeState, Proxy, invented};
use testkit::harness::{
    Chain, Client, Tidemark, USDT, eventually, evm_node, executable, mine_now, transfer_usdt,
    tron_address, tron_chain, units, usdt_of,
};
use testkit::process::text;

const WEBHOOK: &str = "http://127.0.0.1:9/hooks";
const WALLET: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

fn rescan(dir: &Path, arguments: &[&str]) -> Output {
    let config = dir.join("tidemark.toml");
    let config = ["--config", config.to_str().unwrap()];
    Command::new(executable()).arg("rescan").args(arguments).args(config).output().unwrap()
}

/// Mines until a block is confirmed.
async fn confirmed(client: &Client, node: &Node, number: u64) {
    let pace = Pace::default();
    eventually("the block to be confirmed", || async {
        if pace.is_due() {
            mine_now(node);
        }
        let health = client.admin("/health?verbose=1").await.ok()?;
        (health["chains"][0]["confirmed"].as_u64()? >= number).then_some(())
    })
    .await;
}

async fn node() -> Devnet {
    evm_node(1, 600, 60).await
}

/// Configuration under which blocks are confirmed early, and final soon.
fn rules() -> String {
    let tokens = format!("tokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6 }}]\n");
    format!("{tokens}confirmations = 3\nreorg_window = 8\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_out_is_published_once_and_pays() {
    let dir = tempfile::tempdir().unwrap();
    let devnet = node().await;
    let (node, rpc) = (devnet.chain(), devnet.url().to_owned());
    let chains = [Chain { blockchain: "eth", rpc, wallet: WALLET, more: rules() }];
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    let client = tidemark.client();
    let order = client.create("A-1", "10.00", "eth", WEBHOOK).await;
    let order = order["order_id"].as_str().unwrap().to_owned();
    let deposit = client.deposit(&order).await;

    // The logs of the node lag beyond any check, without receipts to show them.
    node.lag_logs(1_000_000);
    node.refuse_block_receipts();
    transfer_usdt(&node, WALLET, units(&deposit["value"]));
    let paid_in = node.head().number + 1;
    confirmed(&client, &node, paid_in + 5).await;
    let (from, to) = (paid_in.to_string(), (paid_in + 5).to_string());
    let busy = rescan(dir.path(), &["eth", &from, &to, "--yes"]);
    assert!(!busy.status.success(), "the embedded log is one process's: {}", text(&busy));
    assert!(tidemark.stop().await.success());

    let nothing = rescan(dir.path(), &["eth", &from, &to, "--yes"]);
    assert!(nothing.status.success() && text(&nothing).contains("0 transfers are missing"));
    node.clear_faults();
    let asked = rescan(dir.path(), &["eth", &from, &to]);
    assert!(!asked.status.success() && text(&asked).contains("nothing was written"));
    let found = rescan(dir.path(), &["eth", &from, &to, "--yes"]);
    assert!(found.status.success(), "{}", text(&found));
    assert!(text(&found).contains("written: 1 transfers"), "{}", text(&found));
    let again = rescan(dir.path(), &["eth", &from, &to, "--yes"]);
    assert!(text(&again).contains("0 transfers are missing, 0 more"), "{}", text(&again));

    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    let client = tidemark.client();
    let body = json!({ "order_id": order });
    eventually("the order to be paid", || async {
        let (_, text) = client.service("/orders/status", &body, &[]).await.ok()?;
        let order: Value = serde_json::from_str(&text).ok()?;
        (order["status"] == "paid").then_some(())
    })
    .await;
    let list = client.admin(&format!("/wallets/{WALLET}/transfers")).await.unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert!(tidemark.stop().await.success());
}

/// A meaningless command queries no endpoint and creates no log.
#[test]
fn a_command_that_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let wallet = format!("[[wallets]]\nblockchain = \"eth\"\naddress = \"{WALLET}\"\n");
    let chain = "enabled_coins = [\"USDT\"]\n[chains.eth]\nrpc = [\"http://127.0.0.1:9\"]\n";
    let config = format!("[data]\ndir = {data:?}\n{wallet}{chain}");
    fs::write(dir.path().join("tidemark.toml"), config).unwrap();
    for (arguments, code, what) in [
        (["eth", "9", "5"], 64, "the first block 9 is after the last one 5"),
        (["polygon", "1", "5"], 64, "chains.polygon: there is no such section"),
        (["eth", "0", "5"], 64, "0 is not in 1.."),
        (["eth", "1", "5"], 1, "there is no log at"),
    ] {
        let refused = rescan(dir.path(), &arguments);
        assert_eq!(refused.status.code(), Some(code), "{}", text(&refused));
        assert!(text(&refused).contains(what), "{}", text(&refused));
    }
    assert!(!data.exists());
}

/// A transfer of one endpoint is not published, even while the other is down: a single endpoint would be trusted then.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_endpoint_invents_is_not_published() {
    let (dir, devnet) = (tempfile::tempdir().unwrap(), node().await);
    let (node, node_state) = (devnet.chain(), Arc::new(NodeState::of(devnet.url())));
    let liar = Proxy::start(node_state, None).await;
    let rpc = format!("{},{}", liar.url(), devnet.url());
    let chains = [Chain { blockchain: "eth", rpc, wallet: WALLET, more: rules() }];
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    let block = node.head().number + 1;
    confirmed(&tidemark.client(), &node, block + 5).await;
    assert!(tidemark.stop().await.success());

    let hash = node.block(block).unwrap().hash.to_string();
    let parties = [USDT, "0x2222222222222222222222222222222222222222", WALLET];
    let log = invented((block, &hash), &format!("0x{:064x}", 7), parties, 10_000_000);
    liar.behaviour().invents.push((log, true));
    let (from, to) = (block.to_string(), (block + 5).to_string());
    let found = rescan(dir.path(), &["eth", &from, &to, "--yes"]);
    let summary = "asked of 2 endpoints; 0 transfers are missing, 1 more are not proven";
    assert!(!found.status.success() && text(&found).contains(summary), "{}", text(&found));
    assert!(text(&found).contains("NOT PROVEN and not published"), "{}", text(&found));

    let config = dir.path().join("tidemark.toml");
    let without = fs::read_to_string(&config).unwrap().replace(devnet.url(), "http://127.0.0.1:9");
    fs::write(&config, without).unwrap();
    let alone = rescan(dir.path(), &["eth", &from, &to, "--yes"]);
    let summary = "asked of 1 endpoints; 0 transfers are missing, 1 more are not proven";
    assert!(!alone.status.success() && text(&alone).contains(summary), "{}", text(&alone));
}

/// The node's own interface proves which final transactions succeeded.
#[tokio::test(flavor = "multi_thread")]
async fn on_tron_its_own_interface_proves_what_was_missing() {
    let (usdt, node) = (usdt_of(Blockchain::Tron), tron_chain(60));
    let devnet = Devnet::serve_tron(node.clone(), (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let evm: alloy_primitives::Address = WALLET.parse().unwrap();
    let wallet = tron_address(WALLET).leak();
    let (dir, rpc) = (tempfile::tempdir().unwrap(), devnet.url().to_owned());
    let chains = [Chain { blockchain: "tron", rpc, wallet, more: String::new() }];
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    confirmed(&tidemark.client(), &node, node.head().number).await;
    assert!(tidemark.stop().await.success());
    // After a long outage ingest requests logs only, without receipts.
    node.lag_logs(1_000_000);
    let token = (*usdt.address.bytes()).into();
    let pay = || node.transfer(token, [0x22; 20].into(), evm, U256::from(10_000_000)).unwrap();
    // The first payment fails, but its log stays, as after a time-out on Tron.
    node.fail_transaction(pay());
    let paid = pay().to_string();
    let block = node.head().number + 1;
    for _ in 0..1300 {
        node.mine_at(node.head().timestamp + 3).unwrap();
    }
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    confirmed(&tidemark.client(), &node, block + 2).await;
    assert!(tidemark.stop().await.success());

    node.lag_logs(0);
    node.break_native(Some(NativeFault::FirstOutcomes(0)));
    let (from, to) = (block.to_string(), (block + 2).to_string());
    let found = rescan(dir.path(), &["tron", &from, &to, "--yes"]);
    let summary = "0 transfers are missing, 2 more are not proven";
    assert!(!found.status.success() && text(&found).contains(summary), "{}", text(&found));
    node.break_native(None);
    let found = rescan(dir.path(), &["tron", &from, &to, "--yes"]);
    let summary = "1 transfers are missing, 0 more are not proven";
    assert!(found.status.success() && text(&found).contains(summary), "{}", text(&found));
    assert!(text(&found).contains("written: 1 transfers"), "{}", text(&found));
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    tidemark.client().transfer_with_status(wallet, &paid, "no_matched_deposit").await;
    assert!(tidemark.stop().await.success());
}
