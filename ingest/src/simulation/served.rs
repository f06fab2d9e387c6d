//! An HTTP endpoint whose answers the test decides.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::EndpointConfig;

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

impl Served {
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

    /// A header of the last request.
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.lock().unwrap()[name].to_str().unwrap().to_owned()
    }

    pub(crate) fn endpoint(&self) -> EndpointConfig {
        super::endpoint(&self.url)
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
