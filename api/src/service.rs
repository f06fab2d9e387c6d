//! The service API (spec 4.1): signed requests of the merchant's backend.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemas::verify_service;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Invalid, Refusal};
use crate::machine::creation::check_key;
use crate::machine::new_order::NewOrder;
use crate::machine::{json, query};
use crate::router::{Api, Shared, trace};
use crate::view::OrderView;

/// Spec 5.1.
const SIGNATURE: &str = "service-signature";
/// Makes a create request repeatable.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A body as it came, or why it did not.
pub(crate) type Received = Result<Bytes, BytesRejection>;

/// The bytes of a body.
pub(crate) fn received(body: Received) -> Result<Bytes, Refusal> {
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Refusal::BodyTooLarge,
        _ => Invalid::new("body", "ended too early").into(),
    })
}

/// The bytes of a body that the merchant signed.
fn signed(api: &Api, headers: &HeaderMap, body: Received) -> Result<Bytes, Refusal> {
    let header = headers.get(SIGNATURE).ok_or(Refusal::SignatureMissing)?;
    let body = received(body)?;
    let header = header.to_str().map_err(|_| Refusal::SignatureFailed)?;
    let now = api.runner.clock.now().seconds();
    verify_service(&api.secrets, header, &body, now).map_err(|cause| {
        tracing::debug!(%cause, "a request to the service API was refused");
        Refusal::SignatureFailed
    })?;
    Ok(body)
}

/// `POST /orders`
pub(crate) async fn create(
    State(api): Shared,
    headers: HeaderMap,
    body: Received,
) -> Result<Response, Refusal> {
    let body = signed(&api, &headers, body)?;
    let new = NewOrder::parse(&body)?;
    let trace = trace(&headers);
    let order = match headers.get(IDEMPOTENCY_KEY) {
        Some(key) => api.runner.create_once(new, check_key(key.as_bytes())?, trace).await?,
        None => api.runner.create(new, trace).await?,
    };
    Ok((StatusCode::CREATED, Json(OrderView::created(&order))).into_response())
}

#[derive(Deserialize)]
struct StatusBody {
    order_id: Option<Value>,
}

/// `POST /orders/status`
pub(crate) async fn status(
    State(api): Shared,
    headers: HeaderMap,
    body: Received,
) -> Result<Response, Refusal> {
    let body = signed(&api, &headers, body)?;
    let body: StatusBody = json::object(&body)?;
    let order_id = query::order_id(&json::text("order_id", "string", body.order_id)?)?;
    let row = api.runner.store.order(order_id).await?.ok_or(Refusal::OrderNotFound)?;
    Ok(Json(OrderView::new(&row.order)).into_response())
}
