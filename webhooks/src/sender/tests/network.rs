//! The sender under faults: names that fail or change, dropped packets, a proxy, no files left.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use reqwest::Proxy;
use rustix::process::{Resource, getrlimit};
use schemas::parse_network;
use testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{config, counting, listen, sender, sender_of, serve, to};
use crate::guard::NotResolved;
use crate::sender::*;

const SOME_TIME: Duration = Duration::from_secs(10);

/// Finds addresses by `lookup` alone; 127.0.0.1 is the one private address that may be called.
fn resolving(
    lookup: impl Fn(&str) -> Result<Vec<SocketAddr>, NotResolved> + Send + Sync + 'static,
    timeout: Duration,
) -> Sender {
    let network = parse_network("127.0.0.1/32").unwrap();
    let receivers = ReceiverPolicy::new(Vec::new(), vec![network]);
    let config = Config { receivers: receivers.clone(), ..config(timeout, false) };
    let mut resolver = GuardedResolver::asking(receivers, timeout / 2, Arc::new(lookup));
    resolver.fresh_for = Duration::ZERO;
    let sender = sender_of(&config);
    let client = client(&config).dns_resolver(Arc::new(resolver)).build().unwrap();
    Sender { client, ..sender }
}

fn address(last: u8) -> SocketAddr {
    ([127, 0, 0, last], 0).into()
}

#[tokio::test]
async fn name_that_flips_to_a_private_address_is_refused() {
    let (port, calls) = counting().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let sender = resolving(
        move |_| Ok(vec![address(if count.fetch_add(1, Ordering::SeqCst) == 0 { 1 } else { 2 })]),
        SOME_TIME,
    );
    let delivery = to(format!("http://shop.example:{port}/"));
    assert_eq!(sender.send(&delivery).await.outcome, AttemptOutcome::Delivered);
    // The old answer is used until the new one is there.
    let reached = AtomicUsize::new(1);
    let outcome = eventually("an attempt that is not delivered", async || {
        let outcome = sender.send(&delivery).await.outcome;
        if outcome != AttemptOutcome::Delivered {
            return Some(outcome);
        }
        reached.fetch_add(1, Ordering::SeqCst);
        None
    });
    assert_eq!(outcome.await, AttemptOutcome::Forbidden);
    let reached = reached.load(Ordering::SeqCst);
    assert_eq!(calls.load(Ordering::SeqCst), reached, "the second address was never called");
}

#[tokio::test]
async fn dead_resolver_costs_no_attempt() {
    let (port, _) = counting().await;
    let lookup = |name: &str| match name {
        "shop.example" => Ok(vec![address(1)]),
        "private.example" => Ok(vec![address(2)]),
        "none.example" => Err(NotResolved::Unknown("no such name".to_owned())),
        _ => Err(NotResolved::Unanswered("no answer".to_owned())),
    };
    let sender = resolving(lookup, SOME_TIME);
    let outcome = async |name| sender.send(&to(format!("http://{name}:{port}/"))).await.outcome;
    assert_eq!(outcome("dead.example").await, AttemptOutcome::Local);
    assert_eq!(outcome("none.example").await, AttemptOutcome::Connect);
    assert_eq!(outcome("private.example").await, AttemptOutcome::Forbidden);
    assert_eq!(outcome("shop.example").await, AttemptOutcome::Delivered);
    assert_eq!(outcome("dead.example").await, AttemptOutcome::Connect, "ours works");
}

#[tokio::test]
async fn slow_resolver_costs_no_attempt() {
    let (port, _) = counting().await;
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let lookup = move |_: &str| {
        let _ = gate.lock().unwrap().recv();
        Ok(vec![address(1)])
    };
    let sender = resolving(lookup, Duration::from_millis(500));
    let delivery = to(format!("http://shop.example:{port}/"));
    assert_eq!(sender.send(&delivery).await.outcome, AttemptOutcome::Local);
    drop(go);
    let delivered = async || {
        let outcome = sender.send(&delivery).await.outcome;
        (outcome == AttemptOutcome::Delivered).then_some(())
    };
    eventually("the delivery", delivered).await;
}

/// A listener with a full backlog: the system drops SYN packets.
#[tokio::test]
async fn a_network_that_swallows_is_a_failure_to_connect() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let _first = TcpStream::connect(address).await.unwrap();
    let sender = sender(Duration::from_millis(500), true);
    let answer = sender.send(&to(format!("http://{address}/"))).await;
    assert_eq!((answer.outcome, answer.http_status), (AttemptOutcome::Connect, None));
}

/// A proxy that notes the first line of each request, and answers with `answer`.
async fn proxy(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let (listener, address) = listen().await;
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = lines.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            let text = String::from_utf8_lossy(&head[..read]);
            let line = text.lines().next().unwrap_or_default().to_owned();
            noted.lock().unwrap().push(line);
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, lines)
}

fn proxied(proxy: SocketAddr) -> Sender {
    // The proxy is named by its host name. It may be in the internal network, even if receivers may not.
    let url = format!("http://localhost:{}", proxy.port());
    let proxy = Some(Proxy::all(url).unwrap());
    sender_of(&Config { proxy, ..config(SOME_TIME, false) })
}

#[tokio::test]
async fn an_egress_proxy_is_used() {
    let (address, lines) =
        proxy("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let sender = proxied(address);
    let outcome = async |url: &str| sender.send(&to(url)).await.outcome;
    assert_eq!(outcome("http://shop.example/hooks").await, AttemptOutcome::Delivered);
    assert_eq!(outcome("http://10.0.0.1/hooks").await, AttemptOutcome::Forbidden);
    assert_eq!(lines.lock().unwrap().as_slice(), ["POST http://shop.example/hooks HTTP/1.1"]);

    let (address, lines) = proxy("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await;
    let answer = proxied(address).send(&to("https://shop.example/hooks")).await;
    assert_eq!(answer.outcome, AttemptOutcome::Connect, "{:?}", answer.cause);
    assert_eq!(lines.lock().unwrap().as_slice(), ["CONNECT shop.example:443 HTTP/1.1"]);
}

#[tokio::test]
async fn a_proxy_that_is_away_is_our_failure() {
    // Bound, so that nobody else gets the port, and not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let sender = proxied(socket.local_addr().unwrap());
    for url in ["http://shop.example/hooks", "https://shop.example/hooks"] {
        let answer = sender.send(&to(url)).await;
        assert_eq!(answer.outcome, AttemptOutcome::Local, "{:?}", answer.cause);
    }
}

/// Limit of open files of the child process, which recognizes itself by it; an unlikely number elsewhere.
const FILES: u64 = 61;

#[test]
fn without_a_file_left_the_failure_is_ours() {
    if getrlimit(Resource::Nofile).current == Some(FILES) {
        return tokio::runtime::Runtime::new().unwrap().block_on(send_without_files());
    }
    let this = "sender::tests::network::without_a_file_left_the_failure_is_ours";
    let command = format!("ulimit -n {FILES}; exec \"$0\" --exact {this}");
    let executable = std::env::current_exe().unwrap();
    let ran =
        std::process::Command::new("sh").arg("-c").arg(command).arg(executable).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(text.contains(" 1 passed; 0 failed"), "{text}{}", String::from_utf8_lossy(&ran.stderr));
}

async fn send_without_files() {
    let receiver = serve(Router::new().fallback(|| async {})).await;
    let sender = sender(SOME_TIME, true);
    let (by_address, port) = (format!("http://{receiver}/"), receiver.port());
    let urls = [by_address, format!("http://localhost:{port}/")];
    let mut files = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        files.push(file);
    }
    for url in &urls {
        let answer = sender.send(&to(url)).await;
        assert_eq!(answer.outcome, AttemptOutcome::Local, "{url}: {:?}", answer.cause);
    }
    drop(files);
    for url in &urls {
        assert_eq!(sender.send(&to(url)).await.outcome, AttemptOutcome::Delivered, "{url}");
    }
}
