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
            let (replaced, hides_logs) = {
                let mut seen = seen.lock().unwrap();
                seen.asked.push(body.clone());
                (seen.rule.as_ref().and_then(|rule| rule(&body)), seen.hides_logs)
            };
            let behind = behind.clone();
            async move {
                let (status, text) = match replaced {
                    Some(replaced) => replaced,
                    None => {
                        let client = reqwest::Client::new();
                        let request = client.post(behind).body(body);
                        let request = request.header("content-type", "application/json");
                        let mut replies: Value =
                            request.send().await.unwrap().json().await.unwrap();
                        if hides_logs {
                            without_logs(&mut replies);
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

    /// Answers every request so.
    pub(crate) fn fail(&self, status: u16, text: &'static str) {
        self.answer(move |_| Some((status, text.to_owned())));
    }

    /// Finds no logs any more, without a word.
    pub(crate) fn hide_logs(&self) {
        self.shared.lock().unwrap().hides_logs = true;
    }

    pub(crate) fn pass(&self) {
        self.shared.lock().unwrap().rule = None;
    }

    /// How often something was asked for since this was last called.
    pub(crate) fn asked(&self, what: &str) -> usize {
        let asked = std::mem::take(&mut self.shared.lock().unwrap().asked);
        asked.iter().filter(|body| body.contains(what)).count()
    }
}

/// Of all results only those about logs are lists.
fn without_logs(replies: &mut Value) {
    let replies = match replies {
        Value::Array(replies) => replies.as_mut_slice(),
        reply => std::slice::from_mut(reply),
    };
    for reply in replies.iter_mut().filter(|reply| reply["result"].is_array()) {
        reply["result"] = Value::Array(Vec::new());
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}
