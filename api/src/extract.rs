//! Request extractors, and the refusal of a request without their data.

use std::convert::Infallible;
use std::error::Error;
use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use runtime::traces::{self, Context, Kind, Running};
use schemas::HEADER_TRACEPARENT;

use crate::error::{Answer, Invalid, Refusal};
use crate::listener::BodyLate;
use crate::machine::query::Query;

/// Length of a W3C `traceparent`, version 00.
const TRACEPARENT_BYTES: usize = 55;

/// The W3C trace context of a request, if it has a well-formed one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Option<HeaderValue>);

impl Trace {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let is_well_formed = |value: &&HeaderValue| {
            let text = value.as_bytes();
            text.len() == TRACEPARENT_BYTES
                && text.starts_with(b"00-")
                && text.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
        };
        Self(headers.get(HEADER_TRACEPARENT).filter(is_well_formed).cloned())
    }

    /// Trace context of a span's children.
    pub(crate) fn through(span: &Running) -> Self {
        Self(HeaderValue::try_from(span.context().traceparent()).ok())
    }

    /// Begins a span of this trace; `None` without a trace, or if the span is not exported.
    pub(crate) fn begin(&self, name: &str, kind: Kind) -> Option<Running> {
        traces::begin(name, kind, Context::parse(self.parent()?)?)
    }

    pub(crate) fn parent(&self) -> Option<&[u8]> {
        self.0.as_ref().map(HeaderValue::as_bytes)
    }

    /// The id of the trace, 32 hex digits.
    pub(crate) fn id(&self) -> Option<&str> {
        self.0.as_ref()?.to_str().ok()?.get(3..35)
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

/// Refuses any query: a name in it may have been meant for another route.
#[derive(Debug)]
pub(crate) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        Query::parse(parts.uri.query().unwrap_or_default()).only(&[])?;
        Ok(Self)
    }
}

/// Value of the only path parameter. A malformed id is refused like one that does not exist.
#[derive(Debug)]
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for Named<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let text = Path::<String>::from_request_parts(parts, state).await.ok();
        let named = text.and_then(|Path(text)| text.parse().ok());
        named.map(Self).ok_or(Refusal::ResourceNotFound)
    }
}

/// [`Named`], for a route without a query.
#[derive(Debug)]
pub(crate) struct Only<T>(pub(crate) T);

impl<S: Send + Sync, T: FromStr + Send> FromRequestParts<S> for Only<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let Named(value) = Named::<T>::from_request_parts(parts, state).await?;
        NoQuery::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// Declares the bodies of requests, each with the name of its limit.
macro_rules! bodies {
    ($($(#[$doc:meta])* $body:ident: $limit:literal,)+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $body(pub(crate) Bytes);

        impl<S: Send + Sync> FromRequest<S> for $body {
            type Rejection = Refusal;

            async fn from_request(request: Request, state: &S) -> Answer<Self> {
                read(request, state, $limit).await.map(Self)
            }
        }
    )+};
}

bodies! {
    Body: "64 KiB",
    /// A customer's body.
    SmallBody: "4 KiB",
    /// A form of the checkout page.
    Form: "1 KiB",
    /// A form of the console.
    ConsoleForm: "2 KiB",
}

/// Reads a body. The route sets the limit; `limit` is its name in the refusal.
async fn read<S: Send + Sync>(request: Request, state: &S, limit: &'static str) -> Answer<Bytes> {
    let body = Bytes::from_request(request, state).await;
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Refusal::BodyTooLarge(limit),
        _ => broken_off(&rejection),
    })
}

/// Refusal of an incomplete body.
pub(crate) fn broken_off(error: &(dyn Error + 'static)) -> Refusal {
    if is_late(error) {
        return Refusal::BodyLate;
    }
    Invalid::new("body", "ended too early").into()
}

/// `true` if the client took too long, as reported by the listener.
fn is_late(error: &(dyn Error + 'static)) -> bool {
    error.is::<BodyLate>() || error.source().is_some_and(is_late)
}
