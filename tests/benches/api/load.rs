//! Clients that send one request after another, each with a fresh signature.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::{Clock, SystemClock};
use schemas::{Secret, sign_service};
use serde_json::Value;
use testkit::harness::{ADMIN_SECRET, MERCHANT_SECRET};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Number of orders whose status is requested.
const ASKED: usize = 1000;
/// Orders in one page of a list.
pub(crate) const LISTED: usize = 20;

/// A client's connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("connected");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, buffer: Vec::with_capacity(4096) }
    }

    /// Returns the time from a request to its complete response, whose status must begin with `status`.
    pub(crate) async fn send(&mut self, request: &str, status: &str) -> Duration {
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

    /// The body of the last answer.
    pub(crate) fn json(&self) -> Value {
        let answer = String::from_utf8_lossy(&self.buffer);
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    }
}

/// A request of the service API with a fresh signature.
pub(crate) fn signed(secret: &Secret, path: &str, body: &str) -> String {
    let time = SystemClock.now().seconds();
    let signature = sign_service(secret, time, body.as_bytes());
    format!(
        "POST /api/v1/service{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nService-Signature: {signature}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Request that the clients of a load send.
#[derive(Debug, Clone)]
pub(crate) enum Load {
    Create,
    /// A status request for one of these orders.
    Status(Arc<[String]>),
    /// The operators' list of orders, from this offset on.
    List(usize),
    /// A create with another secret.
    Wrong,
    /// The operators' list with another secret.
    WrongSecret,
}

impl Load {
    /// Expected status code, or its first digit.
    fn status(&self) -> &'static str {
        match self {
            Self::Create => "201",
            Self::Status(_) | Self::List(_) => "200",
            Self::Wrong | Self::WrongSecret => "4", // 401, or 429 where they are many.
        }
    }

    /// The request with this number of a client.
    pub(crate) fn request(&self, name: &str, number: usize) -> String {
        let secret = Secret::new(if matches!(self, Self::Wrong) {
            "not the secret"
        } else {
            MERCHANT_SECRET
        });
        match self {
            Self::Create | Self::Wrong => signed(&secret, "/orders", &create(name, number)),
            Self::Status(orders) => {
                let body = format!(r#"{{"order_id":"{}"}}"#, orders[number % orders.len()]);
                signed(&secret, "/orders/status", &body)
            }
            Self::List(offset) => list(*offset, ADMIN_SECRET),
            Self::WrongSecret => list(0, "not the secret"),
        }
    }

    /// The request with this number of a client, and the time to its answer.
    pub(crate) async fn send(&self, client: &mut Client, name: &str, number: usize) -> Duration {
        client.send(&self.request(name, number), self.status()).await
    }
}

fn list(offset: usize, secret: &str) -> String {
    format!(
        "GET /api/v1/admin/orders?limit={LISTED}&offset={offset} HTTP/1.1\r\nHost: localhost\r\nService-Admin-Authorization: {secret}\r\n\r\n"
    )
}

fn create(name: &str, number: usize) -> String {
    format!(
        r#"{{"order_id":"{name}-{number}","amount":"10.00","webhook_url":"http://127.0.0.1:1/w"}}"#
    )
}

/// Creates orders whose status is requested.
pub(crate) async fn orders(address: SocketAddr) -> Load {
    let mut client = Client::connect(address).await;
    let mut orders = Vec::new();
    for number in 0..ASKED {
        Load::Create.send(&mut client, "asked", number).await;
        orders.push(client.json()["order_id"].as_str().expect("an id").to_owned());
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

/// The sorted response times of clients that send sequential requests until the deadline.
pub(crate) async fn run(
    address: SocketAddr,
    load: Load,
    clients: usize,
    deadline: Instant,
) -> Vec<Duration> {
    let client = |number: usize| {
        let load = load.clone();
        async move {
            let mut client = Client::connect(address).await;
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
