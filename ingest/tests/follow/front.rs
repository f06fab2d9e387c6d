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

#[derive(Default)]
struct Shared {
    rule: Option<Rule>,
    hides_logs: bool,
    hides_receipts: bool,
    hides_transactions: bool,
    /// (`hash`, `other`): logs of block `hash` are reported under `other`.
    orphaned: Option<(String, String)>,
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
            let (replaced, [hides_logs, hides_receipts, hides_transactions], renamed) = {
                let mut seen = seen.lock().unwrap();
                seen.asked.push(body.clone());
                let replaced = seen.rule.as_ref().and_then(|rule| rule(&body));
                let hides = [seen.hides_logs, seen.hides_receipts, seen.hides_transactions];
                (replaced, hides, seen.orphaned.clone())
            };
            let behind = behind.clone();
            async move {
                let (status, text) = match replaced {
                    Some(replaced) => replaced,
                    None => {
                        let client = reqwest::Client::new();
                        let body = match &renamed {
                            Some((hash, other)) => body.replace(other, hash),
                            None => body,
                        };
                        let request = client.post(behind).body(body);
                        let request = request.header("content-type", "application/json");
                        let mut replies: Value =
                            request.send().await.unwrap().json().await.unwrap();
                        if let Some((hash, other)) = &renamed {
                            rename(&mut replies, hash, other);
                        }
                        if hides_logs {
                            replace(&mut replies, Value::is_array, &Value::Array(Vec::new()));
                        }
                        if hides_receipts {
                            replace(&mut replies, |result| result["logs"].is_array(), &Value::Null);
                        }
                        if hides_transactions {
                            empty(&mut replies);
                        }
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

    /// Returns empty lists of logs instead of an error.
    pub(crate) fn hide_logs(&self) {
        self.shared.lock().unwrap().hides_logs = true;
    }

    /// Reports the logs of block `hash` under `other`, a block of the same height, also when asked
    /// for `other`.
    pub(crate) fn orphan(&self, hash: &str, other: &str) {
        self.shared.lock().unwrap().orphaned = Some((hash.to_owned(), other.to_owned()));
    }

    /// Omits logs and receipts, without an error.
    pub(crate) fn deny(&self) {
        let mut shared = self.shared.lock().unwrap();
        (shared.hides_logs, shared.hides_receipts) = (true, true);
    }

    /// Serves logs, but leaves their transactions and receipts out of the blocks.
    pub(crate) fn unlist(&self) {
        let mut shared = self.shared.lock().unwrap();
        (shared.hides_transactions, shared.hides_receipts) = (true, true);
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
        let mut shared = self.shared.lock().unwrap();
        shared.orphaned = None;
        (shared.hides_logs, shared.hides_receipts) = (false, false);
        shared.hides_transactions = false;
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

/// Replaces the results that `is_one` selects. A list is of logs, or of a block's receipts.
fn replace(replies: &mut Value, is_one: impl Fn(&Value) -> bool, with: &Value) {
    let replies = match replies {
        Value::Array(replies) => replies.as_mut_slice(),
        reply => std::slice::from_mut(reply),
    };
    for reply in replies.iter_mut().filter(|reply| is_one(&reply["result"])) {
        reply["result"] = with.clone();
    }
}

/// Takes the transactions and receipts out of blocks.
fn empty(replies: &mut Value) {
    let none = Value::Array(Vec::new());
    replace(replies, |result| result[0]["status"].is_string(), &none);
    let replies = match replies {
        Value::Array(replies) => replies.as_mut_slice(),
        reply => std::slice::from_mut(reply),
    };
    for reply in replies.iter_mut().filter(|reply| reply["result"]["transactions"].is_array()) {
        reply["result"]["transactions"] = none.clone();
    }
}

/// Gives logs another block.
fn rename(replies: &mut Value, hash: &str, other: &str) {
    let replies = match replies {
        Value::Array(replies) => replies.as_mut_slice(),
        reply => std::slice::from_mut(reply),
    };
    let logs = replies.iter_mut().filter_map(|reply| reply["result"].as_array_mut()).flatten();
    for log in logs.filter(|log| log["blockHash"] == hash) {
        log["blockHash"] = other.into();
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}
