//! A merchant's receiver for tests: records requests and gives scripted answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use runtime::Clock;
use schemas::UnixMicros;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::scripted::Scripted;

/// Path with a key, which answers reveal.
const KEYED: &str = "/hooks/token-of-the-url-0123456789";

/// One POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) headers: HeaderMap,
    pub(super) event_id: String,
    pub(super) attempt: i32,
    pub(super) at: UnixMicros,
    pub(super) body: String,
}

/// The status for an event and the number of its attempt.
type Decide = Box<dyn Fn(&str, i32) -> u16 + Send + Sync>;

struct Shared {
    calls: Mutex<Vec<Call>>,
    status: Decide,
    /// While false, nobody is answered.
    open: watch::Sender<bool>,
    broken_off: AtomicUsize,
    clock: Arc<dyn Clock>,
}

#[derive(Clone)]
pub(super) struct Receiver {
    port: u16,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Answers every POST with `status`.
    pub(super) async fn start(status: u16, clock: Arc<dyn Clock>) -> Self {
        Self::deciding(clock, move |_, _| status).await
    }

    /// Answers with the status that `status` gives for an event and the number of its attempt.
    pub(super) async fn deciding(
        clock: Arc<dyn Clock>,
        status: impl Fn(&str, i32) -> u16 + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            calls: Mutex::default(),
            status: Box::new(status),
            open: watch::channel(true).0,
            broken_off: AtomicUsize::new(0),
            clock,
        });
        let state = shared.clone();
        let handler = move |headers: HeaderMap, body: String| answer(state.clone(), headers, body);
        let routes =
            Router::new().route("/hooks", post(handler.clone())).route(KEYED, post(handler));
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { port, shared }
    }

    /// Answers nobody until [`Receiver::open`].
    pub(super) async fn silent(clock: Arc<dyn Clock>) -> Self {
        let receiver = Self::start(200, clock).await;
        receiver.shared.open.send_replace(false);
        receiver
    }

    pub(super) fn open(&self) {
        self.shared.open.send_replace(true);
    }

    pub(super) fn url(&self) -> String {
        self.url_of(0)
    }

    /// URL of one of its addresses, each of which is a host of its own.
    pub(super) fn url_of(&self, host: u16) -> String {
        let [high, low] = host.to_be_bytes();
        format!("http://127.1.{high}.{low}:{}/hooks", self.port)
    }

    /// URL with a key.
    pub(super) fn keyed_url(&self) -> String {
        format!("http://127.0.0.1:{}{KEYED}", self.port)
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.shared.calls.lock().unwrap().clone()
    }

    pub(super) fn forget_calls(&self) {
        self.shared.calls.lock().unwrap().clear();
    }

    /// Number of connections that were closed before their answer.
    pub(super) fn broken_off(&self) -> usize {
        self.shared.broken_off.load(Ordering::SeqCst)
    }

    pub(super) fn called(&self) -> Vec<(String, i32)> {
        self.calls().into_iter().map(|call| (call.event_id, call.attempt)).collect()
    }
}

/// A scripted log, and a receiver with its clock that answers with `status`.
pub(super) async fn answering(status: u16) -> (Scripted, Receiver) {
    let log = Scripted::new();
    let receiver = Receiver::start(status, log.clock()).await;
    (log, receiver)
}

/// A scripted log, and a silent receiver with its clock.
pub(super) async fn silent() -> (Scripted, Receiver) {
    let log = Scripted::new();
    let receiver = Receiver::silent(log.clock()).await;
    (log, receiver)
}

/// Counts, when dropped, a request that was broken off before its answer.
struct Waiting(Arc<Shared>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if !*self.0.open.borrow() {
            self.0.broken_off.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Answers with the request's body once the receiver is open. Requests that are not webhooks count as attempt 0 of an
/// event without a name.
async fn answer(shared: Arc<Shared>, headers: HeaderMap, body: String) -> (StatusCode, String) {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let event_id = text("webhook-id").unwrap_or_default();
    let attempt = text("webhook-attempt").map_or(0, |number| number.parse().unwrap());
    let at = shared.clock.now();
    let call = Call { headers, event_id: event_id.clone(), attempt, at, body: body.clone() };
    shared.calls.lock().unwrap().push(call);
    let _waiting = Waiting(shared.clone());
    shared.open.subscribe().wait_for(|open| *open).await.unwrap();
    let status = StatusCode::from_u16((shared.status)(&event_id, attempt)).unwrap();
    (status, format!("got {body} at {KEYED}"))
}
