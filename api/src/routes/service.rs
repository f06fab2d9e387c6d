//! The service API (spec 4.1): signed requests of the merchant's backend.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;

use crate::auth::Signed;
use crate::commands::Commands;
use crate::error::Refusal;
use crate::extract::Trace;
use crate::machine::creation::check_key;
use crate::machine::json;
use crate::reads::Reads;
use crate::view::OrderView;

/// Makes a create request repeatable.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// `POST /orders`
pub(crate) async fn create(
    State(commands): State<Arc<Commands>>,
    trace: Trace,
    headers: HeaderMap,
    Signed(body): Signed,
) -> Result<Response, Refusal> {
    let order = match headers.get(IDEMPOTENCY_KEY) {
        Some(key) => commands.create_once(&body, check_key(key.as_bytes())?, &trace).await?,
        None => commands.create(&body, &trace).await?,
    };
    Ok((StatusCode::CREATED, Json(OrderView::created(&order))).into_response())
}

#[derive(Deserialize)]
struct StatusBody {
    order_id: Option<Value>,
}

/// `POST /orders/status`
pub(crate) async fn status(
    State(reads): State<Arc<Reads>>,
    Signed(body): Signed,
) -> Result<Response, Refusal> {
    let body: StatusBody = json::object(&body)?;
    let order_id = json::required("order_id", body.order_id)?;
    let order = reads.order(order_id).await?;
    Ok(Json(OrderView::new(&order)).into_response())
}
