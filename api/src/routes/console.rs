//! The routes of the operators' console (decision 91), at the operators' own address. A cookie names a session in
//! memory; the admin secret is submitted once, in a form. Every other form has a CSRF token, and forms of other sites
//! are refused.

mod actions;
mod exports;
mod lists;
mod pages;

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{
    DefaultBodyLimit, FromRef, FromRequest as _, FromRequestParts, Request, State,
};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use log::{Log, OpenAlerts};
use runtime::Clock;
use schemas::record::{Alert, AuditEntry, DeadLetter, Delivery};
use schemas::{OrderId, OrderStatus, Topic, TransferId, UnixMicros};
use serde_json::json;
use store::{DepositFilter, OrderFilter, Store, TransferFilter};
use tokio::time::Duration;
use url::form_urlencoded;

use super::admin;
use super::checkout::{asset, cookie};
use crate::audit::Asker;
use crate::auth::{Auth, Operator};
use crate::client::Client;
use crate::commands::Commands;
use crate::console::action::Action;
use crate::console::deliveries::{GIVEN_UP_SECONDS, REDRIVES_A_SECOND};
use crate::console::list::{self, ROWS, UNKNOWN};
use crate::console::overview::Overview;
use crate::console::records::Newest;
use crate::console::session::{SESSION_SECONDS, Sessions, Visit};
use crate::console::single::Single;
use crate::console::{
    self, ASSETS, Page, action, alerts, chains, deliveries, delivery, letters, order, overview,
    records, transfer,
};
use crate::error::{Answer, Refusal};
use crate::extract::{ConsoleForm as Form, Named};
use crate::inspect::reader::Reader;
use crate::inspect::search::{self, Subject};
use crate::inspect::wanted::Wanted;
use crate::inspect::{Served, gather};
use crate::links::Links;
use crate::machine::query::Query;
use crate::reads::Reads;
use crate::redrive::Filter;
use crate::{metrics, origins};

const COOKIE: &str = "tidemark_console";
/// Header that the script of a live page adds to its requests.
const LIVE: &str = "tidemark-live";
/// Maximum time to read the topics for one page.
const READING_MAX: Duration = Duration::from_secs(5);
/// Maximum bytes of an address to which the sign-in form leads.
const TO_BYTES_MAX: usize = 400;
const FORM_BYTES_MAX: usize = 2048;

#[derive(Clone)]
pub(crate) struct Console {
    pub(crate) auth: Arc<Auth>,
    pub(crate) reads: Reads,
    pub(crate) links: Links,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sessions: Arc<Sessions>,
    /// Shared read for the first page and the chains' page.
    pub(crate) overview: Arc<Single<Overview>>,
    /// Serializes the redrives of operators.
    pub(crate) redriving: Arc<tokio::sync::Mutex<()>>,
    /// Version of the files that the pages load.
    pub(crate) version: &'static str,
}

/// A request of an operator who has signed in.
struct Desk {
    console: Console,
    visit: Visit,
}

impl<S: Sync> FromRequestParts<S> for Desk
where
    Console: FromRef<S>,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let visit = Visit::from_request_parts(parts, state).await?;
        Ok(Self { console: Console::from_ref(state), visit })
    }
}

/// Routes below `/console`.
pub(crate) fn routes<S>(console: &Console) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Console: FromRef<S>,
    Commands: FromRef<S>,
    Reads: FromRef<S>,
{
    let mut routes = Router::new()
        .route("/", get(first))
        .route("/search", get(pages::search_for))
        .route("/orders", get(lists::orders))
        .route("/orders/{order_id}", get(pages::order))
        .route("/orders/{order_id}/cancel", actions::asks(Action::Cancel).post(actions::cancel))
        .route(
            "/orders/{order_id}/mark-paid",
            actions::asks(Action::MarkPaid).post(actions::mark_paid),
        )
        .route(
            "/orders/{order_id}/resend-webhook",
            actions::asks(Action::ResendOrder).post(actions::resend_order),
        )
        .route("/unknown", get(lists::unknown))
        .route("/transfers", get(lists::transfers))
        .route("/transfers/{transfer_id}", get(pages::transfer))
        .route("/transfers/{transfer_id}/attach", get(actions::ask_attach).post(actions::attach))
        .route(
            "/transfers/{transfer_id}/resend-webhook",
            get(actions::ask_resend_transfer).post(actions::resend_transfer),
        )
        .route("/deposits", get(lists::deposits))
        .route("/deliveries", get(lists::deliveries))
        .route("/deliveries/redrive", get(actions::ask_redrive).post(actions::redrive))
        .route("/delivery", get(pages::delivery))
        .route("/chains", get(lists::chains))
        .route("/stops", get(actions::ask_stop).post(actions::stop))
        .route("/stops/end", get(actions::ask_resume).post(actions::resume))
        .route("/alerts", get(lists::alerts))
        .route("/alerts/resolve", get(actions::ask_resolve).post(actions::resolve))
        .route("/dead-letters", get(lists::dead_letters))
        .route("/dead-letters/{number}", get(pages::letter))
        .route("/dead-letters/{number}/replay", get(actions::ask_replay).post(actions::replay))
        .route("/audit", get(lists::audit))
        // The first three files are the Admin API's.
        .route("/export/orders", get(admin::orders))
        .route("/export/deposits", get(admin::deposits))
        .route("/export/wallets/{address}/transfers", get(admin::transfers))
        .route("/export/transfers", get(exports::transfers))
        .route("/export/deliveries", get(exports::deliveries))
        .route("/export/alerts", get(exports::alerts))
        .route("/export/dead-letters", get(exports::dead_letters))
        .route("/export/audit", get(exports::audit))
        .route("/sign-out", post(sign_out))
        .layer(middleware::from_fn_with_state(console.clone(), operators_only))
        .route("/sign-in", get(sign_in_form).post(sign_in))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX));
    for (name, kind, content) in ASSETS {
        routes =
            routes.route(&format!("/{name}"), get(move || async move { asset(kind, content) }));
    }
    routes
}

/// Target of a request without a session: the sign-in form, which returns to the requested page, but not to a command.
fn door(request: &Request) -> String {
    let asked = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    if asked == "/" || !request.method().is_safe() {
        return "/console/sign-in".to_owned();
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("to", &format!("/console{asked}"));
    format!("/console/sign-in?{}", query.finish())
}

/// Target page after the sign-in form. Only pages of the console are accepted, so that no link leads elsewhere.
fn wanted(fields: &Query) -> Option<&str> {
    let is_page = |to: &&str| {
        let is_plain = to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let path = to.split('?').next().unwrap_or_default().to_ascii_lowercase();
        let leads_out = path.contains("..") || path.contains("%2e");
        to.starts_with("/console/") && to.len() <= TO_BYTES_MAX && is_plain && !leads_out
    };
    fields.text("to").ok().flatten().filter(is_page)
}

fn lead(to: &str) -> Response {
    let to = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// Requires a session for pages, its CSRF token for forms, and the operate scope for commands; renders refusals as
/// pages.
async fn operators_only(
    State(console): State<Console>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    // Requests of a script do not keep a session open.
    let by_person = !headers.contains_key(LIVE);
    let visit = cookie(headers, COOKIE).and_then(|number| {
        console.sessions.visit(number, console.clock.now().seconds(), by_person)
    });
    let Some(mut visit) = visit else { return lead(&door(&request)) };
    visit.operator.client = request.extensions().get().copied();
    let is_form = !request.method().is_safe();
    if is_form {
        request = match console.checked(request, &visit).await {
            Ok(request) => request,
            Err((status, text)) => {
                return console::refused((status, &*text), false, &visit, console.version);
            }
        };
    }
    request.extensions_mut().insert(visit.operator.clone());
    request.extensions_mut().insert(visit.clone());
    let answer = next.run(request).await;
    let status = answer.status();
    if !status.is_client_error() && !status.is_server_error() {
        return answer;
    }
    // The body of a refusal is a short text, far below this limit.
    let text = axum::body::to_bytes(answer.into_body(), FORM_BYTES_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // A command whose answer is missing may be on the log.
    let may_be_done = is_form && status.is_server_error();
    console::refused((status, &*text), may_be_done, &visit, console.version)
}

impl Console {
    /// Checks that a page of this site sent the form, within the operator's session and scope.
    async fn checked(
        &self,
        request: Request,
        visit: &Visit,
    ) -> Result<Request, (StatusCode, String)> {
        let refuse = |refusal: &Refusal| (refusal.status(), refusal.to_string());
        if origins::is_foreign(request.headers(), &[]) {
            metrics::refusal("origin", "foreign");
            return Err(refuse(&Refusal::OriginForeign));
        }
        let (parts, body) = request.into_parts();
        let whole = Request::from_parts(parts.clone(), body);
        let Form(form) =
            Form::from_request(whole, &()).await.map_err(|refusal| refuse(&refusal))?;
        let fields = Query::parse(std::str::from_utf8(&form).unwrap_or_default());
        if !visit.is_own(fields.text("form").ok().flatten()) {
            metrics::refusal("origin", "foreign");
            let text = "This form is of another session. Open its page again.";
            return Err((StatusCode::FORBIDDEN, text.to_owned()));
        }
        let is_command = parts.uri.path() != "/sign-out";
        if is_command && !visit.operator.may_operate() {
            metrics::refusal("secret", "scope");
            return Err(refuse(&Refusal::ReadOnly));
        }
        Ok(Request::from_parts(parts, form.into()))
    }

    /// Reads the log and the tables.
    fn read<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Reader<Served>) -> Answer<T> + Send + 'static,
    ) -> impl Future<Output = Answer<T>> + Send + 'static {
        let (log, store) = (self.log.clone(), self.store.clone());
        let layout = log.layout();
        let read = move || ask(&mut Reader::new(Served(log), Some(store), layout, READING_MAX));
        async { tokio::task::spawn_blocking(read).await.map_err(|_| Refusal::Internal)? }
    }

    fn since(&self) -> UnixMicros {
        self.clock.now().seconds().plus(-search::SINCE_SECONDS).micros()
    }

    /// State of the installation: one shared read, without a permit.
    async fn overview(&self) -> Answer<Arc<Overview>> {
        let (now, catalog) = (self.clock.now(), self.reads.catalog().clone());
        let read = self.read(move |reader| overview::ask(reader, &catalog, now));
        self.overview.get(now, read).await
    }
}

impl Desk {
    fn shown(&self, page: Page) -> Response {
        console::shown(StatusCode::OK, &self.visit, page, self.console.version)
    }

    /// [`Console::read`] with the operator's permit. The time limit starts with the permit.
    async fn inspect<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Reader<Served>) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        self.visit.operator.list_gate.clone().take(self.console.read(ask)).await
    }

    /// Reads the tables with the operator's permit.
    async fn in_turn<T: Send + 'static, F: Future<Output = Answer<T>> + Send + 'static>(
        &self,
        read: impl FnOnce(Reads) -> F,
    ) -> Answer<T> {
        self.visit.operator.list_gate.clone().take(read(self.console.reads.clone())).await
    }

    async fn open_alerts(&self) -> Answer<OpenAlerts> {
        self.inspect(|reader| crate::inspect::survey::open_alerts(reader.source())).await
    }

    async fn newest<T: schemas::record::Record + Send + 'static>(
        &self,
        topic: Topic,
        query: &Query,
    ) -> Answer<Newest<T>> {
        let (log, before) = (self.console.log.clone(), query.parsed("before")?);
        self.inspect(move |_| records::newest(&*log, topic, before)).await
    }
}

/// `GET /console/sign-in`
async fn sign_in_form(State(console): State<Console>, query: Query) -> Response {
    console::sign_in(StatusCode::OK, None, wanted(&query), console.version)
}

/// `POST /console/sign-in`
async fn sign_in(
    State(console): State<Console>,
    client: Option<Client>,
    headers: HeaderMap,
    Form(form): Form,
) -> Response {
    let fields = Query::parse(std::str::from_utf8(&form).unwrap_or_default());
    let to = wanted(&fields);
    let refused = |refusal: &Refusal| {
        console::sign_in(refusal.status(), Some(refusal.to_string()), to, console.version)
    };
    if origins::is_foreign(&headers, &[]) {
        metrics::refusal("origin", "foreign");
        return refused(&Refusal::OriginForeign);
    }
    let given = fields.text("secret").ok().flatten().unwrap_or_default();
    let operator = match console.auth.verify_secret(given.as_bytes(), client) {
        Ok(operator) => operator,
        Err(refusal) => return refused(&refusal),
    };
    let by = client.map(tracing::field::display);
    tracing::info!(operator = %operator.name, client.address = by, "an operator signed in to the console");
    let number = console.sessions.begin(operator, console.clock.now().seconds());
    with_cookie(&headers, &number, SESSION_SECONDS, to.unwrap_or("/console"))
}

/// `POST /console/sign-out`
async fn sign_out(State(console): State<Console>, headers: HeaderMap) -> Response {
    if let Some(number) = cookie(&headers, COOKIE) {
        console.sessions.end(number);
    }
    with_cookie(&headers, "", 0, "/console/sign-in")
}

/// Redirects to a page, with a cookie of this lifetime.
fn with_cookie(headers: &HeaderMap, number: &str, seconds: i64, to: &str) -> Response {
    // The proxy in front reports TLS.
    let by_tls = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    let secure = if by_tls { "; Secure" } else { "" };
    let cookie = format!(
        "{COOKIE}={number}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    );
    ([(header::SET_COOKIE, cookie)], lead(to)).into_response()
}

/// `GET /console`
async fn first(desk: Desk) -> Answer {
    Ok(desk.shown(overview::render(&*desk.console.overview().await?)))
}

/// Value of a filter; none if it is empty.
fn chosen<T: FromStr<Err: Display>>(query: &Query, name: &'static str) -> Answer<Option<T>> {
    Ok(match query.text(name)? {
        None | Some("") => None,
        Some(_) => query.parsed(name)?,
    })
}

/// Reads a filter of dead webhooks.
fn of_filter(query: &Query) -> Answer<Filter> {
    let host = query.text("host")?.map(str::trim).filter(|host| !host.is_empty());
    let (outcome, kind) = (chosen(query, "outcome")?, chosen(query, "kind")?);
    Ok(Filter { host: host.map(str::to_owned), outcome, kind, ..Filter::default() })
}

/// Message after an action, from the URL, which is untrusted: `is_so` rejects actions that the page or its record rules
/// out.
fn done(query: &Query, is_so: impl Fn(Action) -> bool) -> Answer<Option<&'static str>> {
    let action = query.text("done")?.and_then(Action::of_word);
    Ok(action.filter(|action| is_so(*action)).map(Action::done))
}

/// `true` if an order is as an action leaves it. A resend is not checked, because it leaves the status as it is.
fn is_done(action: Action, status: OrderStatus) -> bool {
    let pays = matches!(action, Action::MarkPaid | Action::Attach);
    pays && status == OrderStatus::Paid
        || action == Action::Cancel && status == OrderStatus::Cancelled
        || action == Action::ResendOrder
}
