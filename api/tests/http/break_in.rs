//! Attempts to break in. Others are tested beside their target: links of other orders and limits of a link in
//! `user.rs`; the merchant's markup, and frames and forms of other sites, in `page.rs`.

use std::num::NonZeroU32;
use std::time::Duration;

use reqwest::StatusCode;
use runtime::Clock as _;
use schemas::OrderStatus;
use serde_json::json;

use crate::openapi;
use crate::page::{Visitor, open};
use crate::raw::Raw;
use crate::service::sign;
use crate::world::{
    ADMIN_SECRET, Answer, MERCHANT_SECRET, NOW, ORIGIN, UNKNOWN_ORDER, World, config, new_order,
    new_order_with,
};

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: pay.test\r\n\r\n";

/// A create request with these headers before its body.
fn create(headers: &str, body: &str) -> String {
    format!("POST /api/v1/service/orders HTTP/1.1\r\nhost: pay.test\r\n{headers}\r\n{body}")
}

/// Statuses of all answers on one connection that sends this, until the server ends it.
async fn statuses(world: &World, bytes: impl AsRef<[u8]>) -> Vec<u16> {
    let mut raw = Raw::sent(world, bytes).await;
    let mut found = Vec::new();
    while let Some(answer) = raw.answer().await {
        found.push(answer.status);
    }
    found
}

#[tokio::test]
async fn the_page_of_another_order_with_a_valid_link() {
    let world = World::start().await;
    let (own, other) = (world.create(&new_order()).await, world.create(&new_order()).await);
    let link = world.link(&own);
    let visitor = Visitor::enter(&world, &own).await;
    let cookie = &*visitor.cookie;
    let renamed = cookie.replacen(&own, &other, 1);
    let both = format!("{cookie}; checkout_{other}={link}");
    for path in ["", "/events"] {
        for cookie in [cookie, &renamed, &both] {
            let route = format!("GET /checkout/{other}{path}");
            let answer = Answer::to(world.request(&route).header("Cookie", cookie)).await;
            assert_eq!(answer.status, 401, "{route} {cookie}");
            assert!(!answer.body.contains("10.50"), "{}", answer.body);
        }
    }
    for path in ["payment", "cancel"] {
        for cookie in [cookie, &renamed, &both] {
            let route = format!("POST /checkout/{other}/{path}?{link}");
            let request = world.request(&route).header("Cookie", cookie).body("way=eth.USDT");
            let request = request.header("Content-Type", "application/x-www-form-urlencoded");
            assert_eq!(Answer::to(request).await.status, 303);
        }
    }
    assert_eq!(world.row(&other).await.unwrap().status, OrderStatus::Pending);
    assert_eq!(world.commands().len(), 2, "the two creates");
}

#[tokio::test]
async fn a_signature_replayed_changed_or_from_the_future() {
    let world = World::start().await;
    let body = new_order().to_string();
    let send = async |time: i64, body: &str, signed: &str| {
        let header = sign(MERCHANT_SECRET, time, signed);
        let request = world.request("POST /api/v1/service/orders").body(body.to_owned());
        Answer::to(request.header("Service-Signature", header).header("Idempotency-Key", "k")).await
    };
    let first = send(NOW, &body, &body).await.with_status(201);
    assert_eq!(send(NOW, &body, &body).await.body, first.body, "with a key it is the same order");
    let failed = "signature verification failed";
    send(NOW, "{}", &body).await.refused(401, failed);
    send(NOW + 301, &body, &body).await.refused(401, failed);
    world.advance(301);
    send(NOW, &body, &body).await.refused(401, failed);
    // The signature is valid on another path too, but each path has a body of its own.
    let request = world.request("POST /api/v1/service/orders/status").body(body.clone());
    let header = sign(MERCHANT_SECRET, NOW + 301, &body);
    Answer::to(request.header("Service-Signature", header))
        .await
        .refused(400, "body: \"amount\", \"webhook_url\" is not one of order_id");
    assert_eq!(world.commands().len(), 1);
}

/// The server refuses without waiting for the body, however large its announced length is.
#[tokio::test]
async fn a_body_without_authority_is_not_read() {
    let world = World::alone().await;
    let failed = "signature verification failed";
    for (header, text) in [
        (String::new(), "missing Service-Signature header"),
        ("service-signature: x\r\n".to_owned(), failed),
        (format!("service-signature: {}\r\n", sign(MERCHANT_SECRET, NOW - 301, "{}")), failed),
        (format!("service-signature: {}\r\n", sign(MERCHANT_SECRET, NOW + 301, "{}")), failed),
    ] {
        let mut raw =
            Raw::sent(&world, create(&format!("{header}content-length: 1000000\r\n"), "")).await;
        let answer = raw.answer().await.unwrap();
        assert_eq!((answer.status, &*answer.body), (401, text), "{header}");
        // Bytes in flight are read, so that no reset overtakes the answer.
        raw.send([b'x'; 100_000]).await;
    }
    let mut raw = Raw::sent(
        &world,
        create(&format!("service-signature: {NOW}.AAAA\r\ncontent-length: 3\r\n"), "{"),
    )
    .await;
    assert!(raw.is_kept(Duration::from_millis(200)).await, "its body may fit");
}

#[tokio::test]
async fn two_lengths_or_two_framings() {
    let world = World::alone().await;
    let body = new_order().to_string();
    let signed = format!("service-signature: {}\r\n", sign(MERCHANT_SECRET, NOW, &body));
    let length = body.len();
    let chunks = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    for (name, headers, body, expected) in [
        ("two lengths", "content-length: LENGTH\r\ncontent-length: 1", &body, 400),
        ("a list of lengths", "content-length: LENGTH, 1", &body, 400),
        ("a signed length", "content-length: +LENGTH", &body, 400),
        ("chunks that are not last", "transfer-encoding: chunked, gzip", &chunks, 400),
        ("an unknown framing", "transfer-encoding: xchunked", &chunks, 400),
        ("chunks and a length", "content-length: 3\r\ntransfer-encoding: chunked", &chunks, 201),
        ("a length and chunks", "transfer-encoding: chunked\r\ncontent-length: 3", &chunks, 201),
        ("a folded line", "content-length: LENGTH\r\nx: a\r\n b", &body, 400),
        ("a folded length", "content-length:\r\n LENGTH", &body, 400),
        ("a space before the colon", "content-length : LENGTH", &body, 400),
        ("a bare return", "x: a\rcontent-length: 1\r\ncontent-length: LENGTH", &body, 400),
        ("a zero byte", "x: a\0\r\ncontent-length: LENGTH", &body, 400),
    ] {
        let headers = headers.replace("LENGTH", &length.to_string());
        // A server that sees an earlier end of the body would take the rest for a request.
        let sent = create(&format!("{signed}{headers}\r\n"), body) + HEALTH;
        assert_eq!(statuses(&world, sent).await, [expected], "{name}");
    }
    let bare = "GET /health HTTP/1.1\nhost: pay.test\nconnection: close\n\n";
    assert!(matches!(statuses(&world, bare).await[..], [200 | 400]), "a bare line feed");
}

/// Two signatures are refused, because a proxy may have checked the other one. The remaining headers and routes are
/// tested by `a_header_twice_or_another_method_is_refused`.
#[tokio::test]
async fn two_headers_of_authority() {
    let world = World::alone().await;
    let body = new_order().to_string();
    let good = sign(MERCHANT_SECRET, NOW, &body);
    for [first, second] in [[&*good, "x"], ["x", &good], [&good, &good]] {
        let request = world.request("POST /api/v1/service/orders").body(body.clone());
        let request =
            request.header("Service-Signature", first).header("service-signature", second);
        Answer::to(request).await.refused(400, "Service-Signature: is given twice");
    }
    assert_eq!(world.commands(), []);
}

#[tokio::test]
async fn huge_bodies_headers_and_addresses() {
    let (world, id) = World::alone().await.with_order().await;
    let small = json!({ "blockchain": "eth", "more": "x".repeat(4096) });
    let answer = world.user(&id, "POST", "payment", &small).await;
    answer.refused(413, "body: must be at most 4 KiB");
    let fits = json!({ "blockchain": "eth", "more": "x".repeat(4000) });
    world.user(&id, "POST", "payment", &fits).await.refused(400, "stablecoin: is missing");
    let long = "x".repeat(300_000);
    let many = "x: y\r\n".repeat(1000);
    for (sent, expected) in [
        (format!("GET /{long} HTTP/1.1\r\nhost: x\r\n\r\n"), [414, 431]),
        (format!("GET /health?{long} HTTP/1.1\r\nhost: x\r\n\r\n"), [414, 431]),
        (format!("GET /health HTTP/1.1\r\nx: {long}\r\n\r\n"), [431, 431]),
        (format!("GET /health HTTP/1.1\r\n{many}\r\n"), [431, 431]),
    ] {
        let found = statuses(&world, sent).await;
        assert!(found.len() == 1 && expected.contains(&found[0]), "{found:?}");
    }
}

#[tokio::test]
async fn other_spellings_of_an_operators_path() {
    let (world, id) = World::alone().await.with_order().await;
    let paths = "
        /api/v1/admin/orders/ //api/v1/admin/orders /api//v1/admin/orders /api/v1/admin//orders
        /api/v1/%61dmin/orders /api/v1/admin/%6frders /api/v1/admin%2forders /api/v1/admin%2Forders
        /api/v1/user/../admin/orders /api/v1/user/%2e%2e/admin/orders /api/v1/user/..%2fadmin/orders
        /api/v1/admin/health/../orders /api/v1/admin/health/%2e%2e/orders
        /api/v1/admin/health;/../orders /api/v1/admin/./orders /api/v1/admin/orders;x=y
        /api/v1/admin/orders%00 /api/v1/admin/orders%20 /API/v1/admin/orders /api/v1/admin\\orders
        http://pay.test/api/v1/admin/orders http://pay.test//api/v1/admin/orders";
    for path in paths.split_whitespace() {
        let sent = format!("GET {path} HTTP/1.1\r\nhost: pay.test\r\nconnection: close\r\n\r\n");
        let found = statuses(&world, sent).await;
        assert!(matches!(found[..], [400 | 401 | 404]), "{path}: {found:?}");
        let paid = path.replace("orders", &format!("orders/{id}/mark-paid"));
        let sent = format!(
            "POST {paid} HTTP/1.1\r\nhost: pay.test\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        let found = statuses(&world, sent).await;
        assert!(matches!(found[..], [400 | 401 | 404]), "{paid}: {found:?}");
    }
    for method in ["X-HTTP-Method-Override", "X-Original-URL", "X-Rewrite-URL"] {
        let request = world.request("GET /api/v1/admin/health");
        let answer = Answer::to(request.header(method, "/api/v1/admin/orders")).await;
        assert!(answer.body.starts_with(r#"{"status":"ok""#), "{}", answer.body);
    }
    assert_eq!(world.commands().len(), 1, "the create");
}

/// A merchant's reference may be any text, also one that leads elsewhere when put into a URL.
#[tokio::test]
async fn a_reference_that_leads_the_customer_elsewhere() {
    let mut config = config();
    config.merchant.return_url =
        Some("https://shop.test/orders/{merchant_order_id}?status={status}".parse().unwrap());
    let world = World::with(config, true).await;
    for reference in [
        "//evil.test",
        "../../..//evil.test",
        "\\\\evil.test",
        "@evil.test",
        "?x=//evil.test",
        "#x",
        "javascript:alert(1)",
        "\"onclick=\"x",
    ] {
        let id = world.create(&new_order_with(&[("order_id", reference)])).await;
        assert_eq!(world.cancel(&id).await.status, 200);
        let query = format!("{}&lang=//evil.test", world.link(&id));
        let entered = open(&world, &format!("{id}/enter"), &query).await;
        assert!(!entered.header("location").contains("evil"), "{}", entered.header("location"));
        let page = Visitor::enter(&world, &id).await.page("").await;
        let links: Vec<_> =
            page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let away: Vec<_> = links.iter().filter(|link| link.contains("//")).collect();
        assert!(away.len() == 2 && away[0] == away[1], "{reference}: {links:?}");
        let end = away[0].strip_prefix("https://shop.test/orders/").unwrap();
        let is_one_segment = end.split_once('?').is_some_and(|(path, query)| {
            !path.contains(['/', '\\', '#', '@', '"', ':']) && query == "status=cancelled"
        });
        assert!(is_one_segment, "{reference}: {end}");
    }
    for path in ["//evil.test/x/cancel", "/\\evil.test/cancel", "/%2f%2fevil.test/cancel"] {
        let answer = Answer::to(world.request(&format!("POST /checkout{path}"))).await;
        assert!(!answer.header("location").contains("evil"), "{path}");
    }
}

#[tokio::test]
async fn origins_that_resemble_an_allowed_one() {
    let (world, id) = World::alone().await.with_order().await;
    let route = format!("GET /api/v1/user/orders/{id}/status?{}", world.link(&id));
    let origins = "null https://shop.test.evil.test https://evil-shop.test http://shop.test
        https://SHOP.test https://shop.test:444 https://shop.test/ *";
    for origin in origins.split_whitespace() {
        let answer = Answer::to(world.request(&route).header("Origin", origin)).await;
        assert_eq!(answer.header("access-control-allow-origin"), "", "{origin}");
        assert_eq!(answer.header("access-control-allow-credentials"), "");
    }
    for path in
        ["/health", "/api/v1/admin/orders", "/registry/subjects", &format!("/checkout/{id}")]
    {
        for method in ["GET", "OPTIONS"] {
            let request = world.request(&format!("{method} {path}")).header("Origin", ORIGIN);
            let answer = Answer::to(request.header("Access-Control-Request-Method", "GET")).await;
            assert_eq!(answer.header("access-control-allow-origin"), "", "{method} {path}");
        }
    }
}

/// A page that may read the answer learns that the service is busy, instead of a failure of the network.
#[tokio::test]
async fn timeout_answer_has_the_cors_headers() {
    let (world, id) = World::alone().await.with_order().await;
    let route = format!("POST /api/v1/user/orders/{id}/payment?{}", world.link(&id));
    let head = format!("{route} HTTP/1.1\r\nhost: pay.test\r\norigin: {ORIGIN}\r\n");
    let answer = Raw::answer_without_body(&world, &head).await;
    assert_eq!((answer.status, &*answer.body), (503, "the service is busy, try again"));
    let allowed = format!("access-control-allow-origin: {ORIGIN}\r\n");
    assert!(answer.head.contains(&allowed), "{answer:?}");
}

/// Wrong secrets and signatures of one address are limited; valid ones are answered whatever that address sent before,
/// as the merchant, operators and attackers may share a proxy.
#[tokio::test]
async fn wrong_secrets_are_limited_and_valid_ones_are_not() {
    let world = World::alone().await;
    let from = |route: &str, address: &str| world.request(route).header("X-Forwarded-For", address);
    let secret = async |address: &str, secret: &str| {
        let request = from("GET /api/v1/admin/orders", address);
        Answer::to(request.header("Service-Admin-Authorization", secret)).await
    };
    let signed = async |address: &str, key: &str| {
        let signature = sign(key, world.clock.now().seconds().0, "{}");
        let request = from("POST /api/v1/service/orders/list", address).body("{}");
        Answer::to(request.header("Service-Signature", signature)).await
    };
    let is_limited = |answer: Answer| {
        assert_eq!(answer.header("retry-after"), "1");
        answer.refused(429, "too many requests from this address, try again later");
    };
    let (guest, other) = ("198.51.100.9", "2001:db8:0:1::1");
    for _ in 0..10 {
        secret(guest, "wrong").await.refused(401, "invalid admin secret");
        signed(guest, "wrong").await.refused(401, "signature verification failed");
    }
    for _ in 0..5 {
        is_limited(secret(guest, "wrong").await);
        is_limited(signed(guest, "wrong").await);
        assert_eq!(secret(guest, ADMIN_SECRET).await.status, 200);
        assert_eq!(signed(guest, MERCHANT_SECRET).await.status, 200);
    }
    secret(other, "wrong").await.refused(401, "invalid admin secret");
    // A tenth of a second later one more is admitted: refused requests do not count.
    world.clock.advance(Duration::from_millis(100));
    signed(guest, "wrong").await.refused(401, "signature verification failed");
    is_limited(signed(guest, "wrong").await);
}

/// Each listener has limits of its own.
#[tokio::test]
async fn a_flood_in_public_limits_no_operator() {
    let world = World::apart(config(), false).await;
    for _ in 0..25 {
        let request = world.request("POST /api/v1/service/orders/list").body("{}");
        Answer::to(request.header("Service-Signature", "1.AAAA")).await;
    }
    let typo = world.at_operators("GET /api/v1/admin/orders");
    let typo = typo.header("Service-Admin-Authorization", "wrong");
    Answer::to(typo).await.refused(401, "invalid admin secret");
}

/// No public route takes an admin secret if operators have a listener of their own.
#[tokio::test]
async fn no_public_route_reads_an_admin_secret() {
    let world = World::apart(config(), false).await;
    for (path, method, _) in openapi::operations() {
        let path = path.replace("{order_id}", UNKNOWN_ORDER).replace(['{', '}'], "");
        for query in ["", "?verbose=1"] {
            let ask = async |secret: Option<&str>| {
                let route = format!("{} {path}{query}", method.to_uppercase());
                let mut request = world.request(&route);
                if let Some(secret) = secret {
                    request = request.header("Service-Admin-Authorization", secret);
                }
                let answer = request.send().await.unwrap();
                (answer.status(), answer.bytes().await.unwrap())
            };
            let without = ask(None).await;
            assert_eq!(ask(Some("wrong")).await, without, "{method} {path}{query}");
            assert_eq!(ask(Some(ADMIN_SECRET)).await, without, "{method} {path}{query}");
        }
    }
}

/// Anybody may read schemas. Posting one is limited, because the server parses it.
#[tokio::test]
async fn a_flood_of_schemas() {
    let mut world = World::alone().await;
    // The registry's limit does not depend on that of customers.
    world.customer_requests = NonZeroU32::new(2);
    world.serve(config()).await;
    let ask = async |method: &str, address: &str| {
        let route = format!("{method} /registry/subjects/shop.orders-value/versions");
        let request = world.request(&route).body(r#"{"schema":"\"string\""}"#);
        Answer::to(request.header("X-Forwarded-For", address)).await
    };
    for _ in 0..20 {
        assert_eq!(ask("POST", "198.51.100.9").await.status, 422);
    }
    let refused = ask("POST", "198.51.100.9").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
    assert_eq!(refused.header("content-type"), "application/vnd.schemaregistry.v1+json");
    assert!(refused.body.contains(r#""error_code":429"#), "{}", refused.body);
    assert_eq!(ask("GET", "198.51.100.9").await.status, 200);
    assert_eq!(ask("POST", "198.51.100.8").await.status, 422);
    let long = json!({ "schema": " ".repeat(60_000) }).to_string();
    let route = "POST /registry/subjects/shop.orders-value/versions";
    let answer = Answer::to(world.request(route).body(long)).await;
    assert!(answer.body.contains("A schema has at most "), "{}", answer.body);
}

/// The documents are large, and served to callers without an account.
#[tokio::test]
async fn a_flood_for_documents() {
    let mut world = World::alone().await;
    world.customer_requests = NonZeroU32::new(2);
    world.serve(config()).await;
    for path in ["/api/v1/openapi.json", "/api/v1/docs"] {
        let address = format!("198.51.100.{}", path.len());
        let ask = async |name: &str, value: &str| {
            let request = world.request(&format!("GET {path}")).header(name, value);
            request.header("X-Forwarded-For", &*address).send().await.unwrap()
        };
        let header = |answer: &reqwest::Response, name: &str| {
            answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        let plain = ask("Accept-Encoding", "identity").await;
        let tag = header(&plain, "etag").unwrap();
        assert_eq!(header(&plain, "cache-control").unwrap(), "public, max-age=3600");
        let plain = plain.bytes().await.unwrap();
        let packed = ask("Accept-Encoding", "br, gzip").await;
        assert_eq!(header(&packed, "content-encoding").as_deref(), Some("gzip"));
        assert_ne!(header(&packed, "etag").unwrap(), tag);
        assert!(packed.bytes().await.unwrap().len() < plain.len() / 3);
        let known = ask("If-None-Match", &format!("W/\"x\", W/{tag}")).await;
        assert_eq!((known.status(), header(&known, "etag")), (StatusCode::NOT_MODIFIED, Some(tag)));
        assert_eq!(known.bytes().await.unwrap().len(), 0);
        assert_eq!(ask("Accept", "*/*").await.status(), StatusCode::OK);
        assert_eq!(ask("Accept", "*/*").await.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}
