//! One attempt: a signed POST (spec 5.3, 6), bounded in time and in the bytes read.
//!
//! The status alone decides (spec 6.3.1). The body is read so that the connection can be reused; its first bytes are
//! kept for a person.

mod failure;
mod mask;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, Response, StatusCode};
use runtime::Clock;
use schemas::record::Delivery;
use schemas::{AttemptOutcome, DeliveryKind, ReceiverPolicy, Secret, sign_service, sign_standard};
use tokio::time::timeout_at;
use url::Url;

use crate::config::Config;
use crate::error::Error;
use crate::guard::{GuardedResolver, host_key};
use crate::machine::schedule::Answer;
use crate::metrics;
use failure::Failure;
pub(crate) use mask::Mask;

const SIGNATURE: HeaderName = HeaderName::from_static("service-signature");
/// Id of the event, equal on every attempt: receivers detect duplicates by it.
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
/// The time of the attempt and its signature, as Standard Webhooks has them.
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const WEBHOOK_ATTEMPT: HeaderName = HeaderName::from_static("webhook-attempt");
const USER_AGENT: &str = concat!("tidemark/", env!("CARGO_PKG_VERSION"));
/// Maximum number of bytes read of an answer, so that its connection can be reused. A longer answer
/// is cut off.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of bytes kept of an answer, as text.
const ANSWER_BYTES_MAX: usize = 256;
/// Maximum number of bytes searched for secrets: more than are kept, because masks shorten the text.
const SEARCHED_BYTES_MAX: usize = 2 * ANSWER_BYTES_MAX;
/// Maximum number of headers of an answer. Some receivers exceed the client's own limit of 100.
const HEADERS_MAX: usize = 1000;
/// Minimum interval between reports of failures of our own: one that lasts fails many attempts.
const REPORTED_EVERY: Duration = Duration::from_secs(60);
/// Maximum idle time of a connection: shorter than servers keep theirs, some of them for 2 s only.
/// A request sent while the server closes is lost, and nothing shows whether it was read.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// A request other than a webhook, without its body.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    /// Secrets in headers and body, to be masked in the answer; the URL is masked too.
    pub(crate) secrets: Vec<Secret>,
}

/// Makes attempts. All of them share one client, so connections and TLS sessions are reused.
pub(crate) struct Sender {
    client: Client,
    config: Config,
    clock: Arc<dyn Clock>,
    /// Time of the last report of a failure of our own.
    reported: Mutex<Option<Instant>>,
}

impl Sender {
    /// Makes the client.
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        // An error means that a provider is installed already, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = client(config).build()?;
        Ok(Self { client, config: config.clone(), clock, reported: Mutex::default() })
    }

    /// Makes the next attempt of `delivery`.
    pub(crate) async fn send(&self, delivery: &Delivery) -> Answer {
        let answer = self.timed(self.post(delivery)).await;
        if answer.outcome == AttemptOutcome::Local {
            self.report_local(answer.cause.as_deref());
        } else {
            log_attempt(delivery, &answer);
        }
        answer
    }

    /// Makes an unsigned request, as configured by an operator.
    pub(crate) async fn call(&self, call: &Call, body: String) -> Answer {
        self.timed(self.make(call, body)).await
    }

    /// Answer of an exchange, bounded by the time-out.
    async fn timed(
        &self,
        exchange: impl Future<Output = Result<(Response, Mask), Failure>>,
    ) -> Answer {
        let attempted_at = self.clock.now();
        let begun = Instant::now();
        let deadline = tokio::time::Instant::from_std(begun) + self.config.timeout;
        let result = timeout_at(deadline, exchange).await.unwrap_or_else(|_| {
            let cause = "no answer in time".to_owned();
            Err(Failure { outcome: AttemptOutcome::Timeout, cause })
        });
        // Time to the status or the failure, without reading the body.
        let took = begun.elapsed();
        let (outcome, http_status, cause, answer) = match result {
            Ok((response, mask)) => {
                let status = response.status();
                // The outcome is final: a failure to read the body changes nothing.
                let mut begin = Vec::new();
                let _ = timeout_at(deadline, read_body(response, &mut begin)).await;
                (outcome_of(status), Some(status.as_u16()), None, shown(&mask.apply(&begin)))
            }
            Err(Failure { outcome, cause }) => (outcome, None, Some(cause), String::new()),
        };
        Answer { outcome, http_status, attempted_at, took, cause, answer }
    }

    async fn make(&self, call: &Call, body: String) -> Result<(Response, Mask), Failure> {
        let url = self.permitted(&call.url)?;
        let mask = Mask::of(&url).secrets(&call.secrets);
        let request = self.client.request(call.method.clone(), url).headers(call.headers.clone());
        self.exchange(request.body(body), mask).await
    }

    fn permitted(&self, url: &str) -> Result<Url, Failure> {
        self.config.receivers.check(url).map_err(|refusal| {
            let cause = format!("the URL {refusal}");
            Failure { outcome: AttemptOutcome::Forbidden, cause }
        })
    }

    /// Counts a local failure, and logs it at most once in [`REPORTED_EVERY`].
    fn report_local(&self, cause: Option<&str>) {
        metrics::local_failure();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_none_or(|at| at.elapsed() >= REPORTED_EVERY) {
            *reported = Some(Instant::now());
            tracing::error!(
                cause,
                "webhooks cannot be sent: a failure on this side, not a receiver's"
            );
        }
    }

    /// Sends, and waits for the response head. The mask hides secrets of the request.
    async fn exchange(
        &self,
        request: RequestBuilder,
        mask: Mask,
    ) -> Result<(Response, Mask), Failure> {
        let sent = request.send().await;
        let response = sent.map_err(|error| Failure::of(error, self.config.proxy.is_some()))?;
        Ok((response, mask.secrets(&self.config.proxy_credentials)))
    }

    async fn post(&self, delivery: &Delivery) -> Result<(Response, Mask), Failure> {
        let url = self.permitted(&delivery.url)?;
        let body = delivery.body.clone();
        // Fresh each time: receivers refuse old timestamps (spec 5.3).
        let (id, now) = (&delivery.event_id, self.clock.now().seconds());
        let Config { secret, previous_secret, .. } = &self.config;
        let service = sign_service(secret, now, body.as_bytes());
        let secrets = std::iter::once(secret).chain(previous_secret);
        let standard = sign_standard(secrets, id, now, body.as_bytes());
        let mask = Mask::of(&url).signature(&service).signature(&standard);
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(SIGNATURE, service)
            .header(WEBHOOK_ID, id)
            .header(WEBHOOK_TIMESTAMP, now.0)
            .header(WEBHOOK_SIGNATURE, standard)
            .header(WEBHOOK_ATTEMPT, delivery.attempt)
            .body(body);
        self.exchange(request, mask).await
    }
}

/// Sends an event of the type `test` as every webhook is sent. It is not recorded.
///
/// # Errors
/// The client cannot be made. A failure of the receiver is in the answer, not an error.
pub async fn probe(config: &Config, clock: Arc<dyn Clock>, url: &str) -> Result<Answer, Error> {
    let now = clock.now();
    let body = format!("{{\"event_type\":\"test\",\"timestamp\":{}}}", now.seconds().0);
    let (kind, event_id) = (DeliveryKind::OrderStatusChanged, format!("test.{}", now.0));
    let first = Delivery::first(kind, event_id, url.to_owned(), body, now);
    Ok(Sender::new(config, clock)?.send(&Delivery { manual: true, ..first }).await)
}

fn client(config: &Config) -> ClientBuilder {
    let (client, resolved) = match &config.proxy {
        // The proxy resolves receivers' names; our resolver only resolves the proxy's own name, which is trusted.
        Some(proxy) => (Client::builder().proxy(proxy.clone()), ReceiverPolicy::anywhere()),
        // A proxy of the environment would bypass the guard.
        None => (Client::builder().no_proxy(), config.receivers.clone()),
    };
    client
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .referer(false)
        // One POST is one attempt: the client repeats nothing by itself.
        .retry(reqwest::retry::never())
        // HTTP/1: one request at a time on a connection, so a dead connection fails no other request.
        .http1_only()
        // The status decides, even if malformed header lines follow: PHP prints warnings among them.
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_max_headers(HEADERS_MAX)
        .tls_certs_merge(config.certificates.iter().cloned())
        // Leaves time to dial another address of the same name.
        .connect_timeout(config.timeout.mul_f32(0.6))
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(config.concurrency_per_host)
        .dns_resolver(Arc::new(GuardedResolver::new(resolved, config.timeout / 2)))
}

/// Exactly 200 acknowledges (spec 6.3.1).
fn outcome_of(status: StatusCode) -> AttemptOutcome {
    if status == StatusCode::OK { AttemptOutcome::Delivered } else { AttemptOutcome::Status }
}

/// Reads an answer's body to its end, or to [`BODY_BYTES_MAX`]; dropping the rest closes the
/// connection, and so does an error. Keeps its first bytes in `begin`.
async fn read_body(mut response: Response, begin: &mut Vec<u8>) {
    let mut read = 0_usize;
    while read < BODY_BYTES_MAX {
        let Ok(Some(chunk)) = response.chunk().await else { return };
        read = read.saturating_add(chunk.len());
        let room = SEARCHED_BYTES_MAX.saturating_sub(begin.len());
        begin.extend(chunk.iter().take(room));
    }
}

/// Beginning of an answer for a person, without control characters that a terminal obeys.
pub(crate) fn shown(begin: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(begin).replace(char::is_control, " ");
    text.truncate(text.floor_char_boundary(ANSWER_BYTES_MAX));
    text
}

fn log_attempt(delivery: &Delivery, answer: &Answer) {
    let order = delivery.order_id.map(tracing::field::display);
    let transfer = delivery.transfer_id.map(tracing::field::display);
    let duration_ms = u64::try_from(answer.took.as_millis()).unwrap_or(u64::MAX);
    let (number, outcome) = (delivery.attempt, answer.outcome);
    if outcome == AttemptOutcome::Delivered {
        tracing::debug!(
            order.id = order,
            transfer.id = transfer,
            webhook.id = delivery.event_id,
            webhook.attempt = number,
            duration_ms,
            "attempt {number} of a webhook was acknowledged"
        );
        return;
    }
    tracing::info!(
        order.id = order,
        transfer.id = transfer,
        webhook.id = delivery.event_id,
        webhook.attempt = number,
        webhook.host = host_key(&delivery.url),
        http.status = answer.http_status,
        duration_ms,
        cause = answer.cause,
        "attempt {number} of a webhook failed: {outcome}"
    );
}

#[cfg(test)]
mod tests;
