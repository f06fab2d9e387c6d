//! The admin API (spec 4.2): lists, and what an operator may order.

use std::str::FromStr;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use schemas::{Address, TransferId};
use serde_json::{Value, json};
use store::{DepositFilter, OrderFilter, TransferFilter};

use crate::error::Refusal;
use crate::machine::query::Query;
use crate::router::{Api, Shared, trace};
use crate::view::{AdminOrderView, DepositView, TransferView, WalletView};

/// Spec 5.2.
const AUTHORIZATION: &str = "service-admin-authorization";

/// The text in a path, or that it is none.
pub(crate) type Segment = Result<Path<String>, PathRejection>;

/// What a path names. A text that cannot name anything names nothing that exists.
fn named<T: FromStr>(segment: Segment) -> Result<T, Refusal> {
    let text = segment.ok().map(|Path(text)| text);
    text.and_then(|text| text.parse().ok()).ok_or(Refusal::ResourceNotFound)
}

/// Lets only operators through.
pub(crate) async fn authorize(State(api): Shared, request: Request, next: Next) -> Response {
    match authorized(&api, request.headers().get(AUTHORIZATION)) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn authorized(api: &Api, header: Option<&HeaderValue>) -> Result<(), Refusal> {
    let given = header.ok_or(Refusal::AdminMissing)?.as_bytes();
    if std::str::from_utf8(given).is_err() {
        return Err(Refusal::AdminNotText);
    }
    if api.admin_secret.matches(given) { Ok(()) } else { Err(Refusal::AdminWrong) }
}

/// `GET /orders`
pub(crate) async fn orders(
    State(api): Shared,
    RawQuery(raw): RawQuery,
) -> Result<Response, Refusal> {
    let raw = raw.unwrap_or_default();
    let query = Query::parse(&raw);
    let page = query.page()?;
    let filter = OrderFilter {
        status: query.word("status")?,
        merchant_order_id: query.text("merchant_order_id")?.map(str::to_owned),
    };
    let rows = api.runner.store.orders(filter, page).await?;
    Ok(Json(rows.iter().map(AdminOrderView::new).collect::<Vec<_>>()).into_response())
}

/// `POST /orders/{order_id}/mark-paid`
pub(crate) async fn mark_paid(
    State(api): Shared,
    order_id: Segment,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let row = api.runner.mark_paid(named(order_id)?, trace(&headers)).await?;
    Ok(Json(AdminOrderView::new(&row)).into_response())
}

/// `POST /orders/{order_id}/resend-webhook`
pub(crate) async fn resend_order(
    State(api): Shared,
    order_id: Segment,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    api.runner.resend_order(named(order_id)?, trace(&headers)).await?;
    Ok(Json(json!({})))
}

/// `GET /deposits`
pub(crate) async fn deposits(
    State(api): Shared,
    RawQuery(raw): RawQuery,
) -> Result<Response, Refusal> {
    let raw = raw.unwrap_or_default();
    let query = Query::parse(&raw);
    let page = query.page()?;
    let filter = DepositFilter {
        order_id: query.order_id()?,
        blockchain: query.word("blockchain")?,
        stablecoin: query.word("token")?,
    };
    let rows = api.runner.store.deposits(filter, page).await?;
    Ok(Json(rows.iter().map(DepositView::new).collect::<Vec<_>>()).into_response())
}

/// `GET /wallets`
pub(crate) async fn wallets(State(api): Shared) -> Response {
    let wallets = api.runner.catalog.wallets().iter().map(WalletView::new);
    Json(wallets.collect::<Vec<_>>()).into_response()
}

/// `GET /wallets/{address}/transfers`
pub(crate) async fn transfers(
    State(api): Shared,
    address: Segment,
    RawQuery(raw): RawQuery,
) -> Result<Response, Refusal> {
    let text: String = named(address)?;
    let wallet = any_case(&text)
        .filter(|wallet| api.runner.catalog.has_wallet(wallet))
        .ok_or(Refusal::ResourceNotFound)?;
    let raw = raw.unwrap_or_default();
    let query = Query::parse(&raw);
    let page = query.page()?;
    let filter = TransferFilter {
        status: query.word("status")?,
        blockchain: query.word("blockchain")?,
        stablecoin: query.word("token")?,
    };
    let rows = api.runner.store.transfers(wallet, filter, page).await?;
    Ok(Json(rows.iter().map(TransferView::new).collect::<Vec<_>>()).into_response())
}

/// An address whose hex digits may have any case: explorers and spreadsheets change it. A mistyped
/// digit finds no wallet, so the checksum has nothing to protect here.
fn any_case(text: &str) -> Option<Address> {
    let lower = text.to_ascii_lowercase();
    let text = if lower.starts_with("0x") { &lower } else { text };
    Address::parse(text).ok()
}

/// `POST /transfers/{transfer_id}/resend-webhook`
pub(crate) async fn resend_transfer(
    State(api): Shared,
    transfer_id: Segment,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    let transfer_id = TransferId(named(transfer_id)?);
    api.runner.resend_transfer(transfer_id, trace(&headers)).await?;
    Ok(Json(json!({})))
}
