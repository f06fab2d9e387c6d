//! Clients that send one request after another, each with a fresh signature.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::{Clock, SystemClock};
use schemas::{Secret, sign_service};
use testkit::harness::MERCHANT_SECRET;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Orders whose status is asked for.
const ASKED: usize = 1000;

/// A client's connection.
pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) buffer: Vec<u8>,
    secret: Secret,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, secret: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("connected");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, buffer: Vec::with_capacity(4096), secret: Secret::new(secret) }
    }

    /// One request with a fresh signature, and the time to its complete answer, which is `status`.
    pub(crate) async fn send(&mut self, path: &str, body: &str, status: &str) -> Duration {
        let time = SystemClock.now().seconds();
        let signature = sign_service(&self.secret, time, body.as_bytes());
        let request = format!(
            "POST /api/v1/service{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nService-Signature: {signature}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let started = Instant::now();
        self.stream.write_all(request.as_bytes()).await.expect("sent");
        self.buffer.clear();
        while !is_complete(&self.buffer) {
            let read = self.stream.read_buf(&mut self.buffer).await.expect("an answer");
            assert!(read > 0, "the connection was closed");
        }
        let time = started.elapsed();
        let answer = String::from_utf8_lossy(&self.buffer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        time
    }
}

/// What the clients of a load send.
#[derive(Debug, Clone)]
pub(crate) enum Load {
    Create,
    /// Of these orders.
    Status(Arc<[String]>),
    /// A create with another secret.
    Wrong,
}

impl Load {
    pub(crate) fn secret(&self) -> &'static str {
        match self {
            Self::Create | Self::Status(_) => MERCHANT_SECRET,
            Self::Wrong => "not the secret",
        }
    }

    /// The request with this number of a client.
    pub(crate) async fn send(&self, client: &mut Client, name: &str, number: usize) -> Duration {
        match self {
            Self::Create => client.send("/orders", &create(name, number), "201").await,
            Self::Wrong => client.send("/orders", &create(name, number), "401").await,
            Self::Status(orders) => {
                let body = format!(r#"{{"order_id":"{}"}}"#, orders[number % orders.len()]);
                client.send("/orders/status", &body, "200").await
            }
        }
    }
}

fn create(name: &str, number: usize) -> String {
    format!(
        r#"{{"order_id":"{name}-{number}","amount":"10.00","webhook_url":"http://127.0.0.1:1/w"}}"#
    )
}

/// Creates orders whose status is asked for.
pub(crate) async fn orders(address: SocketAddr) -> Load {
    let mut client = Client::connect(address, MERCHANT_SECRET).await;
    let mut orders = Vec::new();
    for number in 0..ASKED {
        client.send("/orders", &create("asked", number), "201").await;
        let answer = String::from_utf8_lossy(&client.buffer);
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let order: serde_json::Value = serde_json::from_str(body).expect("JSON");
        orders.push(order["order_id"].as_str().expect("an id").to_owned());
    }
    Load::Status(orders.into())
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

/// The times of all answers, in order, to clients that send one request after another until the deadline.
pub(crate) async fn load(
    address: SocketAddr,
    load: Load,
    clients: usize,
    deadline: Instant,
) -> Vec<Duration> {
    let client = |number: usize| {
        let load = load.clone();
        async move {
            let mut client = Client::connect(address, load.secret()).await;
            let (name, mut times) = (format!("{clients}-{number}"), Vec::new());
            while Instant::now() < deadline {
                times.push(load.send(&mut client, &name, times.len()).await);
            }
            times
        }
    };
    let tasks: Vec<_> = (0..clients).map(|number| tokio::spawn(client(number))).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a client"));
    }
    times.sort_unstable();
    times
}
