//! Rate limits by address for routes that need no secret: links are not secret, documents and schemas are public.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runtime::Clock;

use crate::client::{Client, Key};
use crate::error::{Answer, Refusal};
use crate::machine::limit::{Limits, Rate};
use crate::machine::occasions::Occasions;
use crate::metrics;

/// Log line of refusals to customers.
pub(crate) const TOO_MANY_REQUESTS: &str = "refused requests of customers: one address makes more than server.customer_requests_per_second; if it is that of a proxy, \
     name it in server.trusted_proxies";

/// The limit of each address, if there is one.
pub(crate) struct Customers {
    limits: Option<Limits<Key>>,
    refused: Occasions,
    /// The log line of refusals.
    refusal: &'static str,
    clock: Arc<dyn Clock>,
}

impl Customers {
    pub(crate) fn new(
        per_second: Option<NonZeroU32>,
        refusal: &'static str,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let limits = per_second.map(|requests| Limits::new(Rate::per_second(requests)));
        Self { limits, refused: Occasions::default(), refusal, clock }
    }

    /// Counts a request against the limit of its client's address.
    pub(crate) fn admit(&self, request: &Request) -> Answer<()> {
        let client: Option<&Client> = request.extensions().get();
        let Some((limits, client)) = self.limits.as_ref().zip(client) else { return Ok(()) };
        let now = self.clock.now();
        if limits.admit(client.key(), now) {
            return Ok(());
        }
        metrics::refusal("address", "limit");
        if let Some(count) = self.refused.occurred(now.seconds()) {
            tracing::warn!(count, client.address = %client, "{}", self.refusal);
        }
        Err(Refusal::TooManyOfAddress)
    }
}

/// Refuses requests beyond an address's limit. CORS preflights are not counted: to the page, a refused one is a network
/// failure.
pub(crate) async fn limited(
    State(customers): State<Arc<Customers>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::OPTIONS
        && let Err(refusal) = customers.admit(&request)
    {
        return refusal.into_response();
    }
    next.run(request).await
}
