//! Sorts the refusals of endpoints into a few classes, by one table: there is no standard for these
//! errors.

use std::borrow::Cow;
use std::time::Duration;

use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};

use crate::machine::Refusal;

/// Maximum characters of a message that are kept for masking: a body may have megabytes.
const UNMASKED_CHARS_MAX: usize = 1000;
/// Maximum characters of a message that are shown.
const MESSAGE_CHARS_MAX: usize = 200;
/// Maximum of the pauses that endpoints ask for.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// The word in a refusal that concerns the batch, not its calls.
const BATCH: &str = "batch";
const SIZE: Refusal = Refusal::Size { hint: None };
const MASK: &str = "***";
/// Minimum length of a cut secret that is masked: a shorter text may be something else.
const SECRET_PART_CHARS_MIN: usize = 4;

/// Part of our message about an unknown method.
const NO_METHOD: &str = "error -32601:";
/// Error texts about a method that is missing, or not in the plan, in lower case.
const NOT_SERVED: [&str; 6] =
    ["not found", "not exist", "not available", "not supported", "unsupported", "not whitelisted"];

/// A request without a usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Class of the refusal: it decides the reaction.
    pub(crate) refusal: Refusal,
    /// Message of the endpoint or the network, without any URL.
    pub(crate) message: String,
    /// `true` if the whole request was refused for an unknown reason, perhaps its number of calls.
    pub(crate) smaller_batch_may_do: bool,
    /// Pause that the endpoint asks for.
    pub(crate) retry_after: Option<Duration>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.refusal.class(), self.message)
    }
}

impl Failure {
    pub(crate) fn new(refusal: Refusal, message: impl AsRef<str>) -> Self {
        let message = message.as_ref().chars().filter(|c| !c.is_control());
        let message = message.take(UNMASKED_CHARS_MAX).collect();
        Self { refusal, message, smaller_batch_may_do: false, retry_after: None }
    }

    pub(crate) fn missing() -> Self {
        Self::new(Refusal::Transient, "no answer")
    }

    /// Returns `true` if the contract reverted the call.
    pub(crate) fn is_revert(&self) -> bool {
        let message = self.message.to_lowercase();
        ["revert", "invalid opcode"].iter().any(|words| message.contains(words))
    }

    /// Returns `true` if the endpoint lacks the method, or our plan does.
    pub(crate) fn lacks_method(&self) -> bool {
        let message = self.message.to_lowercase();
        let is_refused = || NOT_SERVED.iter().any(|words| message.contains(words));
        message.contains(NO_METHOD) || message.contains("method") && is_refused()
    }

    /// Returns `true` if a rate or size limit was exceeded.
    pub(crate) const fn is_limit(&self) -> bool {
        matches!(self.refusal, Refusal::Rate | Refusal::Size { .. })
    }

    /// A smaller range than the refused one, if that may be served.
    pub(crate) fn smaller_range(&self, blocks: i64) -> Option<i64> {
        let may_do =
            matches!(self.refusal, Refusal::Size { .. } | Refusal::Timeout | Refusal::Transient);
        let hint = self.refusal.blocks().filter(|hint| (1..blocks).contains(hint));
        (may_do && blocks > 1).then(|| hint.unwrap_or(blocks / 2))
    }

    pub(crate) fn from_rpc(code: i64, message: &str) -> Self {
        let refusal = classify(Some(code), message);
        let smaller_batch_may_do = refusal == Refusal::Transient;
        Self { smaller_batch_may_do, ..Self::new(refusal, format!("error {code}: {message}")) }
    }

    /// From an HTTP status other than success, with the start of its body.
    pub(crate) fn from_status(status: u16, body: &str) -> Self {
        let by_words = classify(None, body);
        let is_unknown = by_words == Refusal::Transient;
        let smaller_batch_may_do = match status {
            // Refused credentials, rate limits and timeouts do not depend on the size of the batch; nor does an outage.
            401 | 403..=405 | 408 | 429 => false,
            500.. => is_unknown && names_batch(body),
            _ => is_unknown,
        };
        let refusal = match (status, by_words) {
            // A gateway's words are more exact than its status: some send size errors as 400 or 500.
            (_, refusal) if refusal != Refusal::Transient => refusal,
            (401 | 404 | 405 | 501, _) => Refusal::Fatal,
            (403 | 429, _) => Refusal::Rate,
            (408 | 504, _) => Refusal::Timeout,
            (413, _) => SIZE,
            (_, other) => other,
        };
        Self {
            smaller_batch_may_do,
            retry_after: suspended(body),
            ..Self::new(refusal, format!("HTTP status {status}: {body}"))
        }
    }

    /// From a body that is not JSON-RPC: some endpoints refuse in another form.
    pub(crate) fn from_body(body: &str) -> Self {
        let refusal = classify(None, body);
        // An unknown body that does not mention a batch is a broken answer, not a refusal.
        let smaller_batch_may_do = refusal == Refusal::Transient && names_batch(body);
        Self {
            smaller_batch_may_do,
            retry_after: suspended(body),
            ..Self::new(refusal, format!("not the form of an answer: {body}"))
        }
    }

    /// As [`Failure::from_body`], of raw bytes.
    pub(super) fn from_bytes(body: &[u8]) -> Self {
        Self::from_body(&start(body))
    }

    /// Takes the pause that the response asks for.
    pub(crate) fn with_pause(mut self, headers: &HeaderMap) -> Self {
        self.retry_after = self.retry_after.or_else(|| retry_after(headers));
        self
    }

    /// Masks the endpoint's secrets, which it may have repeated, then cuts the message.
    pub(crate) fn masked(mut self, secrets: &[String]) -> Self {
        for secret in secrets {
            self.message = self.message.replace(secret, MASK);
            // The text was cut at a length: its end may be the start of a secret.
            let parts = (SECRET_PART_CHARS_MIN..secret.len()).rev();
            let part = parts.filter_map(|length| secret.get(..length));
            if let Some(part) = part.into_iter().find(|part| self.message.ends_with(*part)) {
                self.message.truncate(self.message.len().saturating_sub(part.len()));
                self.message.push_str(MASK);
            }
        }
        self.message = self.message.chars().take(MESSAGE_CHARS_MAX).collect();
        self
    }
}

/// The part of a body that a message may quote.
pub(super) fn start(body: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(body.get(..400).unwrap_or(body))
}

/// The pause in `Retry-After`: seconds, or a date, which counts from the date of the response itself.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |value: &HeaderValue| value.to_str().ok().map(|text| text.trim().to_owned());
    let value = text(headers.get(RETRY_AFTER)?)?;
    let pause = match value.parse().map(Duration::from_secs) {
        Ok(pause) => pause,
        Err(_) => {
            let until = httpdate::parse_http_date(&value).ok()?;
            let now = httpdate::parse_http_date(&text(headers.get(DATE)?)?).ok()?;
            until.duration_since(now).ok()?
        }
    };
    Some(pause.min(RETRY_AFTER_MAX))
}

/// The pause of TronGrid, which has no header for it: "the query server is suspended for 30 s".
fn suspended(body: &str) -> Option<Duration> {
    let (_, rest) = body.split_once("suspended for ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

fn names_batch(message: &str) -> bool {
    message.to_lowercase().contains(BATCH)
}

/// Words in the error messages of nodes and providers, in lower case; the first match counts, so
/// the more specific ones come first. The messages are in `testkit/src/faults/words.rs`.
const WORDS: &[(Refusal, &str)] = &[
    (Refusal::Pruned, "pruned history"),
    (Refusal::Pruned, "has been pruned"),
    (Refusal::Pruned, "have been pruned"),
    (Refusal::Pruned, "is pruned"),
    (Refusal::Pruned, "was pruned"),
    (Refusal::Pruned, "due to pruning"),
    (Refusal::Pruned, "receipt not available for"),
    (Refusal::Behind, "beyond current head"),
    (Refusal::Behind, "beyond the head"),
    (Refusal::Behind, "after last accepted block"),
    (Refusal::Behind, "unfinalized data"),
    (Refusal::Behind, "unknown block"),
    (Refusal::Behind, "invalid blockhash"),
    (Refusal::Behind, "block not found"),
    (Refusal::Behind, "header not found"),
    (Refusal::Behind, "header for hash not found"),
    (Refusal::Behind, "could not find block"),
    (Refusal::Rate, "rate limit"),
    (Refusal::Rate, "rate-limit"),
    (Refusal::Rate, "too many requests"),
    (Refusal::Rate, "per second"),
    (Refusal::Rate, "request limit"),
    (Refusal::Rate, "request count"),
    (Refusal::Rate, "compute units"),
    (Refusal::Rate, "computing resources"),
    (Refusal::Rate, "throughput"),
    (Refusal::Rate, "quota"),
    (Refusal::Rate, "frequency"),
    (Refusal::Rate, "request rate exceeded"),
    (Refusal::Rate, "server is suspended"),
    // Before the words about sizes: a limit of the batch is not one of the range. It does not concern the cursor: `rpc`
    // sends smaller batches.
    (Refusal::Transient, BATCH),
    (SIZE, "returned more than"),
    (SIZE, "block range"),
    (SIZE, "blocks range"),
    (SIZE, "rpc range"),
    (SIZE, "range is too"),
    (SIZE, "range too"),
    (SIZE, "ranges over"),
    (SIZE, "exceeds limit"),
    (SIZE, "exceed maximum"),
    (SIZE, "exceeds the range"),
    (SIZE, "limited to "),
    (SIZE, "limit the query to"),
    (SIZE, "smaller than size"),
    (SIZE, "too many blocks"),
    (SIZE, "too many results"),
    (SIZE, "too many logs"),
    (SIZE, "number of requested blocks"),
    (SIZE, "max results"),
    (SIZE, "response too large"),
    (SIZE, "too big"),
    (SIZE, "response size"),
    (SIZE, "response exceeds the limit"),
    (SIZE, "query timeout"),
    (SIZE, "query exceeds"),
    (Refusal::Behind, "requested block"),
    (Refusal::Timeout, "timed out"),
    (Refusal::Timeout, "request timeout"),
    (Refusal::Timeout, "deadline exceeded"),
    (Refusal::Fatal, "method not found"),
    (Refusal::Fatal, "does not exist/is not available"),
    (Refusal::Fatal, "unsupported method"),
    (Refusal::Fatal, "invalid api key"),
    (Refusal::Fatal, "lite fullnode"),
    (Refusal::Fatal, "unavailable due to config"),
];

/// `4444` is of EIP-4444. `-32005` is "limit exceeded": if the message does not name the limit, it counts as a rate
/// limit.
const CODES: &[(Refusal, i64)] = &[
    (Refusal::Rate, -32_005),
    (Refusal::Rate, 429),
    (Refusal::Pruned, 4444),
    (Refusal::Fatal, -32_601),
];

fn classify(code: Option<i64>, message: &str) -> Refusal {
    let message = message.to_lowercase();
    let by_words = WORDS.iter().find(|(_, words)| message.contains(words));
    let by_code = || CODES.iter().find(|(_, known)| Some(*known) == code).map(|(class, _)| *class);
    match by_words.map(|(class, _)| *class).or_else(by_code) {
        Some(Refusal::Size { .. }) => Refusal::Size { hint: hint(&message) },
        class => class.unwrap_or(Refusal::Transient),
    }
}

/// The range in "this block range should work: [0x1, 0xa]" or "retry with the range 1-10", in hex or decimal.
fn hint(message: &str) -> Option<(i64, i64)> {
    let range = |from, to| Some((number(from)?, number(to)?)).filter(|(from, to)| from <= to);
    let in_brackets = message.split('[').skip(1).find_map(|rest| {
        let (from, to) = rest.split_once(']')?.0.split_once(',')?;
        range(from, to)
    });
    in_brackets.or_else(|| {
        let (_, rest) = message.split_once("retry with the range ")?;
        let (from, to) = rest.split_whitespace().next()?.split_once('-')?;
        range(from, to)
    })
}

fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    text.strip_prefix("0x").map_or_else(
        || text.parse().ok().filter(|number| *number >= 0),
        |digits| i64::from_str_radix(digits, 16).ok().filter(|number| *number >= 0),
    )
}

#[cfg(test)]
mod tests;
