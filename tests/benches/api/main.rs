//! Creates, statuses and lists on the built executable over loopback: requests a second and their latency. The load
//! comes from this process, and from wrk where it is installed, on the same cores.

mod ceiling;
mod crowd;
mod flood;
mod load;
mod payments;
mod wrk;

use std::net::SocketAddr;
use std::slice::from_ref;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::harness::{Merchant, Tidemark};
use testkit::measure::{cpu_time, final_chain, percent, percentile, rate};

use load::{Client, LISTED, Load, orders};
use payments::Payments;
use wrk::Wrk;

const SECONDS: usize = 8;
const CLIENTS: usize = 64;
const CONNECTIONS: [usize; 3] = [1, 16, CLIENTS];
const CEILING: &str = "the ceiling: axum and authorization alone";

/// Duration of each load.
fn duration() -> Duration {
    Duration::from_secs((SECONDS * percent() / 100).max(1) as u64)
}

fn print(what: &str, clients: usize, times: &[Duration], aim: &str) {
    let at = |part| percentile(times, part).as_micros();
    println!(
        "  {clients:>3} connections: {} {what} a second, p50 {} us, p99 {} us   ({aim})",
        rate(times.len(), duration()),
        at(50),
        at(99)
    );
}

/// Parts to measure; all of them, unless the arguments name some.
const PARTS: [&str; 5] = ["creates", "statuses", "lists", "crowd", "flood"];
/// Maximum offset of a list.
const OFFSET_MAX: usize = 100_000;

/// The executable with all stages, and what it serves.
struct Shop {
    node: Tidemark,
    merchant: Merchant,
    payments: Payments,
    wrk: Option<Wrk>,
}

impl Shop {
    /// Response of a list of orders.
    async fn listed(&self) -> String {
        let mut client = Client::connect(self.node.address()).await;
        Load::List(0).send(&mut client, "", 0).await;
        client.json().to_string()
    }

    /// Runs wrk, if there is one.
    async fn wrk(&self, address: SocketAddr, load: (&str, &Load), clients: usize, note: &str) {
        if let Some(wrk) = &self.wrk {
            wrk.run(address, load, clients, note).await;
        }
    }

    /// Runs our own load and wrk, one after the other, against the service and the ceiling.
    async fn beside_ceiling(&self, ceiling: SocketAddr, (what, load): (&str, &Load), aim: &str) {
        let address = self.node.address();
        for clients in CONNECTIONS {
            let (end, used) = (|| Instant::now() + duration(), || cpu_time(self.node.pid()));
            let before = used();
            let times = load::run(address, load.clone(), clients, end()).await;
            let cpu = (used() - before).as_secs_f64() * 1e6 / times.len().max(1) as f64;
            print(what, clients, &times, &format!("{aim}; {cpu:.1} us of CPU each"));
            let bare = load::run(ceiling, load.clone(), clients, end()).await;
            print(what, clients, &bare, CEILING);
            println!(
                "                  {} % of the ceiling",
                times.len() * 100 / bare.len().max(1)
            );
            for (address, note) in [(address, aim), (ceiling, CEILING)] {
                self.wrk(address, (what, load), clients, note).await;
            }
        }
    }

    async fn creates(&self, ceiling: SocketAddr) {
        let (address, deadline) = (self.node.address(), || Instant::now() + duration());
        let times = load::run(address, Load::Create, 1, deadline()).await;
        print("creates", 1, &times, "aim 2500; a public peer on PostgreSQL: 2500");
        let times = load::run(address, Load::Create, CLIENTS, deadline()).await;
        print("creates", CLIENTS, &times, "aim 13000, p99 below 9 ms; the peer: 6700, 15.7 ms");
        let end = deadline();
        let creates = load::run(address, Load::Create, CLIENTS - 1, end);
        let (times, refused) = tokio::join!(creates, load::run(address, Load::Wrong, 16, end));
        print("creates", CLIENTS - 1, &times, "beside the next line");
        print("wrong signatures", 16, &refused, "refused");
        for clients in CONNECTIONS {
            for (address, note) in [(address, "durable"), (ceiling, CEILING)] {
                self.wrk(address, ("creates", &Load::Create), clients, note).await;
            }
        }
    }

    async fn lists(&self, ceiling: SocketAddr) {
        let mut client = Client::connect(self.node.address()).await;
        loop {
            Load::List(OFFSET_MAX).send(&mut client, "", 0).await;
            if client.json().as_array().is_some_and(|orders| orders.len() == LISTED) {
                break;
            }
            let end = Instant::now() + Duration::from_secs(1);
            load::run(self.node.address(), Load::Create, CLIENTS, end).await;
        }
        for offset in [0, OFFSET_MAX] {
            let what = format!("lists of orders from {offset} on");
            let aim = if offset == 0 { "20 orders" } else { "20 orders; aim 5 ms alone" };
            self.beside_ceiling(ceiling, (&what, &Load::List(offset)), aim).await;
        }
    }
}

#[tokio::main]
async fn main() {
    // Each connection of the crowd is an open file.
    let open_files = runtime::open_files::raise_limit();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_named = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_wanted = |name: &str| is_named(name) || !PARTS.iter().any(|name| is_named(name));
    let (net, chain) = final_chain().await;
    let merchant = Merchant::start().await;
    let dir = tempfile::tempdir().unwrap();
    println!("HTTP, durable, all stages running, load on the same cores");
    let wrk = Wrk::find(dir.path()).await;
    let payments = Payments { chain: net.chain(), wallet: chain.wallet };
    let node = Tidemark::start(dir.path(), from_ref(&chain), merchant.url(), "").await;
    let asked = orders(node.address()).await;
    let shop = Shop { node, merchant, payments, wrk };
    let ceiling = ceiling::serve(shop.listed().await).await;
    if is_wanted("creates") {
        shop.creates(ceiling).await;
    }
    if is_wanted("statuses") {
        shop.beside_ceiling(ceiling, ("statuses", &asked), "aim 70 % of the ceiling").await;
    }
    if is_wanted("lists") {
        shop.lists(ceiling).await;
    }
    if is_wanted("crowd") {
        crowd::run(&shop, &asked).await;
    }
    if is_wanted("flood") {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let variables = [("TIDEMARK__SERVER__MAX_CONNECTIONS", flood::CONNECTIONS_MAX.to_string())];
        let start = async |dir: &TempDir| {
            let (chains, url) = (from_ref(&chain), shop.merchant.url());
            let mut node = Tidemark::spawn(dir.path(), chains, url, "", &variables);
            node.healthy().await;
            node.client().offers(&[chain.blockchain]).await;
            node
        };
        let idle = flood::idle(open_files);
        flood::run(start(&dirs[0]).await, start(&dirs[1]).await, idle).await;
    }
    assert!(shop.node.stop().await.success());
}
