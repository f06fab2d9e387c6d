//! One endpoint: an HTTP JSON-RPC server in front of a real node.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::distort::{BLOCK_RECEIPTS, RECEIPT, each_log, whole};
use super::node_state::hex_number;
use super::server::{Reply, serve};
use super::{Behaviour, Fault, Gate, NodeState, Numbering};

/// Purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The head, and the check of an earlier block.
    Tip,
    /// A range of logs.
    Scan,
    /// A range of logs that was scanned before, or the receipts of a block.
    Check,
    /// The logs of single blocks.
    Verify,
    /// Blocks alone, as after a reorganisation.
    Search,
    Receipts,
    Other,
}

impl Kind {
    fn of(calls: &[Value]) -> Self {
        let asks = |method: &str| calls.iter().any(|call| call["method"] == method);
        let newest = calls.iter().any(|call| call["params"][0] == "latest");
        let logs = calls.iter().filter(|call| call["method"] == "eth_getLogs");
        let ranges = logs.clone().any(|call| call["params"][0].get("toBlock").is_some());
        match (ranges, newest) {
            _ if asks(RECEIPT) => Self::Receipts,
            _ if asks(BLOCK_RECEIPTS) => Self::Check,
            (true, true) => Self::Check,
            (true, false) => Self::Scan,
            _ if logs.count() > 0 => Self::Verify,
            (false, true) if asks("eth_getBlockByNumber") => Self::Tip,
            _ if asks("eth_getBlockByNumber") => Self::Search,
            _ => Self::Other,
        }
    }
}

/// A request that is to be held.
type Hold = Option<(Kind, oneshot::Sender<()>)>;

#[derive(Debug)]
struct Shared {
    node_state: Arc<NodeState>,
    gate: Option<Arc<Gate>>,
    behaviour: Mutex<Behaviour>,
    hold: Mutex<Hold>,
    requests: AtomicUsize,
    /// Requests that wait until the newest block is old enough (`answers_after`).
    held: AtomicUsize,
    client: reqwest::Client,
}

/// A running endpoint; it ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
    /// Aborted on drop.
    _server: JoinSet<()>,
}

impl Proxy {
    /// An endpoint without faults; requests wait at the gate, if any.
    pub async fn start(node_state: Arc<NodeState>, gate: Option<Arc<Gate>>) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().no_proxy().build().expect("an HTTP client");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (behaviour, hold) = (Mutex::default(), Mutex::default());
        let (requests, held) = (AtomicUsize::default(), AtomicUsize::default());
        let shared = Arc::new(Shared { node_state, gate, behaviour, hold, requests, held, client });
        let (of_resets, of_answers) = (shared.clone(), shared.clone());
        let resets = move || of_resets.resets();
        let answer = move |body| {
            let shared = of_answers.clone();
            async move { shared.answer(body).await }
        };
        let mut server = JoinSet::new();
        server.spawn(serve(listener, resets, answer));
        Self { url, shared, _server: server }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.shared.behaviour()
    }

    /// Number of requests so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// `true` if a request waits until the newest block is old enough.
    pub fn is_holding(&self) -> bool {
        self.shared.held.load(Ordering::SeqCst) > 0
    }

    /// Blocks the next request of a kind for ever; the receiver is notified of its arrival.
    pub fn hold(&self, kind: Kind) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        *self.shared.hold.lock().unwrap_or_else(PoisonError::into_inner) = Some((kind, sender));
        receiver
    }
}

impl Shared {
    fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `true` if a request is to be reset, which uses up one request of the fault.
    fn resets(&self) -> bool {
        let mut behaviour = self.behaviour();
        let resets = matches!(behaviour.fault, Some((Fault::Reset, _)));
        if resets {
            behaviour.take();
        }
        resets
    }

    fn is_held(&self, kind: Kind) -> bool {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        match hold.take() {
            Some((held, sender)) if held == kind => sender.send(()).is_ok(),
            other => {
                *hold = other;
                false
            }
        }
    }

    async fn answer(&self, body: String) -> Reply {
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        let Ok(request) = serde_json::from_str::<Value>(&body) else {
            return Reply::Answer(400, "", "not JSON".into());
        };
        let is_batch = request.is_array();
        let calls = if let Value::Array(calls) = request { calls } else { vec![request] };
        if self.is_held(Kind::of(&calls)) {
            return Reply::Silence;
        }
        let request = self.requests.fetch_add(1, Ordering::SeqCst);
        let (fault, behaviour) = self.behaviour().turn(request);
        self.held.fetch_add(1, Ordering::SeqCst);
        self.node_state.head_is_old(|| self.behaviour().answers_after).await;
        self.held.fetch_sub(1, Ordering::SeqCst);
        if let Some(reply) = whole(fault) {
            return reply;
        }
        let Some(mut replies) = self.replies(fault, &behaviour, &calls).await else {
            return Reply::Answer(502, "", "the node does not answer".into());
        };
        match fault {
            Some(Fault::PartialBatch) => replies.truncate(replies.len() / 2),
            Some(Fault::Loose) => loosen(&mut replies, is_batch),
            _ => {}
        }
        let body = if is_batch { Value::Array(replies) } else { replies.pop().unwrap_or_default() };
        match fault {
            Some(Fault::Cut) => Reply::Cut(body.to_string()),
            Some(Fault::Drip) => Reply::Drip(body.to_string()),
            _ => Reply::ok(body.to_string()),
        }
    }

    /// The answers to all calls.
    async fn replies(
        &self,
        fault: Option<Fault>,
        behaviour: &Behaviour,
        calls: &[Value],
    ) -> Option<Vec<Value>> {
        let (chain, other) = {
            let parts = self.node_state.parts();
            let other = match fault {
                Some(Fault::Foreign) => parts.foreign.clone(),
                Some(Fault::Stale | Fault::Mixed) => parts.stale.clone(),
                _ => None,
            };
            (parts.chain.clone(), other)
        };
        let asked = behaviour.as_seen(fault, calls, &self.node_state);
        let node = other.as_deref().filter(|_| fault != Some(Fault::Mixed)).unwrap_or(&chain);
        let mut replies = self.forward(node, &asked).await?;
        if let (Some(Fault::Mixed), Some(other)) = (fault, &other) {
            let stale = self.forward(other, &asked).await?;
            for ((reply, stale), call) in replies.iter_mut().zip(stale).zip(calls) {
                if call["method"] == "eth_getLogs" && stale["error"].is_null() {
                    *reply = stale;
                }
            }
        }
        let first = match behaviour.numbering {
            Numbering::Transaction => self.first_logs(node, &mut replies).await?,
            Numbering::Block | Numbering::Zero => HashMap::new(),
        };
        let distorted = replies.into_iter().zip(calls).map(|(reply, call)| {
            let mut reply = behaviour.distort(fault, call, reply, &self.node_state);
            (reply["jsonrpc"], reply["id"]) = (json!("2.0"), call["id"].clone());
            reply
        });
        let mut replies: Vec<_> = distorted.collect();
        behaviour.renumber(&mut replies, &first);
        Some(replies)
    }

    /// The index of the first log of each transaction in the blocks of some replies.
    async fn first_logs(&self, node: &str, replies: &mut [Value]) -> Option<HashMap<String, u64>> {
        let mut blocks = HashSet::new();
        each_log(replies, &mut |log| {
            blocks.extend(log["blockHash"].as_str().map(str::to_owned));
        });
        let call =
            |hash: &String| json!({ "jsonrpc": "2.0", "method": BLOCK_RECEIPTS, "params": [hash] });
        let calls: Vec<_> = blocks.iter().map(call).collect();
        let mut first = HashMap::new();
        if calls.is_empty() {
            return Some(first);
        }
        each_log(&mut self.forward(node, &calls).await?, &mut |log| {
            let transaction = log["transactionHash"].as_str().unwrap_or_default().to_owned();
            let place = hex_number(&log["logIndex"]).unwrap_or_default();
            let lowest = first.entry(transaction).or_insert(place);
            *lowest = place.min(*lowest);
        });
        Some(first)
    }

    async fn forward(&self, url: &str, calls: &[Value]) -> Option<Vec<Value>> {
        let numbered = calls.iter().enumerate().map(|(id, call)| {
            let mut call = call.clone();
            call["id"] = json!(id);
            call
        });
        let body = Value::Array(numbered.collect());
        let response = self.client.post(url).json(&body).send().await.ok()?;
        let Value::Array(replies) = response.json().await.ok()? else { return None };
        (replies.len() == calls.len()).then_some(replies)
    }
}

/// Makes ids text, and adds an element to a batch.
fn loosen(replies: &mut Vec<Value>, is_batch: bool) {
    for reply in replies.iter_mut() {
        reply["id"] = json!(reply["id"].to_string());
    }
    if is_batch {
        replies.push(Value::Null);
    }
}
