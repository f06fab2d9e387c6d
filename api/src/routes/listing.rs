//! The answer of a list: JSON by pages, or CSV as a whole.
//!
//! A list is a route of `router.rs`, and a handler in `admin.rs` that reads its filters from the query and passes them
//! to a method of `Reads`. Parameters and their bounds are in `machine/query.rs`; the meaning of filters, in `lib.rs`
//! of the crate `store`; the queries, in its two back ends.

use std::future::Future;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::Value;
use store::{Cursor, Page, Within};

use crate::auth::Operator;
use crate::error::{Answer, Refusal};
use crate::machine::csv;
use crate::machine::query::{Query, cursor_text};

/// Parameters of every list, beside its filters.
pub(crate) const NAMES: [&str; 4] = ["limit", "offset", "cursor", "format"];
/// Header with the cursor after the last row of a page.
const NEXT_CURSOR: &str = "next-cursor";
/// Rows per read of an export.
const EXPORTED: Page = Page { limit: 200, offset: 0 };

/// Representation of a list's rows.
pub(crate) struct Listing<Row> {
    /// Name of the file.
    pub(crate) name: &'static str,
    /// Columns of the CSV, separated by commas: all fields of the JSON.
    pub(crate) columns: &'static str,
    pub(crate) json: fn(&[Row]) -> Response,
    pub(crate) object: fn(&Row) -> Value,
    pub(crate) cursor: fn(&Row) -> Cursor,
}

/// A JSON array in the representation of the interface.
pub(crate) fn array<'a, Row, View: Serialize>(
    rows: &'a [Row],
    view: fn(&'a Row) -> View,
) -> Response {
    Json(rows.iter().map(view).collect::<Vec<_>>()).into_response()
}

/// A CSV file of this name.
pub(crate) fn file(name: &str, body: Body) -> Response {
    let disposition = format!("attachment; filename=\"{name}.csv\"");
    let kind = "text/csv; charset=utf-8".to_owned();
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, disposition)];
    (headers, body).into_response()
}

impl<Row: Send + 'static> Listing<Row> {
    /// The rows that `read` finds: the requested page or, as CSV without a `limit`, all rows from `offset` on. Each
    /// page is read with the operator's permit.
    pub(crate) async fn answer<F>(
        self,
        by: &Operator,
        query: &Query,
        within: Within,
        read: impl Fn(Within, Page) -> F + Send + 'static,
    ) -> Answer
    where
        F: Future<Output = Answer<Vec<Row>>> + Send + 'static,
    {
        let gate = by.list_gate.clone();
        let read = move |within, page| gate.clone().take(read(within, page));
        let (page, is_csv) = (query.page()?, query.is_csv()?);
        if is_csv && query.text("limit")?.is_none() {
            let first = read(within, Page { limit: EXPORTED.limit, ..page }).await?;
            return Ok(self.export(first, within, read));
        }
        let rows = read(within, page).await?;
        let next =
            rows.last().filter(|_| page.is_full(&rows)).map(|row| cursor_text((self.cursor)(row)));
        let mut response = if is_csv {
            file(self.name, Body::from(csv::head(self.columns) + &self.lines(&rows)))
        } else {
            (self.json)(&rows)
        };
        if let Some(next) = next.and_then(|text| HeaderValue::try_from(text).ok()) {
            response.headers_mut().insert(NEXT_CURSOR, next);
        }
        Ok(response)
    }

    fn lines(&self, rows: &[Row]) -> String {
        rows.iter().map(|row| csv::line(&(self.object)(row), self.columns)).collect()
    }

    /// Streams pages as the client consumes them. A failure ends the connection, so that no client takes a part for the
    /// whole.
    fn export<F>(
        self,
        first: Vec<Row>,
        within: Within,
        read: impl Fn(Within, Page) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = Answer<Vec<Row>>> + Send,
    {
        let (head, _) = file(self.name, Body::empty()).into_parts();
        let names = stream::iter([Ok(csv::head(self.columns))]);
        let begin = (self, read, within, Some(Ok(first)));
        let lines = stream::unfold(begin, |(listing, read, mut within, rows)| async move {
            let rows: Vec<Row> = match rows? {
                Ok(rows) => rows,
                Err(refusal) => return Some((Err(refusal), (listing, read, within, None))),
            };
            let text = listing.lines(&rows);
            let next = match rows.last().filter(|_| EXPORTED.is_full(&rows)) {
                None => None,
                Some(last) => {
                    within.before = Some((listing.cursor)(last));
                    Some(read(within, EXPORTED).await)
                }
            };
            Some((Ok::<_, Refusal>(text), (listing, read, within, next)))
        });
        Response::from_parts(head, Body::from_stream(names.chain(lines)))
    }
}
