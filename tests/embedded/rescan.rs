//! `tidemark rescan` finds transfers omitted from confirmed blocks by the endpoint, proves them, and publishes each
//! once.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use alloy_primitives::U256;
use devnet::{Chain as Node, Devnet, NativeFault};
use schemas::Blockchain;
use testkit::faults::{NodeState, Proxy, invented};
use testkit::harness::{
    Chain, Client, Tidemark, USDT, WALLET, WEBHOOK, evm_node, exits, mining_until, pay_order,
    tron_address, tron_chain, usdt_of,
};

/// Runs `tidemark rescan`, which must exit with this code; returns its output.
#[track_caller]
fn rescan(dir: &Path, arguments: &[&str], code: i32) -> String {
    exits(dir, &[&["rescan"], arguments].concat(), code)
}

/// Mines until a block is confirmed.
async fn confirmed(client: &Client, node: &Node, number: u64) {
    mining_until("the block to be confirmed", node, async || {
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
    let node = devnet.chain();
    let chains = [Chain::at("eth", devnet.url(), WALLET, &rules())];
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    let client = tidemark.client();
    let order = client.order("A-1", "10.00", "eth", WEBHOOK).await;
    client.deposit(&order).await;

    // The node's logs lag beyond any check, and no receipts show the transfer.
    node.lag_logs(1_000_000);
    node.refuse_block_receipts();
    pay_order(&client, &node, &order).await;
    let paid_in = node.head().number + 1;
    confirmed(&client, &node, paid_in + 5).await;
    let (from, to) = (paid_in.to_string(), (paid_in + 5).to_string());
    let blocks = ["eth", &from, &to, "--yes"];
    // The running process has the embedded log open.
    rescan(dir.path(), &blocks, 1);
    assert!(tidemark.stop().await.success());

    let nothing = rescan(dir.path(), &blocks, 0);
    assert!(nothing.contains("0 transfers are missing"), "{nothing}");
    node.clear_faults();
    let asked = rescan(dir.path(), &blocks[..3], 1);
    assert!(asked.contains("nothing was written"), "{asked}");
    let found = rescan(dir.path(), &blocks, 0);
    assert!(found.contains("written: 1 transfers"), "{found}");
    let again = rescan(dir.path(), &blocks, 0);
    assert!(again.contains("0 transfers are missing, 0 more"), "{again}");

    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    let client = tidemark.client();
    client.order_with_status(&order, "paid").await;
    let list = client.admin(&format!("/wallets/{WALLET}/transfers")).await.unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert!(tidemark.stop().await.success());
}

/// A transfer of one endpoint is not published, even while the other is down: a single endpoint would be trusted then.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_endpoint_invents_is_not_published() {
    let (dir, devnet) = (tempfile::tempdir().unwrap(), node().await);
    let (node, node_state) = (devnet.chain(), Arc::new(NodeState::of(devnet.url())));
    let liar = Proxy::start(node_state, None).await;
    let rpc = format!("{},{}", liar.url(), devnet.url());
    let chains = [Chain::at("eth", &rpc, WALLET, &rules())];
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    let block = node.head().number + 1;
    confirmed(&tidemark.client(), &node, block + 5).await;
    assert!(tidemark.stop().await.success());

    let hash = node.block(block).unwrap().hash.to_string();
    let parties = [USDT, "0x2222222222222222222222222222222222222222", WALLET];
    let log = invented((block, &hash), &format!("0x{:064x}", 7), parties, 10_000_000);
    liar.behaviour().invents.push((log, true));
    let (from, to) = (block.to_string(), (block + 5).to_string());
    let found = rescan(dir.path(), &["eth", &from, &to, "--yes"], 1);
    let summary = "asked of 2 endpoints; 0 transfers are missing, 1 more are not proven";
    assert!(found.contains(summary), "{found}");
    assert!(found.contains("NOT PROVEN and not published"), "{found}");

    let config = dir.path().join("tidemark.toml");
    let without = fs::read_to_string(&config).unwrap().replace(devnet.url(), "http://127.0.0.1:9");
    fs::write(&config, without).unwrap();
    let alone = rescan(dir.path(), &["eth", &from, &to, "--yes"], 1);
    let summary = "asked of 1 endpoints; 0 transfers are missing, 1 more are not proven";
    assert!(alone.contains(summary), "{alone}");
}

/// The node's own interface proves which final transactions succeeded.
#[tokio::test(flavor = "multi_thread")]
async fn on_tron_its_own_interface_proves_what_was_missing() {
    let (usdt, node) = (usdt_of(Blockchain::Tron), tron_chain(60));
    let devnet = Devnet::serve_tron(node.clone(), (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let evm: alloy_primitives::Address = WALLET.parse().unwrap();
    let wallet = tron_address(WALLET).leak();
    let dir = tempfile::tempdir().unwrap();
    let chains = [Chain::at("tron", devnet.url(), wallet, "")];
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
    let blocks = ["tron", &from, &to, "--yes"];
    let found = rescan(dir.path(), &blocks, 1);
    assert!(found.contains("0 transfers are missing, 2 more are not proven"), "{found}");
    node.break_native(None);
    let found = rescan(dir.path(), &blocks, 0);
    assert!(found.contains("1 transfers are missing, 0 more are not proven"), "{found}");
    assert!(found.contains("written: 1 transfers"), "{found}");
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    tidemark.client().transfer_with_status(wallet, &paid, "no_matched_deposit").await;
    assert!(tidemark.stop().await.success());
}
