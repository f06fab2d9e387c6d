//! The sender against receivers of every kind on loopback.

mod echo;
mod network;
mod odd;
mod tls;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::header::{CONNECTION, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use runtime::ManualClock;
use schemas::UnixMicros;
use schemas::record::example;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const NOW: UnixMicros = UnixMicros(1_790_000_012_345_678);

fn config(timeout: Duration, allow_private_addresses: bool) -> Config {
    let receivers = if allow_private_addresses {
        ReceiverPolicy::anywhere()
    } else {
        ReceiverPolicy::default()
    };
    let previous_secret = Some(Secret::new("older"));
    Config { timeout, receivers, previous_secret, ..crate::config::tests::read("").0 }
}

fn sender(timeout: Duration, allow_private_addresses: bool) -> Sender {
    sender_of(&config(timeout, allow_private_addresses))
}

fn sender_of(config: &Config) -> Sender {
    Sender::new(config, Arc::new(ManualClock::new(NOW))).unwrap()
}

fn to(url: impl Into<String>) -> Delivery {
    Delivery { url: url.into(), ..example::delivery() }
}

async fn send(url: impl Into<String>) -> Answer {
    sender(Duration::from_secs(10), true).send(&to(url)).await
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Answers requests with 200 at every address of this machine, and counts them. Each connection serves once.
async fn counting() -> (u16, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let routes = Router::new().fallback(move || async move {
        count.fetch_add(1, Ordering::SeqCst);
        [(CONNECTION, "close")]
    });
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (port, calls)
}

async fn serve(routes: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    address
}

/// A raw receiver: `answer` gets each connection once its request's head was read.
async fn serve_raw<F, R>(answer: F) -> SocketAddr
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            if stream.read(&mut head).await.is_ok() {
                tokio::spawn(answer(stream));
            }
        }
    });
    address
}

#[tokio::test]
async fn exactly_200_is_success_spec_6_3_1() {
    for code in [200, 201, 202, 204, 301, 302, 307, 400, 404, 410, 429, 500, 503] {
        let status = StatusCode::from_u16(code).unwrap();
        let address =
            serve(Router::new().route("/hooks", post(move || async move { status }))).await;
        let answer = send(format!("http://{address}/hooks")).await;
        let wanted = if code == 200 { AttemptOutcome::Delivered } else { AttemptOutcome::Status };
        assert_eq!((answer.outcome, answer.http_status), (wanted, Some(code)));
        assert_eq!(answer.attempted_at, NOW);
    }
}

/// Answers that only a raw server can give.
#[tokio::test]
async fn the_last_status_counts_and_no_other_spec_6_3_1() {
    use AttemptOutcome::{Delivered, Status};
    for (answer, outcome, status) in [
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            Delivered,
            200,
        ),
        ("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Delivered, 200),
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 500 Broken\r\n\r\n", Status, 500),
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            Status,
            101,
        ),
        ("HTTP/1.1 206 Partial Content\r\nContent-Length: 0\r\n\r\n", Status, 206),
        ("HTTP/1.1 429 Too Many\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n", Status, 429),
        ("HTTP/1.1 599 Other\r\nContent-Length: 0\r\n\r\n", Status, 599),
        ("HTTP/1.0 200 OK\r\n\r\n", Delivered, 200),
    ] {
        let address = serve_raw(move |mut stream| async move {
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let given = send(format!("http://{address}/")).await;
        assert_eq!((given.outcome, given.http_status), (outcome, Some(status)), "{answer}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (port, followed) = counting().await;
    for code in [301, 302, 303, 307, 308] {
        let status = StatusCode::from_u16(code).unwrap();
        let location = format!("http://127.0.0.1:{port}/");
        let routes =
            Router::new().route("/", post(move || async move { (status, [(LOCATION, location)]) }));
        let answer = send(format!("http://{}/", serve(routes).await)).await;
        assert_eq!((answer.outcome, answer.http_status), (AttemptOutcome::Status, Some(code)));
    }
    assert_eq!(followed.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn spec_5_3_request_is_signed_over_its_exact_bytes() {
    let seen = Arc::new(Mutex::new(None));
    let note = seen.clone();
    let routes = Router::new().route(
        "/hooks",
        post(move |headers: HeaderMap, body: axum::body::Bytes| async move {
            *note.lock().unwrap() = Some((headers, body.to_vec()));
        }),
    );
    let answer = send(format!("http://{}/hooks", serve(routes).await)).await;
    assert_eq!(answer.outcome, AttemptOutcome::Delivered);
    let (headers, body) = seen.lock().unwrap().take().unwrap();
    let delivery = example::delivery();
    assert_eq!(body, delivery.body.as_bytes());
    let (time, signature) = headers["service-signature"].to_str().unwrap().split_once('.').unwrap();
    assert_eq!(time, "1790000012", "the time of sending, not of the event");
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"whsec").unwrap();
    mac.update(format!("{time}.{}", delivery.body).as_bytes());
    assert_eq!(signature, STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(headers["webhook-timestamp"], time);
    // Standard Webhooks: one signature for each secret during a rotation.
    let standard = ["whsec", "older"].map(|secret| {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(format!("{}.{time}.{}", delivery.event_id, delivery.body).as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    });
    assert_eq!(headers["webhook-signature"], standard.join(" ").as_str());
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["webhook-id"], delivery.event_id.as_str());
    assert_eq!(headers["webhook-attempt"], "2");
    assert_eq!(headers["user-agent"], concat!("tidemark/", env!("CARGO_PKG_VERSION")));
}

/// The sender closes an idle connection before any server does: the least patient ones keep them for 2 s.
#[tokio::test]
async fn closed_idle_connections_lose_nothing() {
    const { assert!(IDLE_MAX.as_millis() < 2000) };
    let (closed, mut is_closed) = tokio::sync::mpsc::channel(1);
    let address = serve_raw(move |mut stream| {
        let closed = closed.clone();
        async move {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            let mut more = [0; 64];
            closed.send(stream.read(&mut more).await.ok()).await.unwrap();
        }
    })
    .await;
    let sender = sender(Duration::from_secs(10), true);
    let delivery = to(format!("http://{address}/"));
    for _ in 0..3 {
        assert_eq!(sender.send(&delivery).await.outcome, AttemptOutcome::Delivered);
        // The sender still lives: nothing but its idle limit closes the connection.
        let read = tokio::time::timeout(Duration::from_secs(120), is_closed.recv()).await;
        assert_eq!(read, Ok(Some(Some(0))), "not closed, or used for another request");
    }
}

#[tokio::test]
async fn receivers_that_give_no_status_run_out_of_time() {
    let silent = serve_raw(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let header_drip = serve_raw(|stream| drip(stream, b"HTTP/1.1 200 OK\r\nX: ", b"x")).await;
    let time_out = Duration::from_secs(2);
    let sender = sender(time_out, true);
    let answer = async |address| sender.send(&to(format!("http://{address}/"))).await;
    let (first, second) = tokio::join!(answer(silent), answer(header_drip));
    for answer in [first, second] {
        assert_eq!((answer.outcome, answer.http_status), (AttemptOutcome::Timeout, None));
        assert!(answer.took >= time_out && answer.took < Duration::from_secs(60));
    }
}

#[tokio::test]
async fn spec_6_3_1_status_decides_whatever_the_body() {
    let slow = |head| serve_raw(move |stream| drip(stream, head, b"x"));
    let cut_off = |head: &'static [u8]| {
        serve_raw(move |mut stream| async move {
            let _ = stream.write_all(head).await;
        })
    };
    let sender = sender(Duration::from_secs(5), true);
    let check = async |address, outcome, status| {
        let begun = Instant::now();
        let answer = sender.send(&to(format!("http://{address}/"))).await;
        assert_eq!((answer.outcome, answer.http_status), (outcome, Some(status)));
        assert!(begun.elapsed() < Duration::from_secs(60), "the time-out bounds the body too");
    };
    tokio::join!(
        check(slow(OK_UNFINISHED).await, AttemptOutcome::Delivered, 200),
        check(slow(FAILED_UNFINISHED).await, AttemptOutcome::Status, 500),
        check(cut_off(OK_UNFINISHED).await, AttemptOutcome::Delivered, 200),
        check(cut_off(FAILED_UNFINISHED).await, AttemptOutcome::Status, 500),
        check(cut_off(OK_BAD_CHUNK).await, AttemptOutcome::Delivered, 200),
    );
}

const OK_UNFINISHED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nabc";
const FAILED_UNFINISHED: &[u8] = b"HTTP/1.1 500 Broken\r\nContent-Length: 9999\r\n\r\nabc";
const OK_BAD_CHUNK: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\n";

async fn drip(mut stream: TcpStream, first: &'static [u8], rest: &'static [u8]) {
    let mut next = first;
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    while stream.write_all(next).await.is_ok() {
        next = rest;
        tick.tick().await;
    }
}

#[tokio::test]
async fn a_huge_body_is_cut_off_and_counts_by_its_status() {
    let sent = Arc::new(AtomicUsize::new(0));
    let (ended_tx, ended) = tokio::sync::watch::channel(false);
    let count = sent.clone();
    let address = serve_raw(move |mut stream| {
        let (count, ended_tx) = (count.clone(), ended_tx.clone());
        async move {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n";
            stream.write_all(head).await.unwrap();
            let chunk = vec![b'x'; 64 * 1024];
            while count.load(Ordering::SeqCst) < 100 * 1024 * 1024 {
                if stream.write_all(&chunk).await.is_err() {
                    break;
                }
                count.fetch_add(chunk.len(), Ordering::SeqCst);
            }
            ended_tx.send_replace(true);
        }
    })
    .await;
    let sender = sender(Duration::from_secs(10), true);
    let delivery = to(format!("http://{address}/"));
    let answer = sender.send(&delivery).await;
    assert_eq!((answer.outcome, answer.http_status), (AttemptOutcome::Delivered, Some(200)));
    let mut ended = ended;
    ended.wait_for(|ended| *ended).await.unwrap();
    assert_eq!(answer.answer, "x".repeat(256));
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 50 * 1024 * 1024, "{sent} bytes were taken");
}

#[tokio::test]
async fn the_first_bytes_of_an_answer_are_kept_as_text() {
    for (body, kept) in [
        (b"".to_vec(), String::new()),
        (b"no such order".to_vec(), "no such order".to_owned()),
        (b"a\x1b[2Jb\r\nc".to_vec(), "a [2Jb  c".to_owned()),
        (b"\xff\xfe".to_vec(), "\u{fffd}\u{fffd}".to_owned()),
        // The 86th character would exceed `ANSWER_BYTES_MAX`.
        ("\u{20ac}".repeat(200).into_bytes(), "\u{20ac}".repeat(85)),
        (b"\xff".repeat(300), "\u{fffd}".repeat(85)),
    ] {
        let sent = body.clone();
        let routes = post(move || async move { (StatusCode::BAD_REQUEST, sent) });
        let answer =
            send(format!("http://{}/", serve(Router::new().route("/", routes)).await)).await;
        assert_eq!((answer.answer, answer.cause), (kept, None), "{body:?}");
    }
}

#[tokio::test]
async fn broken_answers_differ_from_missing_receivers() {
    let garbage = serve_raw(|mut stream| async move {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
    })
    .await;
    let closing = serve_raw(|stream| async move { drop(stream) }).await;
    // Bound, so that nobody else gets the port, and not listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let refused = socket.local_addr().unwrap();
    for (url, outcome) in [
        (format!("http://{garbage}/"), AttemptOutcome::Protocol),
        (format!("http://{closing}/"), AttemptOutcome::Protocol),
        (format!("http://{refused}/"), AttemptOutcome::Connect),
        (format!("https://{garbage}/"), AttemptOutcome::Connect),
        // A label that is too long for any resolver to ask for.
        (format!("http://{}.test/", "x".repeat(64)), AttemptOutcome::Connect),
        ("not a url".to_owned(), AttemptOutcome::Forbidden),
        ("gopher://127.0.0.1/".to_owned(), AttemptOutcome::Forbidden),
        ("http://user:pw@127.0.0.1/".to_owned(), AttemptOutcome::Forbidden),
    ] {
        let answer = send(url.clone()).await;
        assert_eq!((answer.outcome, answer.http_status), (outcome, None), "{url}");
    }
}

#[tokio::test]
async fn addresses_of_the_own_network_are_not_called() {
    let (port, calls) = counting().await;
    let guarded = sender(Duration::from_secs(10), false);
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        // A name: refused by the resolver, after the resolution.
        format!("http://localhost:{port}/"),
    ] {
        let answer = guarded.send(&to(url.clone())).await;
        assert_eq!(answer.outcome, AttemptOutcome::Forbidden, "{url}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let open = sender(Duration::from_secs(10), true);
    let answer = open.send(&to(format!("http://localhost:{port}/"))).await;
    assert_eq!(answer.outcome, AttemptOutcome::Delivered);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn connections_serve_again() {
    let peers: Arc<Mutex<std::collections::HashSet<SocketAddr>>> = Arc::default();
    let note = peers.clone();
    let routes = Router::new().route(
        "/",
        post(move |peer: axum::extract::ConnectInfo<SocketAddr>| async move {
            note.lock().unwrap().insert(peer.0);
        }),
    );
    let (listener, address) = listen().await;
    let service = routes.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
    let sender = sender(Duration::from_secs(10), true);
    let delivery = to(format!("http://{address}/"));
    for _ in 0..5 {
        assert_eq!(sender.send(&delivery).await.outcome, AttemptOutcome::Delivered);
    }
    assert_eq!(peers.lock().unwrap().len(), 1);
}

/// Speaks HTTP/2 and refuses every request of the connection before it is processed.
async fn refuse_http2(mut stream: TcpStream, requests: Arc<AtomicUsize>) -> std::io::Result<()> {
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    const RST_STREAM: [u8; 5] = [0, 0, 4, 3, 0];
    const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
    stream.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).await?;
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [_, high, low, kind, _, stream_id @ ..] = head;
        stream.read_exact(&mut vec![0; u16::from_be_bytes([high, low]).into()]).await?;
        if kind == HEADERS {
            requests.fetch_add(1, Ordering::SeqCst);
            let refusal = [&RST_STREAM[..], &stream_id, &REFUSED_STREAM].concat();
            stream.write_all(&refusal).await?;
        }
    }
}

/// Requests that HTTP/2 declares safe to repeat are not repeated either.
#[tokio::test]
async fn the_client_repeats_no_request() {
    let requests = Arc::new(AtomicUsize::new(0));
    let (listener, address) = listen().await;
    let count = requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(refuse_http2(stream, count.clone()));
        }
    });
    let time_out = Duration::from_secs(10);
    let sender = sender(time_out, true);
    let client = client(&config(time_out, true)).http2_prior_knowledge().build().unwrap();
    let sender = Sender { client, ..sender };
    let answer = sender.send(&to(format!("http://{address}/"))).await;
    assert_eq!((answer.outcome, answer.http_status), (AttemptOutcome::Protocol, None));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[test]
fn a_proxy_of_the_environment_is_not_used() {
    let outcome = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sender::tests::exactly_200_is_success_spec_6_3_1"])
        .env("http_proxy", "http://127.0.0.1:1")
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&outcome.stdout);
    assert!(text.contains(" 1 passed; 0 failed"), "{text}");
}
