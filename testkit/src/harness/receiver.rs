//! Receivers of webhooks that reply by a script, and record the requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use runtime::{Clock, SystemClock};
use schemas::UnixMicros;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::eventually;

/// Reaction of a receiver to a POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Status(u16),
    /// No reply, until the client times out.
    Silence,
    /// Closes the connection: the reply is lost.
    Loss,
    /// Waits for the status of [`Receiver::release`].
    Hold,
}

/// A received POST.
#[derive(Debug, Clone)]
pub struct Call {
    /// `Webhook-Id`.
    pub event_id: String,
    /// `Webhook-Attempt`.
    pub attempt: i32,
    pub at: Instant,
    /// The same by the clock of the attempts' records.
    pub time: UnixMicros,
    pub reply: Reply,
}

/// The reply to an event's attempt with this number.
type Script = dyn Fn(&str, i32) -> Reply + Send + Sync;

/// Receivers at one port of all addresses of this machine.
#[derive(Clone)]
pub struct Receiver {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    calls: Mutex<Vec<Call>>,
    /// Connections that are open.
    open: AtomicUsize,
    released: watch::Sender<Option<u16>>,
}

impl Receiver {
    pub async fn start(script: impl Fn(&str, i32) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("listen");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            calls: Mutex::default(),
            open: AtomicUsize::new(0),
            released: watch::channel(None).0,
        });
        let accepting = shared.clone();
        drop(tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let shared = accepting.clone();
                shared.open.fetch_add(1, Ordering::SeqCst);
                drop(tokio::spawn(async move {
                    // A broken connection has ended, too.
                    drop(shared.serve(stream).await);
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                }));
            }
        }));
        Self { port, shared }
    }

    /// The URL of the receiver with this number, from 1 to 254.
    pub fn url(&self, number: usize) -> String {
        format!("http://127.0.0.{number}:{}/webhooks", self.port)
    }

    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls().clone()
    }

    /// Answers all held requests with this status, and those held later.
    pub fn release(&self, status: u16) {
        self.shared.released.send_replace(Some(status));
    }

    /// Waits until all requests of ended processes are received: every connection is closed.
    pub async fn drained(&self) {
        // Connections are accepted in order: those of the ended processes before this one.
        let mut last = TcpStream::connect(("127.0.0.1", self.port)).await.expect("connected");
        last.shutdown().await.expect("an end");
        let closed = last.read_to_end(&mut Vec::new()).await;
        assert_eq!(closed.expect("its end"), 0);
        eventually("all connections to be closed", || async {
            (self.shared.open.load(Ordering::SeqCst) == 0).then_some(())
        })
        .await;
    }
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection until its end.
    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut buffer = Vec::new();
        while let Some((event_id, attempt)) = read_request(&mut stream, &mut buffer).await? {
            let reply = (self.script)(&event_id, attempt);
            let (at, time) = (Instant::now(), SystemClock.now());
            let call = Call { event_id, attempt, at, time, reply };
            self.calls().push(call);
            let status = match reply {
                Reply::Status(status) => status,
                Reply::Silence => continue,
                Reply::Loss => return Ok(()),
                Reply::Hold => {
                    let mut released = self.released.subscribe();
                    let status = *released.wait_for(Option::is_some).await.expect("a status");
                    status.expect("a status")
                }
            };
            let answer = format!("HTTP/1.1 {status} As scripted\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }
}

/// Event and attempt of the next request; `None` at the end of the connection.
async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<(String, i32)>> {
    loop {
        if let Some((request, length)) = parse_webhook(buffer) {
            buffer.drain(..length);
            return Ok(Some(request));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// The event and the attempt of a complete request at the beginning of `bytes`, and its length.
pub fn parse_webhook(bytes: &[u8]) -> Option<((String, i32), usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).expect("a head");
    let header = |wanted: &str| {
        let named = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
        };
        head.lines().find_map(named).unwrap_or_else(|| panic!("no {wanted} in {head}"))
    };
    let length: usize = header("content-length").parse().expect("a length");
    let attempt = header("webhook-attempt").parse().expect("a number");
    (bytes.len() >= end + length).then(|| ((header("webhook-id"), attempt), end + length))
}
