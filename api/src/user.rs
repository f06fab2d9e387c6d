//! The checkout's API (`docs/API.md`): what the holder of a signed link may ask and choose.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemas::OrderId;
use serde::Deserialize;
use serde_json::Value;

use crate::admin::Segment;
use crate::error::Refusal;
use crate::machine::catalog::Choice;
use crate::machine::json;
use crate::machine::query::Query;
use crate::router::{Api, Shared, trace};
use crate::service::{Received, received};
use crate::view::{ChainView, CheckoutView, OrderView};

/// The order that a path names, once the link is known to be for it. A text that is no order's id
/// has no valid signature.
fn linked(api: &Api, segment: Segment, raw: Option<String>) -> Result<OrderId, Refusal> {
    let text = segment.ok().map(|Path(text)| text);
    let order_id = text.and_then(|text| text.parse().ok()).ok_or(Refusal::SignatureFailed)?;
    verified(api, order_id, &Query::parse(&raw.unwrap_or_default()))
}

fn verified(api: &Api, order_id: OrderId, query: &Query<'_>) -> Result<OrderId, Refusal> {
    query.verify_link(&api.secrets, order_id, api.runner.clock.now().seconds())?;
    Ok(order_id)
}

/// `GET /chains?order_id=…`
pub(crate) async fn chains(
    State(api): Shared,
    RawQuery(raw): RawQuery,
) -> Result<Response, Refusal> {
    let raw = raw.unwrap_or_default();
    let query = Query::parse(&raw);
    let order_id = query.order_id().ok().flatten().ok_or(Refusal::SignatureFailed)?;
    let order_id = verified(&api, order_id, &query)?;
    let row = api.runner.store.order(order_id).await?.ok_or(Refusal::OrderNotFound)?;
    let choices = api.runner.catalog.choices(&row.order).into_iter().map(ChainView::new);
    Ok(Json(choices.collect::<Vec<_>>()).into_response())
}

#[derive(Deserialize)]
struct PaymentBody {
    blockchain: Option<Value>,
    stablecoin: Option<Value>,
}

/// `POST /orders/{order_id}/payment`
pub(crate) async fn choose_payment(
    State(api): Shared,
    order_id: Segment,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
    body: Received,
) -> Result<Response, Refusal> {
    let order_id = linked(&api, order_id, raw)?;
    let body = received(body)?;
    let body: PaymentBody = json::object(&body)?;
    let blockchain = json::text("blockchain", "string", body.blockchain)?;
    let stablecoin = json::text("stablecoin", "string", body.stablecoin)?;
    let choice = Choice {
        blockchain: json::parsed("blockchain", &blockchain)?,
        stablecoin: json::parsed("stablecoin", &stablecoin)?,
    };
    let payment = api.runner.choose_payment(order_id, choice, trace(&headers)).await?;
    Ok((StatusCode::CREATED, Json(payment)).into_response())
}

/// `POST /orders/{order_id}/cancel`
pub(crate) async fn cancel(
    State(api): Shared,
    order_id: Segment,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let order_id = linked(&api, order_id, raw)?;
    let order = api.runner.cancel(order_id, trace(&headers)).await?;
    Ok(Json(OrderView::new(&order)).into_response())
}

/// `GET /orders/{order_id}/status`
pub(crate) async fn status(
    State(api): Shared,
    order_id: Segment,
    RawQuery(raw): RawQuery,
) -> Result<Response, Refusal> {
    let order_id = linked(&api, order_id, raw)?;
    let row = api.runner.store.order(order_id).await?.ok_or(Refusal::OrderNotFound)?;
    let chains = api.runner.store.chains().await?;
    Ok(Json(CheckoutView::new(&row.order, &chains)).into_response())
}
