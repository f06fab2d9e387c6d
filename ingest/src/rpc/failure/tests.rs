//! What nodes and providers are known to answer, and the class of each.

use super::*;

const SIZE: Refusal = Refusal::Size { hint: None };

/// Who says it, the code, the words, and their class.
const MESSAGES: &[(&str, i64, &str, Refusal)] = &[
    (
        "infura",
        -32_005,
        "query returned more than 10000 results. Try with this block range [0x1, 0xA].",
        Refusal::Size { hint: Some((1, 10)) },
    ),
    ("infura", -32_602, "range 20000 exceeds limit of 10000", SIZE),
    ("infura", -32_005, "daily request count exceeded, request rate limited", Refusal::Rate),
    (
        "alchemy",
        -32_600,
        "You can make eth_getLogs requests with up to a 10 block range. Based on your parameters, this \
         block range should work: [0x64, 0x6d]",
        Refusal::Size { hint: Some((100, 109)) },
    ),
    (
        "alchemy",
        -32_602,
        "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range and \
         no limit on the response size, or you can request any block range with a cap of 10K logs in \
         the response. Based on your parameters and the response size limit, this block range should \
         work: [0x0, 0x7cf]",
        Refusal::Size { hint: Some((0, 1999)) },
    ),
    ("alchemy", 429, "Your app has exceeded its compute units per second capacity", Refusal::Rate),
    ("quicknode", -32_614, "eth_getLogs is limited to a 10,000 range", SIZE),
    (
        "quicknode",
        -32_007,
        "50/second request limit reached - reduce calls per second",
        Refusal::Rate,
    ),
    ("ankr", -32_600, "block range is too wide", SIZE),
    (
        "thirdweb",
        -32_602,
        "Log response size exceeded. Maximum allowed number of requested blocks is 1000",
        SIZE,
    ),
    ("cloudflare", -32_047, "'fromBlock'-'toBlock' range too large. Max range: 800", SIZE),
    ("1rpc", -32_602, "eth_getLogs is limited to 0 - 10000 blocks range", SIZE),
    ("1rpc", -32_602, "response size should not greater than 10000000 bytes", SIZE),
    ("blast", -32_600, "block range exceeds the range allowed for your plan (10000 > 5000)", SIZE),
    ("blockpi", -32_602, "eth_getLogs is limited to 1024 block. Please check the parameter", SIZE),
    ("chainstack", -32_602, "Block range limit exceeded. See more details at https://docs", SIZE),
    ("coinbase", -32_602, "please limit the query to at most 1000 blocks", SIZE),
    ("publicnode", -32_701, "exceed maximum block range: 50000", SIZE),
    ("drpc", 35, "ranges over 10000 blocks are not supported on freetier", SIZE),
    ("drpc", 30, "Request timeout on the free tier, please upgrade your tier", Refusal::Timeout),
    ("hyperliquid", -32_602, "query exceeds max block range 1000", SIZE),
    ("harmony", -32_000, "GetLogs query must be smaller than size 1024", SIZE),
    ("jsonrpsee", -32_008, "Response is too big", SIZE),
    ("public arb", -32_000, "logs matched by query exceeds limit of 10000", SIZE),
    ("public op", -32_020, "backend response too large", SIZE),
    ("public op", -32_000, "Block range is too large", SIZE),
    ("public base", -32_614, "block range too large", SIZE),
    (
        "public base",
        -32_011,
        "no backend is currently healthy to serve traffic",
        Refusal::Transient,
    ),
    ("bsc", -32_005, "limit exceeded", Refusal::Rate),
    ("besu", -32_005, "Requested range exceeds maximum RPC range limit", SIZE),
    ("besu", -32_005, "Number of requests exceeds max batch size", Refusal::Transient),
    ("coreth", -32_000, "requested too many blocks from 0 to 4096, maximum is set to 2048", SIZE),
    ("coreth", -32_000, "cannot query unfinalized data", Refusal::Behind),
    ("any", -32_000, "block 9 is after last accepted block 7", Refusal::Behind),
    ("java-tron", -32_602, "exceed max block range: 5000", SIZE),
    ("java-tron", -32_005, "query returned more than 10000 results", SIZE),
    ("nethermind", -32_005, "Too many logs requested. Max logs per response is 20000.", SIZE),
    ("reth", -32_602, "query exceeds max block range 100000", SIZE),
    (
        "reth",
        -32_602,
        "query exceeds max results 20000, retry with the range 100-110",
        Refusal::Size { hint: Some((100, 110)) },
    ),
    ("geth", -32_000, "query timeout exceeded", SIZE),
    ("geth", -32_002, "request timed out", Refusal::Timeout),
    ("geth", -32_602, "block range extends beyond current head block", Refusal::Behind),
    ("geth", -32_000, "unknown block", Refusal::Behind),
    ("geth", -32_000, "header not found", Refusal::Behind),
    ("geth", -32_000, "context deadline exceeded", Refusal::Timeout),
    ("any", -32_000, "requested block 0x10 is not available", Refusal::Behind),
    ("any", -32_601, "the method eth_getLogs does not exist/is not available", Refusal::Fatal),
    ("any", -32_601, "nope", Refusal::Fatal),
    ("any", -32_603, "internal error", Refusal::Transient),
];

#[test]
fn messages_of_nodes_and_providers() {
    for (who, code, message, refusal) in MESSAGES {
        assert_eq!(Failure::from_rpc(*code, message).refusal, *refusal, "{who}: {message}");
    }
}

#[test]
fn the_pause_comes_from_seconds_or_from_dates() {
    let pause = |after: &'static str, date: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static(after));
        date.map(|date| headers.insert(DATE, HeaderValue::from_static(date)));
        Failure::from_status(429, "").with_pause(&headers).retry_after.map(|pause| pause.as_secs())
    };
    let noon = Some("Sun, 06 Nov 1994 12:00:00 GMT");
    assert_eq!(pause("30", None), Some(30));
    assert_eq!(pause("86400", None), Some(600));
    assert_eq!(pause("Sun, 06 Nov 1994 12:01:30 GMT", noon), Some(90));
    assert_eq!(pause("Sun, 06 Nov 1994 11:59:30 GMT", noon), None);
    // Our own clock may differ from the endpoint's.
    assert_eq!(pause("Sun, 06 Nov 1994 12:01:30 GMT", None), None);
    assert_eq!(pause("soon", noon), None);
    assert_eq!(Failure::from_status(429, "").with_pause(&HeaderMap::new()).retry_after, None);
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
        ("retry with the range 7-9", Some((7, 9))),
        ("retry with the range of 7-9", None),
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
