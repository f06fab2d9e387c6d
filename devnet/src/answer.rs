//! Answers of a served chain to JSON-RPC requests over HTTP, whichever node it poses as.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::param::RpcError;
use crate::rpc::Method;
use crate::{Chain, Fault, rpc};

/// The served chain and its shutdown token.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) chain: Chain,
    /// Cancelled when the server shuts down.
    pub(crate) token: CancellationToken,
}

/// Routes JSON-RPC POSTs to `method`.
pub(crate) fn json_rpc(method: Method) -> MethodRouter<Served> {
    post(move |State(served): State<Served>, body: Bytes| async move {
        respond(&served, &body, method).await
    })
}

/// Answers a JSON-RPC request, with the armed fault if there is one.
async fn respond(served: &Served, body: &[u8], method: Method) -> Response {
    let Served { chain, token } = served;
    let body: Option<Value> = serde_json::from_slice(body).ok();
    if let Some(body) = &body {
        rpc::count(chain, body);
    }
    let answer = |refusal: Option<&RpcError>| {
        let answer = body.as_ref().map(|body| rpc::answer(chain, body, method, refusal));
        Json(answer.unwrap_or_else(rpc::parse_error)).into_response()
    };
    let fault = chain.switches().take_fault();
    match fault {
        None => answer(None),
        Some(Fault::HttpStatus(status)) => as_is(status, "fault injected"),
        Some(Fault::Body { status, text }) => as_is(status, text),
        Some(Fault::RpcError { code, message }) => answer(Some(&RpcError { code, message })),
        Some(Fault::Malformed) => {
            let json = [(header::CONTENT_TYPE, "application/json")];
            (json, r#"{"jsonrpc":"2.0","id":1,"result":["#).into_response()
        }
        Some(Fault::Hang(duration)) => {
            // A shutdown ends the wait, so that it need not last as long as the fault.
            drop(tokio::time::timeout(duration, token.cancelled()).await);
            answer(None)
        }
    }
}

/// Response of this status and body.
pub(crate) fn as_is(status: u16, text: impl IntoResponse) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, text).into_response()
}
