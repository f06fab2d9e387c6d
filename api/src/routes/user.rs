//! The checkout's API (`docs/merchant/checkout.md`): reads and choices by the holder of a link.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::json;

use crate::auth::{self, Linked};
use crate::client::Client;
use crate::commands::Commands;
use crate::error::{Answer, Invalid};
use crate::events::Events;
use crate::extract::SmallBody;
use crate::machine::catalog::Choice;
use crate::machine::json;
use crate::machine::query::Query;
use crate::reads::Reads;
use crate::view::{ChainView, CheckoutView, OrderView, SeenTransferView};

/// `GET /chains?order_id=…`, or `GET /chains` for what the shop offers.
pub(crate) async fn chains(
    State(reads): State<Reads>,
    linked: Option<Linked>,
) -> Answer<Json<Vec<ChainView>>> {
    Ok(Json(match linked {
        Some(Linked(order_id)) => reads.choices(order_id).await?,
        None => reads.offer().await?,
    }))
}

json::fields! { PaymentBody { blockchain, stablecoin } }

/// `POST /orders/{order_id}/payment`
pub(crate) async fn choose_payment(
    commands: Commands,
    Linked(order_id): Linked,
    SmallBody(body): SmallBody,
) -> Answer {
    let body: PaymentBody = json::object(&body)?;
    let choice = Choice {
        blockchain: json::required("blockchain", body.blockchain)?,
        stablecoin: json::required("stablecoin", body.stablecoin)?,
    };
    let payment = commands.choose_payment(order_id, choice).await?;
    Ok((StatusCode::CREATED, Json(payment)).into_response())
}

/// `POST /orders/{order_id}/cancel`
pub(crate) async fn cancel(commands: Commands, Linked(order_id): Linked) -> Answer {
    let order = commands.cancel(order_id).await?;
    Ok(Json(OrderView::new(&order)).into_response())
}

json::fields! { TransactionBody { txn_hash } }

/// `POST /orders/{order_id}/transactions`
pub(crate) async fn transaction(
    commands: Commands,
    State(reads): State<Reads>,
    Linked(order_id): Linked,
    SmallBody(body): SmallBody,
) -> Answer {
    let body: TransactionBody = json::object(&body)?;
    let text = json::text("txn_hash", "string", body.txn_hash)?;
    let problem = "must be 64 hex digits, with or without 0x";
    let hash = text.parse().map_err(|_| Invalid::new("txn_hash", problem))?;
    commands.limit(order_id)?;
    let seen = reads.transaction(order_id, hash).await?;
    let transfers: Vec<_> = seen.iter().map(SeenTransferView::new).collect();
    Ok(Json(json!({ "transfers": transfers })).into_response())
}

/// `GET /orders/{order_id}/status`
pub(crate) async fn status(State(reads): State<Reads>, Linked(order_id): Linked) -> Answer {
    Ok(Json(CheckoutView::new(&reads.checkout(order_id).await?)).into_response())
}

/// `GET /orders/{order_id}/events`
pub(crate) async fn events(
    State(events): State<Events>,
    Linked(order_id): Linked,
    query: Query,
    client: Option<Client>,
) -> Answer {
    events.follow(order_id, auth::link_end(&query), client).await
}
