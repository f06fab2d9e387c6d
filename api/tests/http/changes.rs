//! Recovery of a missed webhook or answer: `POST /orders/list` and `POST /orders/changes`.

use log::NewRecord;
use schemas::record::{Order, OrderCommandBody};
use schemas::{Headers, OrderStatus, Topic, TransferId};
use serde_json::{Value, json};
use testkit::eventually;

use crate::world::{NOW, World, new_order, new_order_with};

const PATH: &str = "/orders/changes";

/// Returns when the processor has written this number of records of orders. A create is answered earlier.
async fn written(world: &World, count: usize) {
    eventually("the records of orders", || async {
        (world.records::<Order>(Topic::Orders).len() >= count).then_some(())
    })
    .await;
}

/// Reads all changes: order and status of each, and the last cursor.
async fn read(world: &World, mut body: Value) -> (Vec<(String, String)>, Value) {
    let mut found = Vec::new();
    loop {
        let answer = world.service(PATH, &body).await.with_status(200).json();
        for order in answer["orders"].as_array().unwrap() {
            let text = |field: &str| order[field].as_str().unwrap().to_owned();
            found.push((text("order_id"), text("status")));
        }
        body = json!({ "cursor": answer["cursor"], "limit": body["limit"] });
        if answer["more"] == json!(false) {
            return (found, answer["cursor"].clone());
        }
    }
}

#[tokio::test]
async fn each_orders_changes_are_read_once_and_in_order() {
    let world = World::start().await;
    let (first, second) = (world.create(&new_order()).await, world.create(&new_order()).await);
    written(&world, 2).await;
    for limit in [1, 20] {
        let (mut found, _) = read(&world, json!({ "limit": limit })).await;
        found.sort();
        let mut expected = [&first, &second].map(|id| (id.clone(), "pending".to_owned()));
        expected.sort();
        assert_eq!(found, expected, "with a limit of {limit}");
    }
    let (_, cursor) = read(&world, json!({})).await;
    // These records change no status.
    world.command(&second, OrderCommandBody::CandidateSeen { transfer_id: TransferId(7) }).await;
    world.command(&second, OrderCommandBody::CandidateGone { transfer_id: TransferId(7) }).await;
    assert_eq!(world.cancel(&second).await.status, 200);
    assert_eq!(world.admin(&format!("POST /orders/{second}/mark-paid")).await.status, 200);
    let (found, later) = read(&world, json!({ "cursor": cursor, "limit": 1 })).await;
    let statuses = [OrderStatus::Cancelled, OrderStatus::Paid].map(|status| status.to_string());
    assert_eq!(found, statuses.map(|status| (second.clone(), status)));
    assert_eq!(read(&world, json!({ "cursor": later })).await.0, []);
}

#[tokio::test]
async fn changes_since_a_time_begin_a_few_minutes_before_it() {
    let world = World::start().await;
    world.create(&new_order()).await;
    written(&world, 1).await;
    world.advance(3600);
    let late = world.create(&new_order()).await;
    written(&world, 2).await;
    let since = |second: i64| json!({ "since": second });
    assert_eq!(read(&world, since(NOW)).await.0.len(), 2);
    let expected = [(late.clone(), "pending".to_owned())];
    assert_eq!(read(&world, since(NOW + 1800)).await.0, expected);
    assert_eq!(read(&world, since(NOW + 3600)).await.0, expected);
    assert_eq!(read(&world, since(NOW + 7200)).await.0, []);
    let answer = world.service(PATH, &since(NOW + 3600)).await.json();
    assert_eq!(answer["orders"][0]["changed_at"], NOW + 3600);
}

/// A read stops before a record of a newer version: its cursor must not skip a payment that the record may report.
#[tokio::test]
async fn changes_end_where_a_newer_version_wrote() {
    let (world, order_id) = World::start().await.with_order().await;
    written(&world, 1).await;
    let (_, cursor) = read(&world, json!({})).await;
    let good = world.raw_records(Topic::Orders).remove(0);
    let put = async |value: Vec<u8>| {
        let (to, key, headers) = (good.from, good.key.clone(), Headers::default());
        world.log.produce(vec![NewRecord { to, key, value: Some(value), headers }]).await.unwrap();
    };
    put(vec![9; 9]).await;
    let (found, cursor) = read(&world, json!({ "cursor": cursor })).await;
    assert_eq!(found, [], "nobody can read it");
    let mut newer = good.value.clone().unwrap();
    newer[1] ^= 1;
    put(newer).await;
    put(good.value.clone().unwrap()).await;
    for body in [json!({ "cursor": cursor }), json!({ "since": NOW }), json!({})] {
        let answer = world.service(PATH, &body).await;
        assert_eq!(answer.headers["retry-after"], "1");
        let text = "a newer version wrote what comes next: ask again when the update is complete";
        answer.refused(503, text);
    }
    assert_eq!(world.service("/orders/status", &json!({ "order_id": order_id })).await.status, 200);
}

#[tokio::test]
async fn a_wrong_position_is_refused() {
    let world = World::alone().await;
    for (body, text) in [
        (json!({ "cursor": "1" }), "cursor: must be the cursor of an earlier answer"),
        (json!({ "cursor": 7 }), "cursor: must be a string"),
        (json!({ "cursor": "9.0" }), "cursor: is not of this installation"),
        (json!({ "cursor": "0.0", "since": 7 }), "since: must not be given with cursor"),
        (json!({ "since": "now" }), "since: must be a whole number of at least 0"),
        (json!({ "since": -1 }), "since: must be a whole number of at least 0"),
        (json!({ "limit": 0 }), "limit: must be a whole number from 1 to 200"),
        (json!({ "limit": 201 }), "limit: must be a whole number from 1 to 200"),
    ] {
        world.service(PATH, &body).await.refused(400, text);
    }
}

#[tokio::test]
async fn a_shop_finds_the_orders_of_its_reference() {
    let world = World::alone().await;
    let mut ids = Vec::new();
    for reference in ["A-1", "A-2", "A-1"] {
        ids.push(world.create(&new_order_with(&[("order_id", reference)])).await);
        world.advance(1);
    }
    let list = async |body: Value| {
        let answer = world.service("/orders/list", &body).await.with_status(200).json();
        let orders = answer["orders"].as_array().unwrap().clone();
        let ids: Vec<_> =
            orders.iter().map(|o| o["order_id"].as_str().unwrap().to_owned()).collect();
        (ids, answer["cursor"].clone())
    };
    let [first, second, third] = ids.try_into().unwrap();
    let both = vec![third.clone(), first.clone()];
    assert_eq!(list(json!({ "merchant_order_id": "A-1" })).await, (both, Value::Null));
    assert_eq!(list(json!({ "merchant_order_id": "a-1" })).await.0, [""; 0]);
    assert_eq!(list(json!({ "status": "paid" })).await.0, [""; 0]);
    let part = json!({ "created_from": NOW + 1, "created_before": NOW + 2 });
    assert_eq!(list(part).await.0, std::slice::from_ref(&second));
    let (page, cursor) = list(json!({ "limit": 2 })).await;
    assert_eq!(page, [third, second]);
    assert_eq!(list(json!({ "limit": 2, "cursor": cursor })).await, (vec![first], Value::Null));
    for (body, text) in [
        (
            json!({ "status": "open" }),
            "status: \"open\" is not one of pending, paid, expired, cancelled",
        ),
        (json!({ "cursor": "x" }), "cursor: must be the cursor of an earlier answer"),
        (json!({ "created_from": "1" }), "created_from: must be a whole number of at least 0"),
        (json!({ "merchant_order_id": 1 }), "merchant_order_id: must be a string"),
    ] {
        world.service("/orders/list", &body).await.refused(400, text);
    }
}
