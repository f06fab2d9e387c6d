//! The service API (spec 4.1): signed requests of the merchant's backend.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use log::Log;
use schemas::{Topic, UnixSeconds};
use serde_json::{Value, json};
use store::{OrderFilter, OrderRow, Page};

use crate::auth::Signed;
use crate::changes;
use crate::commands::Commands;
use crate::error::{Answer, Invalid, Refusal};
use crate::links::Links;
use crate::machine::changes::{Position, Start};
use crate::machine::creation::{Created, check_key};
use crate::machine::json;
use crate::machine::query::{self, LIMIT_DEFAULT, LIMIT_MAX};
use crate::machine::unknown_field;
use crate::reads::Reads;
use crate::view::{ChangeView, OrderView};

/// Makes a create request repeatable.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Header with the ignored fields of a create request.
const IGNORED_FIELDS: HeaderName = HeaderName::from_static("tidemark-ignored-fields");

/// Header of an order that an earlier request with the same key created.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// `POST /orders`
pub(crate) async fn create(
    commands: Commands,
    State(links): State<Links>,
    headers: HeaderMap,
    Signed(body): Signed,
) -> Answer {
    let key = headers.get(IDEMPOTENCY_KEY).map(|key| check_key(key.as_bytes())).transpose()?;
    let ignored = unknown_field::ignored(&body)?;
    commands.note_ignored(&ignored);
    let Created { order, is_repeated } = commands.create(&body, key).await?;
    let replayed = is_repeated.then_some([(REPLAYED, "true")]);
    let ignored = HeaderValue::try_from(ignored.join(", ")).ok().filter(|of| !of.is_empty());
    let ignored = ignored.map(|names| [(IGNORED_FIELDS, names)]);
    let location = links.checkout(&order).map(|link| [(header::LOCATION, link)]);
    let view = Json(OrderView::created(&order));
    Ok((StatusCode::CREATED, ignored, replayed, location, view).into_response())
}

json::fields! { StatusBody { order_id } }

/// `POST /orders/status`
pub(crate) async fn status(State(reads): State<Reads>, Signed(body): Signed) -> Answer {
    let body: StatusBody = json::only(&body)?;
    let order = reads.order(json::required("order_id", body.order_id)?).await?;
    Ok(Json(OrderView::new(&order)).into_response())
}

json::fields! {
    ListBody { merchant_order_id, status, created_from, created_before, cursor, limit }
}

fn limit(value: Option<Value>) -> Result<u32, Invalid> {
    let limit = json::integer("limit", value, 1..=LIMIT_MAX.into())?;
    Ok(limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(LIMIT_DEFAULT))
}

/// `POST /orders/list`
pub(crate) async fn list(State(reads): State<Reads>, Signed(body): Signed) -> Answer {
    let body: ListBody = json::only(&body)?;
    let second = |field, value| json::integer(field, value, 0..=i64::MAX);
    let (from, before) = (
        second("created_from", body.created_from)?,
        second("created_before", body.created_before)?,
    );
    let cursor: Option<String> = json::optional("cursor", body.cursor)?;
    let filter = OrderFilter {
        status: json::optional("status", body.status)?,
        merchant_order_id: json::optional("merchant_order_id", body.merchant_order_id)?,
        within: query::within(from.map(UnixSeconds), before.map(UnixSeconds), cursor.as_deref())?,
    };
    let page = Page { limit: limit(body.limit)?, offset: 0 };
    let rows = reads.orders(filter, page).await?;
    let last = rows.last().filter(|_| page.is_full(&rows));
    let cursor = last.map(|row| query::cursor_text(row.cursor()));
    let view = |row: &OrderRow| json!(OrderView::new(&row.order));
    let orders: Vec<_> = rows.iter().map(view).collect();
    Ok(Json(json!({ "orders": orders, "cursor": cursor })).into_response())
}

json::fields! { ChangesBody { cursor, since, limit } }

/// `POST /orders/changes`
pub(crate) async fn changes(State(log): State<Arc<dyn Log>>, Signed(body): Signed) -> Answer {
    let body: ChangesBody = json::only(&body)?;
    let cursor: Option<String> = json::optional("cursor", body.cursor)?;
    let incarnation = log.incarnation();
    let start = match (cursor, json::integer("since", body.since, 0..=i64::MAX)?) {
        (Some(_), Some(_)) => {
            return Err(Invalid::new("since", "must not be given with cursor").into());
        }
        (Some(text), None) => {
            let partitions = Topic::Orders.all_partitions(&log.layout()).count();
            Start::After(Position::parse(&text, partitions, incarnation)?)
        }
        (None, Some(since)) => Start::Since(UnixSeconds(since)),
        (None, None) => Start::Oldest,
    };
    let limit = usize::try_from(limit(body.limit)?).unwrap_or(usize::MAX);
    let read = tokio::task::spawn_blocking(move || changes::read(&*log, start, limit));
    let found = read.await.map_err(|_| Refusal::Internal)??;
    let orders: Vec<_> = found.orders.iter().map(ChangeView::new).collect();
    let cursor = found.position.text(incarnation);
    let answer = json!({ "orders": orders, "cursor": cursor, "more": found.more });
    Ok(Json(answer).into_response())
}
