//! The built executable at rest: how soon it is healthy, how much memory it holds.

use std::net::Ipv4Addr;

use devnet::Devnet;
use tests::harness::{Chain, Merchant, Tidemark, eventually};
use tests::measure::resident_bytes;

const STARTS: usize = 5;

#[tokio::main]
async fn main() {
    let config = devnet::Config {
        chain_id: 1,
        genesis_timestamp: 1_800_000_000,
        block_interval_secs: 1,
        finalized_depth: 20,
        safe_depth: 10,
        tokens: Vec::new(),
        seed: 1,
    };
    let net = Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let merchant = Merchant::start().await;
    let wallet = "0x00000000000000000000000000000000DeaDBeef";
    let chain = Chain { blockchain: "eth", rpc: net.url().into(), wallet, more: String::new() };
    let dir = tempfile::tempdir().unwrap();
    let mut starts = Vec::new();
    let mut resident = 0;
    for _ in 0..STARTS {
        let node =
            Tidemark::start(dir.path(), std::slice::from_ref(&chain), merchant.url(), "").await;
        starts.push(node.healthy_after);
        let polled = net.chain().request_count("eth_getBlockByNumber");
        eventually("ingest to look twice more", std::time::Duration::from_secs(20), || async {
            (net.chain().request_count("eth_getBlockByNumber") > polled + 20).then_some(())
        })
        .await;
        resident = resident_bytes(node.pid());
        assert!(node.stop().await.success());
    }
    starts.sort_unstable();
    println!("process, all stages, one idle chain");
    println!(
        "  healthy after         {} ms, median of {STARTS} starts (aim 300)",
        starts[STARTS / 2].as_millis()
    );
    println!("  resident memory, idle {} MiB (aim 40)", resident / 1024 / 1024);
}
