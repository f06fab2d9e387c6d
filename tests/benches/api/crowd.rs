//! Effect of malicious or broken clients: idle connections, dripping headers, wrong secrets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use schemas::Secret;
use serde_json::json;
use testkit::harness::{ADMIN_SECRET, MERCHANT_SECRET, Merchant, eventually};
use testkit::measure::percentile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::load::{self, Client, Load, signed};
use crate::{Shop, duration, print};

const IDLE: usize = 2000;
const DRIPPING: usize = 500;
const WRONG: usize = 16;
/// Interval of header bytes: short enough that the server waits for the rest.
const DRIP: Duration = Duration::from_millis(500);
const CLIENTS: usize = 16;
/// Number of webhooks that are timed.
const WEBHOOKS: usize = 50;

/// A connection that stays idle after one request.
async fn idle(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    let mut answer = [0; 1024];
    assert!(stream.read(&mut answer).await.expect("an answer") > 0);
    stream
}

/// Sends headers without end; connects again when the server closes.
async fn drip(address: SocketAddr) {
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else { continue };
        let mut ticks = tokio::time::interval(DRIP);
        drop(stream.write_all(b"GET /health HTTP/1.1\r\nX-Long: ").await);
        while stream.write_all(b"x").await.is_ok() {
            ticks.tick().await;
        }
    }
}

/// The times from an operator's command to the webhook at its receiver.
async fn webhooks(address: SocketAddr, merchant: &Merchant) -> Vec<Duration> {
    let mut client = Client::connect(address).await;
    let secret = Secret::new(MERCHANT_SECRET);
    let operator = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut times = Vec::new();
    for number in 0..WEBHOOKS {
        let url = merchant.url();
        let body =
            json!({ "order_id": format!("W-{number}"), "amount": "10.00", "webhook_url": url });
        client.send(&signed(&secret, "/orders", &body.to_string()), "201").await;
        let order = client.json();
        let id = order["order_id"].as_str().expect("an id");
        let path = format!("http://{address}/api/v1/admin/orders/{id}/mark-paid");
        let started = Instant::now();
        let marked = operator.post(path).header("Service-Admin-Authorization", ADMIN_SECRET);
        assert_eq!(marked.send().await.expect("an answer").status(), 200);
        let came = eventually("the webhook", || async {
            merchant.with("order_id", &order["order_id"]).first().map(|webhook| webhook.at)
        })
        .await;
        times.push(came.saturating_duration_since(started));
    }
    times.sort_unstable();
    times
}

async fn measure(shop: &Shop, asked: &Load, beside: &str) {
    let (address, merchant) = (shop.node.address(), &shop.merchant);
    let times = load::run(address, Load::Create, CLIENTS, Instant::now() + duration()).await;
    print("creates", CLIENTS, &times, beside);
    let times = load::run(address, asked.clone(), CLIENTS, Instant::now() + duration()).await;
    print("statuses", CLIENTS, &times, beside);
    let times = webhooks(address, merchant).await;
    let at = |part| percentile(&times, part).as_secs_f64() * 1000.0;
    println!(
        "                  mark-paid to webhook, {WEBHOOKS} one by one: p50 {:.0} ms, p99 {:.0} ms   ({beside})",
        at(50),
        at(99)
    );
    shop.payments.run(&shop.node.client(), merchant, beside).await;
}

/// The load alone and beside the crowd.
pub(crate) async fn run(shop: &Shop, asked: &Load) {
    let address = shop.node.address();
    measure(shop, asked, "alone").await;
    let mut kept = Vec::new();
    for _ in 0..IDLE {
        kept.push(idle(address).await);
    }
    let mut crowd = JoinSet::new();
    for _ in 0..DRIPPING {
        crowd.spawn(drip(address));
    }
    for _ in 0..WRONG {
        crowd.spawn(async move {
            let mut client = Client::connect(address).await;
            for number in 0.. {
                Load::Wrong.send(&mut client, "wrong", number).await;
            }
        });
    }
    let beside = format!("beside {IDLE} idle, {DRIPPING} dripping, {WRONG} with wrong secrets");
    measure(shop, asked, &beside).await;
}
