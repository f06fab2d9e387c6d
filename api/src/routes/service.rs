//! The service API (spec 4.1): signed requests of the merchant's backend.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::Value;

use crate::auth::Signed;
use crate::commands::Commands;
use crate::error::Answer;
use crate::machine::creation::check_key;
use crate::machine::json;
use crate::reads::Reads;
use crate::view::OrderView;

/// Makes a create request repeatable.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// `POST /orders`
pub(crate) async fn create(commands: Commands, headers: HeaderMap, Signed(body): Signed) -> Answer {
    let key = headers.get(IDEMPOTENCY_KEY).map(|key| check_key(key.as_bytes())).transpose()?;
    let order = commands.create(&body, key).await?;
    Ok((StatusCode::CREATED, Json(OrderView::created(&order))).into_response())
}

#[derive(Deserialize)]
struct StatusBody {
    order_id: Option<Value>,
}

/// `POST /orders/status`
pub(crate) async fn status(State(reads): State<Reads>, Signed(body): Signed) -> Answer {
    let body: StatusBody = json::object(&body)?;
    let order = reads.order(json::required("order_id", body.order_id)?).await?;
    Ok(Json(OrderView::new(&order)).into_response())
}
