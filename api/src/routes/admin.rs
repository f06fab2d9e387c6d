//! The admin API (spec 4.2): lists, and the commands of operators.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use schemas::{OrderId, TransferId};
use serde::Serialize;
use serde_json::json;
use store::{DepositFilter, OrderFilter, TransferFilter};

use crate::commands::Commands;
use crate::error::Answer;
use crate::extract::Named;
use crate::machine::query::Query;
use crate::reads::Reads;
use crate::view::{AdminOrderView, AttemptView, DepositView, TransferView, WalletView};

/// A list, in the representation of the interface.
fn list<'a, Row, View: Serialize>(rows: &'a [Row], view: fn(&'a Row) -> View) -> Response {
    Json(rows.iter().map(view).collect::<Vec<_>>()).into_response()
}

/// `GET /orders`
pub(crate) async fn orders(State(reads): State<Reads>, query: Query) -> Answer {
    let filter = OrderFilter {
        status: query.parsed("status")?,
        merchant_order_id: query.text("merchant_order_id")?.map(str::to_owned),
    };
    Ok(list(&reads.orders(filter, query.page()?).await?, AdminOrderView::new))
}

/// `GET /deposits`
pub(crate) async fn deposits(State(reads): State<Reads>, query: Query) -> Answer {
    let filter = DepositFilter {
        order_id: query.parsed("order_id")?,
        blockchain: query.parsed("blockchain")?,
        stablecoin: query.parsed("token")?,
    };
    Ok(list(&reads.deposits(filter, query.page()?).await?, DepositView::new))
}

/// `GET /wallets`
pub(crate) async fn wallets(State(reads): State<Reads>) -> Response {
    list(reads.wallets(), WalletView::new)
}

/// `GET /wallets/{address}/transfers`
pub(crate) async fn transfers(
    State(reads): State<Reads>,
    Named(wallet): Named<String>,
    query: Query,
) -> Answer {
    let filter = TransferFilter {
        status: query.parsed("status")?,
        blockchain: query.parsed("blockchain")?,
        stablecoin: query.parsed("token")?,
    };
    Ok(list(&reads.transfers(&wallet, filter, query.page()?).await?, TransferView::new))
}

/// `GET /orders/{order_id}/webhooks`
pub(crate) async fn order_webhooks(
    State(reads): State<Reads>,
    Named(id): Named<OrderId>,
    query: Query,
) -> Answer {
    Ok(list(&reads.order_attempts(id, query.page()?).await?, AttemptView::new))
}

/// `GET /transfers/{transfer_id}/webhooks`
pub(crate) async fn transfer_webhooks(
    State(reads): State<Reads>,
    Named(id): Named<i64>,
    query: Query,
) -> Answer {
    Ok(list(&reads.transfer_attempts(TransferId(id), query.page()?).await?, AttemptView::new))
}

/// `POST /orders/{order_id}/mark-paid`
pub(crate) async fn mark_paid(commands: Commands, Named(id): Named<OrderId>) -> Answer {
    let row = commands.mark_paid(id).await?;
    Ok(Json(AdminOrderView::new(&row)).into_response())
}

/// `POST /orders/{order_id}/resend-webhook`
pub(crate) async fn resend_order(commands: Commands, Named(id): Named<OrderId>) -> Answer {
    commands.resend_order(id).await?;
    Ok(Json(json!({})).into_response())
}

/// `POST /transfers/{transfer_id}/resend-webhook`
pub(crate) async fn resend_transfer(commands: Commands, Named(id): Named<i64>) -> Answer {
    commands.resend_transfer(TransferId(id)).await?;
    Ok(Json(json!({})).into_response())
}
