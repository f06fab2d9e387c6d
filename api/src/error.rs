//! Why the api stops, and why it refuses a request. Every text that a caller can get is here.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemas::{CodecError, TransferStatus};

/// Why the api stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server could not go on accepting.
    #[error("cannot serve HTTP: {0}")]
    Serve(#[from] std::io::Error),
    /// The feed of orders cannot be followed, so commands would never be answered.
    #[error("cannot follow the orders topic: {0}")]
    Feed(#[from] log::Error),
}

/// What is wrong with one field of a request.
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

/// Why a request is refused: its `Display` is the body of the answer (spec 7).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Spec 7.1.
    #[error("missing Service-Signature header")]
    SignatureMissing,
    /// Spec 7.1; the one answer to every defect of a signature, so that none can be told apart.
    #[error("signature verification failed")]
    SignatureFailed,
    /// Spec 7.1.
    #[error("order not found")]
    OrderNotFound,
    /// Spec 7.2.
    #[error("missing Service-Admin-Authorization header")]
    AdminMissing,
    /// Spec 7.2.
    #[error("invalid authorization header")]
    AdminNotText,
    /// Spec 7.2.
    #[error("invalid admin secret")]
    AdminWrong,
    /// Spec 7.2.
    #[error("resource not found")]
    ResourceNotFound,
    /// The path exists, the method does not.
    #[error("method not allowed")]
    MethodNotAllowed,
    /// A field of the request.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Above 1 MiB.
    #[error("body: must be at most 1 MiB")]
    BodyTooLarge,
    /// The chosen payment cannot be taken.
    #[error("no wallet available for the selected chain and coin")]
    NoWallet,
    /// The order has ended.
    #[error("order is not pending")]
    NotPending,
    /// Cancel came too late.
    #[error("a payment for this order was already seen")]
    PaymentSeen,
    /// Every amount within the nudge limit is reserved at every wallet.
    #[error("no free amount is left for the selected chain and coin, choose another")]
    NoFreeAmount,
    /// The key names an order with other content.
    #[error("Idempotency-Key was used with another body")]
    KeyReused,
    /// Nothing to resend yet.
    #[error("order is pending: there is no status change to send")]
    OrderPending,
    /// Nothing to resend.
    #[error("transfer is {0}: there is no unknown-transfer event to send")]
    TransferKnown(TransferStatus),
    /// Nowhere to send it.
    #[error("merchant.unknown_transfer_webhook_url is not configured")]
    UnknownUrlMissing,
    /// No answer in time: what was asked may still happen.
    #[error("the service is busy, try again")]
    Busy,
    /// The cause is in the log (spec 7.1, 7.2).
    #[error("internal server error")]
    Internal,
}

impl Refusal {
    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::SignatureMissing
            | Self::SignatureFailed
            | Self::AdminMissing
            | Self::AdminWrong => StatusCode::UNAUTHORIZED,
            Self::AdminNotText | Self::Invalid(_) | Self::NoWallet => StatusCode::BAD_REQUEST,
            Self::OrderNotFound | Self::ResourceNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotPending
            | Self::PaymentSeen
            | Self::NoFreeAmount
            | Self::KeyReused
            | Self::OrderPending
            | Self::TransferKnown(_)
            | Self::UnknownUrlMissing => StatusCode::CONFLICT,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        (self.status(), plain, self.to_string()).into_response()
    }
}

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        match &error {
            store::Error::Transient(_) => {
                tracing::warn!(%error, "a request failed: the tables are unavailable")
            }
            store::Error::Fatal(_)
            | store::Error::SchemaMissing { .. }
            | store::Error::SchemaOutdated { .. }
            | store::Error::SchemaNewer { .. } => {
                tracing::error!(%error, "a request failed: the tables are unusable")
            }
        }
        Self::Internal
    }
}

impl From<log::Error> for Refusal {
    fn from(error: log::Error) -> Self {
        match &error {
            log::Error::Transient(_) => {
                tracing::warn!(%error, "a request failed: the log is unavailable")
            }
            log::Error::Fenced(_) | log::Error::Fatal(_) => {
                tracing::error!(%error, "a request failed: the log is unusable");
            }
        }
        Self::Internal
    }
}

impl From<CodecError> for Refusal {
    fn from(error: CodecError) -> Self {
        tracing::error!(%error, "a record made from a request does not fit its schema");
        Self::Internal
    }
}
