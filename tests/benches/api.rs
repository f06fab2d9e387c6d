//! POST /orders on the built executable over loopback: requests a second and their latency. The load
//! comes from this process, on the same cores.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use runtime::{Clock, SystemClock};
use schemas::{Secret, sign_service};
use testkit::harness::{MERCHANT_SECRET, Merchant, Tidemark};
use testkit::measure::{idle_chain, rate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DURATION: Duration = Duration::from_secs(8);

/// One request with a fresh body and signature, and the time to its complete answer.
async fn create(stream: &mut TcpStream, buffer: &mut Vec<u8>, reference: &str) -> Duration {
    let body = format!(
        r#"{{"order_id":"{reference}","amount":"10.00","webhook_url":"http://127.0.0.1:1/w"}}"#
    );
    let time = SystemClock.now().seconds();
    let signature = sign_service(&Secret::new(MERCHANT_SECRET), time, body.as_bytes());
    let request = format!(
        "POST /api/v1/service/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nService-Signature: {signature}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let started = Instant::now();
    stream.write_all(request.as_bytes()).await.expect("sent");
    buffer.clear();
    while !is_complete(buffer) {
        let read = stream.read_buf(buffer).await.expect("an answer");
        assert!(read > 0, "the connection was closed");
    }
    let time = started.elapsed();
    assert!(buffer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(buffer));
    time
}

fn is_complete(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.is_some_and(|length| body.len() >= length)
}

async fn load(address: SocketAddr, connections: usize, round: &str) {
    let deadline = Instant::now() + DURATION;
    let client = |number: usize| async move {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.set_nodelay(true).expect("no delay");
        let (mut times, mut buffer) = (Vec::new(), Vec::with_capacity(4096));
        while Instant::now() < deadline {
            let reference = format!("{number}-{}", times.len());
            times.push(create(&mut stream, &mut buffer, &reference).await);
        }
        times
    };
    let started = Instant::now();
    let tasks: Vec<_> = (0..connections).map(|number| tokio::spawn(client(number))).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a client"));
    }
    let elapsed = started.elapsed();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    println!(
        "  {connections:>3} connections: {} creates a second, p50 {} us, p99 {} us{round}",
        rate(times.len(), elapsed),
        at(50),
        at(99)
    );
}

#[tokio::main]
async fn main() {
    let (_net, chain) = idle_chain().await;
    let merchant = Merchant::start().await;
    let dir = tempfile::tempdir().unwrap();
    let node = Tidemark::start(dir.path(), &[chain], merchant.url(), "").await;
    println!("create order over HTTP, durable, all stages running, load on the same cores");
    load(node.address(), 1, "   (a public peer on PostgreSQL: 2500 a second)").await;
    load(node.address(), 64, "   (aim 10000, p99 below 10 ms; the peer: 6700, 15.7 ms)").await;
    assert!(node.stop().await.success());
}
