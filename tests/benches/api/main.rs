//! Creates and statuses on the built executable over loopback: requests a second and their latency. The load
//! comes from this process, on the same cores.

mod ceiling;
mod crowd;
mod load;

use std::time::{Duration, Instant};

use testkit::harness::{Merchant, Tidemark};
use testkit::measure::{idle_chain, percentile, rate};

use load::{Load, load, orders};

const DURATION: Duration = Duration::from_secs(8);
const CLIENTS: usize = 64;

fn print(what: &str, clients: usize, times: &[Duration], aim: &str) {
    let at = |part| percentile(times, part).as_micros();
    println!(
        "  {clients:>3} connections: {} {what} a second, p50 {} us, p99 {} us   ({aim})",
        rate(times.len(), DURATION),
        at(50),
        at(99)
    );
}

#[tokio::main]
async fn main() {
    // Each connection of the crowd is a file.
    let _limit = runtime::open_files::raise_limit();
    let (_net, chain) = idle_chain().await;
    let merchant = Merchant::start().await;
    let dir = tempfile::tempdir().unwrap();
    let node = Tidemark::start(dir.path(), &[chain], merchant.url(), "").await;
    println!("HTTP, durable, all stages running, load on the same cores");
    let address = node.address();
    let deadline = || Instant::now() + DURATION;
    let times = load(address, Load::Create, 1, deadline()).await;
    print("creates", 1, &times, "aim 2500; a public peer on PostgreSQL: 2500");
    let times = load(address, Load::Create, CLIENTS, deadline()).await;
    print("creates", CLIENTS, &times, "aim 13000, p99 below 9 ms; the peer: 6700, 15.7 ms");
    let end = deadline();
    let creates = load(address, Load::Create, CLIENTS - 1, end);
    let (times, refused) = tokio::join!(creates, load(address, Load::Wrong, 16, end));
    print("creates", CLIENTS - 1, &times, "beside the next line");
    print("wrong signatures", 16, &refused, "refused");
    let asked = orders(address).await;
    let ceiling = ceiling::serve().await;
    for clients in [1, 16, CLIENTS] {
        let times = load(address, asked.clone(), clients, deadline()).await;
        print("statuses", clients, &times, "aim 30000 with 64");
        let times = load(ceiling, asked.clone(), clients, deadline()).await;
        print(
            "statuses",
            clients,
            &times,
            "the ceiling: axum and the signature alone; aim 70 % of it",
        );
    }
    crowd::run(&node, &merchant).await;
    assert!(node.stop().await.success());
}
