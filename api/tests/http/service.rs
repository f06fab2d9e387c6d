//! What all of the service API has in common (spec 5.1, 7.1), and `POST /orders/status`.

use reqwest::Method;
use schemas::{Secret, sign_service};
use serde_json::json;
use store::Change;

use crate::world::{Answer, MERCHANT_SECRET, NOW, OLD_SECRET, World, fields, new_order, order};

/// Sends a body with any signature header.
async fn post(world: &World, path: &str, signature: Option<&[u8]>, body: &str) -> Answer {
    let path = format!("/api/v1/service{path}");
    let mut request = world.request(Method::POST, &path).body(body.to_owned());
    if let Some(signature) = signature {
        request = request.header("Service-Signature", signature);
    }
    Answer::of(request.send().await.unwrap()).await
}

fn sign(secret: &str, timestamp: i64, body: &str) -> String {
    sign_service(&Secret::new(secret), schemas::UnixSeconds(timestamp), body.as_bytes())
}

#[tokio::test]
async fn spec_5_1_a_signature_made_elsewhere_is_accepted() {
    let world = World::alone().await;
    // printf '1790000000.{…}' | openssl dgst -sha256 -hmac merchant-secret -binary | base64
    let body = r#"{"order_id":"A-1","amount":"10.50","webhook_url":"https://shop.test/hook"}"#;
    let digest = "xA0bQ+Nm//HpNiLr0MpUIrXUNDYKmwSvEtPxai7Imjs=";
    let header = format!("{NOW}.{digest}");
    assert_eq!(post(&world, "/orders", Some(header.as_bytes()), body).await.status, 201);
    let unpadded = header.trim_end_matches('=');
    assert_eq!(post(&world, "/orders", Some(unpadded.as_bytes()), body).await.status, 201);
    // Those named no content type. The signature covers the bytes, so another is no error either.
    let text = |request: reqwest::RequestBuilder| request.header("Content-Type", "text/plain");
    assert_eq!(world.service_with("/orders", body, text).await.status, 201);
}

#[tokio::test]
async fn spec_7_1_signatures_that_do_not_count() {
    let world = World::alone().await;
    let body = new_order().to_string();
    let good = sign(MERCHANT_SECRET, NOW, &body);
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
            let answer = post(&world, path, Some(header.as_bytes()), &body).await;
            answer.refused(401, "signature verification failed");
        }
        let answer = post(&world, path, Some(b"\xff"), &body).await;
        answer.refused(401, "signature verification failed");
    }
    assert_eq!(world.commands(), []);
}

#[tokio::test]
async fn spec_5_1_timestamps_may_be_five_minutes_off_either_way() {
    let world = World::alone().await;
    let body = new_order().to_string();
    for timestamp in [NOW - 300, NOW, NOW + 300] {
        let header = sign(MERCHANT_SECRET, timestamp, &body);
        assert_eq!(post(&world, "/orders", Some(header.as_bytes()), &body).await.status, 201);
    }
}

#[tokio::test]
async fn two_secrets_are_accepted_during_rotation() {
    let world = World::alone().await;
    let body = new_order().to_string();
    let header = sign(OLD_SECRET, NOW, &body);
    assert_eq!(post(&world, "/orders", Some(header.as_bytes()), &body).await.status, 201);
}

#[tokio::test]
async fn spec_5_1_nothing_is_read_before_the_signature() {
    let world = World::alone().await;
    let header = sign(MERCHANT_SECRET, NOW, "something else");
    let answer = post(&world, "/orders", Some(header.as_bytes()), "{ not json").await;
    answer.refused(401, "signature verification failed");
    post(&world, "/orders", None, "{ not json")
        .await
        .refused(401, "missing Service-Signature header");
}

#[tokio::test]
async fn spec_4_1_status_answers_the_object_of_2_2() {
    let world = World::alone().await;
    for (number, status) in (1..).zip(schemas::OrderStatus::ALL) {
        let order = schemas::record::Order { status: *status, ..order(number) };
        world.apply(vec![Change::Order(order.clone())]).await;
        let id = order.order_id.to_string();
        let answer = world.service("/orders/status", &json!({ "order_id": id })).await;
        assert_eq!(answer.status, 200);
        let object = answer.json();
        let names = ["amount", "created_at", "merchant_order_id", "order_id", "status"];
        assert_eq!(fields(&object), names);
        assert_eq!(object["order_id"], id);
        assert_eq!(object["status"], status.as_str());
        assert_eq!(object["amount"], order.amount_text);
        assert_eq!(object["created_at"], order.created_at.0);
    }
}

#[tokio::test]
async fn spec_7_1_an_unknown_order_is_404() {
    let world = World::alone().await;
    let body = json!({ "order_id": "01996d3c-5b00-7abc-8def-0123456789ab" });
    world.service("/orders/status", &body).await.refused(404, "order not found");
}

#[tokio::test]
async fn a_status_query_that_names_no_order_is_400() {
    let world = World::alone().await;
    for (body, text) in [
        (json!({}), "order_id: is missing"),
        (json!({ "order_id": null }), "order_id: is missing"),
        (json!({ "order_id": 7 }), "order_id: must be a string"),
        (json!({ "order_id": "A-1" }), "order_id: must be a UUID"),
        (json!("x"), "body: must be a JSON object"),
    ] {
        world.service("/orders/status", &body).await.refused(400, text);
    }
}

#[tokio::test]
async fn spec_7_1_a_broken_store_is_500() {
    let world = World::alone().await;
    let id = world.create(&new_order()).await;
    world.store_reads.set(true);
    let answer = world.service("/orders/status", &json!({ "order_id": id })).await;
    answer.refused(500, "internal server error");
    world.store_reads.set(false);
    let answer = world.service("/orders/status", &json!({ "order_id": id })).await;
    assert_eq!(answer.status, 200, "it comes back by itself");
}

#[tokio::test]
async fn spec_4_unknown_paths_and_methods() {
    let world = World::alone().await;
    for (method, path, status, text) in [
        (Method::GET, "/", 404, "resource not found"),
        (Method::GET, "/api/v1/service", 404, "resource not found"),
        (Method::POST, "/api/v1/service/orders/", 404, "resource not found"),
        (Method::POST, "/api/v2/service/orders", 404, "resource not found"),
        (Method::GET, "/api/v1/admin/nothing", 404, "resource not found"),
        (Method::GET, "/api/v1/user/nothing", 404, "resource not found"),
        (Method::GET, "/api/v1/service/orders", 405, "method not allowed"),
        (Method::DELETE, "/api/v1/admin/orders", 405, "method not allowed"),
        (Method::POST, "/health", 405, "method not allowed"),
    ] {
        let answer = Answer::of(world.request(method, path).send().await.unwrap()).await;
        answer.refused(status, text);
        assert_eq!(!answer.header("allow").is_empty(), status == 405, "{path}");
    }
}

#[tokio::test]
async fn spec_9_the_health_check_needs_no_secret_and_tells_the_version() {
    let world = World::alone().await;
    for path in ["/health", "/api/v1/admin/health"] {
        let answer = Answer::of(world.request(Method::GET, path).send().await.unwrap()).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json(), json!({ "status": "ok", "version": "1.2.3" }));
    }
}

#[tokio::test]
async fn an_orderly_stop_answers_the_requests_under_way_and_ends() {
    let mut world = World::alone().await;
    let id = world.create(&new_order()).await;
    let server = world.server.take().unwrap();
    let path = format!("/orders/{id}/cancel");
    let body = json!({});
    let stopping = async {
        while world.commands().len() < 2 {
            tokio::task::yield_now().await;
        }
        world.stop.cancel();
    };
    let (answer, ()) = tokio::join!(world.user(Method::POST, &path, &id, &body), stopping);
    answer.refused(503, "the service is busy, try again");
    server.await.unwrap();
}
