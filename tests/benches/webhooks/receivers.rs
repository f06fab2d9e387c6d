//! Receivers of webhooks in a separate process: one listener for all addresses of 127.0.0.0/8, which replies by the
//! second byte of the called address.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::IpAddr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use runtime::{Clock, SystemClock};
use schemas::UnixMicros;
use testkit::harness::parse_webhook;
use testkit::process::Killed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use uuid::Uuid;

/// The argument that makes this program the receivers.
pub(crate) const ROLE: &str = "receivers";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Behaviour of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Answers 200 at once.
    Healthy,
    /// Reads, and never answers.
    Silent,
    /// Silent until [`Receivers::wake`].
    Asleep,
    /// Refuses connections until [`Receivers::wake`].
    Refusing,
}

impl Kind {
    /// The second byte of its addresses. Kinds that wake are counted apart.
    fn byte(self) -> u8 {
        match self {
            Self::Healthy => 0,
            Self::Silent => 64,
            Self::Asleep => 128,
            Self::Refusing => 192,
        }
    }

    fn wakes(self) -> bool {
        matches!(self, Self::Asleep | Self::Refusing)
    }
}

/// The process of the receivers.
#[derive(Debug)]
pub(crate) struct Receivers {
    _process: Killed,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    port: u16,
    refusing_port: u16,
}

impl Receivers {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .arg(ROLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("receivers start");
        let commands = child.stdin.take().expect("its commands");
        let answers = BufReader::new(child.stdout.take().expect("its answers")).lines();
        let mut receivers =
            Self { _process: Killed(child), commands, answers, port: 0, refusing_port: 0 };
        receivers.port = receivers.answer();
        receivers.refusing_port = receivers.answer();
        receivers
    }

    /// The URL of a destination.
    pub(crate) fn url(&self, kind: Kind, number: usize) -> String {
        let port = if kind == Kind::Refusing { self.refusing_port } else { self.port };
        let (high, low) = (number / 250, number % 250 + 1);
        format!("http://127.{}.{high}.{low}:{port}/webhooks", kind.byte())
    }

    /// Number of 200s from receivers that were always healthy, since the last [`Receivers::take`].
    pub(crate) fn count(&mut self) -> usize {
        self.order("count");
        self.answer()
    }

    /// Number and time of each event that an always healthy receiver acknowledged since the last call.
    pub(crate) fn take(&mut self) -> Vec<(usize, UnixMicros)> {
        self.order("take");
        let count: usize = self.answer();
        let mut arrival = || {
            let line = self.answers.next().expect("an arrival").expect("a line");
            let (number, time) = line.split_once(' ').expect("a number and a time");
            (number.parse().expect("a number"), UnixMicros(time.parse().expect("a time")))
        };
        (0..count).map(|_| arrival()).collect()
    }

    /// Number of different events acknowledged by receivers that woke up.
    pub(crate) fn late(&mut self) -> usize {
        self.order("late");
        self.answer()
    }

    /// Makes asleep and refusing receivers reply from now on.
    pub(crate) fn wake(&mut self) {
        self.order("wake");
        let _: usize = self.answer();
    }

    /// Ends the effect of [`Receivers::wake`], and clears the events that [`Receivers::late`] counts.
    pub(crate) fn lull(&mut self) {
        self.order("lull");
        self.refusing_port = self.answer();
    }

    fn order(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("receivers run");
    }

    fn answer<T: std::str::FromStr<Err: std::fmt::Debug>>(&mut self) -> T {
        self.answers.next().expect("an answer").expect("a line").parse().expect("a number")
    }
}

/// State of the receivers.
#[derive(Default)]
struct Seen {
    arrivals: Mutex<Vec<(u128, UnixMicros)>>,
    late: Mutex<HashSet<u128>>,
    is_awake: AtomicBool,
}

/// Serves until standard input ends.
pub(crate) async fn serve() {
    let seen = Arc::new(Seen::default());
    let listener = TcpListener::bind("0.0.0.0:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address").port());
    drop(tokio::spawn(accept(listener, seen.clone())));
    let mut refusing = Some(refusing());
    let mut opened: Option<tokio::task::JoinHandle<()>> = None;
    println!("{}", port(refusing.as_ref()));
    let (orders, mut next) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        std::io::stdin()
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| orders.blocking_send(line))
    });
    while let Some(order) = next.recv().await {
        match order.as_str() {
            "count" => println!("{}", seen.arrivals.lock().expect("arrivals").len()),
            "take" => seen.print_arrivals(),
            "late" => println!("{}", seen.late.lock().expect("late ones").len()),
            "wake" => {
                seen.is_awake.store(true, Ordering::SeqCst);
                let socket = refusing.take().expect("they sleep");
                let listener = socket.listen(1024).expect("it listens");
                opened = Some(tokio::spawn(accept(listener, seen.clone())));
                println!("0");
            }
            _ => {
                seen.is_awake.store(false, Ordering::SeqCst);
                seen.late.lock().expect("late ones").clear();
                opened.take().inspect(tokio::task::JoinHandle::abort);
                refusing = Some(self::refusing());
                println!("{}", port(refusing.as_ref()));
            }
        }
    }
}

/// A socket bound to a port without listening.
fn refusing() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([0, 0, 0, 0], 0).into()).expect("a port");
    socket
}

fn port(socket: Option<&TcpSocket>) -> u16 {
    socket.expect("they sleep").local_addr().expect("an address").port()
}

async fn accept(listener: TcpListener, seen: Arc<Seen>) {
    loop {
        // Fails if no file descriptor is free; the connection waits in the backlog.
        if let Ok((stream, _)) = listener.accept().await {
            drop(tokio::spawn(receive(stream, seen.clone())));
        }
    }
}

/// Serves a connection until its end.
async fn receive(mut stream: TcpStream, seen: Arc<Seen>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let IpAddr::V4(address) = stream.local_addr()?.ip() else { return Ok(()) };
    let kinds = [Kind::Healthy, Kind::Silent, Kind::Asleep, Kind::Refusing];
    let kind = kinds.into_iter().rev().find(|kind| address.octets()[1] >= kind.byte());
    let kind = kind.unwrap_or(Kind::Healthy);
    let mut buffer = Vec::with_capacity(2048);
    loop {
        let Some((event, length)) = request(&buffer) else {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            continue;
        };
        buffer.drain(..length);
        if kind == Kind::Silent || kind.wakes() && !seen.is_awake.load(Ordering::SeqCst) {
            continue;
        }
        stream.write_all(ANSWER).await?;
        if kind.wakes() {
            seen.late.lock().expect("late ones").insert(event);
        } else {
            seen.arrivals.lock().expect("arrivals").push((event, SystemClock.now()));
        }
    }
}

impl Seen {
    fn print_arrivals(&self) {
        let arrivals = std::mem::take(&mut *self.arrivals.lock().expect("arrivals"));
        let mut text = format!("{}\n", arrivals.len());
        arrivals.iter().for_each(|(event, time)| text.push_str(&format!("{event} {}\n", time.0)));
        std::io::stdout().write_all(text.as_bytes()).expect("it is read");
    }
}

/// The number of the event in a complete request, and the length of the request.
fn request(bytes: &[u8]) -> Option<(u128, usize)> {
    let ((event, _), length) = parse_webhook(bytes)?;
    // Event ids contain order ids, which are event numbers.
    let order = event.split('.').next().and_then(|id| Uuid::parse_str(id).ok());
    Some((order.expect("an order's id").as_u128(), length))
}
