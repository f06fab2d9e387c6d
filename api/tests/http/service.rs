//! Common behaviour of the service API (spec 5.1, 7.1), and `POST /orders/status`.

use schemas::{Secret, sign_service};
use serde_json::json;
use store::Change;
use testkit::eventually;

use crate::world::{
    Answer, MERCHANT_SECRET, NOW, OLD_SECRET, ORDER_FIELDS, UNKNOWN_ORDER, World, fields,
    new_order, order,
};

/// Sends a body with any signature header.
async fn post(world: &World, path: &str, signature: Option<&[u8]>, body: &str) -> Answer {
    let request = world.request(&format!("POST /api/v1/service{path}")).body(body.to_owned());
    Answer::to(match signature {
        Some(signature) => request.header("Service-Signature", signature),
        None => request,
    })
    .await
}

/// The signature of a body by this secret at this time.
pub(crate) fn sign(secret: &str, timestamp: i64, body: &str) -> String {
    sign_service(&Secret::new(secret), schemas::UnixSeconds(timestamp), body.as_bytes())
}

#[tokio::test]
async fn spec_5_1_a_signature_made_elsewhere_is_accepted() {
    let world = World::alone().await;
    // printf '1790000000.{…}' | openssl dgst -sha256 -hmac merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5 -binary | base64
    let body = r#"{"order_id":"A-1","amount":"10.50","webhook_url":"https://shop.test/hook"}"#;
    let digest = "C7cyiIPrZ1Pja0Kpgc9DD3sDGqYrAf5u/GEe9mY73P4=";
    let header = format!("{NOW}.{digest}");
    assert_eq!(post(&world, "/orders", Some(header.as_bytes()), body).await.status, 201);
    let unpadded = header.trim_end_matches('=');
    assert_eq!(post(&world, "/orders", Some(unpadded.as_bytes()), body).await.status, 201);
    // The requests above have no content type. Any type is accepted, because the signature covers only the bytes.
    let text = |request: reqwest::RequestBuilder| request.header("Content-Type", "text/plain");
    assert_eq!(world.service_with("/orders", body, text).await.status, 201);
}

#[tokio::test]
async fn spec_7_1_invalid_signatures() {
    let world = World::alone().await;
    let body = new_order().to_string();
    let good = sign(MERCHANT_SECRET, NOW, &body);
    // Each request has an address of its own, to stay below the limit of refusals.
    let mut address = 0;
    for path in ["/orders", "/orders/status"] {
        let answer = post(&world, path, None, &body).await;
        answer.refused(401, "missing Service-Signature header");
        for header in [
            "".to_owned(),
            "x".to_owned(),
            format!("{NOW}."),
            format!("{NOW}.!!!"),
            format!("{NOW}.AAAA"),
            good.replacen(&NOW.to_string(), &(NOW + 1).to_string(), 1),
            good.replacen('.', ":", 1),
            sign("another-secret", NOW, &body),
            sign(MERCHANT_SECRET, NOW, &body.replace("10.50", "1.50")),
            sign(MERCHANT_SECRET, NOW - 301, &body),
            sign(MERCHANT_SECRET, NOW + 301, &body),
        ] {
            address += 1;
            let route = format!("POST /api/v1/service{path}");
            let request = world.request(&route).body(body.clone());
            let request = request.header("X-Forwarded-For", format!("198.51.100.{address}"));
            let answer = Answer::to(request.header("Service-Signature", header)).await;
            answer.refused(401, "signature verification failed");
        }
        let answer = post(&world, path, Some(b"\xff"), &body).await;
        answer.refused(401, "signature verification failed");
    }
    assert_eq!(world.commands(), []);
}

#[tokio::test]
async fn spec_5_1_five_minutes_and_both_keys() {
    let world = World::alone().await;
    let body = new_order().to_string();
    for (secret, timestamp) in [
        (MERCHANT_SECRET, NOW - 300),
        (MERCHANT_SECRET, NOW),
        (MERCHANT_SECRET, NOW + 300),
        (OLD_SECRET, NOW),
    ] {
        let header = sign(secret, timestamp, &body);
        assert_eq!(post(&world, "/orders", Some(header.as_bytes()), &body).await.status, 201);
    }
}

#[tokio::test]
async fn spec_5_1_the_signature_is_checked_before_the_body() {
    let world = World::alone().await;
    let header = sign(MERCHANT_SECRET, NOW, "something else");
    let answer = post(&world, "/orders", Some(header.as_bytes()), "{ not json").await;
    answer.refused(401, "signature verification failed");
    let answer = post(&world, "/orders", None, "{ not json").await;
    answer.refused(401, "missing Service-Signature header");
}

#[tokio::test]
async fn spec_4_1_status_answers_the_object_of_2_2() {
    let world = World::alone().await;
    for (number, status) in (1..).zip(schemas::OrderStatus::ALL) {
        let order = schemas::record::Order { status: *status, ..order(number) };
        world.apply(vec![Change::Order(order.clone())]).await;
        let id = order.order_id.to_string();
        let body = json!({ "order_id": id });
        let object = world.service("/orders/status", &body).await.with_status(200).json();
        assert_eq!(fields(&object), ORDER_FIELDS);
        assert_eq!(object["order_id"], id);
        assert_eq!(object["status"], status.as_str());
        assert_eq!(object["amount"], order.amount_text);
        assert_eq!(object["created_at"], order.created_at.0);
    }
}

#[tokio::test]
async fn spec_7_1_status_without_an_order_is_400_or_404() {
    let world = World::alone().await;
    for (body, status, text) in [
        (json!({ "order_id": UNKNOWN_ORDER }), 404, "order not found"),
        (json!({}), 400, "order_id: is missing"),
        (json!({ "order_id": null }), 400, "order_id: is missing"),
        (json!({ "order_id": 7 }), 400, "order_id: must be a string"),
        (json!({ "order_id": "A-1" }), 400, "order_id: must be a UUID"),
        (json!("x"), 400, "body: must be a JSON object"),
    ] {
        world.service("/orders/status", &body).await.refused(status, text);
    }
}

#[tokio::test]
async fn spec_7_1_a_broken_store_is_500() {
    let (world, id) = World::alone().await.with_order().await;
    world.faults.store_reads.set(true);
    let answer = world.service("/orders/status", &json!({ "order_id": id })).await;
    answer.refused(500, "internal server error");
    let answer = world.create_once("k", &new_order()).await;
    answer.refused(500, "internal server error");
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(world.commands().len(), 1, "the first create");
    world.faults.store_reads.set(false);
    let answer = world.service("/orders/status", &json!({ "order_id": id })).await;
    assert_eq!(answer.status, 200, "the next request succeeds");
}

#[tokio::test]
async fn spec_4_unknown_paths_and_methods() {
    let world = World::alone().await;
    for (route, status, text) in [
        ("GET /", 404, "resource not found"),
        ("GET /api/v1/service", 404, "resource not found"),
        ("POST /api/v1/service/orders/", 404, "resource not found"),
        ("POST /api/v2/service/orders", 404, "resource not found"),
        ("GET /api/v1/admin/nothing", 404, "resource not found"),
        ("GET /api/v1/user/nothing", 404, "resource not found"),
        ("GET /api/v1/service/orders", 405, "method not allowed"),
        ("DELETE /api/v1/admin/orders", 405, "method not allowed"),
        ("POST /health", 405, "method not allowed"),
    ] {
        let answer = Answer::to(world.request(route)).await;
        answer.refused(status, text);
        assert_eq!(!answer.header("allow").is_empty(), status == 405, "{route}");
    }
}

#[tokio::test]
async fn spec_9_health_is_public_and_has_the_version() {
    let world = World::alone().await;
    for query in ["", "?verbose=0", "?verbose="] {
        for path in ["/health", "/api/v1/admin/health"] {
            let request = world.request(&format!("GET {path}{query}"));
            let answer = Answer::to(request).await.with_status(200);
            assert_eq!(answer.json(), json!({ "status": "ok", "version": "1.2.3" }), "{query}");
        }
    }
}

#[tokio::test]
async fn stop_answers_the_requests_that_have_begun() {
    let (mut world, id) = World::alone().await.with_order().await;
    let server = world.server.take().unwrap();
    let stopping = async {
        let commanded = || async { (world.commands().len() >= 2).then_some(()) };
        eventually("the second command", commanded).await;
        world.stop.cancel();
    };
    let (answer, ()) = tokio::join!(world.cancel(&id), stopping);
    answer.refused(503, "the service is busy, try again");
    server.await.unwrap();
}
