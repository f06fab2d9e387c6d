//! The registry as its clients see it: paths, bodies, codes. Clients themselves read through it in
//! `tests/black_box/consumers.rs`.

use schemas::{SchemaName, Topic};
use serde_json::{Value, json};

use crate::world::{Answer, World};

const MEDIA_TYPE: &str = "application/vnd.schemaregistry.v1+json";

async fn ask(world: &World, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = world.request(&format!("{method} /registry{path}"));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = Answer::to(request.header("Content-Type", MEDIA_TYPE).body(body)).await;
    assert_eq!(answer.header("content-type"), MEDIA_TYPE, "{path}: {}", answer.body);
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

async fn get(world: &World, path: &str) -> (u16, Value) {
    ask(world, "GET", path, &Value::Null).await
}

#[tokio::test]
async fn each_topic_has_a_subject_with_its_id() {
    let world = World::alone().await;
    let (_, subjects) = get(&world, "/subjects").await;
    assert_eq!(subjects.as_array().unwrap().len(), Topic::ALL.len());
    for (topic, subject) in Topic::ALL.into_iter().zip(subjects.as_array().unwrap()) {
        let schema = topic.spec().schema.schema();
        let expected = json!({
            "subject": format!("shop.{topic}-value"),
            "version": schema.version,
            "id": schema.id,
            "schema": schema.text,
        });
        let subject = subject.as_str().unwrap();
        let path = format!("/subjects/{subject}/versions");
        assert_eq!(get(&world, &path).await, (200, json!([1])));
        assert_eq!(get(&world, &format!("{path}/latest")).await, (200, expected.clone()));
        assert_eq!(get(&world, &format!("{path}/1")).await, (200, expected));
    }
    let (_, bytes) = schemas::record::example::values().unwrap().swap_remove(0);
    let id = u32::from_be_bytes(bytes[1..5].try_into().unwrap());
    let text = SchemaName::ChainRecord.schema().text;
    let by_id = format!("/schemas/ids/{id}");
    for path in
        [by_id.clone(), format!("{by_id}?subject=shop.transfers.raw-value&fetchMaxId=false")]
    {
        assert_eq!(get(&world, &path).await, (200, json!({ "schema": text })));
    }
    let places = json!([{ "subject": "shop.transfers.raw-value", "version": 1 }]);
    assert_eq!(get(&world, &format!("{by_id}/versions")).await, (200, places));
    let subjects = json!(["shop.transfers.raw-value"]);
    assert_eq!(get(&world, &format!("{by_id}/subjects")).await, (200, subjects));
    assert_eq!(get(&world, "/schemas/types").await, (200, json!(["AVRO"])));
}

#[tokio::test]
async fn configuration_and_mode_are_fixed() {
    let world = World::alone().await;
    let level = json!({ "compatibilityLevel": "FULL_TRANSITIVE" });
    let mode = json!({ "mode": "READONLY" });
    for path in ["/config", "/config/shop.orders-value"] {
        assert_eq!(get(&world, path).await, (200, level.clone()));
    }
    for path in ["/mode", "/mode/shop.orders-value"] {
        assert_eq!(get(&world, path).await, (200, mode.clone()));
    }
    let (status, _) = ask(&world, "PUT", "/config", &json!({})).await;
    assert_eq!(status, 405);
}

#[tokio::test]
async fn a_known_schema_is_found_and_a_new_one_refused() {
    let world = World::alone().await;
    let order = SchemaName::Order.schema();
    let compact = serde_json::from_str::<Value>(order.text).unwrap().to_string();
    let ours = json!({ "schema": compact, "schemaType": "AVRO" });
    let (lookup, register) =
        ("/subjects/shop.orders-value", "/subjects/shop.orders-value/versions");
    let (status, found) = ask(&world, "POST", lookup, &ours).await;
    assert_eq!((status, &found["id"], &found["version"]), (200, &json!(order.id), &json!(1)));
    let id = json!({ "id": order.id });
    assert_eq!(ask(&world, "POST", register, &ours).await, (200, id));

    let deposit = json!({ "schema": SchemaName::Deposit.schema().text });
    let protobuf = json!({ "schema": "x", "schemaType": "PROTOBUF" });
    for (path, body, status, code) in [
        (lookup, &deposit, 404, 40_403),
        (register, &deposit, 422, 42_205),
        (lookup, &json!({ "schema": "{" }), 422, 42_201),
        (lookup, &json!({ "schema": "{\"type\": \"recrod\"}" }), 404, 40_403),
        (lookup, &protobuf, 422, 42_201),
        (lookup, &json!({ "scheme": "x" }), 400, 400),
        ("/subjects/orders-value", &ours, 404, 40_401),
        ("/subjects/orders-value/versions", &ours, 404, 40_401),
    ] {
        let (found, error) = ask(&world, "POST", path, body).await;
        assert_eq!((found, &error["error_code"]), (status, &json!(code)), "{path} {body}");
    }
}

/// Each record contains the previous one twice, with defaults for both: expanded, they would be 2^60 records.
#[tokio::test]
async fn a_schema_costs_no_more_than_its_length() {
    let world = World::alone().await;
    let mut fields =
        vec![json!({ "name": "f", "type": { "type": "record", "name": "B0", "fields": [] } })];
    for n in 1..=60 {
        let part = |name| json!({ "name": name, "type": format!("B{}", n - 1), "default": {} });
        let record =
            json!({ "type": "record", "name": format!("B{n}"), "fields": [part("x"), part("y")] });
        fields.push(json!({ "name": format!("f{n}"), "type": record }));
    }
    let schema = json!({ "type": "record", "name": "R", "fields": fields }).to_string();
    let path = "/subjects/shop.orders-value/versions";
    let (status, error) = ask(&world, "POST", path, &json!({ "schema": schema })).await;
    assert_eq!((status, &error["error_code"]), (422, &json!(42_205)), "{error}");
}

/// The limit is `BODY_BYTES_MAX`.
#[tokio::test]
async fn a_body_has_a_limit_of_bytes() {
    let world = World::alone().await;
    let ours = json!({ "schema": SchemaName::Order.schema().text }).to_string();
    for (bytes, status) in [(65_536, 200), (65_537, 413)] {
        let request = world.request("POST /registry/subjects/shop.orders-value");
        let request = request.header("Content-Type", MEDIA_TYPE);
        let spaces = " ".repeat(bytes - ours.len());
        let answer = Answer::to(request.body(ours.clone() + &spaces)).await;
        assert_eq!(answer.status, status, "{}", answer.body);
    }
}

#[tokio::test]
async fn missing_subjects_are_errors_clients_know() {
    let world = World::alone().await;
    let version_0 = "The specified version '0' is not a valid version id. Allowed values are between \
                     [1, 2^31-1] and the string \"latest\"";
    for (path, status, code, message) in [
        ("/subjects/x/versions", 404, 40_401, "Subject 'x' not found."),
        ("/subjects/x/versions/latest", 404, 40_401, "Subject 'x' not found."),
        ("/config/x", 404, 40_401, "Subject 'x' not found."),
        ("/subjects/shop.orders-value/versions/9", 404, 40_402, "Version 9 not found."),
        ("/subjects/shop.orders-value/versions/0", 422, 42_202, version_0),
        ("/schemas/ids/7", 404, 40_403, "Schema 7 not found"),
        ("/schemas/ids/x", 404, 40_403, "Schema x not found"),
        ("/contexts", 404, 404, "HTTP 404 Not Found"),
    ] {
        let error = json!({ "error_code": code, "message": message });
        assert_eq!(get(&world, path).await, (status, error), "{path}");
    }
    let order = SchemaName::Order.schema().id;
    let (status, _) = get(&world, &format!("/schemas/ids/{order}?subject=shop.alerts-value")).await;
    assert_eq!(status, 404);
    let outside = Answer::to(world.request("GET /nothing")).await;
    outside.refused(404, "resource not found");
}
