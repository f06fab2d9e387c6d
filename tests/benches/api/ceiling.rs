//! The ceiling: a bare axum handler that verifies the same signature and returns a constant response.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use runtime::{Clock, SystemClock};
use schemas::{Secret, verify_service};
use testkit::harness::{ADMIN_SECRET, MERCHANT_SECRET};
use tokio::net::TcpListener;

/// As long as the response to a status request.
const ANSWER: &str = r#"{"order_id":"01a200d4-39dc-7c06-884d-70409aa1dfea","merchant_order_id":"asked-100","amount":"10.00","status":"pending","created_at":1795310238}"#;

async fn create(headers: HeaderMap, body: Bytes) -> Response {
    let mut answer = status(headers, body).await;
    if answer.status() == StatusCode::OK {
        *answer.status_mut() = StatusCode::CREATED;
    }
    answer
}

async fn status(headers: HeaderMap, body: Bytes) -> Response {
    let signature = headers.get("service-signature").and_then(|value| value.to_str().ok());
    let secrets = [Secret::new(MERCHANT_SECRET)];
    let now = SystemClock.now().seconds();
    match signature.map(|signature| verify_service(&secrets, signature, &body, now)) {
        Some(Ok(())) => ([(header::CONTENT_TYPE, "application/json")], ANSWER).into_response(),
        _ => StatusCode::UNAUTHORIZED.into_response(),
    }
}

/// The operators' list: returns a stored response of Tidemark.
async fn list(State(list): State<Arc<str>>, headers: HeaderMap) -> Response {
    let secret = headers.get("service-admin-authorization").map(HeaderValue::as_bytes);
    if !secret.is_some_and(|given| Secret::new(ADMIN_SECRET).matches(given)) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    ([(header::CONTENT_TYPE, "application/json")], list.to_string()).into_response()
}

/// Serves until the process ends, on separate threads, as the executable is a separate process.
pub(crate) async fn serve(listed: String) -> SocketAddr {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
            sender.send(listener.local_addr().expect("an address")).expect("a receiver");
            let routes = Router::new()
                .route("/api/v1/service/orders/status", post(status))
                .route("/api/v1/service/orders", post(create))
                .route("/api/v1/admin/orders", get(list))
                .with_state(listed.into());
            axum::serve(listener, routes).await.expect("served");
        });
    });
    receiver.await.expect("an address")
}
