//! Every route, once; what all of them have in common; and the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use log::Log;
use runtime::Clock;
use schemas::{HEADER_TRACEPARENT, Secret};
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::Refusal;
use crate::runner::{Runner, Trace};
use crate::view::HealthView;
use crate::{Config, Error, Feed, admin, metrics, registry, service, user};

/// Most bytes of a body.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// How long a request may take, its body included: longer than the wait for a command's answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Length of a W3C `traceparent`, version 00.
const TRACEPARENT_BYTES: usize = 55;

/// What handlers need.
pub(crate) struct Api {
    pub(crate) runner: Runner,
    /// Keys that signatures may be made with.
    pub(crate) secrets: Vec<Secret>,
    pub(crate) admin_secret: Secret,
    /// Stands before the names of topics.
    pub(crate) topic_prefix: String,
    allowed_origins: Vec<String>,
    version: &'static str,
}

/// State of the handlers.
pub(crate) type Shared = State<Arc<Api>>;

/// Serves the api until `stop`, then lets the requests under way end. Accepts no request before the
/// feed is followed, because a command's answer could be missed.
///
/// # Errors
/// [`Error::Serve`] if the server cannot go on.
pub async fn serve(
    config: Config,
    log: Arc<dyn Log>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    feed: Feed,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), Error> {
    metrics::describe();
    tokio::select! {
        () = feed.following() => {}
        () = stop.cancelled() => return Ok(()),
    }
    let api = Api {
        runner: Runner::new(&config, log, store, clock, feed),
        secrets: config.merchant.accepted_secrets(),
        admin_secret: config.admin_secret,
        allowed_origins: config.merchant.allowed_origins,
        topic_prefix: config.topic_prefix,
        version: config.version,
    };
    tracing::info!(address = ?listener.local_addr(), "the api accepts requests");
    let listener = listener.tap_io(|stream| {
        // Without it answers are late, not wrong.
        drop(stream.set_nodelay(true));
    });
    let router = routes(Arc::new(api));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await?;
    Ok(())
}

/// All routes (spec 4; `docs/API.md` has those that the interface does not show).
fn routes(api: Arc<Api>) -> Router {
    let service = Router::new()
        .route("/orders", post(service::create))
        .route("/orders/status", post(service::status));
    let admin = Router::new()
        .route("/orders", get(admin::orders))
        .route("/orders/{order_id}/mark-paid", post(admin::mark_paid))
        .route("/orders/{order_id}/resend-webhook", post(admin::resend_order))
        .route("/deposits", get(admin::deposits))
        .route("/wallets", get(admin::wallets))
        .route("/wallets/{address}/transfers", get(admin::transfers))
        .route("/transfers/{transfer_id}/resend-webhook", post(admin::resend_transfer))
        .route_layer(middleware::from_fn_with_state(api.clone(), admin::authorize))
        .route("/health", get(health));
    let user = Router::new()
        .route("/chains", get(user::chains).options(preflight))
        .route("/orders/{order_id}/payment", post(user::choose_payment).options(preflight))
        .route("/orders/{order_id}/cancel", post(user::cancel).options(preflight))
        .route("/orders/{order_id}/status", get(user::status).options(preflight))
        .layer(middleware::from_fn_with_state(api.clone(), cross_origin));
    Router::new()
        .nest("/api/v1/service", service)
        .nest("/api/v1/admin", admin)
        .nest("/api/v1/user", user)
        .nest(registry::BASE, registry::routes())
        .route("/health", get(health))
        .fallback(|| async { Refusal::ResourceNotFound })
        .method_not_allowed_fallback(|| async { Refusal::MethodNotAllowed })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(observe))
        .with_state(api)
}

/// Spec 4.2, health check.
async fn health(State(api): Shared) -> Json<HealthView> {
    Json(HealthView { status: "ok", version: api.version })
}

/// Bounds, counts and times every request. Answers are about money now: nobody may store them.
async fn observe(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("none", MatchedPath::as_str).to_owned();
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await;
    let mut response = answer.unwrap_or_else(|_| Refusal::Busy.into_response());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    metrics::request(route, response.status(), begun.elapsed());
    response
}

/// Lets pages of the allowed origins read the answers of the checkout's routes. What a page may do
/// follows from its link alone; without this the browser would hide the answer from it.
async fn cross_origin(State(api): Shared, request: Request, next: Next) -> Response {
    let allowed = |origin: &&HeaderValue| {
        api.allowed_origins.iter().any(|known| known.as_bytes() == origin.as_bytes())
    };
    let origin = request.headers().get(header::ORIGIN).filter(allowed).cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

/// What a browser asks before it sends JSON to another origin. Whether it may go on depends on the
/// header that [`cross_origin`] adds.
async fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// The trace context of a request, if it has a well-formed one.
pub(crate) fn trace(headers: &HeaderMap) -> Trace<'_> {
    let given = headers.get(HEADER_TRACEPARENT)?.as_bytes();
    let well_formed = given.len() == TRACEPARENT_BYTES
        && given.starts_with(b"00-")
        && given.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    well_formed.then_some(given)
}
