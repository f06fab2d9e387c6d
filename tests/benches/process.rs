//! The built executable at rest: time until healthy, resident memory, CPU use.

use std::time::{Duration, Instant};

use testkit::harness::{Merchant, Tidemark, eventually};
use testkit::measure::{cpu_time, idle_chain, resident_bytes};

const STARTS: usize = 5;
/// Number of polls of the chain in each start, at ten a second.
const POLLS: u64 = 100;

#[tokio::main]
async fn main() {
    let (net, chain) = idle_chain().await;
    let merchant = Merchant::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut starts = Vec::new();
    let (mut resident, mut used, mut idle) = (0, Duration::ZERO, Duration::ZERO);
    for _ in 0..STARTS {
        let node =
            Tidemark::start(dir.path(), std::slice::from_ref(&chain), merchant.url(), "").await;
        starts.push(node.healthy_after);
        let polls = async |more: u64| {
            let count = || net.chain().request_count("eth_getBlockByNumber");
            let wanted = count() + more;
            eventually("ingest to poll", || async { (count() > wanted).then_some(()) }).await;
        };
        polls(20).await;
        let (before, started) = (cpu_time(node.pid()), Instant::now());
        polls(POLLS).await;
        used += cpu_time(node.pid()) - before;
        idle += started.elapsed();
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
    let percent = 100.0 * used.as_secs_f64() / idle.as_secs_f64();
    println!("  CPU, idle             {percent:.1} % of a core, at ten polls a second");
}
