//! Refusals are counted by cause. Wrong signatures, wrong secrets and exceeded limits are also logged, at most once a
//! minute: signs of an attack or of a misconfigured client.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request};
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusBuilder;
use runtime::ManualClock;
use runtime::config::Source;
use schemas::{Secret, UnixSeconds, sign_service};

use super::*;
use crate::client::Entrance;
use crate::customers::{Customers, TOO_MANY_REQUESTS, limited};

const NOW: i64 = 1_790_000_000;
/// Header by which the tests mark a request that must be admitted; the server ignores it.
const FREE: &[(&str, &[u8])] = &[("x-free", b"")];
const MERCHANT: &str = "merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5";
const CONFIG: &str = "
    [admin]
    secret = 'admin-5vN8xK2qL7wR'
    secrets = [{ name = 'reader', secret = 'reader-9pT4hD6sJ3mZ', scope = 'read' }]
    [merchant]
    secret = 'merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5'";

/// Refusal counters and log lines caused by requests; each request is sent at its second.
fn sent(requests: Vec<(u64, Request<Body>)>) -> (Vec<String>, Vec<String>) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let written = tempfile::NamedTempFile::new().unwrap();
    let writer = Mutex::new(written.reopen().unwrap());
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer);
    ::metrics::with_local_recorder(&recorder, || {
        tracing::subscriber::with_default(subscriber.finish(), || send(requests));
    });
    let text = std::fs::read_to_string(written.path()).unwrap();
    let metrics = recorder.handle().render();
    let counters = metrics.lines().filter(|line| line.starts_with("tidemark_api_refusals_total"));
    (counters.map(str::to_owned).collect(), text.lines().map(str::to_owned).collect())
}

/// Each request must be refused, except those with the header `x-free`.
fn send(requests: Vec<(u64, Request<Body>)>) {
    let config = Config::read(&mut Source::parse(Config::DEFAULTS, CONFIG, []));
    let clock = Arc::new(ManualClock::new(UnixMicros(NOW * 1_000_000 + 654_321)));
    let auth = Arc::new(Auth::new(&config, clock.clone()));
    // One request a second, in bursts of two.
    let customers = Arc::new(Customers::new(NonZeroU32::new(1), TOO_MANY_REQUESTS, clock.clone()));
    let operators = Router::new()
        .route("/admin", any(|| async {}))
        .layer(from_fn_with_state(auth.clone(), operators_only));
    let page = Router::new()
        .route("/page", get(|| async {}))
        .layer(from_fn_with_state(customers, limited));
    let router = Router::new()
        .route("/service", post(|_: Signed| async {}))
        .route("/link/{id}", get(|_: Linked| async {}))
        .merge(operators)
        .merge(page)
        .with_state(auth);
    let service = TowerToHyperService::new(router);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut second = 0;
    for (at, mut request) in requests {
        clock.advance(Duration::from_secs(at - second));
        second = at;
        let client =
            Client::of(Entrance::Public, [198, 51, 100, 7].into(), std::iter::empty(), &[]);
        request.extensions_mut().insert(client);
        let (path, is_free) = (request.uri().clone(), request.headers().contains_key("x-free"));
        let status = runtime.block_on(service.call(request)).unwrap().status();
        assert_eq!(status.is_client_error(), !is_free, "{path}: {status}");
    }
}

fn request(route: &str, headers: &[(&str, &[u8])], body: &str) -> Request<Body> {
    let (method, path) = route.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

/// Request to the service API, signed this many seconds after `NOW`.
fn signed(secret: &str, second: i64, body: &str) -> Request<Body> {
    let signature = sign_service(&Secret::new(secret), UnixSeconds(NOW + second), body.as_bytes());
    request("POST /service", &[(SIGNATURE, signature.as_bytes())], body)
}

fn operator(method: &str, secret: &[u8]) -> Request<Body> {
    request(&format!("{method} /admin"), &[(AUTHORIZATION, secret)], "")
}

fn page(headers: &[(&str, &[u8])]) -> Request<Body> {
    request("GET /page", headers, "")
}

#[test]
fn every_refusal_is_counted_by_its_cause() {
    let cases = [
        ("signature", "missing", request("POST /service", &[], "{}")),
        ("signature", "malformed", request("POST /service", &[(SIGNATURE, b"none")], "{}")),
        ("signature", "expired", signed(MERCHANT, -301, "{}")),
        ("signature", "mismatch", signed("another-secret", 0, "{}")),
        ("signature", "webhook", signed(MERCHANT, 0, r#"{"event_type":"order_paid"}"#)),
        ("secret", "missing", request("GET /admin", &[], "")),
        ("secret", "malformed", operator("GET", &[0xff])),
        ("secret", "mismatch", operator("GET", b"wrong-secret")),
        ("secret", "scope", operator("POST", b"reader-9pT4hD6sJ3mZ")),
        ("link", "invalid", request("GET /link/none", &[], "")),
        ("address", "limit", page(&[])),
    ];
    let line = |kind: &str, cause: &str| {
        format!("tidemark_api_refusals_total{{kind=\"{kind}\",cause=\"{cause}\"}} 1")
    };
    let mut expected: Vec<_> = cases.iter().map(|(kind, cause, _)| line(kind, cause)).collect();
    let admitted = [page(FREE), page(FREE)];
    let requests = admitted.into_iter().chain(cases.into_iter().map(|(_, _, request)| request));
    let (mut counted, _) = sent(requests.map(|request| (0, request)).collect());
    expected.sort();
    counted.sort();
    assert_eq!(counted, expected);
}

#[test]
fn a_flood_of_refusals_is_a_line_a_minute() {
    let seconds = [0, 0, 59, 60];
    let signatures = seconds.map(|at| (at, signed("another-secret", 0, "{}")));
    let secrets = seconds.map(|at| (at, operator("GET", b"wrong-secret")));
    // Bursts of two are admitted.
    let floods = [0, 0, 0, 0, 60, 60, 60].into_iter().zip([FREE, FREE, &[], &[], FREE, FREE, &[]]);
    let addresses = floods.map(|(at, headers)| (at, page(headers)));
    for (requests, start, counts) in [
        (signatures.into(), "refused requests to the service API", [1, 3]),
        (secrets.into(), "refused requests to the admin API with a wrong secret", [1, 3]),
        (addresses.collect::<Vec<_>>(), "refused requests of customers", [1, 2]),
    ] {
        let (_, lines) = sent(requests);
        assert_eq!(lines.len(), 2, "{lines:#?}");
        for (line, count) in lines.iter().zip(counts) {
            assert!(line.contains(" WARN ") && line.contains(start), "{line}");
            for part in [&format!("count={count}"), "client.address=198.51.100.7"] {
                assert!(line.contains(part), "{part} is not in {line}");
            }
            assert!(!line.contains("-secret"), "{line}");
        }
    }
}
