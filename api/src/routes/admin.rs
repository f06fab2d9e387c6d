//! The admin API (spec 4.2): lists, and the commands of operators.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use schemas::{Hash, OrderId, TransferId};
use serde_json::{json, to_value};
use store::{
    DepositFilter, DepositRow, OrderFilter, OrderRow, Subject, TransferFilter, TransferRow,
    transfer_cursor,
};

use super::listing::{self, Listing, array};
use crate::auth::Operator;
use crate::commands::Commands;
use crate::error::{Answer, Invalid};
use crate::extract::{Body, Named, NoQuery, Only};
use crate::machine::json;
use crate::machine::query::{PAGING, Query};
use crate::reads::Reads;
use crate::view::{
    AdminOrderView, AttemptView, CandidateView, DepositView, TransferView, WalletView,
};
use crate::{StopRequest, stops};

const ORDERS: Listing<OrderRow> = Listing {
    name: "orders",
    columns: "order_id,merchant_order_id,amount,status,created_at,webhook_url,\
              webhook_retry_count,webhook_success_at,webhook_last_tried_at,paid_by,paid_value,\
              candidates,waits_for",
    json: |rows| array(rows, AdminOrderView::new),
    object: |row| to_value(AdminOrderView::new(row)).unwrap_or_default(),
    cursor: OrderRow::cursor,
};

const DEPOSITS: Listing<DepositRow> = Listing {
    name: "deposits",
    columns: "id,order_id,blockchain,token,user_address,wallet_address,value,started_at,\
              last_scanned_at",
    json: |rows| array(rows, DepositView::new),
    object: |row| to_value(DepositView::new(row)).unwrap_or_default(),
    cursor: DepositRow::cursor,
};

pub(super) const TRANSFERS: Listing<TransferRow> = Listing {
    name: "transfers",
    columns: "id,blockchain,token,from_address,to_address,txn_hash,value,block_number,\
              block_timestamp,blockchain_confirmed,created_at,status,fulfillment_id,order_id,\
              reason,candidate_order_id,orphaned_at",
    json: |rows| array(rows, TransferView::new),
    object: |row| to_value(TransferView::new(row)).unwrap_or_default(),
    cursor: transfer_cursor,
};

/// Filters of lists whose rows have a `created_at`.
const CREATED: [&str; 2] = ["created_from", "created_before"];

/// `GET /orders`
pub(crate) async fn orders(by: Operator, State(reads): State<Reads>, query: Query) -> Answer {
    query.only(&[&listing::NAMES, &CREATED, &["status", "merchant_order_id"]])?;
    let within = query.within("created_from", "created_before")?;
    let filter = OrderFilter {
        status: query.parsed("status")?,
        merchant_order_id: query.text("merchant_order_id")?.map(str::to_owned),
        within,
    };
    let read = move |within, page| {
        let (reads, filter) = (reads.clone(), OrderFilter { within, ..filter.clone() });
        async move { reads.orders(filter, page).await }
    };
    ORDERS.answer(&by, &query, within, read).await
}

/// `GET /orders/{order_id}`
pub(crate) async fn order(State(reads): State<Reads>, Only(id): Only<OrderId>) -> Answer {
    Ok(Json(AdminOrderView::new(&reads.order_row(id).await?)).into_response())
}

/// `GET /deposits`
pub(crate) async fn deposits(by: Operator, State(reads): State<Reads>, query: Query) -> Answer {
    let started = ["started_from", "started_before"];
    query.only(&[&listing::NAMES, &started, &["order_id", "blockchain", "token"]])?;
    let within = query.within("started_from", "started_before")?;
    let filter = DepositFilter {
        order_id: query.parsed("order_id")?,
        blockchain: query.parsed("blockchain")?,
        stablecoin: query.parsed("token")?,
        within,
    };
    let read = move |within, page| {
        let reads = reads.clone();
        async move { reads.deposits(DepositFilter { within, ..filter }, page).await }
    };
    DEPOSITS.answer(&by, &query, within, read).await
}

/// `GET /wallets`
pub(crate) async fn wallets(State(reads): State<Reads>, _: NoQuery) -> Answer {
    Ok(array(reads.wallets(), WalletView::new))
}

/// `GET /wallets/{address}/transfers`
pub(crate) async fn transfers(
    by: Operator,
    State(reads): State<Reads>,
    Named(wallet): Named<String>,
    query: Query,
) -> Answer {
    query.only(&[&listing::NAMES, &CREATED, &["status", "blockchain", "token"]])?;
    let within = query.within("created_from", "created_before")?;
    let filter = TransferFilter {
        status: query.parsed("status")?,
        blockchain: query.parsed("blockchain")?,
        stablecoin: query.parsed("token")?,
        within,
    };
    let wallet = reads.wallet(&wallet)?;
    let read = move |within, page| {
        let reads = reads.clone();
        async move { reads.transfers(wallet, TransferFilter { within, ..filter }, page).await }
    };
    TRANSFERS.answer(&by, &query, within, read).await
}

/// `GET /transfers/{transfer_id}`
pub(crate) async fn transfer(State(reads): State<Reads>, Only(id): Only<i64>) -> Answer {
    Ok(Json(TransferView::new(&reads.transfer(TransferId(id)).await?)).into_response())
}

/// `GET /transactions/{hash}`
pub(crate) async fn transaction(
    State(reads): State<Reads>,
    by: Operator,
    Only(hash): Only<Hash>,
) -> Answer {
    let mut found = Vec::new();
    for place in reads.wallets().iter().map(|wallet| (wallet.address, wallet.blockchain)) {
        let reads = reads.clone();
        // Up to `SEARCHED_PAGES_MAX` pages of each wallet's list are read, so this needs the permit of a list.
        let at_wallet = async move { reads.transaction_at(place, None, hash).await };
        found.extend(by.list_gate.clone().take(at_wallet).await?);
    }
    Ok(array(&found, TransferView::new))
}

/// `GET /transfers/{transfer_id}/candidates`
pub(crate) async fn candidates(
    State(reads): State<Reads>,
    by: Operator,
    Only(id): Only<i64>,
) -> Answer {
    // Up to `SEARCHED_PAGES_MAX` pages of orders are read, so this needs the permit of a list.
    let found = by.list_gate.take(async move { reads.candidates(TransferId(id)).await }).await?;
    Ok(array(&found, CandidateView::new))
}

/// `GET /orders/{order_id}/webhooks`
pub(crate) async fn order_webhooks(
    State(reads): State<Reads>,
    Named(id): Named<OrderId>,
    query: Query,
) -> Answer {
    query.only(&[&PAGING])?;
    Ok(array(&reads.attempts(Subject::Order(id), query.page()?).await?, AttemptView::new))
}

/// `GET /transfers/{transfer_id}/webhooks`
pub(crate) async fn transfer_webhooks(
    State(reads): State<Reads>,
    Named(id): Named<i64>,
    query: Query,
) -> Answer {
    query.only(&[&PAGING])?;
    let of = Subject::Transfer(TransferId(id));
    Ok(array(&reads.attempts(of, query.page()?).await?, AttemptView::new))
}

/// `POST /orders/{order_id}/cancel`
pub(crate) async fn cancel(commands: Commands, by: Operator, Only(id): Only<OrderId>) -> Answer {
    let row = commands.cancel_by(&by, id).await?;
    Ok(Json(AdminOrderView::new(&row)).into_response())
}

/// `POST /orders/{order_id}/mark-paid`
pub(crate) async fn mark_paid(commands: Commands, by: Operator, Only(id): Only<OrderId>) -> Answer {
    let row = commands.mark_paid(&by, id).await?;
    Ok(Json(AdminOrderView::new(&row)).into_response())
}

/// `POST /orders/{order_id}/resend-webhook`
pub(crate) async fn resend_order(
    commands: Commands,
    by: Operator,
    Only(id): Only<OrderId>,
) -> Answer {
    commands.resend_order(&by, id).await?;
    Ok(Json(json!({})).into_response())
}

/// `POST /transfers/{transfer_id}/attach`
pub(crate) async fn attach(
    commands: Commands,
    by: Operator,
    Only(id): Only<i64>,
    Body(body): Body,
) -> Answer {
    let row = commands.attach(&by, TransferId(id), &body).await?;
    Ok(Json(AdminOrderView::new(&row)).into_response())
}

json::fields! { AlertBody { alert_id, reason } }

/// `POST /alerts/resolve`
pub(crate) async fn resolve_alert(
    commands: Commands,
    by: Operator,
    _: NoQuery,
    Body(body): Body,
) -> Answer {
    let body: AlertBody = json::only(&body)?;
    let alert_id = json::text("alert_id", "string", body.alert_id)?;
    let reason = json::optional("reason", body.reason)?;
    commands.resolve_alert(&by, &alert_id, reason).await?;
    Ok(Json(json!({})).into_response())
}

json::fields! { StopBody { subject, blockchain } }

/// Reads a body. Unknown fields are refused, because a misspelt one would stop more than was meant.
fn stop_request(body: &[u8], begins: bool) -> Result<StopRequest, Invalid> {
    let body: StopBody = json::only(body)?;
    let subject = json::text("subject", "string", body.subject)?;
    stops::request(&subject, json::optional("blockchain", body.blockchain)?, begins)
}

/// `POST /stops`
pub(crate) async fn stop(commands: Commands, by: Operator, _: NoQuery, Body(body): Body) -> Answer {
    commands.stop(&by, &stop_request(&body, true)?).await?;
    Ok(Json(json!({})).into_response())
}

/// `POST /stops/end`
pub(crate) async fn resume(
    commands: Commands,
    by: Operator,
    _: NoQuery,
    Body(body): Body,
) -> Answer {
    commands.stop(&by, &stop_request(&body, false)?).await?;
    Ok(Json(json!({})).into_response())
}

/// `POST /transfers/{transfer_id}/resend-webhook`
pub(crate) async fn resend_transfer(
    commands: Commands,
    by: Operator,
    Only(id): Only<i64>,
) -> Answer {
    commands.resend_transfer(&by, TransferId(id)).await?;
    Ok(Json(json!({})).into_response())
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    fn assert_columns(object: serde_json::Value, columns: &str) {
        let mut names: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns: Vec<_> = columns.split(',').collect();
        names.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, names);
    }

    #[test]
    fn a_file_has_every_field_of_its_rows() {
        let order = OrderRow {
            order: example::order(),
            webhook_retry_count: 0,
            webhook_success_at: None,
            webhook_last_tried_at: None,
        };
        assert_columns((ORDERS.object)(&order), ORDERS.columns);
        let deposit = DepositRow { deposit: example::deposit(), last_scanned_at: None };
        assert_columns((DEPOSITS.object)(&deposit), DEPOSITS.columns);
        assert_columns((TRANSFERS.object)(&example::transfer()), TRANSFERS.columns);
    }
}
