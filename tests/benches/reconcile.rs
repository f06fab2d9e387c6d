//! `tidemark reconcile` of a day with many transfers, beside a node on this machine. The first numeric argument is
//! their number.

use std::process::Command;
use std::time::{Duration, Instant};

use alloy_primitives::U256;
use devnet::Chain as Node;
use serde_json::{Value, json};
use testkit::Pace;
use testkit::harness::{Chain, Merchant, Tidemark, USDT, eventually, evm_node, executable, now};
use testkit::measure::rate;

const TRANSFERS: usize = 100_000;
const BLOCK_TRANSFERS: usize = 250;
const WALLET: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
/// Age of the chain's first block, in seconds: room for a block a second.
const AGE_SECONDS: u64 = 6000;

fn pay(node: &Node, transfers: usize) {
    let (token, wallet) = (USDT.parse().expect("a contract"), WALLET.parse().expect("a wallet"));
    for number in 0..transfers {
        let units = U256::from(1_000_000 + number);
        node.transfer(token, [0x22; 20].into(), wallet, units).expect("a transfer");
        if number % BLOCK_TRANSFERS == BLOCK_TRANSFERS - 1 {
            node.mine(1).expect("a block");
        }
    }
    node.mine_at(now().unsigned_abs()).expect("a block");
}

/// Balance by the node, in units.
async fn balance(url: &str) -> U256 {
    let data = format!("0x70a08231{:0>64}", WALLET.trim_start_matches("0x"));
    let call = json!([{ "to": USDT, "data": data }, "latest"]);
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": call });
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let sent = client.post(url).body(request.to_string());
    let answer = sent.header("content-type", "application/json").send().await.expect("an answer");
    let answer: Value = serde_json::from_str(&answer.text().await.expect("text")).expect("JSON");
    answer["result"].as_str().expect("a balance").parse().expect("a number")
}

/// Number of received transfers in the statement, and the last closing balance in the smallest unit.
fn received(report: &Value) -> Option<(u64, U256)> {
    let days = report["statement"].as_array()?;
    let parts = ["matched", "unknown", "other"];
    let counts = days.iter().flat_map(|day| parts.map(|part| day[part]["count"].as_u64()));
    let closing = days.last()?["closing"].as_str()?;
    let (whole, part) = closing.split_once('.')?;
    let units = format!("{whole}{part:0<6}").parse().ok()?;
    Some((counts.flatten().sum(), units))
}

#[tokio::main]
async fn main() {
    let transfers = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let transfers = transfers.unwrap_or(TRANSFERS);
    let dir = tempfile::tempdir().expect("a folder");
    let (devnet, merchant) = (evm_node(1, AGE_SECONDS, 60).await, Merchant::start().await);
    let more = format!(
        "tokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6 }}]\nconfirmations = 3\n"
    );
    let chain = Chain { blockchain: "eth", rpc: devnet.url().to_owned(), wallet: WALLET, more };
    let window = "[matching]\nmatch_window = \"5s\"\n";
    // Not `start`: no deposit is offered on blocks this old, and none is needed.
    let mut tidemark = Tidemark::spawn(dir.path(), &[chain], merchant.url(), window, &[]);
    tidemark.healthy().await;
    let (config, wanted) =
        (dir.path().join("tidemark.toml"), u64::try_from(transfers).expect("small"));
    eventually("the chain to be followed", || async {
        let mut command = Command::new(executable());
        let output = command.args(["chain", "status", "--json", "--config"]).arg(&config).output();
        let status: Value = serde_json::from_slice(&output.expect("it runs").stdout).ok()?;
        status[0]["scanned"].as_i64()
    })
    .await;
    let (from, node) = ((now() - 86_400 / 2).to_string(), devnet.chain());
    pay(&node, transfers);
    let pace = Pace::of(Duration::from_secs(2));
    let (begun, settled) = (Instant::now(), merchant.count());
    for part in (0..=transfers).step_by(1000).chain([transfers]) {
        eventually("the webhooks of the transfers", || async {
            if pace.is_due() {
                node.mine_at(node.head().timestamp + 20).expect("a block");
            }
            (merchant.count() >= settled + part).then_some(())
        })
        .await;
    }
    println!("reconcile of {transfers} transfers, ready after {:.1?}", begun.elapsed());
    let (elapsed, (_, closing)) = eventually("the day to agree", || async {
        let to = (now() + 7200).to_string();
        let begun = Instant::now();
        let mut command = Command::new(executable());
        command
            .args(["reconcile", "--json", "--from", &from, "--to", &to, "--config"])
            .arg(&config);
        let output = command.output().expect("it runs");
        let elapsed = begun.elapsed();
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let found = received(&report).filter(|(count, _)| *count == wanted);
        found.filter(|_| output.status.success()).map(|found| (elapsed, found))
    })
    .await;
    assert_eq!(closing, balance(devnet.url()).await, "the balance at the node");
    let rate = rate(transfers, elapsed);
    println!(
        "  {elapsed:.1?} (aim 60 s), {rate} transfers a second; the balance is that of the node"
    );
    assert!(tidemark.stop().await.success());
}
