//! Limits of client connections, over raw sockets.

use std::time::Duration;

use runtime::config::Connections;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

use crate::raw::Raw;
use crate::world::{CONNECTIONS, NOW, World, config};

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: pay.test\r\n\r\n";
const SHORT: Duration = Duration::from_millis(100);

async fn bounded(connections: Connections) -> World {
    let mut world = World::alone().await;
    world.connections = connections;
    world.serve(config()).await;
    world
}

/// A connection whose first request has been answered.
async fn healthy(world: &World) -> Raw {
    let mut raw = Raw::sent(world, HEALTH).await;
    assert_eq!(raw.answer().await.unwrap().status, 200);
    raw
}

/// The timeout is for the whole head, so single bytes do not extend it. It ends a connection without a request too.
#[tokio::test]
async fn headers_that_drip_in_or_never_come_are_cut_off() {
    let world = bounded(Connections { header_timeout: SHORT, ..CONNECTIONS }).await;
    assert_eq!(Raw::connect(&world).await.rest().await, b"");
    let mut raw = Raw::sent(&world, "GET /health HTTP/1.1\r\nx: ").await;
    let mut drops = interval(Duration::from_millis(10));
    let drip = async {
        while raw.0.write_all(b"x").await.is_ok() {
            drops.tick().await;
        }
    };
    timeout(Duration::from_secs(120), drip).await.expect("the connection ends");
}

/// The head of a second request has its own time, from its first byte.
#[tokio::test]
async fn an_idle_connection_is_kept_longer_than_a_slow_head() {
    let world = bounded(Connections { header_timeout: SHORT, ..CONNECTIONS }).await;
    let mut raw = healthy(&world).await;
    assert!(raw.is_kept(3 * SHORT).await);
    raw.send(HEALTH).await;
    assert_eq!(raw.answer().await.unwrap().status, 200);
    raw.send("GET").await;
    assert_eq!(raw.rest().await, b"");

    let world = bounded(Connections { idle_timeout: SHORT, ..CONNECTIONS }).await;
    assert_eq!(healthy(&world).await.rest().await, b"");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_a_408() {
    let world = bounded(Connections { body_timeout: SHORT, ..CONNECTIONS }).await;
    let head = format!(
        "POST /api/v1/service/orders HTTP/1.1\r\nhost: pay.test\r\nservice-signature: {NOW}.AAAA\r\n\
         content-length: 2\r\n\r\n{{"
    );
    let mut raw = Raw::sent(&world, head).await;
    let answer = raw.answer().await.unwrap();
    assert_eq!((answer.status, &*answer.body), (408, "body: did not arrive in time"));
    assert_eq!(raw.rest().await, b"", "what follows would be taken for a request");
}

/// A client that never reads answers uses neither unbounded memory nor a permit for ever.
#[tokio::test]
async fn a_client_that_takes_no_answer_is_cut_off() {
    let world = bounded(Connections { body_timeout: SHORT, ..CONNECTIONS }).await;
    let mut raw = Raw::connect(&world).await;
    let asked = "GET /checkout/page.js HTTP/1.1\r\nhost: pay.test\r\n\r\n".repeat(1000);
    let ask = async { while raw.0.write_all(asked.as_bytes()).await.is_ok() {} };
    timeout(Duration::from_secs(120), ask).await.expect("the connection ends");
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused() {
    let world = bounded(Connections { max: 3, ..CONNECTIONS }).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(healthy(&world).await);
    }
    let answer = Raw::connect(&world).await.answer().await.unwrap();
    assert_eq!((answer.status, &*answer.body), (503, "the service is busy, try again"));
    assert!(answer.head.contains("retry-after: 1\r\n"), "{answer:?}");
    drop(open.pop());
    let another = async {
        loop {
            let mut raw = Raw::connect(&world).await;
            if raw.0.write_all(HEALTH.as_bytes()).await.is_ok()
                && raw.answer().await.is_some_and(|answer| answer.status == 200)
            {
                return;
            }
        }
    };
    timeout(Duration::from_secs(120), another).await.expect("a place comes free");
}

/// One connection of HTTP/2 would carry any number of requests at once, past the limit of connections.
#[tokio::test]
async fn http_2_is_not_spoken() {
    let world = World::alone().await;
    let mut raw = Raw::sent(&world, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let rest = raw.rest().await;
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "{rest:?}");
    let upgrade = "GET /health HTTP/1.1\r\nhost: pay.test\r\nconnection: upgrade, http2-settings\r\n\
                   upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n";
    assert_eq!(Raw::sent(&world, upgrade).await.answer().await.unwrap().status, 200);
}

/// An incomplete request has had no effect: it may not delay an orderly stop.
#[tokio::test]
async fn a_half_sent_request_does_not_hold_up_the_stop() {
    let stop_grace = Duration::from_secs(3600);
    let mut world = bounded(Connections { stop_grace, ..CONNECTIONS }).await;
    let mut idle = healthy(&world).await;
    let mut head = healthy(&world).await;
    head.send("GET /health HTTP/1.1\r\nx").await;
    let half = format!(
        "POST /api/v1/service/orders HTTP/1.1\r\nhost: pay.test\r\nservice-signature: {NOW}.AAAA\r\n\
         expect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    );
    let mut body = Raw::sent(&world, half).await;
    body.body_is_awaited().await;
    world.stop.cancel();
    let server = world.server.take().unwrap();
    timeout(Duration::from_secs(120), server).await.expect("it stops").unwrap();
    assert_eq!(idle.rest().await, b"");
}

/// A client cannot know of the stop yet: its request is answered, as the last one of its connection.
#[tokio::test]
async fn request_on_its_way_at_a_stop_is_answered() {
    let world = World::alone().await;
    let mut fresh = Raw::connect(&world).await;
    let mut idle = healthy(&world).await;
    // Connections are accepted in order: the answer to `idle` shows that `fresh` has been accepted too.
    world.stop.cancel();
    for raw in [&mut fresh, &mut idle] {
        raw.send(HEALTH).await;
    }
    for raw in [&mut fresh, &mut idle] {
        let answer = raw.answer().await.expect("an answer");
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
        assert_eq!(raw.rest().await, b"");
    }
}

/// Routes that are not public cannot be exposed by a mistake in a proxy, and a client that fills
/// the public connections does not lock operators out.
#[tokio::test]
async fn operators_may_have_an_address_of_their_own() {
    let mut world = World::alone().await;
    let together = ["/api/v1/admin/orders", "/registry/subjects", "/health", "/api/v1/docs"];
    for path in together {
        assert_ne!(world.status_at(None, path).await, 404, "{path}");
    }
    for path in ["/console", "/console/sign-in", "/console/console.css"] {
        assert_eq!(world.status_at(None, path).await, 404, "{path} at the one address");
    }
    world.is_apart = true;
    world.connections = Connections { max: 16, ..CONNECTIONS };
    world.serve(config()).await;
    let operators = world.operators.clone();
    for (path, in_public, of_operators) in [
        ("/api/v1/admin/orders", 404, 200),
        ("/api/v1/admin/health", 404, 200),
        ("/registry/subjects", 404, 200),
        // A secret in a header gives no session; only a cookie does.
        ("/console", 404, 303),
        ("/console/orders", 404, 303),
        ("/console/export/orders", 404, 303),
        ("/console/sign-in", 404, 200),
        ("/console/console.css", 404, 200),
        ("/console/console.js", 404, 200),
        ("/console/icon.svg", 404, 200),
        ("/health", 200, 200),
        ("/api/v1/docs", 200, 200),
        ("/api/v1/user/chains", 200, 404),
        ("/checkout/page.css", 200, 404),
        ("/api/v1/service/orders", 405, 404),
    ] {
        assert_eq!(world.status_at(None, path).await, in_public, "{path} in public");
        let status = world.status_at(operators.as_deref(), path).await;
        assert_eq!(status, of_operators, "{path} of operators");
    }
    let mut public = Vec::new();
    for _ in 0..16 {
        public.push(Raw::sent(&world, "GET /health HTTP/1.1\r\nx").await);
    }
    assert_eq!(world.status_at(operators.as_deref(), "/api/v1/admin/orders").await, 200);
}

/// The limit holds even if the public may have more connections.
#[tokio::test]
async fn operators_have_connections_of_their_own() {
    let world = World::apart(config(), false).await;
    let operators = world.operators.as_deref().unwrap().trim_start_matches("http://");
    let connect = async || Raw(TcpStream::connect(operators).await.unwrap());
    let mut open = Vec::new();
    // OPERATOR_CONNECTIONS_MAX
    for _ in 0..64 {
        let mut raw = connect().await;
        raw.send(HEALTH).await;
        assert_eq!(raw.answer().await.unwrap().status, 200);
        open.push(raw);
    }
    assert_eq!(connect().await.answer().await.unwrap().status, 503);
    healthy(&world).await;
}
