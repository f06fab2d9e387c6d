//! Reasons why the API stops, and why it refuses a request. The schema registry has its own.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemas::{CodecError, TransferStatus};

/// `Retry-After` of a server error and of a rate-limited address, in seconds.
const RETRY_AFTER_SECONDS: &str = "1";
/// `Retry-After` of a rate-limited link, in seconds.
const LIMIT_RETRY_AFTER_SECONDS: &str = "6";

/// Challenges of a 401 answer.
pub(crate) const BY_SIGNATURE: &str = "Service-Signature";
pub(crate) const BY_SECRET: &str = "Service-Admin-Authorization";

/// Error that stopped the API.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot serve HTTP: {0}")]
    Serve(#[from] std::io::Error),
    /// The feed failed, without which no command is answered.
    #[error("cannot follow the orders topic: {0}")]
    Feed(#[from] log::Error),
}

/// Result of a handler.
pub(crate) type Answer<T = Response> = Result<T, Refusal>;

/// Defect of one field of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub(crate) struct Invalid {
    field: &'static str,
    problem: String,
}

impl Invalid {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

/// Reason why a request is refused: its `Display` is the body of the answer (spec 7).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    // Spec 7.1.
    #[error("missing Service-Signature header")]
    SignatureMissing,
    /// The one answer to every defect of a signature: it gives no hint for the next attempt.
    #[error("signature verification failed")]
    SignatureFailed,
    #[error("order not found")]
    OrderNotFound,
    // Spec 7.2.
    #[error("missing Service-Admin-Authorization header")]
    AdminMissing,
    #[error("invalid authorization header")]
    AdminNotText,
    #[error("invalid admin secret")]
    AdminWrong,
    #[error("resource not found")]
    ResourceNotFound,
    // Not defined by the interface (docs/decisions/0052).
    #[error("this secret may only read")]
    ReadOnly,
    #[error("method not allowed")]
    MethodNotAllowed,
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("body: must be at most {0}")]
    BodyTooLarge(&'static str),
    #[error("body: did not arrive in time")]
    BodyLate,
    #[error("no wallet available for the selected chain and coin")]
    NoWallet,
    /// The chain's scan is too old or has a gap, none of its wallets is watched, or an operator stopped the payments.
    #[error(
        "payments on the selected chain cannot be seen at present, choose another chain or try again later"
    )]
    NotFollowed,
    #[error("order is not pending")]
    NotPending,
    #[error("a payment for this order was already seen")]
    PaymentSeen,
    /// Every amount that the order may have is reserved at every wallet.
    #[error("no free amount is left for the selected chain and coin, choose another")]
    NoFreeAmount,
    #[error("Idempotency-Key was used with another body")]
    KeyReused,
    #[error("order is pending: there is no status change to send")]
    OrderPending,
    #[error("transfer is {0}: there is no unknown-transfer event to send")]
    TransferKnown(TransferStatus),
    /// Reason why a transfer may not pay the order that an operator names.
    #[error("{0}")]
    NotAttachable(&'static str),
    /// Reason why a dead letter is not put back.
    #[error("{0}")]
    NotPutBack(String),
    /// The transfer or the order changed after the tables were read.
    #[error("the transfer or the order has changed meanwhile, read both again")]
    SettledMeanwhile,
    #[error("merchant.unknown_transfer_webhook_url is not configured")]
    UnknownUrlMissing,
    /// Command by a page of an origin neither allowed nor this host's.
    #[error("origin not allowed")]
    OriginForeign,
    /// Rate limit of a checkout link.
    #[error("too many requests for this order, try again later")]
    TooMany,
    /// Limit of an address: too many requests of customers, refusals or open live views.
    #[error("too many requests from this address, try again later")]
    TooManyOfAddress,
    /// The create command may be on the log: a repeat with the same key gets the order.
    #[error("the order may have been created: repeat the request with the same Idempotency-Key")]
    MaybeCreated,
    /// No answer within the time limit or before the stop, so that the command may still be executed; or too many
    /// requests are waiting.
    #[error("the service is busy, try again")]
    Busy,
    /// A newer version wrote the next record. To skip it would hide its change from the client for good.
    #[error("a newer version wrote what comes next: ask again when the update is complete")]
    Newer,
    /// The cause is only in this process's log lines (spec 7.1, 7.2).
    #[error("internal server error")]
    Internal,
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::SignatureMissing
            | Self::SignatureFailed
            | Self::AdminMissing
            | Self::AdminWrong => StatusCode::UNAUTHORIZED,
            Self::AdminNotText | Self::Invalid(_) | Self::NoWallet => StatusCode::BAD_REQUEST,
            Self::ReadOnly | Self::OriginForeign => StatusCode::FORBIDDEN,
            Self::OrderNotFound | Self::ResourceNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyLate => StatusCode::REQUEST_TIMEOUT,
            Self::NotPending
            | Self::NotFollowed
            | Self::PaymentSeen
            | Self::NoFreeAmount
            | Self::KeyReused
            | Self::OrderPending
            | Self::TransferKnown(_)
            | Self::NotAttachable(_)
            | Self::NotPutBack(_)
            | Self::SettledMeanwhile
            | Self::UnknownUrlMissing => StatusCode::CONFLICT,
            Self::TooMany | Self::TooManyOfAddress => StatusCode::TOO_MANY_REQUESTS,
            Self::MaybeCreated | Self::Busy | Self::Newer => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Challenge of a 401 answer (RFC 9110, 11.6.1): the header that authenticates the request,
    /// `Service-Signature` also for a wrong link. A scheme unknown to browsers opens no dialogue.
    fn challenge(&self) -> Option<&'static str> {
        let is_admin = matches!(self, Self::AdminMissing | Self::AdminWrong);
        let header = if is_admin { BY_SECRET } else { BY_SIGNATURE };
        (self.status() == StatusCode::UNAUTHORIZED).then_some(header)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.status();
        let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        let seconds = if matches!(self, Self::TooMany) {
            Some(LIMIT_RETRY_AFTER_SECONDS)
        } else {
            // A request may be repeated after a server error or a rate limit.
            let is_passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            is_passing.then_some(RETRY_AFTER_SECONDS)
        };
        let retry = seconds.map(|seconds| [(header::RETRY_AFTER, seconds)]);
        let challenge = self.challenge().map(|scheme| [(header::WWW_AUTHENTICATE, scheme)]);
        (status, plain, retry, challenge, self.to_string()).into_response()
    }
}

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        if matches!(error, store::Error::Transient(_)) {
            tracing::warn!(%error, "a request failed: the tables are unavailable");
        } else {
            tracing::error!(%error, "a request failed: the tables are unusable");
        }
        Self::Internal
    }
}

impl From<log::Error> for Refusal {
    fn from(error: log::Error) -> Self {
        if matches!(error, log::Error::Transient(_)) {
            tracing::warn!(%error, "a request failed: the log is unavailable");
        } else {
            tracing::error!(%error, "a request failed: the log is unusable");
        }
        Self::Internal
    }
}

impl From<log::NewerRecord> for Refusal {
    fn from(error: log::NewerRecord) -> Self {
        tracing::error!(%error, "a request failed: this version is too old");
        Self::Newer
    }
}

impl From<CodecError> for Refusal {
    fn from(error: CodecError) -> Self {
        tracing::error!(%error, "a record made from a request does not fit its schema");
        Self::Internal
    }
}
