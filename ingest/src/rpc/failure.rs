//! Sorts the refusals of endpoints into a few classes, by one table: there is no standard for these
//! errors.

use crate::machine::Refusal;

/// A request without a usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What to do about it.
    pub(crate) refusal: Refusal,
    /// What the endpoint or the network said; no URL in it.
    pub(crate) message: String,
    /// The request as a whole was refused for no reason that is known: it may have been too many
    /// calls.
    pub(crate) smaller_batch_may_do: bool,
}

/// Longest message that is kept.
const MESSAGE_CHARS_MAX: usize = 200;

impl Failure {
    pub(crate) fn new(refusal: Refusal, message: impl AsRef<str>) -> Self {
        let message = message.as_ref().chars().filter(|c| !c.is_control());
        let message = message.take(MESSAGE_CHARS_MAX).collect();
        Self { refusal, message, smaller_batch_may_do: false }
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
            // Credentials, rates and times have nothing to do with the size, nor has an outage.
            401 | 403 | 404 | 408 | 429 => false,
            500.. => is_unknown && names_batch(body),
            _ => is_unknown,
        };
        let refusal = match (status, by_words) {
            // A gateway's words are more exact than its status: some send size errors as 400 or 500.
            (_, refusal) if refusal != Refusal::Transient => refusal,
            (401 | 404, _) => Refusal::Fatal,
            (403 | 429, _) => Refusal::Rate,
            (408 | 504, _) => Refusal::Timeout,
            (413, _) => Refusal::Size { hint: None },
            (_, other) => other,
        };
        Self { smaller_batch_may_do, ..Self::new(refusal, format!("HTTP status {status}: {body}")) }
    }

    /// From a body that is not JSON-RPC: some endpoints refuse in a form of their own.
    pub(crate) fn from_body(body: &str) -> Self {
        let refusal = classify(None, body);
        // Other nonsense is a broken answer, not a refusal.
        let smaller_batch_may_do = refusal == Refusal::Transient && names_batch(body);
        Self {
            smaller_batch_may_do,
            ..Self::new(refusal, format!("not a JSON-RPC answer: {body}"))
        }
    }

    /// Masks parts of the endpoint's URL, should the endpoint have repeated them.
    pub(crate) fn masked(mut self, secrets: &[String]) -> Self {
        for secret in secrets {
            self.message = self.message.replace(secret, "***");
        }
        self
    }
}

/// The classes, without what goes with them.
#[derive(Debug, Clone, Copy)]
enum Class {
    Behind,
    Rate,
    Batch,
    Size,
    Fatal,
}

/// The word in a refusal of a batch as such.
const BATCH: &str = "batch";

fn names_batch(message: &str) -> bool {
    message.to_lowercase().contains(BATCH)
}

/// Words in the error messages of nodes and providers, in lower case; the first that fits counts,
/// so the more special ones come first. Sources: geth, erigon, reth, coreth and java-tron, and what
/// Alchemy, Infura, QuickNode, Ankr, dRPC and the public endpoints are reported to return.
const WORDS: &[(Class, &str)] = &[
    (Class::Behind, "beyond current head"),
    (Class::Behind, "beyond the head"),
    (Class::Behind, "after last accepted block"),
    (Class::Behind, "unfinalized data"),
    (Class::Behind, "unknown block"),
    (Class::Behind, "block not found"),
    (Class::Behind, "header not found"),
    (Class::Behind, "header for hash not found"),
    (Class::Behind, "could not find block"),
    (Class::Behind, "requested block"),
    (Class::Rate, "rate limit"),
    (Class::Rate, "rate-limit"),
    (Class::Rate, "too many requests"),
    (Class::Rate, "requests per second"),
    (Class::Rate, "request count"),
    (Class::Rate, "compute units"),
    (Class::Rate, "computing resources"),
    (Class::Rate, "throughput"),
    (Class::Rate, "quota"),
    // Not the range is too large then, so the words about sizes must not count.
    (Class::Batch, BATCH),
    (Class::Size, "returned more than"),
    (Class::Size, "block range"),
    (Class::Size, "blocks range"),
    (Class::Size, "range is too"),
    (Class::Size, "range too"),
    (Class::Size, "exceeds limit"),
    (Class::Size, "exceed maximum"),
    (Class::Size, "exceeds the range"),
    (Class::Size, "limited to a"),
    (Class::Size, "too many results"),
    (Class::Size, "too many logs"),
    (Class::Size, "max results"),
    (Class::Size, "response too large"),
    (Class::Size, "response size"),
    (Class::Size, "query timeout"),
    (Class::Size, "query exceeds"),
    (Class::Fatal, "method not found"),
    (Class::Fatal, "does not exist/is not available"),
    (Class::Fatal, "unsupported method"),
    (Class::Fatal, "invalid api key"),
];

/// `-32005` is "limit exceeded"; where the words do not say which limit, it is the rate.
const CODES: &[(Class, i64)] =
    &[(Class::Rate, -32_005), (Class::Rate, 429), (Class::Fatal, -32_601)];

fn classify(code: Option<i64>, message: &str) -> Refusal {
    let message = message.to_lowercase();
    let by_words = WORDS.iter().find(|(_, words)| message.contains(words)).map(|(class, _)| *class);
    let by_code = || CODES.iter().find(|(_, known)| Some(*known) == code).map(|(class, _)| *class);
    match by_words.or_else(by_code) {
        Some(Class::Behind) => Refusal::Behind,
        Some(Class::Rate) => Refusal::Rate,
        Some(Class::Size) => Refusal::Size { hint: hint(&message) },
        Some(Class::Fatal) => Refusal::Fatal,
        // The cursor can do nothing about a batch: `rpc` sends smaller ones.
        Some(Class::Batch) | None => Refusal::Transient,
    }
}

/// The range in "this block range should work: [0x1, 0xa]", in hex or decimal.
fn hint(message: &str) -> Option<(i64, i64)> {
    message.split('[').skip(1).find_map(|rest| {
        let (range, _) = rest.split_once(']')?;
        let (from, to) = range.split_once(',')?;
        let (from, to) = (number(from)?, number(to)?);
        (from <= to).then_some((from, to))
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
mod tests {
    use super::*;

    const SIZE: Refusal = Refusal::Size { hint: None };

    #[test]
    fn messages_of_nodes_and_providers() {
        for (code, message, refusal) in [
            (
                -32_005,
                "query returned more than 10000 results. Try with this block range [0x1, 0xA].",
                Refusal::Size { hint: Some((1, 10)) },
            ),
            (
                -32_600,
                "You can make eth_getLogs requests with up to a 10 block range. Based on your \
                 parameters, this block range should work: [0x64, 0x6d]",
                Refusal::Size { hint: Some((100, 109)) },
            ),
            (-32_602, "range 20000 exceeds limit of 10000", SIZE),
            (-32_614, "eth_getLogs is limited to a 10,000 range", SIZE),
            (-32_000, "block range is too wide", SIZE),
            (-32_000, "logs matched by query exceeds limit of 10000", SIZE),
            (-32_000, "backend response too large", SIZE),
            (-32_000, "query timeout exceeded", SIZE),
            (-32_005, "daily request count exceeded, request rate limited", Refusal::Rate),
            (-32_005, "limit exceeded", Refusal::Rate),
            (429, "Your app has exceeded its compute units per second capacity", Refusal::Rate),
            (-32_602, "block range extends beyond current head block", Refusal::Behind),
            (-32_000, "unknown block", Refusal::Behind),
            (-32_000, "header not found", Refusal::Behind),
            (-32_000, "cannot query unfinalized data", Refusal::Behind),
            (-32_601, "the method eth_getLogs does not exist/is not available", Refusal::Fatal),
            (-32_601, "nope", Refusal::Fatal),
            (-32_000, "no backend is currently healthy to serve traffic", Refusal::Transient),
            (-32_603, "internal error", Refusal::Transient),
        ] {
            let failure = Failure::from_rpc(code, message);
            assert_eq!(failure.refusal, refusal, "{message}");
        }
    }

    #[test]
    fn statuses_and_bodies() {
        for (status, body, refusal) in [
            (429, "", Refusal::Rate),
            (403, "", Refusal::Rate),
            (413, "", SIZE),
            (400, "block range is too wide", SIZE),
            (504, "", Refusal::Timeout),
            (502, "<html>", Refusal::Transient),
            (401, "", Refusal::Fatal),
        ] {
            assert_eq!(Failure::from_status(status, body).refusal, refusal, "{status} {body}");
        }
        let tron = r#"{"Error":"exceeds the user daily usage: lack of computing resources"}"#;
        assert_eq!(Failure::from_body(tron).refusal, Refusal::Rate);
        assert_eq!(Failure::from_body("this API is closed").refusal, Refusal::Transient);
    }

    #[test]
    fn only_a_refusal_of_the_whole_for_an_unknown_reason_asks_for_smaller_batches() {
        for (status, body, smaller) in [
            (400, "", true),
            (400, "block range is too wide", false),
            (413, "<html>Request Entity Too Large</html>", true),
            (415, "", true),
            (401, "batch", false),
            (429, "batch", false),
            (504, "", false),
            (502, "<html>", false),
            (500, "Batch size exceeds limit of 10", true),
        ] {
            let failure = Failure::from_status(status, body);
            assert_eq!(failure.smaller_batch_may_do, smaller, "{status} {body}");
        }
        for (code, message, smaller) in [
            (-32_600, "invalid request", true),
            (-32_005, "batch size exceeds limit", true),
            (-32_005, "limit exceeded", false),
            (-32_005, "too many requests in a batch", false),
            (-32_000, "unknown block", false),
            (-32_601, "method not found", false),
        ] {
            let failure = Failure::from_rpc(code, message);
            assert_eq!(failure.smaller_batch_may_do, smaller, "{message}");
        }
        assert!(Failure::from_body("Batches are not supported").smaller_batch_may_do);
        assert!(!Failure::from_body("[{").smaller_batch_may_do);
    }

    #[test]
    fn hints_must_be_ranges() {
        for (text, range) in [
            ("[0x1, 0x2]", Some((1, 2))),
            ("[100,200]", Some((100, 200))),
            ("see [docs] or [0x1, 0x2]", Some((1, 2))),
            ("[0x2, 0x1]", None),
            ("[-1, 5]", None),
            ("[0xffffffffffffffffff, 5]", None),
            ("none", None),
        ] {
            assert_eq!(hint(text), range, "{text}");
        }
    }

    #[test]
    fn messages_are_short_and_hide_keys() {
        let failure = Failure::from_body(&"x".repeat(5000)).masked(&[]);
        assert_eq!(failure.message.len(), MESSAGE_CHARS_MAX);
        let failure = Failure::from_body("no such project 0123abcd").masked(&["0123abcd".into()]);
        assert_eq!(failure.message, "not a JSON-RPC answer: no such project ***");
    }
}
