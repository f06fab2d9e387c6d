//! The ceiling: a bare axum handler that verifies the same signature and answers with what it has at hand.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use runtime::{Clock, SystemClock};
use schemas::{Secret, verify_service};
use testkit::harness::MERCHANT_SECRET;
use tokio::net::TcpListener;

/// As long as the answer of a status.
const ANSWER: &str = r#"{"order_id":"01a200d4-39dc-7c06-884d-70409aa1dfea","merchant_order_id":"asked-100","amount":"10.00","status":"pending","created_at":1795310238}"#;

async fn status(headers: HeaderMap, body: Bytes) -> Response {
    let signature = headers.get("service-signature").and_then(|value| value.to_str().ok());
    let secrets = [Secret::new(MERCHANT_SECRET)];
    let now = SystemClock.now().seconds();
    match signature.map(|signature| verify_service(&secrets, signature, &body, now)) {
        Some(Ok(())) => ([(header::CONTENT_TYPE, "application/json")], ANSWER).into_response(),
        _ => StatusCode::UNAUTHORIZED.into_response(),
    }
}

/// Serves until the process ends, on threads of its own: as the executable is a process of its own.
pub(crate) async fn serve() -> SocketAddr {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
            sender.send(listener.local_addr().expect("an address")).expect("a receiver");
            let routes = Router::new().route("/api/v1/service/orders/status", post(status));
            axum::serve(listener, routes).await.expect("served");
        });
    });
    receiver.await.expect("an address")
}
