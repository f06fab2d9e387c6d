//! The built executable at rest: how soon it is healthy, how much memory it holds.

use testkit::harness::{Merchant, Tidemark, eventually};
use testkit::measure::{idle_chain, resident_bytes};

const STARTS: usize = 5;

#[tokio::main]
async fn main() {
    let (net, chain) = idle_chain().await;
    let merchant = Merchant::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut starts = Vec::new();
    let mut resident = 0;
    for _ in 0..STARTS {
        let node =
            Tidemark::start(dir.path(), std::slice::from_ref(&chain), merchant.url(), "").await;
        starts.push(node.healthy_after);
        let polled = net.chain().request_count("eth_getBlockByNumber");
        eventually("ingest to poll twice more", || async {
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
