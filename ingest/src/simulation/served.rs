//! An HTTP endpoint whose answers the test decides.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::EndpointConfig;
use crate::machine::Policy;
use crate::rpc::Endpoint;

/// Status and body for the calls of a request.
pub(crate) type Answers = Arc<dyn Fn(&[Value]) -> (u16, String) + Send + Sync>;

pub(crate) struct Served {
    url: String,
    /// The numbers of calls of the requests so far.
    sizes: Arc<Mutex<Vec<usize>>>,
    /// Headers of the last request.
    headers: Arc<Mutex<HeaderMap>>,
    task: tokio::task::JoinHandle<()>,
}

/// The answer to the calls of a request: a reply to each, to which the id is added.
pub(crate) fn replies(calls: &[Value], reply: impl Fn(&Value) -> Value) -> (u16, String) {
    let mut replies: Vec<Value> = calls.iter().map(&reply).collect();
    for (reply, call) in replies.iter_mut().zip(calls) {
        reply["id"] = call["id"].clone();
    }
    let body = if replies.len() == 1 { replies.remove(0) } else { replies.into() };
    (200, body.to_string())
}

impl Served {
    /// Serves an endpoint that replies to each call by itself.
    pub(crate) async fn of(reply: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::start(Arc::new(move |calls| replies(calls, &reply))).await
    }

    pub(crate) async fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let headers: Arc<Mutex<HeaderMap>> = Arc::default();
        let (seen, last) = (sizes.clone(), headers.clone());
        let answer = move |headers: HeaderMap, body: Bytes| {
            *last.lock().unwrap() = headers;
            let body: Value = serde_json::from_slice(&body).unwrap();
            let calls = body.as_array().map_or(std::slice::from_ref(&body), Vec::as_slice);
            seen.lock().unwrap().push(calls.len());
            let (status, text) = answers(calls);
            std::future::ready((StatusCode::from_u16(status).unwrap(), text))
        };
        let router = Router::new().fallback(post(answer));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, sizes, headers, task }
    }

    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.lock().unwrap()[name].to_str().unwrap().to_owned()
    }

    pub(crate) fn endpoint(&self) -> EndpointConfig {
        super::endpoint(&self.url)
    }

    /// A client of it, for a chain that is confirmed by depth.
    pub(crate) fn client(&self) -> Endpoint {
        let chain = super::chain(Policy::flat(Some(3), None));
        Endpoint::new(&chain, &self.endpoint(), 0).unwrap()
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.sizes.lock().unwrap().clone()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}
