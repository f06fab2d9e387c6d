//! Authentication: the merchant's signature, the operator's secret, the customer's signed checkout link. Each is
//! checked before the content of a request is used.

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
use schemas::{
    CheckoutSignature, OrderId, Secret, SignatureError, UnixMicros, UnixSeconds,
    check_service_header, verify_checkout, verify_service,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::bodies::Unverified;
use crate::client::{Client, Key};
use crate::config::admin::FIRST_NAME;
use crate::error::{Answer, Refusal};
use crate::list_gate::ListGate;
use crate::machine::json;
use crate::machine::limit::{Limits, Rate};
use crate::machine::occasions::Occasions;
use crate::machine::query::Query;
use crate::{AdminSecret, Config, Scope, metrics};

// Spec 5.1, 5.2.
const SIGNATURE: &str = "service-signature";
pub(crate) const AUTHORIZATION: &str = "service-admin-authorization";

/// The keys of an installation, and the clock by which signatures expire.
pub(crate) struct Auth {
    /// Accepted keys of signatures.
    secrets: Vec<Secret>,
    link_secrets: Vec<Secret>,
    bodies: Unverified,
    operators: Vec<(Secret, Operator)>,
    clock: Arc<dyn Clock>,
    /// Limit of wrong signatures and secrets by address: within it the answer is 401, beyond it 429.
    refusals: Limits<Key>,
    wrong_signatures: Occasions,
    wrong_secrets: Occasions,
}

/// Operator who sent a request: the holder of an admin secret.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    pub(crate) name: Arc<str>,
    scope: Scope,
    /// Limits how many lists the operator reads at once.
    pub(crate) list_gate: ListGate,
    pub(crate) client: Option<Client>,
}

/// Metric label of a refused signature's cause.
fn word(cause: SignatureError) -> &'static str {
    match cause {
        SignatureError::Malformed => "malformed",
        SignatureError::Expired => "expired",
        SignatureError::Mismatch => "mismatch",
    }
}

impl Operator {
    fn new(name: &str, scope: Scope) -> Self {
        Self { name: name.into(), scope, list_gate: ListGate::default(), client: None }
    }

    pub(crate) fn may_operate(&self) -> bool {
        self.scope == Scope::Operate
    }

    /// The holder of `admin.secret`.
    pub(crate) fn first() -> Self {
        Self::new(FIRST_NAME, Scope::Operate)
    }
}

impl Auth {
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Self {
        let mut operators = vec![(config.admin_secret.clone(), Operator::first())];
        let operator = |of: &AdminSecret| (of.secret.clone(), Operator::new(&of.name, of.scope));
        operators.extend(config.operators.iter().map(operator));
        Self {
            secrets: config.merchant.accepted_secrets(),
            link_secrets: config.merchant.accepted_link_secrets(),
            bodies: Unverified::default(),
            operators,
            clock,
            refusals: Limits::new(Rate::REFUSALS),
            wrong_signatures: Occasions::default(),
            wrong_secrets: Occasions::default(),
        }
    }

    /// Answer to a wrong signature or secret. A valid one is never limited, because the merchant, operators and
    /// attackers may share one address.
    fn refused(&self, wrong: Refusal, by: Option<Client>, now: UnixMicros) -> Refusal {
        if by.is_none_or(|client| self.refusals.admit(client.key(), now)) {
            return wrong;
        }
        metrics::refusal("address", "authority");
        Refusal::TooManyOfAddress
    }

    /// Checks form and time of the header before the body is read, so that malformed and expired requests cost no
    /// memory.
    fn verify_header(&self, header: &HeaderValue, by: Option<Client>) -> Answer<()> {
        let now = self.clock.now();
        let header = header.to_str().map_err(|_| SignatureError::Malformed);
        let checked = header.and_then(|header| check_service_header(header, now.seconds()));
        checked.map_err(|cause| self.refuse_signature(word(cause), by, now))
    }

    fn verify_body(&self, header: &HeaderValue, body: &[u8], by: Option<Client>) -> Answer<()> {
        let now = self.clock.now();
        let header = header.to_str().map_err(|_| SignatureError::Malformed);
        let verify = |header| verify_service(&self.secrets, header, body, now.seconds());
        let cause = match header.and_then(verify) {
            // The same key signs webhooks: a captured webhook must not be replayed as a request.
            Ok(()) if is_event(body) => "webhook",
            Ok(()) => return Ok(()),
            Err(cause) => word(cause),
        };
        Err(self.refuse_signature(cause, by, now))
    }

    fn refuse_signature(
        &self,
        cause: &'static str,
        by: Option<Client>,
        now: UnixMicros,
    ) -> Refusal {
        metrics::refusal("signature", cause);
        if let Some(count) = self.wrong_signatures.occurred(now.seconds()) {
            tracing::warn!(
                count,
                cause,
                client.address = by.map(tracing::field::display),
                "refused requests to the service API whose signature does not hold; compare the client's merchant.secret \
                 and clock"
            );
        }
        self.refused(Refusal::SignatureFailed, by, now)
    }

    pub(crate) fn verify_operator(
        &self,
        header: Option<&HeaderValue>,
        by: Option<Client>,
    ) -> Answer<Operator> {
        let Some(given) = header else {
            metrics::refusal("secret", "missing");
            return Err(Refusal::AdminMissing);
        };
        self.verify_secret(given.as_bytes(), by)
    }

    /// The operator with this secret.
    ///
    /// # Errors
    /// The secret is not UTF-8, or nobody has it. After too many wrong ones of a client, further wrong ones get a 429.
    pub(crate) fn verify_secret(&self, given: &[u8], by: Option<Client>) -> Answer<Operator> {
        let refuse = |cause, refusal| {
            metrics::refusal("secret", cause);
            Err(refusal)
        };
        if std::str::from_utf8(given).is_err() {
            return refuse("malformed", Refusal::AdminNotText);
        }
        // All secrets are compared, even after a match, so that timing does not reveal one.
        let mut found = None;
        for (secret, operator) in &self.operators {
            if secret.matches(given) {
                found = Some(operator);
            }
        }
        if let Some(operator) = found {
            return Ok(Operator { client: by, ..operator.clone() });
        }
        let now = self.clock.now();
        if let Some(count) = self.wrong_secrets.occurred(now.seconds()) {
            tracing::warn!(
                count,
                client.address = by.map(tracing::field::display),
                "refused requests to the admin API with a wrong secret; a client has an old one, or somebody tries"
            );
        }
        refuse("mismatch", self.refused(Refusal::AdminWrong, by, now))
    }

    /// Order of a link with `exp` and `sig` in the query. A malformed or missing part is refused as a wrong signature.
    pub(crate) fn verify_link(&self, order_id: &str, query: &Query) -> Answer<OrderId> {
        let verify = || {
            let order_id = order_id.parse().ok()?;
            let expires_at = UnixSeconds(query.text("exp").ok()??.parse().ok()?);
            let given = CheckoutSignature { expires_at, signature: query.text("sig").ok()?? };
            verify_checkout(&self.link_secrets, order_id, given, self.clock.now().seconds())
                .ok()?;
            Some(order_id)
        };
        verify().ok_or_else(|| {
            metrics::refusal("link", "invalid");
            Refusal::SignatureFailed
        })
    }
}

/// `true` for a JSON object with an `event_type`, which every webhook has.
fn is_event(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Event {
        event_type: Option<IgnoredAny>,
    }
    json::object::<Event>(body).is_ok_and(|event| event.event_type.is_some())
}

/// Returns the expiry of a link from its query. Valid only for a verified query.
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
        let header = request.headers().get(SIGNATURE).cloned().ok_or_else(|| {
            metrics::refusal("signature", "missing");
            Refusal::SignatureMissing
        })?;
        let auth = Arc::<Auth>::from_ref(state);
        let client = request.extensions().get().copied();
        auth.verify_header(&header, client)?;
        let (body, _held) = auth.bodies.read(request.into_body()).await?;
        auth.verify_body(&header, &body, client)?;
        Ok(Self(body))
    }
}

/// Refuses requests without a valid admin secret (spec 5.2), and commands with a read-only one.
pub(crate) async fn operators_only(
    State(auth): State<Arc<Auth>>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = request.extensions().get().copied();
    match auth.verify_operator(request.headers().get(AUTHORIZATION), client) {
        Ok(operator) if operator.may_operate() || request.method().is_safe() => {
            request.extensions_mut().insert(operator);
            next.run(request).await
        }
        Ok(_) => {
            metrics::refusal("secret", "scope");
            Refusal::ReadOnly.into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Operator that [`operators_only`] admitted.
impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        parts.extensions.get::<Self>().cloned().ok_or(Refusal::AdminMissing)
    }
}

/// Order of a checkout link, named by the path, otherwise by the query.
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

/// `None` only if the query has none of `order_id`, `exp` and `sig`. Other parameters, such as those of trackers, are
/// ignored.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Linked
where
    Arc<Auth>: FromRef<S>,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Option<Self>> {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        if ["order_id", "exp", "sig"].iter().all(|name| matches!(query.text(name), Ok(None))) {
            return Ok(None);
        }
        <Self as FromRequestParts<S>>::from_request_parts(parts, state).await.map(Some)
    }
}

#[cfg(test)]
mod tests;
