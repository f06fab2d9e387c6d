//! `tidemark rescan`: what the endpoint left out of confirmed blocks is found, proven, and published once.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use alloy_primitives::U256;
use devnet::{Chain as Node, Devnet};
use serde_json::{Value, json};
use testkit::harness::{Chain, Client, Tidemark, USDT, eventually, executable, now, units, usdt};

const WEBHOOK: &str = "http://127.0.0.1:9/hooks";
const WALLET: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

fn rescan(dir: &Path, arguments: &[&str]) -> Output {
    let config = dir.join("tidemark.toml");
    let config = ["--config", config.to_str().unwrap()];
    Command::new(executable()).arg("rescan").args(arguments).args(config).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap()
}

/// Mines until a block is confirmed.
async fn confirmed(client: &Client, node: &Node, number: u64) {
    eventually("the block to be confirmed", || async {
        node.mine_at(now().unsigned_abs().max(node.head().timestamp + 1)).unwrap();
        let health = client.admin("/health?verbose=1").await.ok()?;
        (health["chains"][0]["confirmed"].as_u64()? >= number).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_out_is_published_once_and_pays() {
    let dir = tempfile::tempdir().unwrap();
    let config = devnet::Config {
        genesis_timestamp: now().unsigned_abs() - 600,
        block_interval_secs: 1,
        chain_id: 1,
        tokens: vec![usdt()],
        ..devnet::Config::default()
    };
    let devnet = Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let node = devnet.chain();
    node.mine(60).unwrap();
    let tokens = format!("tokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6 }}]\n");
    let more = format!("{tokens}confirmations = 3\nreorg_window = 8\n");
    let chains = [Chain { blockchain: "eth", rpc: devnet.url().to_owned(), wallet: WALLET, more }];
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, "").await;
    let client = tidemark.client();
    let order = client.create("A-1", "10.00", "eth", WEBHOOK).await;
    let order = order["order_id"].as_str().unwrap().to_owned();
    let deposit = client.deposit(&order).await;
    let units = units(&deposit["value"]);

    // Its logs trail by more than any check.
    node.lag_logs(1_000_000);
    let (token, to) = (USDT.parse().unwrap(), WALLET.parse().unwrap());
    node.transfer(token, [0x22; 20].into(), to, U256::from(units)).unwrap();
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
