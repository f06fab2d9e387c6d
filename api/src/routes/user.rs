//! The checkout's API (`docs/API.md`): what the holder of a signed link may read and choose.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;

use crate::auth::Linked;
use crate::commands::Commands;
use crate::error::Refusal;
use crate::extract::{Body, Trace};
use crate::machine::catalog::Choice;
use crate::machine::json;
use crate::reads::Reads;
use crate::view::{ChainView, CheckoutView, OrderView};

/// `GET /chains?order_id=…`
pub(crate) async fn chains(
    State(reads): State<Arc<Reads>>,
    Linked(order_id): Linked,
) -> Result<Response, Refusal> {
    let choices = reads.choices(order_id).await?.into_iter().map(ChainView::new);
    Ok(Json(choices.collect::<Vec<_>>()).into_response())
}

#[derive(Deserialize)]
struct PaymentBody {
    blockchain: Option<Value>,
    stablecoin: Option<Value>,
}

/// `POST /orders/{order_id}/payment`
pub(crate) async fn choose_payment(
    State(commands): State<Arc<Commands>>,
    Linked(order_id): Linked,
    trace: Trace,
    Body(body): Body,
) -> Result<Response, Refusal> {
    let body: PaymentBody = json::object(&body)?;
    let choice = Choice {
        blockchain: json::required("blockchain", body.blockchain)?,
        stablecoin: json::required("stablecoin", body.stablecoin)?,
    };
    let payment = commands.choose_payment(order_id, choice, &trace).await?;
    Ok((StatusCode::CREATED, Json(payment)).into_response())
}

/// `POST /orders/{order_id}/cancel`
pub(crate) async fn cancel(
    State(commands): State<Arc<Commands>>,
    Linked(order_id): Linked,
    trace: Trace,
) -> Result<Response, Refusal> {
    let order = commands.cancel(order_id, &trace).await?;
    Ok(Json(OrderView::new(&order)).into_response())
}

/// `GET /orders/{order_id}/status`
pub(crate) async fn status(
    State(reads): State<Arc<Reads>>,
    Linked(order_id): Linked,
) -> Result<Response, Refusal> {
    let (order, chains) = reads.checkout(order_id).await?;
    Ok(Json(CheckoutView::new(&order, &chains)).into_response())
}
