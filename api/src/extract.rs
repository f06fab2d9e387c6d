//! What handlers take from a request; what is wrong with it is refused here, in one way for all.

use std::convert::Infallible;
use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use schemas::HEADER_TRACEPARENT;

use crate::error::{Invalid, Refusal};
use crate::machine::query::Query;

/// Length of a W3C `traceparent`, version 00.
const TRACEPARENT_BYTES: usize = 55;

/// The trace context of a request, if it has a well-formed one: the records that the request causes
/// carry it on.
#[derive(Debug, Default)]
pub(crate) struct Trace(Option<HeaderValue>);

impl Trace {
    pub(crate) fn parent(&self) -> Option<&[u8]> {
        self.0.as_ref().map(HeaderValue::as_bytes)
    }
}

impl<S: Sync> FromRequestParts<S> for Trace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let is_well_formed = |value: &&HeaderValue| {
            let text = value.as_bytes();
            text.len() == TRACEPARENT_BYTES
                && text.starts_with(b"00-")
                && text.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
        };
        Ok(Self(parts.headers.get(HEADER_TRACEPARENT).filter(is_well_formed).cloned()))
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

/// What the one parameter of the path names. A text that cannot name anything names nothing that
/// exists.
#[derive(Debug)]
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for Named<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let text = Path::<String>::from_request_parts(parts, state).await.ok();
        let named = text.and_then(|Path(text)| text.parse().ok());
        named.map(Self).ok_or(Refusal::ResourceNotFound)
    }
}

/// The bytes of a body.
#[derive(Debug)]
pub(crate) struct Body(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let body = Bytes::from_request(request, state).await;
        body.map(Self).map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Refusal::BodyTooLarge,
            _ => Invalid::new("body", "ended too early").into(),
        })
    }
}
