//! The three checks of authority: the merchant's signature, the operator's secret, the customer's
//! signed checkout link. Each precedes everything else that is done with a request.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{
    FromRef, FromRequest, FromRequestParts, OptionalFromRequestParts, RawPathParams, Request, State,
};
use axum::http::HeaderValue;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runtime::Clock;
use schemas::{CheckoutSignature, OrderId, Secret, UnixSeconds, verify_checkout, verify_service};

use crate::Config;
use crate::error::{Answer, Refusal};
use crate::extract::Body;
use crate::machine::query::Query;

// Spec 5.1, 5.2.
const SIGNATURE: &str = "service-signature";
pub(crate) const AUTHORIZATION: &str = "service-admin-authorization";

/// The keys of an installation, and the clock by which signatures expire.
pub(crate) struct Auth {
    /// The keys that a signature may be made with.
    secrets: Vec<Secret>,
    admin_secret: Secret,
    clock: Arc<dyn Clock>,
}

impl Auth {
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Self {
        let secrets = config.merchant.accepted_secrets();
        Self { secrets, admin_secret: config.admin_secret.clone(), clock }
    }

    fn verify_body(&self, header: &HeaderValue, body: &[u8]) -> Answer<()> {
        let header = header.to_str().map_err(|_| Refusal::SignatureFailed)?;
        let now = self.clock.now().seconds();
        verify_service(&self.secrets, header, body, now).map_err(|cause| {
            tracing::debug!(%cause, "a request to the service API was refused");
            Refusal::SignatureFailed
        })
    }

    pub(crate) fn verify_operator(&self, header: Option<&HeaderValue>) -> Answer<()> {
        let given = header.ok_or(Refusal::AdminMissing)?.as_bytes();
        if std::str::from_utf8(given).is_err() {
            return Err(Refusal::AdminNotText);
        }
        if self.admin_secret.matches(given) { Ok(()) } else { Err(Refusal::AdminWrong) }
    }

    /// The order of a link, whose `exp` and `sig` are in the query. A malformed id is a wrong signature.
    pub(crate) fn verify_link(&self, order_id: &str, query: &Query) -> Answer<OrderId> {
        let verify = || {
            let order_id = order_id.parse().ok()?;
            let expires_at = UnixSeconds(query.text("exp").ok()??.parse().ok()?);
            let given = CheckoutSignature { expires_at, signature: query.text("sig").ok()?? };
            verify_checkout(&self.secrets, order_id, given, self.clock.now().seconds()).ok()?;
            Some(order_id)
        };
        verify().ok_or(Refusal::SignatureFailed)
    }
}

/// When the link of a query ends. Meaningful for one that was verified.
pub(crate) fn link_end(query: &Query) -> UnixSeconds {
    let end = query.text("exp").ok().flatten().and_then(|exp| exp.parse().ok());
    UnixSeconds(end.unwrap_or_default())
}

/// A body that the merchant signed (spec 5.1).
#[derive(Debug)]
pub(crate) struct Signed(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Signed
where
    Arc<Auth>: FromRef<S>,
{
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Answer<Self> {
        let header = request.headers().get(SIGNATURE).cloned().ok_or(Refusal::SignatureMissing)?;
        let Body(body) = Body::from_request(request, state).await?;
        Arc::<Auth>::from_ref(state).verify_body(&header, &body)?;
        Ok(Self(body))
    }
}

/// Refuses every request without the admin secret (spec 5.2).
pub(crate) async fn operators_only(
    State(auth): State<Arc<Auth>>,
    request: Request,
    next: Next,
) -> Response {
    match auth.verify_operator(request.headers().get(AUTHORIZATION)) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The order of a checkout link: the path names it, or the query where the path does not.
#[derive(Debug)]
pub(crate) struct Linked(pub(crate) OrderId);

impl<S: Send + Sync> FromRequestParts<S> for Linked
where
    Arc<Auth>: FromRef<S>,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| Refusal::SignatureFailed)?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let in_path = params.iter().next().map(|(_, text)| text);
        let order_id = in_path.or_else(|| query.text("order_id").ok().flatten());
        let order_id = order_id.ok_or(Refusal::SignatureFailed)?;
        Arc::<Auth>::from_ref(state).verify_link(order_id, &query).map(Self)
    }
}

/// None only where the request has no query at all.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Linked
where
    Arc<Auth>: FromRef<S>,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Option<Self>> {
        match parts.uri.query() {
            None | Some("") => Ok(None),
            Some(_) => {
                <Self as FromRequestParts<S>>::from_request_parts(parts, state).await.map(Some)
            }
        }
    }
}
