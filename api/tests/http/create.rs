//! `POST /api/v1/service/orders` (spec 4.1).

use std::collections::HashSet;

use schemas::record::OrderCommandBody;
use schemas::{Amount, OrderCause, OrderStatus, UnixSeconds};
use serde_json::json;

use crate::world::{NOW, World, fields, new_order, new_order_with, wallet};

#[tokio::test]
async fn spec_4_1_create_answers_201_with_the_object_of_2_2() {
    let world = World::alone().await;
    let answer = world.service("/orders", &new_order()).await;
    assert_eq!(answer.status, 201);
    let order = answer.json();
    let names = ["amount", "created_at", "merchant_order_id", "order_id", "status"];
    assert_eq!(fields(&order), names);
    assert_eq!(order["merchant_order_id"], "A-1");
    assert_eq!(order["amount"], "10.50");
    assert_eq!(order["status"], "pending");
    assert_eq!(order["created_at"], NOW);
    let id: uuid::Uuid = order["order_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(id.get_version_num(), 7);
}

#[tokio::test]
async fn a_new_order_is_a_command_on_the_log_and_its_first_record_in_the_store() {
    let world = World::alone().await;
    let id = world.create(&new_order()).await;
    let [command] = world.commands().try_into().unwrap();
    assert_eq!(command.order_id.to_string(), id);
    let OrderCommandBody::Create(create) = &command.body else { panic!("{command:?}") };
    assert_eq!(create.expires_at, UnixSeconds(NOW + 1800));
    assert_eq!(create.payment, None);
    let row = world.row(&id).await.unwrap();
    assert_eq!((row.version, row.cause), (1, OrderCause::Created));
    assert_eq!((row.updated_at, row.command_id), (command.issued_at, command.command_id));
    assert_eq!((row.status, row.status_changed), (OrderStatus::Pending, false));
    assert_eq!(row.deposits, []);
    assert_eq!(row.created_at, command.issued_at.seconds());
    assert_eq!((row.expires_at, row.amount_text), (create.expires_at, create.amount_text.clone()));
}

#[tokio::test]
async fn the_row_written_first_is_the_processors_first_record() {
    let world = World::start().await;
    let id = world.create(&new_order()).await;
    let row = world.row(&id).await.unwrap();
    // A command that is answered after the create shows that the first record is on the log.
    world.user(reqwest::Method::POST, &format!("/orders/{id}/cancel"), &id, &json!({})).await;
    let records: Vec<schemas::record::Order> = world.records(schemas::Topic::Orders);
    assert_eq!(records[0], row);
}

#[tokio::test]
async fn the_caller_reads_its_own_write() {
    let world = World::alone().await;
    for _ in 0..20 {
        let id = world.create(&new_order()).await;
        let answer = world.service("/orders/status", &json!({ "order_id": id })).await;
        assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("pending")));
    }
}

#[tokio::test]
async fn an_order_with_chain_and_coin_asks_for_its_deposit_at_once() {
    let world = World::alone().await;
    let chosen = [("blockchain", "eth"), ("stablecoin", "USDT")];
    world.create(&new_order_with(&chosen)).await;
    let [command] = world.commands().try_into().unwrap();
    let OrderCommandBody::Create(create) = &command.body else { panic!("{command:?}") };
    let payment = create.payment.as_ref().unwrap();
    let wallets: HashSet<_> = payment.wallets.iter().copied().collect();
    assert_eq!(wallets, HashSet::from([wallet(0xab), wallet(0x02)]));
    assert_eq!((payment.late_window_seconds, payment.skew_seconds), (86_400, 120));
    assert_eq!(payment.nudge_step, Amount::parse("0.01").unwrap());
    assert_eq!(payment.nudge_limit, Amount::parse("1").unwrap());

    world.create(&new_order_with(&chosen[..1])).await;
    let commands = world.commands();
    let without = commands.iter().filter(|command| {
        matches!(&command.body, OrderCommandBody::Create(create) if create.payment.is_none())
    });
    assert_eq!(without.count(), 1, "chain alone opens nothing");
}

#[tokio::test]
async fn the_trace_of_the_request_is_handed_on() {
    let world = World::alone().await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let body = new_order().to_string();
    world.service_with("/orders", &body, |r| r.header("traceparent", parent)).await;
    world.service_with("/orders", &body, |r| r.header("traceparent", "nonsense")).await;
    let layout = world.log.layout();
    let topic = schemas::Topic::OrdersCommands;
    let records = topic.all_partitions(&layout).flat_map(|partition| {
        let of = log::TopicPartition { topic, partition };
        world.log.read(of, log::Offset(0), 10).unwrap()
    });
    let mut traces: Vec<_> =
        records.map(|record| record.header("traceparent").map(<[u8]>::to_vec)).collect();
    traces.sort();
    assert_eq!(traces, [None, Some(parent.as_bytes().to_vec())]);
}

#[tokio::test]
async fn what_is_wrong_with_a_body_is_told_in_plain_text() {
    let world = World::alone().await;
    let tron = [("blockchain", "tron"), ("stablecoin", "DAI")];
    let base = [("blockchain", "base"), ("stablecoin", "USDC")];
    let eth = [("blockchain", "eth"), ("stablecoin", "USDC")];
    let fine = [("amount", "1.0000001"), ("blockchain", "eth"), ("stablecoin", "USDT")];
    let sender =
        [("expecting_wallet_address", "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"), ("blockchain", "eth")];
    for (body, text) in [
        (new_order_with(&[("amount", "0")]), "amount: must be greater than zero"),
        (
            new_order_with(&[("stablecoin", "EUR")]),
            "stablecoin: \"EUR\" is not one of USDT, USDC, DAI",
        ),
        (new_order_with(&tron), "stablecoin: DAI is not available on tron"),
        (new_order_with(&base), "stablecoin: USDC is not available on base"),
        (new_order_with(&eth), "no wallet available for the selected chain and coin"),
        (
            new_order_with(&fine),
            "amount: must have at most 6 digits after the point for USDT on eth",
        ),
        (new_order_with(&sender), "expecting_wallet_address: is not an address of eth"),
        (json!([new_order()]), "body: must be a JSON object"),
    ] {
        world.service("/orders", &body).await.refused(400, text);
    }
    let answer = world.service_with("/orders", "{\"order_id\": ", |request| request).await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.starts_with("body: EOF while parsing"), "{}", answer.body);
    assert_eq!(world.commands(), [], "nothing refused reaches the log");
}

#[tokio::test]
async fn bodies_above_one_mebibyte_are_refused() {
    let world = World::alone().await;
    let padded = |length: usize| format!("{}{}", new_order(), " ".repeat(length));
    let room = 1024 * 1024 - new_order().to_string().len();
    let answer = world.service_with("/orders", &padded(room), |request| request).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let answer = world.service_with("/orders", &padded(room + 1), |request| request).await;
    answer.refused(413, "body: must be at most 1 MiB");
}

#[tokio::test]
async fn spec_7_1_a_log_that_cannot_write_is_500_and_leaves_no_row() {
    let world = World::alone().await;
    world.log_writes.set(true);
    world.service("/orders", &new_order()).await.refused(500, "internal server error");
    let page = store::Page { limit: 10, offset: 0 };
    let rows = world.store.orders(store::OrderFilter::default(), page).await.unwrap();
    assert_eq!(rows, []);
}

#[tokio::test]
async fn a_store_that_cannot_write_does_not_undo_what_is_on_the_log() {
    let world = World::alone().await;
    world.store_writes.set(true);
    let id = world.create(&new_order()).await;
    assert_eq!(world.commands().len(), 1);
    assert_eq!(world.row(&id).await, None, "the projector's turn");
}

#[tokio::test]
async fn without_a_key_every_request_is_an_order() {
    let world = World::alone().await;
    let (first, second) = (world.create(&new_order()).await, world.create(&new_order()).await);
    assert_ne!(first, second);
}

#[tokio::test]
async fn the_same_key_and_body_is_the_same_order() {
    let world = World::start().await;
    let send = |body: serde_json::Value| {
        let world = &world;
        async move {
            let key = |request: reqwest::RequestBuilder| request.header("Idempotency-Key", "k-1");
            world.service_with("/orders", &body.to_string(), key).await
        }
    };
    let first = send(new_order()).await;
    assert_eq!(first.status, 201, "{}", first.body);
    let id = first.json()["order_id"].as_str().unwrap().to_owned();
    assert_eq!(id.parse::<uuid::Uuid>().unwrap().get_version_num(), 5);
    world.advance(60);
    let again = send(new_order()).await;
    assert_eq!((again.status, again.json()), (201, first.json()));
    assert_eq!(world.commands().len(), 1);

    for field in [
        ("order_id", "A-2"),
        ("amount", "10.5"),
        ("webhook_url", "https://shop.test/other"),
        ("blockchain", "eth"),
        ("stablecoin", "USDT"),
        ("expecting_wallet_address", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"),
    ] {
        let answer = send(new_order_with(&[field])).await;
        answer.refused(409, "Idempotency-Key was used with another body");
    }
    // The same answer again, whatever became of the order.
    world.admin(reqwest::Method::POST, &format!("/orders/{id}/mark-paid")).await;
    assert_eq!(send(new_order()).await.json(), first.json());
}

#[tokio::test]
async fn concurrent_requests_with_one_key_make_one_order() {
    let world = World::start().await;
    let send = |amount: &'static str| {
        let body = new_order_with(&[("amount", amount)]).to_string();
        let world = &world;
        async move {
            let key = |request: reqwest::RequestBuilder| request.header("Idempotency-Key", "k-2");
            world.service_with("/orders", &body, key).await
        }
    };
    let (a, b, c, d) = tokio::join!(send("1.00"), send("1.00"), send("2.00"), send("2.00"));
    let answers = [a, b, c, d];
    let made: HashSet<_> =
        answers.iter().filter(|a| a.status == 201).map(|a| a.body.clone()).collect();
    assert_eq!(made.len(), 1, "one of the bodies won, and both its senders know: {answers:?}");
    assert_eq!(answers.iter().filter(|a| a.status == 201).count(), 2);
    assert_eq!(answers.iter().filter(|a| a.status == 409).count(), 2);
    // The row is the winner's, not that of the last command.
    let order: serde_json::Value = serde_json::from_str(made.iter().next().unwrap()).unwrap();
    let row = world.row(order["order_id"].as_str().unwrap()).await.unwrap();
    assert_eq!(row.amount_text, order["amount"].as_str().unwrap());
}

#[tokio::test]
async fn a_key_must_be_visible_and_short() {
    let world = World::alone().await;
    for key in ["", "a b", &"x".repeat(256)] {
        let body = new_order().to_string();
        let answer =
            world.service_with("/orders", &body, |r| r.header("Idempotency-Key", key)).await;
        answer.refused(400, "Idempotency-Key: must be 1 to 255 visible characters");
    }
}
