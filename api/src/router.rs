//! Table of routes, and the layers of every request.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use log::Log;
use runtime::traces::{self, Kind, Running};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::auth::{self, Auth};
use crate::bodies::BODY_BYTES_MAX;
use crate::commands::Commands;
use crate::customers::{self, Customers};
use crate::error::{Invalid, Refusal};
use crate::events::Events;
use crate::extract::Trace;
use crate::links::Links;
use crate::reads::Reads;
use crate::routes::checkout::Checkouts;
use crate::routes::console::{self, Console};
use crate::routes::health::{self, Health, health};
use crate::routes::{admin, checkout, registry, service, user};
use crate::{metrics, origins, page, reference};

/// Maximum bytes of a customer's body: anybody with a link may send one.
const CUSTOMER_BODY_BYTES_MAX: usize = 4 * 1024;
/// Maximum bytes of a form of the page.
const FORM_BYTES_MAX: usize = 1024;
/// Path of the route that creates orders.
const CREATE: &str = "/api/v1/service/orders";
/// Maximum time of a request, its body included: longer than the wait for a command's answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay of answers 401 and 429: clients that guess secrets, or exceed limits, leave the cores to others.
const REFUSAL_DELAY: Duration = Duration::from_millis(50);
/// Headers that authenticate a request or make it repeatable. A request with two values of one is refused, because a
/// proxy in front may have read the other value.
const SINGLE_HEADERS: [&str; 3] =
    ["Service-Signature", "Service-Admin-Authorization", "Idempotency-Key"];

/// Header with the id of a request, for support and log lines.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The state of the router, which clones it several times for each request. A handler takes the one part that it needs.
#[derive(Clone)]
pub(crate) struct AppState(Arc<Parts>);

/// Dependencies of the handlers.
pub(crate) struct Parts {
    pub(crate) auth: Arc<Auth>,
    pub(crate) commands: Commands,
    pub(crate) links: Links,
    pub(crate) reads: Reads,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) health: Health,
    pub(crate) checkouts: Checkouts,
    pub(crate) customers: Arc<Customers>,
    pub(crate) console: Console,
}

/// Declares the parts that handlers take, each with its place in the state.
macro_rules! parts {
    ($($part:ty = $($place:ident).+,)+) => {$(
        impl FromRef<AppState> for $part {
            fn from_ref(state: &AppState) -> Self {
                state.0.$($place).+.clone()
            }
        }
    )+};
}

parts! {
    Arc<Auth> = auth,
    Commands = commands,
    Links = links,
    Reads = reads,
    Arc<dyn Log> = log,
    Health = health,
    Events = checkouts.events,
    Checkouts = checkouts,
    Console = console,
}

/// Routes by caller, to be served at one address or at two.
pub(crate) struct Routes {
    public: Router<AppState>,
    operators: Router<AppState>,
    customers: Router<AppState>,
    state: AppState,
}

impl Routes {
    /// All routes but the console's (spec 4; `docs/merchant/` has those that the interface does not show).
    pub(crate) fn new(parts: Parts, allowed_origins: Vec<String>, topic_prefix: String) -> Self {
        Self {
            public: service_routes(),
            operators: Router::new()
                .nest("/api/v1/admin", admin_routes(&parts))
                .nest("/registry", registry::routes(topic_prefix, parts.checkouts.clock.clone())),
            customers: Router::new()
                .nest("/api/v1/user", user_routes(&parts, allowed_origins.into()))
                .nest("/checkout", page_routes(&parts)),
            state: AppState(Arc::new(parts)),
        }
    }

    /// Router for one address, without the console.
    pub(crate) fn together(self) -> Router {
        finish(self.public.merge(self.operators), self.customers, true, self.state)
    }

    /// Routers for two addresses: the public one, where no admin secret is read, and that of operators.
    pub(crate) fn apart(self) -> (Router, Router) {
        // The console is not at the public address, where anybody could guess secrets in its sign-in form.
        let console = Router::new().nest("/console", console::routes(&self.state.0.console));
        let operators = self.operators.merge(console);
        let operators = finish(operators, Router::new(), true, self.state.clone());
        (finish(self.public, self.customers, false, self.state), operators)
    }
}

/// Routes with whole paths, because nesting costs each request another layer.
fn service_routes() -> Router<AppState> {
    Router::new()
        .route("/api/v1/service/orders", post(service::create))
        .route("/api/v1/service/orders/status", post(service::status))
        .route("/api/v1/service/orders/list", post(service::list))
        .route("/api/v1/service/orders/changes", post(service::changes))
}

fn admin_routes(parts: &Parts) -> Router<AppState> {
    Router::new()
        .route("/orders", get(admin::orders))
        .route("/orders/{order_id}", get(admin::order))
        .route("/orders/{order_id}/cancel", post(admin::cancel))
        .route("/orders/{order_id}/mark-paid", post(admin::mark_paid))
        .route("/orders/{order_id}/resend-webhook", post(admin::resend_order))
        .route("/orders/{order_id}/webhooks", get(admin::order_webhooks))
        .route("/deposits", get(admin::deposits))
        .route("/alerts/resolve", post(admin::resolve_alert))
        .route("/stops", post(admin::stop))
        .route("/stops/end", post(admin::resume))
        .route("/wallets", get(admin::wallets))
        .route("/wallets/{address}/transfers", get(admin::transfers))
        .route("/transactions/{hash}", get(admin::transaction))
        .route("/transfers/{transfer_id}", get(admin::transfer))
        .route("/transfers/{transfer_id}/attach", post(admin::attach))
        .route("/transfers/{transfer_id}/candidates", get(admin::candidates))
        .route("/transfers/{transfer_id}/resend-webhook", post(admin::resend_transfer))
        .route("/transfers/{transfer_id}/webhooks", get(admin::transfer_webhooks))
        .route_layer(middleware::from_fn_with_state(parts.auth.clone(), auth::operators_only))
        .route("/health", get(health))
}

fn user_routes(parts: &Parts, origins: Arc<[String]>) -> Router<AppState> {
    Router::new()
        .route("/chains", get(user::chains).options(preflight))
        .route("/orders/{order_id}/payment", post(user::choose_payment).options(preflight))
        .route("/orders/{order_id}/cancel", post(user::cancel).options(preflight))
        .route("/orders/{order_id}/transactions", post(user::transaction).options(preflight))
        .route("/orders/{order_id}/status", get(user::status).options(preflight))
        .route("/orders/{order_id}/events", get(user::events).options(preflight))
        .layer(DefaultBodyLimit::max(CUSTOMER_BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(parts.customers.clone(), customers::limited))
        .layer(middleware::from_fn(in_time))
        // Outermost layer: without its headers a page sees every error as a network failure.
        .layer(middleware::from_fn_with_state(origins, cross_origin))
}

/// Adds routes and layers of every address. Customers' routes have their own timeout.
fn finish(
    routes: Router<AppState>,
    customers: Router<AppState>,
    is_operators: bool,
    state: AppState,
) -> Router {
    let requests = metrics::Requests::default();
    // One layer for all requests, because each layer costs several allocations.
    let observed = Observe { requests: requests.clone(), limit: None };
    let timed = Observe { requests, limit: Some(REQUEST_TIMEOUT) };
    let method_not_allowed = || async { Refusal::MethodNotAllowed };
    let customers = customers.method_not_allowed_fallback(method_not_allowed).layer(observed);
    routes
        .route("/health", if is_operators { get(health) } else { get(health::brief) })
        .merge(documents(&state.0))
        .fallback(|| async { Refusal::ResourceNotFound })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(timed)
        .merge(customers)
        .with_state(state)
}

/// Routes of large constant documents.
fn documents(parts: &Parts) -> Router<AppState> {
    Router::new()
        .route("/api/v1/openapi.json", get(reference::document))
        .route("/api/v1/docs", get(reference::page))
        .layer(middleware::from_fn_with_state(parts.customers.clone(), customers::limited))
}

/// The page that customers pay on, and its files.
fn page_routes(parts: &Parts) -> Router<AppState> {
    let mut routes = Router::new()
        .route("/{order_id}", get(checkout::page))
        .route("/{order_id}/enter", get(checkout::enter))
        .route("/{order_id}/payment", post(checkout::payment))
        .route("/{order_id}/cancel", post(checkout::cancel))
        .route("/{order_id}/events", get(checkout::events));
    if parts.checkouts.buyer.is_some() {
        routes = routes.route("/{order_id}/test-payment", post(checkout::test_payment));
    }
    routes = routes
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(middleware::from_fn_with_state(parts.customers.clone(), customers::limited));
    // Unlimited: files are cheap, and the page about an exceeded limit needs them too.
    for (name, kind, content) in page::ASSETS {
        let serve = move || async move { checkout::asset(kind, content) };
        routes = routes.route(&format!("/{name}"), get(serve));
    }
    routes
        .layer(middleware::from_fn(in_time))
        .layer(middleware::from_fn_with_state(parts.checkouts.clone(), checkout::explained))
}

async fn in_time(request: Request, next: Next) -> Response {
    within(REQUEST_TIMEOUT, Refusal::Busy, next.run(request)).await
}

async fn within(
    limit: Duration,
    late: Refusal,
    answer: impl Future<Output = Response>,
) -> Response {
    let answer = tokio::time::timeout(limit, answer).await;
    answer.unwrap_or_else(|_| late.into_response())
}

/// Refusal of a request after its timeout. A create's command may be on the log by then.
fn late(request: &Request) -> Refusal {
    if request.uri().path() == CREATE { Refusal::MaybeCreated } else { Refusal::Busy }
}

/// Header of [`SINGLE_HEADERS`] that a request has twice.
fn repeated(headers: &HeaderMap) -> Option<&'static str> {
    SINGLE_HEADERS.into_iter().find(|name| headers.get_all(*name).iter().nth(1).is_some())
}

/// Layer of every route: see [`answer`]. Hand-written, because a layer made from a function takes twice as many
/// allocations.
#[derive(Clone)]
struct Observe {
    requests: metrics::Requests,
    /// Timeout of a request.
    limit: Option<Duration>,
}

#[derive(Clone)]
struct Observed<S> {
    route: S,
    by: Observe,
}

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, route: S) -> Observed<S> {
        Observed { route, by: self.clone() }
    }
}

impl<S> Service<Request> for Observed<S>
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.route.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // `poll_ready` was called on this service, not on its clone: this one takes the request.
        let next = self.route.clone();
        let mut route = std::mem::replace(&mut self.route, next);
        let Observe { requests, limit } = self.by.clone();
        Box::pin(async move {
            let run = |request| {
                let late = late(&request);
                let answer = route.call(request).map(|Ok(answer)| answer);
                async move {
                    match limit {
                        Some(limit) => within(limit, late, answer).await,
                        None => answer.await,
                    }
                }
            };
            Ok(answer(&requests, request, run).await)
        })
    }
}

/// Trace id of a request, or a new one: for its answer and its log lines.
fn request_id(trace: &Trace) -> String {
    trace.id().map_or_else(|| Uuid::now_v7().simple().to_string(), str::to_owned)
}

/// The span of a request. Without a trace, a POST begins one.
fn begin(trace: &Trace, id: &str, method: &Method, route: &str) -> Option<Running> {
    let name = format!("{method} {route}");
    if trace.id().is_some() {
        return trace.begin(&name, Kind::Server);
    }
    let context = traces::Context::new(u128::from_str_radix(id, 16).ok()?);
    if *method == Method::POST { traces::begin(name, Kind::Server, context) } else { None }
}

/// Ends the span of a request. A refusal begins no trace: strangers could fill the exporter's queue.
fn end(mut span: Running, has_trace: bool, id: &str, status: StatusCode) {
    if status.is_client_error() && !has_trace {
        return span.discard();
    }
    span.set("request.id", id);
    span.set("http.status", status.as_u16());
    if status.is_server_error() {
        span.fail();
    }
}

/// Counts and times a request, sets its id, and bounds its body. No cache may store an answer, except public files.
async fn answer<F: Future<Output = Response>>(
    requests: &metrics::Requests,
    mut request: Request,
    run: impl FnOnce(Request) -> F,
) -> Response {
    let begun = Instant::now();
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("none", MatchedPath::as_str);
    let of_route = requests.of_route(route);
    let mut trace = Trace::of(request.headers());
    let (id, has_trace) = (request_id(&trace), trace.id().is_some());
    let running = begin(&trace, &id, request.method(), route);
    running.iter().for_each(|running| trace = Trace::through(running));
    request.extensions_mut().insert(trace);
    DefaultBodyLimit::max(BODY_BYTES_MAX).apply(&mut request);
    let span = tracing::error_span!("request", request.id = id);
    let mut response = match repeated(request.headers()) {
        Some(name) => Refusal::from(Invalid::new(name, "is given twice")).into_response(),
        None => run(request).instrument(span).await,
    };
    running.into_iter().for_each(|running| end(running, has_trace, &id, response.status()));
    let headers = response.headers_mut();
    headers.extend(HeaderValue::try_from(id).ok().map(|id| (REQUEST_ID, id)));
    let is_file = |cache: &HeaderValue| cache.as_bytes().starts_with(b"public");
    if !headers.get(header::CACHE_CONTROL).is_some_and(is_file) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    of_route.answered(response.status(), begun.elapsed());
    if [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS].contains(&response.status()) {
        tokio::time::sleep(REFUSAL_DELAY).await;
    }
    response
}

/// CORS of the checkout's routes: pages of allowed origins may read answers, and commands of foreign ones are refused.
/// The link alone authorizes a request.
async fn cross_origin(
    State(origins): State<Arc<[String]>>,
    request: Request,
    next: Next,
) -> Response {
    let allowed = |origin: &&HeaderValue| origins::is_allowed(origin, &origins);
    let origin = request.headers().get(header::ORIGIN).filter(allowed).cloned();
    let is_foreign =
        request.method() == Method::POST && origins::is_foreign(request.headers(), &origins);
    let mut response = if is_foreign {
        metrics::refusal("origin", "foreign");
        Refusal::OriginForeign.into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let exposed = HeaderValue::from_static("retry-after, x-request-id");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
    response
}

/// Answer to a CORS preflight. Browsers act on it only with the header that [`cross_origin`] adds for an allowed
/// origin.
async fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refusals_of_authority_are_held_back() {
        let begun = tokio::time::Instant::now();
        for (refusal, delay) in [
            (Refusal::AdminWrong, REFUSAL_DELAY),
            (Refusal::SignatureFailed, REFUSAL_DELAY),
            (Refusal::TooManyOfAddress, REFUSAL_DELAY),
            (Refusal::ResourceNotFound, Duration::ZERO),
        ] {
            let before = begun.elapsed();
            let run = |_| async { refusal.clone().into_response() };
            let answered = answer(&metrics::Requests::default(), Request::default(), run).await;
            assert_eq!(begun.elapsed() - before, delay, "{refusal:?}");
            let names_scheme = answered.headers().contains_key(header::WWW_AUTHENTICATE);
            assert_eq!(names_scheme, answered.status() == StatusCode::UNAUTHORIZED, "{refusal:?}");
        }
    }
}
