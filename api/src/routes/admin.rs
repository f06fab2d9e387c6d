//! The admin API (spec 4.2): lists, and the commands of operators.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use schemas::{OrderId, TransferId};
use serde::Serialize;
use serde_json::{Value, json};
use store::{DepositFilter, OrderFilter, TransferFilter};

use crate::commands::Commands;
use crate::error::Refusal;
use crate::extract::{Named, Trace};
use crate::machine::query::Query;
use crate::reads::Reads;
use crate::view::{AdminOrderView, DepositView, TransferView, WalletView};

/// A list, in the representation of the interface.
fn list<'a, Row, View: Serialize>(rows: &'a [Row], view: fn(&'a Row) -> View) -> Response {
    Json(rows.iter().map(view).collect::<Vec<_>>()).into_response()
}

/// `GET /orders`
pub(crate) async fn orders(
    State(reads): State<Arc<Reads>>,
    query: Query,
) -> Result<Response, Refusal> {
    let page = query.page()?;
    let filter = OrderFilter {
        status: query.parsed("status")?,
        merchant_order_id: query.text("merchant_order_id")?.map(str::to_owned),
    };
    Ok(list(&reads.orders(filter, page).await?, AdminOrderView::new))
}

/// `GET /deposits`
pub(crate) async fn deposits(
    State(reads): State<Arc<Reads>>,
    query: Query,
) -> Result<Response, Refusal> {
    let page = query.page()?;
    let filter = DepositFilter {
        order_id: query.parsed("order_id")?,
        blockchain: query.parsed("blockchain")?,
        stablecoin: query.parsed("token")?,
    };
    Ok(list(&reads.deposits(filter, page).await?, DepositView::new))
}

/// `GET /wallets`
pub(crate) async fn wallets(State(reads): State<Arc<Reads>>) -> Response {
    list(reads.wallets(), WalletView::new)
}

/// `GET /wallets/{address}/transfers`
pub(crate) async fn transfers(
    State(reads): State<Arc<Reads>>,
    Named(address): Named<String>,
    query: Query,
) -> Result<Response, Refusal> {
    let wallet = reads.wallet(&address)?;
    let page = query.page()?;
    let filter = TransferFilter {
        status: query.parsed("status")?,
        blockchain: query.parsed("blockchain")?,
        stablecoin: query.parsed("token")?,
    };
    Ok(list(&reads.transfers(wallet, filter, page).await?, TransferView::new))
}

/// `POST /orders/{order_id}/mark-paid`
pub(crate) async fn mark_paid(
    State(commands): State<Arc<Commands>>,
    Named(order_id): Named<OrderId>,
    trace: Trace,
) -> Result<Response, Refusal> {
    let row = commands.mark_paid(order_id, &trace).await?;
    Ok(Json(AdminOrderView::new(&row)).into_response())
}

/// `POST /orders/{order_id}/resend-webhook`
pub(crate) async fn resend_order(
    State(commands): State<Arc<Commands>>,
    Named(order_id): Named<OrderId>,
    trace: Trace,
) -> Result<Json<Value>, Refusal> {
    commands.resend_order(order_id, &trace).await?;
    Ok(Json(json!({})))
}

/// `POST /transfers/{transfer_id}/resend-webhook`
pub(crate) async fn resend_transfer(
    State(commands): State<Arc<Commands>>,
    Named(transfer_id): Named<i64>,
    trace: Trace,
) -> Result<Json<Value>, Refusal> {
    commands.resend_transfer(TransferId(transfer_id), &trace).await?;
    Ok(Json(json!({})))
}
