//! The page that customers pay on (decision 42). The signed link is the credential; a cookie for its one order replaces
//! it, so that no URL in a history has the signature.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runtime::Clock;
use schemas::{DepositState, OrderId, StablecoinContract, TransferStatus, UnixSeconds};

use crate::auth::{Auth, link_end};
use crate::buyer::{TestBuyer, TestPayment};
use crate::client::Client;
use crate::commands::Commands;
use crate::error::{Answer, BY_SIGNATURE, Refusal};
use crate::events::Events;
use crate::extract::Form;
use crate::machine::catalog::Choice;
use crate::machine::query::Query;
use crate::origins;
use crate::page::{self, Html, Language, LookUp, PageInput, Problem, Shop};
use crate::reads::Reads;

/// Maximum lifetime of the cookie, in seconds; its link may expire earlier.
const COOKIE_SECONDS_MAX: i64 = 30 * 24 * 3600;
/// Cache policy of the page's files. Their URLs have a version, so the content at a URL never changes.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

#[derive(Clone)]
pub(crate) struct Checkouts {
    pub(crate) auth: Arc<Auth>,
    pub(crate) reads: Reads,
    pub(crate) events: Events,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shop: Arc<Shop>,
    pub(crate) buyer: Option<Arc<dyn TestBuyer>>,
}

/// A customer's request to the page.
pub(crate) struct Customer {
    checkouts: Checkouts,
    /// Unparsed order id of the path; empty if it is not text.
    order_id: String,
    headers: HeaderMap,
    query: Query,
    language: Language,
}

impl<S: Send + Sync> FromRequestParts<S> for Customer
where
    Checkouts: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let params = RawPathParams::from_request_parts(parts, state).await.ok();
        let named = params.as_ref().and_then(|params| params.iter().next());
        let order_id = named.map(|(_, text)| text.to_owned()).unwrap_or_default();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let (headers, language) = (parts.headers.clone(), language(&parts.headers, &query));
        Ok(Self { checkouts: Checkouts::from_ref(state), order_id, headers, query, language })
    }
}

/// `GET /checkout/{order_id}`: with the link's `exp` and `sig` it redirects to [`enter`], and from there to the page
/// itself, without both.
pub(crate) async fn page(customer: Customer, commands: Commands) -> Response {
    let query = &customer.query;
    if has_link(query) {
        return match customer.by_link() {
            Ok(id) => lead(format!("{id}/enter?{}{}", link(query), customer.chosen('&'))),
            Err(refusal) => customer.refused(refusal),
        };
    }
    match customer.show(&commands).await {
        Ok(page) => html(StatusCode::OK, page),
        Err(refusal) => customer.refused(refusal),
    }
}

/// `GET /checkout/{order_id}/enter`: stores the link in a cookie. The cookie's path defaults to the directory of this
/// URL, even behind a proxy's prefix, so that a browser sends it for this order alone.
pub(crate) async fn enter(customer: Customer) -> Response {
    match customer.by_link() {
        Ok(order_id) => customer.enter(order_id),
        Err(refusal) => customer.refused(refusal),
    }
}

/// `POST /checkout/{order_id}/payment`
pub(crate) async fn payment(customer: Customer, commands: Commands, Form(form): Form) -> Response {
    let done = async {
        let order_id = customer.visitor()?.0;
        let form = Query::parse(std::str::from_utf8(&form).unwrap_or_default());
        let way = form.text("way").ok().flatten().and_then(|way| way.split_once('.'));
        let choice = way.and_then(|(blockchain, stablecoin)| {
            Some(Choice {
                blockchain: blockchain.parse().ok()?,
                stablecoin: stablecoin.parse().ok()?,
            })
        });
        commands.choose_payment(order_id, choice.ok_or(Refusal::NoWallet)?).await.map(drop)
    };
    customer.back(done.await)
}

/// `POST /checkout/{order_id}/cancel`
pub(crate) async fn cancel(customer: Customer, commands: Commands) -> Response {
    let done = async { commands.cancel(customer.visitor()?.0).await.map(drop) };
    customer.back(done.await)
}

/// `POST /checkout/{order_id}/test-payment`: only in the demo, with a test buyer.
pub(crate) async fn test_payment(customer: Customer) -> Response {
    customer.back(customer.pay_by_test_buyer().await)
}

/// `GET /checkout/{order_id}/events`
pub(crate) async fn events(customer: Customer, client: Option<Client>) -> Answer {
    let (order_id, end) = customer.visitor()?;
    customer.checkouts.events.follow(order_id, end, client).await
}

/// Replaces the short text of a temporary failure with a page if the client accepts HTML. A failed form redirects to
/// the page, as after any other refusal.
pub(crate) async fn explained(customer: Customer, request: Request, next: Next) -> Response {
    let accepted = customer.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_person = accepted.is_some_and(|kinds| kinds.contains("text/html"));
    let is_form = !request.method().is_safe();
    let answer = next.run(request).await;
    let status = answer.status();
    let is_passing = status.is_server_error()
        || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
    if !(is_passing && is_person) {
        return answer;
    }
    if is_form {
        return customer.back(Err(Refusal::Busy));
    }
    let mut page = html(status, page::busy(&customer.checkouts.shop, customer.language));
    let retry = answer.headers().get(header::RETRY_AFTER).cloned();
    page.headers_mut().extend(retry.map(|retry| (header::RETRY_AFTER, retry)));
    page
}

/// A file that the page loads.
pub(crate) fn asset(kind: &'static str, content: &'static str) -> Response {
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, FOR_EVER)];
    (headers, content).into_response()
}

impl Customer {
    /// Order of the link in the URL.
    fn by_link(&self) -> Answer<OrderId> {
        self.checkouts.auth.verify_link(&self.order_id, &self.query)
    }

    /// Stores the link in a cookie and redirects to the page.
    fn enter(&self, id: OrderId) -> Response {
        let (end, link) = (link_end(&self.query), link(&self.query));
        let now = self.checkouts.clock.now().seconds();
        let seconds = end.0.saturating_sub(now.0).min(COOKIE_SECONDS_MAX);
        // The proxy in front reports TLS. A client that forges the header only changes its own cookie.
        let by_tls = self.headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        let secure = if by_tls { "; Secure" } else { "" };
        let name = cookie_name(id);
        let cookie = format!("{name}={link}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
        let to = format!("../{id}{}", self.chosen('?'));
        match HeaderValue::from_str(&cookie) {
            Ok(cookie) => ([(header::SET_COOKIE, cookie)], lead(to)).into_response(),
            Err(_) => self.refused(Refusal::SignatureFailed),
        }
    }

    /// Order of the link in the customer's cookie, and the link's expiry.
    fn linked(&self) -> Answer<(OrderId, UnixSeconds)> {
        let named = self.order_id.parse().ok().map(cookie_name).ok_or(Refusal::SignatureFailed)?;
        let link = Query::parse(cookie(&self.headers, &named).unwrap_or_default());
        Ok((self.checkouts.auth.verify_link(&self.order_id, &link)?, link_end(&link)))
    }

    /// [`Self::linked`] for a request by the page. A form of another site has no authority.
    fn visitor(&self) -> Answer<(OrderId, UnixSeconds)> {
        if origins::is_foreign(&self.headers, &[]) {
            return Err(Refusal::SignatureFailed);
        }
        self.linked()
    }

    async fn show(&self, commands: &Commands) -> Answer<Html> {
        let Checkouts { reads, clock, shop, .. } = &self.checkouts;
        let (id, _) = self.linked()?;
        let checkout = reads.checkout(id).await?;
        let choices = reads.choices_of(&checkout);
        let word = |name| self.query.text(name).ok().flatten();
        let look_up = match word("tx") {
            Some(text) => Some(self.look_up(commands, id, text).await?),
            None => None,
        };
        Ok(page::render(&PageInput {
            shop,
            catalog: reads.catalog(),
            order: &checkout.order,
            transfers: &checkout.transfers,
            possible: &checkout.possible,
            look_up: look_up.as_ref(),
            choices: &choices,
            is_stopped: checkout.is_stopped(),
            now: clock.now().seconds(),
            language: self.language,
            is_changing: word("change").is_some(),
            is_again: word("again").is_some(),
            problem: word("problem").and_then(Problem::named),
        }))
    }

    /// Finds a transaction by the hash that a customer entered.
    async fn look_up(&self, commands: &Commands, id: OrderId, text: &str) -> Answer<LookUp> {
        let Ok(hash) = text.trim().parse() else { return Ok(LookUp::Malformed) };
        if commands.limit(id).is_err() {
            return Ok(LookUp::Later);
        }
        let mut seen = self.checkouts.reads.transaction(id, hash).await?;
        // A transfer that failed to confirm is in no block: it is not shown.
        seen.retain(|of| of.transfer.status != TransferStatus::FailedToConfirm);
        Ok(LookUp::Found(seen))
    }

    async fn pay_by_test_buyer(&self) -> Answer<()> {
        let id = self.visitor()?.0;
        let order = self.checkouts.reads.order(id).await?;
        let mut deposits = order.deposits.iter().rev();
        let open = deposits.find(|of| of.state == DepositState::Open).ok_or(Refusal::NotPending)?;
        let contract = StablecoinContract {
            blockchain: open.blockchain,
            stablecoin: open.stablecoin,
            address: open.contract,
            decimals: open.decimals,
        };
        let units = open.value.and_then(|value| value.to_units(contract.decimals));
        let units = units.ok_or(Refusal::NoWallet)?;
        let (blockchain, to) = (open.blockchain, open.wallet_address);
        let buyer = self.checkouts.buyer.as_ref().ok_or(Refusal::ResourceNotFound)?;
        buyer.pay(TestPayment { blockchain, contract, to, units }).await.map_err(|error| {
            tracing::warn!(error, "the test buyer cannot pay");
            Refusal::Internal
        })
    }

    /// A page for an invalid link or a missing order. A server error remains a short text.
    fn refused(&self, refusal: Refusal) -> Response {
        let status = refusal.status();
        if status.is_server_error() {
            return refusal.into_response();
        }
        html(status, page::no_order(&self.checkouts.shop, self.language))
    }

    /// Redirects to the page after a form, with the problem as a word in the URL.
    fn back(&self, done: Answer<()>) -> Response {
        // A malformed id must not become a path.
        let id = self.order_id.parse().unwrap_or(OrderId(uuid::Uuid::nil()));
        let mut to = format!("../{id}?lang={}", self.language.tag());
        if let Err(refusal) = done {
            let problem = problem(&refusal);
            // The requested choice was refused: the page offers the choices again, even if a deposit is open.
            let anew =
                if matches!(problem, Problem::Unseen | Problem::Full) { "&change=1" } else { "" };
            to = format!("{to}{anew}&problem={}", problem.word());
        }
        lead(to)
    }

    /// Language parameter for a URL, if the link names one.
    fn chosen(&self, separator: char) -> String {
        let is_chosen = matches!(self.query.text("lang"), Ok(Some(_)));
        if is_chosen { format!("{separator}lang={}", self.language.tag()) } else { String::new() }
    }
}

/// Redirects to a relative URL, for an installation behind a proxy with a path prefix.
fn lead(to: String) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

fn problem(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::NotFollowed => Problem::Unseen,
        Refusal::NoFreeAmount | Refusal::NoWallet => Problem::Full,
        Refusal::NotPending => Problem::Ended,
        Refusal::PaymentSeen => Problem::Seen,
        // After a failed write the command may be on the log, so the page does not deny it.
        Refusal::TooMany
        | Refusal::TooManyOfAddress
        | Refusal::Busy
        | Refusal::MaybeCreated
        | Refusal::Internal => Problem::Busy,
        Refusal::SignatureMissing
        | Refusal::SignatureFailed
        | Refusal::OrderNotFound
        | Refusal::AdminMissing
        | Refusal::AdminNotText
        | Refusal::AdminWrong
        | Refusal::ReadOnly
        | Refusal::OriginForeign
        | Refusal::ResourceNotFound
        | Refusal::MethodNotAllowed
        | Refusal::Invalid(_)
        | Refusal::BodyTooLarge(_)
        | Refusal::BodyLate
        | Refusal::KeyReused
        | Refusal::OrderPending
        | Refusal::TransferKnown(_)
        | Refusal::NotAttachable(_)
        | Refusal::NotPutBack(_)
        | Refusal::SettledMeanwhile
        | Refusal::UnknownUrlMissing
        | Refusal::Newer => Problem::Other,
    }
}

fn html(status: StatusCode, page: Html) -> Response {
    // With "no-referrer" a browser sends `Origin: null` with the forms of the page. Laxer policies send the path, which
    // may be a link.
    page::response(status, page, "strict-origin", BY_SIGNATURE)
}

/// A verified link, without other parameters of its URL.
fn link(query: &Query) -> String {
    format!("exp={}&sig={}", link_end(query), query.text("sig").ok().flatten().unwrap_or_default())
}

fn has_link(query: &Query) -> bool {
    ["exp", "sig"].iter().any(|name| !matches!(query.text(name), Ok(None)))
}

fn language(headers: &HeaderMap, query: &Query) -> Language {
    let chosen = query.text("lang").ok().flatten().and_then(Language::tagged);
    chosen.unwrap_or_else(|| {
        let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
        Language::accepted(accepted.unwrap_or_default())
    })
}

/// Each order has a cookie of its own, so that two pages in one browser do not sign each other out.
fn cookie_name(order_id: OrderId) -> String {
    format!("checkout_{order_id}")
}

pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(of, _)| *of == name).map(|(_, value)| value)
}
