//! An endpoint in front of a development chain, whose answers a test may replace.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;

/// The answer to a request in place of the chain's.
type Rule = Box<dyn Fn(&str) -> Option<(u16, String)> + Send>;

/// Differences of the answers from the chain.
#[derive(Default, Clone)]
struct Faults {
    hides_logs: bool,
    hides_receipts: bool,
    hides_transactions: bool,
    /// (`hash`, `other`): logs of block `hash` are reported under `other`.
    orphaned: Option<(String, String)>,
}

impl Faults {
    fn apply(&self, replies: &mut Value) {
        if let Some((hash, other)) = &self.orphaned {
            rename(replies, hash, other);
        }
        if self.hides_logs {
            replace(replies, Value::is_array, &Value::Array(Vec::new()));
        }
        if self.hides_receipts {
            replace(replies, |result| result["logs"].is_array(), &Value::Null);
        }
        if self.hides_transactions {
            empty(replies);
        }
    }
}

#[derive(Default)]
struct Shared {
    rule: Option<Rule>,
    faults: Faults,
    /// The requests so far.
    asked: Vec<String>,
}

pub(crate) struct Front {
    pub(crate) url: String,
    shared: Arc<Mutex<Shared>>,
    task: tokio::task::JoinHandle<()>,
}

impl Front {
    pub(crate) async fn of(devnet: &str) -> Self {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let (seen, behind) = (shared.clone(), devnet.to_owned());
        let answer = move |body: String| {
            let (replaced, faults) = {
                let mut seen = seen.lock().unwrap();
                seen.asked.push(body.clone());
                (seen.rule.as_ref().and_then(|rule| rule(&body)), seen.faults.clone())
            };
            let behind = behind.clone();
            async move {
                let (status, text) = match replaced {
                    Some(replaced) => replaced,
                    None => {
                        let client = reqwest::Client::new();
                        let body = match &faults.orphaned {
                            Some((hash, other)) => body.replace(other, hash),
                            None => body,
                        };
                        let request = client.post(behind).body(body);
                        let request = request.header("content-type", "application/json");
                        let mut replies: Value =
                            request.send().await.unwrap().json().await.unwrap();
                        faults.apply(&mut replies);
                        (200, replies.to_string())
                    }
                };
                (StatusCode::from_u16(status).unwrap(), text)
            }
        };
        let router = Router::new().fallback(post(answer));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared, task }
    }

    pub(crate) fn answer(&self, rule: impl Fn(&str) -> Option<(u16, String)> + Send + 'static) {
        self.shared.lock().unwrap().rule = Some(Box::new(rule));
    }

    /// Answers every request with this status and text.
    pub(crate) fn fail(&self, status: u16, text: &'static str) {
        self.answer(move |_| Some((status, text.to_owned())));
    }

    /// Empties lists of logs, and of a block's receipts.
    pub(crate) fn hide_logs(&self) {
        self.shared.lock().unwrap().faults.hides_logs = true;
    }

    /// Reports the logs of block `hash` under `other`, a block of the same height, also when asked
    /// for `other`.
    pub(crate) fn orphan(&self, hash: &str, other: &str) {
        self.shared.lock().unwrap().faults.orphaned = Some((hash.to_owned(), other.to_owned()));
    }

    /// Omits logs and receipts, without an error.
    pub(crate) fn deny(&self) {
        let faults = &mut self.shared.lock().unwrap().faults;
        (faults.hides_logs, faults.hides_receipts) = (true, true);
    }

    /// Serves logs, but leaves their transactions and receipts out of the blocks.
    pub(crate) fn unlist(&self) {
        let faults = &mut self.shared.lock().unwrap().faults;
        (faults.hides_transactions, faults.hides_receipts) = (true, true);
    }

    /// Returns no logs and refuses `eth_getBlockReceipts`, so that nothing shows them.
    pub(crate) fn blind(&self) {
        self.hide_logs();
        let error = r#"{"id":0,"error":{"code":-32601,"message":"Method not found"}}"#;
        let is_asked = |body: &str| body.contains("eth_getBlockReceipts");
        self.answer(move |body| is_asked(body).then(|| (200, error.to_owned())));
    }

    /// Ends faults that hide or rename something; [`Self::pass`] ends replaced answers.
    pub(crate) fn admit(&self) {
        self.shared.lock().unwrap().faults = Faults::default();
    }

    pub(crate) fn pass(&self) {
        self.shared.lock().unwrap().rule = None;
    }

    /// Returns the number of requests that contain a text since the last call.
    pub(crate) fn asked(&self, what: &str) -> usize {
        let asked = std::mem::take(&mut self.shared.lock().unwrap().asked);
        asked.iter().filter(|body| body.contains(what)).count()
    }
}

/// The replies to a request: to its batch, or to a single call.
fn each(replies: &mut Value) -> &mut [Value] {
    match replies {
        Value::Array(replies) => replies,
        reply => std::slice::from_mut(reply),
    }
}

/// Replaces the results that `is_one` selects.
fn replace(replies: &mut Value, is_one: impl Fn(&Value) -> bool, with: &Value) {
    for reply in each(replies).iter_mut().filter(|reply| is_one(&reply["result"])) {
        reply["result"] = with.clone();
    }
}

/// Takes the transactions and receipts out of blocks.
fn empty(replies: &mut Value) {
    let none = Value::Array(Vec::new());
    replace(replies, |result| result[0]["status"].is_string(), &none);
    for reply in each(replies) {
        if let Some(transactions) = reply.pointer_mut("/result/transactions") {
            *transactions = none.clone();
        }
    }
}

/// Reports the logs of block `hash` under `other`.
fn rename(replies: &mut Value, hash: &str, other: &str) {
    let logs =
        each(replies).iter_mut().filter_map(|reply| reply["result"].as_array_mut()).flatten();
    for log in logs.filter(|log| log["blockHash"] == hash) {
        log["blockHash"] = other.into();
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}
