//! The chain as a Tron node serves it: java-tron's JSON-RPC and its native HTTP interface.
//!
//! **As documented** (java-tron 4.8, its documentation and source):
//! - JSON-RPC: a state root without bytes, zeros for blooms, uncles, receipts root, mix hash, nonce and gas; the tags
//!   `latest`, `earliest` and `finalized`; -32602 for `safe`, `pending`, an unknown block hash and ranges of over 5,001
//!   blocks; logs up to the head if a range ends beyond it; state at `latest` alone; receipts of type 0.
//! - HTTP below `/walletsolidity/`: hexadecimal without `0x`; times in milliseconds; zeros left out; only solidified
//!   blocks; `[]` for unknown outcomes; outcomes in the order of the transactions, without block hash or log index.
//! - The solidified block: 19 of 27 witnesses have built on it. A witness that misses a slot
//!   ([`crate::Chain::skip_slots`]) delays it.
//! - Logs of a failed transaction ([`crate::Chain::fail_transaction`]) stay, among the logs and in its outcome.
//! - Errors: [`BUSY`] and [`SUSPENDED`] in a form other than JSON-RPC's, [`LITE_NODE`] as a bare sentence.
//!
//! **Not real**: hashes do not begin with the height, as those of Tron do; every transaction is a call of a token, so
//! each has a result; blocks and outcomes have the fields that Tidemark reads and few others; witnesses never change
//! and sign nothing; there is no maintenance period; the control methods of the development chain are answered too.

mod native;
mod rpc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::post;
use serde_json::Value;

use crate::answer::{Served, as_is, json_rpc};

/// A node that has no capacity for the request: HTTP 200, on both interfaces.
pub const BUSY: &str =
    r#"{"Error":"class java.lang.IllegalAccessException : lack of computing resources"}"#;
/// Rate limit of a gateway: HTTP 403, or 503 if the request has an API key.
pub const SUSPENDED: &str = r#"{"Error":"request rate exceeded the allowed_rps(10), and the query server is suspended for 1 s"}"#;
/// Answer of a node without history to a request for blocks or outcomes: HTTP 200.
pub const LITE_NODE: &str = "this API is closed because this node is a lite fullnode";

pub(crate) fn router(served: Served) -> Router {
    Router::new()
        .route("/jsonrpc", json_rpc(rpc::call))
        .route("/walletsolidity/{method}", post(http))
        .with_state(served)
}

async fn http(served: State<Served>, method: Path<String>, body: Bytes) -> Response {
    // A missing or invalid body counts as an empty object.
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (status, text) = native::answer(&served.chain, &method, &body);
    as_is(status, text)
}
