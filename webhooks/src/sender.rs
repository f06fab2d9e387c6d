//! One attempt: a signed POST (spec 5.3, 6), bounded in time and in what is read of the answer.
//!
//! The status alone decides (spec 6.3.1). The body behind it is read so that the connection can serve again; its
//! first bytes are kept for a person.

mod failure;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, HeaderName};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response, StatusCode};
use runtime::Clock;
use schemas::record::Delivery;
use schemas::{AttemptOutcome, ReceiverPolicy, Secret, sign_service, sign_standard};
use tokio::time::timeout_at;

use crate::config::Config;
use crate::error::Error;
use crate::guard::{GuardedResolver, host_key};
use crate::machine::schedule::Answer;
use crate::metrics;
use failure::Failure;

const SIGNATURE: HeaderName = HeaderName::from_static("service-signature");
/// Names the event, the same on every attempt: what a receiver recognizes duplicates by.
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
/// The time of the attempt and its signature, as Standard Webhooks has them.
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const WEBHOOK_ATTEMPT: HeaderName = HeaderName::from_static("webhook-attempt");
const USER_AGENT: &str = concat!("tidemark/", env!("CARGO_PKG_VERSION"));
/// So much of an answer is read, so that its connection can serve again. What is longer is cut off.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// So much of an answer is kept, as text.
const ANSWER_BYTES_MAX: usize = 256;
/// How often failures of our own are reported: while one lasts, all attempts have it.
const REPORTED_EVERY: Duration = Duration::from_secs(60);
/// How long an idle connection is kept: shorter than servers keep theirs, some of them for 2 s only. A request
/// that meets their closing is lost, and nothing shows whether it was read.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Makes attempts. All of them share one client, so connections and TLS sessions serve again.
pub(crate) struct Sender {
    client: Client,
    secret: Secret,
    previous_secret: Option<Secret>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    receivers: ReceiverPolicy,
    is_proxied: bool,
    /// When a failure of our own was last reported.
    reported: Mutex<Option<Instant>>,
}

impl Sender {
    /// Makes the client.
    ///
    /// # Errors
    /// [`Error::Client`], for example on a system without trusted certificates.
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        // An error says that another part of the process installed one before, which serves as
        // well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = client(config).build()?;
        Ok(Self {
            client,
            secret: config.secret.clone(),
            previous_secret: config.previous_secret.clone(),
            clock,
            timeout: config.timeout,
            receivers: config.receivers.clone(),
            is_proxied: config.proxy.is_some(),
            reported: Mutex::default(),
        })
    }

    /// Makes the next attempt of `delivery`.
    pub(crate) async fn send(&self, delivery: &Delivery) -> Answer {
        let attempted_at = self.clock.now();
        let begun = Instant::now();
        let deadline = tokio::time::Instant::from_std(begun) + self.timeout;
        let result = timeout_at(deadline, self.post(delivery)).await.unwrap_or_else(|_| {
            let cause = "no answer in time".to_owned();
            Err(Failure { outcome: AttemptOutcome::Timeout, cause })
        });
        // Until the status was here; reading the body is not part of it.
        let took = begun.elapsed();
        let mut answer = Answer {
            outcome: AttemptOutcome::Timeout,
            http_status: None,
            attempted_at,
            took,
            cause: None,
            answer: String::new(),
        };
        match result {
            Ok(response) => {
                answer.outcome = outcome_of(response.status());
                answer.http_status = Some(response.status().as_u16());
                // The outcome is certain already: what happens to the body changes nothing.
                let mut begin = Vec::new();
                let _ = timeout_at(deadline, read_body(response, &mut begin)).await;
                answer.answer = shown(&begin);
            }
            Err(Failure { outcome, cause }) => {
                answer.outcome = outcome;
                answer.cause = Some(cause);
            }
        }
        if answer.outcome == AttemptOutcome::Local {
            self.report_local(answer.cause.as_deref());
        } else {
            log_attempt(delivery, &answer);
        }
        answer
    }

    /// Somebody has to act: no receiver gets anything meanwhile.
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

    /// Sends, and waits for the head of the answer.
    async fn post(&self, delivery: &Delivery) -> Result<Response, Failure> {
        let url = self.receivers.check(&delivery.url).map_err(|refusal| {
            let cause = format!("the URL {refusal}");
            Failure { outcome: AttemptOutcome::Forbidden, cause }
        })?;
        let body = delivery.body.clone();
        // Fresh each time: receivers refuse old timestamps (spec 5.3).
        let (id, now) = (&delivery.event_id, self.clock.now().seconds());
        let secrets = std::iter::once(&self.secret).chain(&self.previous_secret);
        self.client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(SIGNATURE, sign_service(&self.secret, now, body.as_bytes()))
            .header(WEBHOOK_ID, id)
            .header(WEBHOOK_TIMESTAMP, now.0)
            .header(WEBHOOK_SIGNATURE, sign_standard(secrets, id, now, body.as_bytes()))
            .header(WEBHOOK_ATTEMPT, delivery.attempt)
            .body(body)
            .send()
            .await
            .map_err(|error| Failure::of(error, self.is_proxied))
    }
}

fn client(config: &Config) -> ClientBuilder {
    let (client, resolved) = match &config.proxy {
        // It resolves the names of receivers itself: ours is asked for the proxy's alone, which the operator chose.
        Some(proxy) => (Client::builder().proxy(proxy.clone()), ReceiverPolicy::anywhere()),
        // One of the environment's would resolve names past the guard.
        None => (Client::builder().no_proxy(), config.receivers.clone()),
    };
    client
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .referer(false)
        // One POST is one attempt: the client repeats nothing by itself.
        .retry(reqwest::retry::never())
        // One request under way on each connection: one that is dead fails no other.
        .http1_only()
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
/// connection, and so does an error. Notes how it begins.
async fn read_body(mut response: Response, begin: &mut Vec<u8>) {
    let mut read = 0_usize;
    while read < BODY_BYTES_MAX {
        let Ok(Some(chunk)) = response.chunk().await else { return };
        read = read.saturating_add(chunk.len());
        // A character may end after the last byte that is kept.
        let room = (ANSWER_BYTES_MAX + 3).saturating_sub(begin.len());
        begin.extend(chunk.iter().take(room));
    }
}

/// The begin of an answer for a person. What a stranger sends is not for a terminal to obey.
fn shown(begin: &[u8]) -> String {
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
