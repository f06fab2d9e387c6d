//! Known answers of nodes and providers, and the class of each.

use testkit::faults::{Class, REFUSALS, TRON_REFUSAL, TRON_SENTENCE};

use super::*;

/// The refusal of a class in the table of known messages.
fn refusal(class: Class) -> Refusal {
    match class {
        Class::Size(hint) => Refusal::Size { hint },
        Class::Rate => Refusal::Rate,
        Class::Behind => Refusal::Behind,
        Class::Timeout => Refusal::Timeout,
        Class::Transient => Refusal::Transient,
        Class::Pruned => Refusal::Pruned,
        Class::Fatal => Refusal::Fatal,
    }
}

#[test]
fn messages_of_nodes_and_providers() {
    for (who, code, message, class) in REFUSALS {
        let found = Failure::from_rpc(*code, message).refusal;
        assert_eq!(found, refusal(*class), "{who}: {message}");
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
    assert_eq!(Failure::from_body(TRON_REFUSAL).refusal, Refusal::Rate);
    assert_eq!(Failure::from_body(TRON_SENTENCE).refusal, Refusal::Fatal);
}

/// Refusals of java-tron and TronGrid outside of JSON-RPC: status, body, class, requested pause.
#[test]
fn trons_own_refusals() {
    let seconds = |failure: &Failure| failure.retry_after.map(|pause| pause.as_secs());
    for (status, body, refusal, pause) in [
        (
            200,
            r#"{"Error":"class java.lang.IllegalAccessException : lack of computing resources"}"#,
            Refusal::Rate,
            None,
        ),
        (
            200,
            r#"{"Error":"Exceed the user daily usage (100000), the maximum query frequency is 1 time per second"}"#,
            Refusal::Rate,
            None,
        ),
        (
            403,
            r#"{"Success":false,"Error":"The key exceeds the frequency limit(15), and the query server is suspended for 30s","StatusCode":403}"#,
            Refusal::Rate,
            Some(30),
        ),
        (
            503,
            r#"{"Error":"request rate exceeded the allowed_rps(10), and the query server is suspended for 5 s"}"#,
            Refusal::Rate,
            Some(5),
        ),
        (200, "this API is closed because this node is a lite fullnode", Refusal::Fatal, None),
        (404, r#"{"Error":"this API is unavailable due to config"}"#, Refusal::Fatal, None),
        (405, "<html>", Refusal::Fatal, None),
        (
            200,
            r#"{"Error":"class java.lang.NullPointerException : null"}"#,
            Refusal::Transient,
            None,
        ),
        (200, "{}", Refusal::Transient, None),
    ] {
        let failure = match status {
            200 => Failure::from_body(body),
            status => Failure::from_status(status, body),
        };
        assert_eq!((failure.refusal, seconds(&failure)), (refusal, pause), "{status} {body}");
    }
}

#[test]
fn only_unexplained_refusals_of_all_shrink_a_batch() {
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
    let key = "0123abcd".repeat(8);
    let secrets = [key.clone()];
    let failure = Failure::from_body(&format!("no such project {key}")).masked(&secrets);
    assert_eq!(failure.message, "not the form of an answer: no such project ***");
    // Wherever the text is cut, by its reader or for the log.
    for before in 0..400 {
        let text: String = format!("{}{key}", "-".repeat(before)).chars().take(400).collect();
        let failure = Failure::from_status(404, &text).masked(&secrets);
        assert!(!failure.message.contains("0123"), "{before}: {}", failure.message);
    }
}

#[test]
fn lengths_of_messages_and_of_parts_of_keys() {
    let kept = |chars| Failure::new(Refusal::Fatal, "x".repeat(chars)).message.len();
    assert_eq!([kept(UNMASKED_CHARS_MAX), kept(UNMASKED_CHARS_MAX + 1)], [UNMASKED_CHARS_MAX; 2]);
    let key = "0123abcd".repeat(8);
    for (part, shown) in [(SECRET_PART_CHARS_MIN - 1, "012"), (SECRET_PART_CHARS_MIN, MASK)] {
        let failure = Failure::new(Refusal::Fatal, format!("key {}", &key[..part]));
        assert_eq!(failure.masked(std::slice::from_ref(&key)).message, format!("key {shown}"));
    }
}

#[test]
fn methods_that_are_not_served() {
    for (code, message, lacks) in [
        (-32_601, "nope", true),
        (-32_000, "the method eth_getBlockReceipts does not exist/is not available", true),
        (-32_004, "Unsupported method: eth_getBlockReceipts", true),
        (-32_001, "rpc method is not whitelisted", true),
        (35, "method is not available on freetier, please upgrade", true),
        (-32_000, "invalid api key", false),
        (-32_000, "header not found", false),
        (-32_005, "too many requests for this method", false),
    ] {
        assert_eq!(Failure::from_rpc(code, message).lacks_method(), lacks, "{message}");
    }
    let gateway = r#"{"error":{"code":-32601,"message":"Method not found"}}"#;
    assert!(Failure::from_status(400, gateway).lacks_method());
    assert!(!Failure::from_status(404, "Not Found").lacks_method());
    assert!(!Failure::from_status(405, "Method Not Allowed").lacks_method());
}
