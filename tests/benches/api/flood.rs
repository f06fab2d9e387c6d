//! Cost of hostile clients: wrong signatures and secrets from the first second on, unfinished bodies, idle connections,
//! requests for documents.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::harness::Tidemark;
use testkit::measure::{percentile, resident_bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::load::{Client, Load};

/// Requests of each kind a second.
const FLOOD: u32 = 2000;
/// Wrong requests get a response only after 50 ms, so too few connections would limit the flood.
const CONNECTIONS: u32 = 200;
/// Requests of the shop and of its operator, one after the other.
const REQUESTS: usize = 400;
const PACE: Duration = Duration::from_millis(20);
const HALF_SENT: usize = 1000;
const IDLE: usize = 10_000;
/// `server.max_connections`: more are refused.
pub(crate) const CONNECTIONS_MAX: usize = 10_500;
const DOCUMENTS: usize = 100_000;
const READERS: usize = 64;

/// Response times of a load at a steady pace; panics at an unexpected status.
async fn paced(address: SocketAddr, load: Load, name: &str) -> Vec<Duration> {
    let mut client = Client::connect(address).await;
    let mut ticks = tokio::time::interval(PACE);
    let mut times = Vec::with_capacity(REQUESTS);
    for number in 0..REQUESTS {
        ticks.tick().await;
        times.push(load.send(&mut client, name, number).await);
    }
    times.sort_unstable();
    times
}

async fn measure(node: &Tidemark, beside: &str) {
    let address = node.address();
    let name = format!("{}-{beside}", node.pid());
    let creates = paced(address, Load::Create, &name).await;
    let lists = paced(address, Load::List(0), &name).await;
    for (what, times) in [("creates", creates), ("lists", lists)] {
        let at = |part| percentile(&times, part).as_micros();
        println!(
            "  {REQUESTS} {what}, none refused: p50 {} us, p90 {} us, p99 {} us   ({beside})",
            at(50),
            at(90),
            at(99)
        );
    }
    println!("                  resident memory {} MiB", resident_bytes(node.pid()) / 1024 / 1024);
}

/// Sends wrong requests of both kinds until the tasks are dropped, and counts the answers.
fn flood(address: SocketAddr) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let answered = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for load in [Load::Wrong, Load::WrongSecret] {
        let period = Duration::from_secs(1) * CONNECTIONS / FLOOD;
        for connection in 0..CONNECTIONS {
            let (load, answered) = (load.clone(), answered.clone());
            // Evenly over the period: not all connections at once.
            let first = tokio::time::Instant::now() + period * connection / CONNECTIONS;
            tasks.spawn(async move {
                let mut client = Client::connect(address).await;
                let mut ticks = tokio::time::interval_at(first, period);
                for number in 0.. {
                    ticks.tick().await;
                    load.send(&mut client, "wrong", number).await;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    (tasks, answered)
}

/// Sends a create with an invalid signature and only half of its body.
async fn half_sent(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let head = "POST /api/v1/service/orders HTTP/1.1\r\nHost: localhost\r\nService-Signature: 1.AAAA\r\n\
                Content-Length: 131072\r\n\r\n";
    let request = [head.as_bytes(), &[b'x'; 65_536]].concat();
    // Fails if the server has evicted this body for a later one and closed the connection.
    drop(stream.write_all(&request).await);
    stream
}

/// Requests documents; returns the number sent and the number of refused requests.
async fn documents(address: SocketAddr) -> (usize, usize) {
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        readers.spawn(async move {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            let (mut sent, mut refused) = (0, 0);
            let mut buffer = vec![0; 1 << 18];
            for _ in 0..DOCUMENTS / READERS {
                let request = "GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
                stream.write_all(request.as_bytes()).await.expect("sent");
                let read = stream.read(&mut buffer).await.expect("an answer");
                let head = String::from_utf8_lossy(&buffer[..read]).into_owned();
                let (head, _) = head.split_once("\r\n\r\n").expect("a head");
                let is_sent = head.starts_with("HTTP/1.1 200");
                assert!(is_sent || head.starts_with("HTTP/1.1 429"), "{head}");
                (sent, refused) = (sent + usize::from(is_sent), refused + usize::from(!is_sent));
                let lower = head.to_ascii_lowercase();
                let (_, length) = lower.split_once("content-length: ").expect("a length");
                let length: usize = length.lines().next().and_then(|l| l.parse().ok()).expect("n");
                let mut rest = head.len() + 4 + length - read;
                while rest > 0 {
                    rest -= stream.read(&mut buffer).await.expect("the rest");
                }
            }
            (sent, refused)
        });
    }
    let mut all = (0, 0);
    while let Some(counts) = readers.join_next().await {
        let (sent, refused) = counts.expect("a reader");
        all = (all.0 + sent, all.1 + refused);
    }
    all
}

/// Number of idle connections. Together with the others they may be half as many as a process may open files.
pub(crate) fn idle(open_files: Option<u64>) -> usize {
    let half = open_files.and_then(|limit| usize::try_from(limit / 2).ok()).unwrap_or(usize::MAX);
    IDLE.min(half.saturating_sub(CONNECTIONS_MAX - IDLE))
}

/// Measures creates and lists alone, beside the flood, and beside each of the other hostile clients.
pub(crate) async fn run(alone: Tidemark, flooded: Tidemark, idle: usize) {
    measure(&alone, "alone").await;
    let started = Instant::now();
    let (tasks, answered) = flood(flooded.address());
    measure(
        &flooded,
        &format!("beside {FLOOD} wrong signatures and {FLOOD} wrong secrets a second"),
    )
    .await;
    let rate = answered.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    println!("                  {rate:.0} wrong requests answered a second");
    // The part of the difference that is due to the machine: its processors carry the flood, too.
    measure(&alone, "alone, while the flood is at the other process").await;
    drop(tasks);
    let address = alone.address();
    let mut kept = Vec::new();
    for _ in 0..HALF_SENT {
        kept.push(half_sent(address).await);
    }
    measure(&alone, &format!("beside {HALF_SENT} half-sent bodies")).await;
    kept.clear();
    for _ in 0..idle {
        kept.push(TcpStream::connect(address).await.expect("connected"));
    }
    measure(&alone, &format!("beside {idle} idle connections")).await;
    drop(kept);
    let started = Instant::now();
    let ((sent, refused), ()) =
        tokio::join!(documents(address), measure(&alone, "beside requests for documents"));
    println!(
        "  {sent} documents in {:.0} s, {refused} more requests refused; resident memory {} MiB",
        started.elapsed().as_secs_f64(),
        resident_bytes(alone.pid()) / 1024 / 1024
    );
    assert!(alone.stop().await.success() && flooded.stop().await.success());
}
