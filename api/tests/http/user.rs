//! The checkout's API, as `docs/API.md` describes it.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use schemas::record::{ChainBody, Observation, Order, OrderCommandBody, example};
use schemas::{
    Amount, OrderStatus, Secret, Stablecoin, Topic, TransferId, UnixSeconds, sign_checkout,
};
use serde_json::{Value, json};
use store::Change;

use crate::world::{
    Answer, MERCHANT_SECRET, NOW, ORIGIN, World, config, fields, new_order, new_order_with, wallet,
};

fn routes(order_id: &str) -> [(Method, String); 4] {
    [
        (Method::GET, format!("/chains?order_id={order_id}&")),
        (Method::GET, format!("/orders/{order_id}/status?")),
        (Method::POST, format!("/orders/{order_id}/payment?")),
        (Method::POST, format!("/orders/{order_id}/cancel?")),
    ]
}

async fn send(world: &World, method: Method, path: &str) -> Answer {
    let body = json!({ "blockchain": "eth", "stablecoin": "USDT" }).to_string();
    let request = world.request(method, &format!("/api/v1/user{path}")).body(body);
    Answer::of(request.send().await.unwrap()).await
}

async fn pay(world: &World, id: &str, blockchain: &str, stablecoin: &str) -> Answer {
    let body = json!({ "blockchain": blockchain, "stablecoin": stablecoin });
    world.user(Method::POST, &format!("/orders/{id}/payment"), id, &body).await
}

async fn cancel(world: &World, id: &str) -> Answer {
    world.user(Method::POST, &format!("/orders/{id}/cancel"), id, &json!({})).await
}

async fn status(world: &World, id: &str) -> Value {
    world.user(Method::GET, &format!("/orders/{id}/status"), id, &json!({})).await.json()
}

async fn chains(world: &World, id: &str) -> Value {
    let path = format!("/api/v1/user/chains?order_id={id}&{}", world.link(id));
    Answer::of(world.request(Method::GET, &path).send().await.unwrap()).await.json()
}

#[tokio::test]
async fn a_link_for_one_order_reaches_no_other() {
    let world = World::start().await;
    let (own, other) = (world.create(&new_order()).await, world.create(&new_order()).await);
    let link = world.link(&own);
    for (method, path) in routes(&other) {
        let answer = send(&world, method, &format!("{path}{link}")).await;
        answer.refused(401, "signature verification failed");
    }
    assert_eq!(world.row(&other).await.unwrap().status, OrderStatus::Pending);
    assert_eq!(world.commands().len(), 2, "the two creates");
    for (method, path) in routes(&own) {
        let answer = send(&world, method, &format!("{path}{link}")).await;
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    }
}

#[tokio::test]
async fn links_that_do_not_count_on_any_route() {
    let world = World::alone().await;
    let id = world.create(&new_order()).await;
    let signed = |secret: &str, expires_at: i64| {
        let expires_at = UnixSeconds(expires_at);
        let signature = sign_checkout(&Secret::new(secret), id.parse().unwrap(), expires_at);
        format!("exp={expires_at}&sig={signature}")
    };
    let good = signed(MERCHANT_SECRET, NOW + 60);
    let late = NOW + 61;
    for (method, path) in routes(&id) {
        for query in [
            String::new(),
            good.split('&').next().unwrap().to_owned(),
            good.split('&').next_back().unwrap().to_owned(),
            good.replace(&format!("exp={}", NOW + 60), &format!("exp={late}")),
            format!("{good}A"),
            format!("{good}&{good}"),
            signed("another-secret", NOW + 60),
            signed(MERCHANT_SECRET, NOW - 1),
        ] {
            let answer = send(&world, method.clone(), &format!("{path}{query}")).await;
            answer.refused(401, "signature verification failed");
        }
    }
    for (method, path) in routes("A-1") {
        let answer = send(&world, method, &format!("{path}{good}")).await;
        answer.refused(401, "signature verification failed");
    }
    let (method, path) = routes(&id)[1].clone();
    assert_eq!(send(&world, method.clone(), &format!("{path}{good}")).await.status, 200);
    world.advance(61);
    let answer = send(&world, method, &format!("{path}{good}")).await;
    answer.refused(401, "signature verification failed");
}

#[tokio::test]
async fn a_link_may_be_for_an_order_that_does_not_exist() {
    let world = World::alone().await;
    let id = "01996d3c-5b00-7abc-8def-0123456789ab";
    let link = world.link(id);
    for (method, path) in routes(id) {
        send(&world, method, &format!("{path}{link}")).await.refused(404, "order not found");
    }
}

#[tokio::test]
async fn chains_are_those_that_the_order_can_be_paid_on() {
    let world = World::alone().await;
    let eth = json!({ "blockchain": "eth", "name": "Ethereum", "stablecoins": ["USDT", "DAI"] });
    let polygon = json!({ "blockchain": "polygon", "name": "Polygon", "stablecoins": ["USDC"] });
    let tron = json!({ "blockchain": "tron", "name": "Tron (TRC20)", "stablecoins": ["USDT"] });
    let dai = json!({ "blockchain": "eth", "name": "Ethereum", "stablecoins": ["DAI"] });
    let sender = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t";
    for (fields, expected) in [
        (vec![], json!([eth, polygon, tron])),
        (vec![("blockchain", "eth")], json!([eth])),
        (vec![("stablecoin", "DAI")], json!([dai])),
        (vec![("amount", "0.0000001")], json!([dai])),
        (vec![("expecting_wallet_address", sender)], json!([tron])),
    ] {
        let id = world.create(&new_order_with(&fields)).await;
        assert_eq!(chains(&world, &id).await, expected, "{fields:?}");
    }
}

#[tokio::test]
async fn a_choice_answers_what_to_pay() {
    let world = World::start().await;
    let other = world.create(&new_order()).await;
    assert_eq!(pay(&world, &other, "eth", "DAI").await.json()["value"], "10.50");
    let id = world.create(&new_order()).await;
    world.advance(5);
    let answer = pay(&world, &id, "eth", "DAI").await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let payment = answer.json();
    let expected = json!({
        "blockchain": "eth",
        "token": "DAI",
        "contract": "0x6B175474E89094C44Da98b954EedeAC495271d0F",
        "wallet_address": wallet(0xab).to_string(),
        "value": "10.51",
        "expires_at": NOW + 1800,
        "deposit": {
            "id": 2,
            "order_id": id,
            "blockchain": "eth",
            "token": "DAI",
            "user_address": null,
            "wallet_address": wallet(0xab).to_string(),
            "value": "10.51",
            "started_at": NOW + 5,
            "last_scanned_at": NOW + 5,
        },
    });
    assert_eq!(payment, expected);
    assert_eq!(pay(&world, &id, "eth", "DAI").await.json(), expected, "chosen twice, the same");
    let other = pay(&world, &id, "tron", "USDT").await.json();
    // The first number of Tron's lane, the eighth.
    assert_eq!(other["deposit"]["id"], (7_i64 << 40) + 1);
    assert!(other["wallet_address"].as_str().unwrap().starts_with('T'));

    let shown = status(&world, &id).await;
    let names = [
        "amount",
        "created_at",
        "deposits",
        "expires_at",
        "merchant_order_id",
        "order_id",
        "payment_seen",
        "status",
    ];
    assert_eq!(fields(&shown), names);
    assert_eq!(shown["amount"], "10.50", "the order's amount never changes");
    assert_eq!(shown["deposits"], json!([expected["deposit"], other["deposit"]]));
    assert_eq!((&shown["payment_seen"], &shown["expires_at"]), (&json!(false), &json!(NOW + 1800)));
}

#[tokio::test]
async fn an_order_with_both_fixed_has_its_deposit_already() {
    let world = World::start().await;
    let id = world.create(&new_order_with(&[("blockchain", "eth"), ("stablecoin", "DAI")])).await;
    let answer = pay(&world, &id, "eth", "DAI").await;
    assert_eq!((answer.status, &answer.json()["deposit"]["id"]), (201, &json!(1)));
    pay(&world, &id, "tron", "DAI").await.refused(400, "blockchain: the merchant selected eth");
    pay(&world, &id, "eth", "USDT").await.refused(400, "stablecoin: the merchant selected DAI");
}

#[tokio::test]
async fn a_choice_must_be_complete_known_and_takeable() {
    let world = World::start().await;
    let id = world.create(&new_order()).await;
    let none = "no wallet available for the selected chain and coin";
    for (body, text) in [
        (json!({}), "blockchain: is missing"),
        (json!({ "blockchain": "eth" }), "stablecoin: is missing"),
        (json!({ "blockchain": 1, "stablecoin": "DAI" }), "blockchain: must be a string"),
        (
            json!({ "blockchain": "eth", "stablecoin": "EUR" }),
            "stablecoin: \"EUR\" is not one of USDT, USDC, DAI",
        ),
        (json!([]), "body: must be a JSON object"),
        (json!({ "blockchain": "eth", "stablecoin": "USDC" }), none),
        (json!({ "blockchain": "tron", "stablecoin": "DAI" }), none),
        (json!({ "blockchain": "base", "stablecoin": "USDC" }), none),
    ] {
        let path = format!("/orders/{id}/payment");
        world.user(Method::POST, &path, &id, &body).await.refused(400, text);
    }
    assert_eq!(world.commands().len(), 1, "the create");
}

#[tokio::test]
async fn when_every_amount_is_taken_the_customer_is_told() {
    let mut config = config();
    config.matching.nudge_limit = Amount::ZERO;
    config.orders.late_window = Duration::ZERO;
    let world = World::with(config, true).await;
    let first = world.create(&new_order()).await;
    assert_eq!(pay(&world, &first, "eth", "DAI").await.status, 201);
    let id = world.create(&new_order()).await;
    let text = "no free amount is left for the selected chain and coin, choose another";
    pay(&world, &id, "eth", "DAI").await.refused(409, text);
    cancel(&world, &first).await;
    world.advance(10);
    world.chain(example::chain_head().body).await;
    // The lane may read the head after a choice.
    for _ in 0..50 {
        let answer = pay(&world, &id, "eth", "DAI").await;
        if answer.status == 201 {
            return;
        }
        answer.refused(409, text);
    }
    panic!("the amount came free");
}

#[tokio::test]
async fn cancel_ends_a_pending_order_for_good() {
    let world = World::start().await;
    let id = world.create(&new_order()).await;
    let answer = cancel(&world, &id).await;
    assert_eq!(answer.status, 200);
    let order = answer.json();
    let names = ["amount", "created_at", "merchant_order_id", "order_id", "status"];
    assert_eq!(fields(&order), names);
    assert_eq!(order["status"], "cancelled");
    assert_eq!(status(&world, &id).await["status"], "cancelled", "the customer reads it at once");
    cancel(&world, &id).await.refused(409, "order is not pending");
    pay(&world, &id, "eth", "DAI").await.refused(409, "order is not pending");
    let cancels =
        world.commands().into_iter().filter(|c| c.body == OrderCommandBody::Cancel).count();
    assert_eq!(cancels, 1, "the row says enough");
}

#[tokio::test]
async fn the_processor_has_the_last_word_when_the_row_is_old() {
    let world = World::start().await;
    let id = world.create(&new_order()).await;
    world.command(&id, OrderCommandBody::MarkPaid).await;
    pay(&world, &id, "eth", "DAI").await.refused(409, "order is not pending");
    let id = world.create(&new_order()).await;
    world.command(&id, OrderCommandBody::MarkPaid).await;
    cancel(&world, &id).await.refused(409, "order is not pending");
}

#[tokio::test]
async fn cancel_is_refused_once_a_payment_was_seen() {
    let world = World::start().await;
    let id = world.create(&new_order()).await;
    assert_eq!(pay(&world, &id, "eth", "DAI").await.json()["value"], "10.50");
    let mut orders = world.log.tail(&[Topic::Orders]).unwrap();
    let ChainBody::Transfer(seen) = example::chain_record().body else { panic!("a transfer") };
    let seen = Observation { stablecoin: Stablecoin::Dai, to_address: wallet(0xab), ..seen };
    world.chain(ChainBody::Transfer(seen)).await;
    let candidates = |record: &Arc<log::Record>| {
        let order: Order = schemas::decode(record.value.as_deref().unwrap()).unwrap();
        order.candidates.len()
    };
    let found = (0..60).any(|_| {
        let records = orders.poll(Duration::from_secs(1)).unwrap();
        records.iter().any(|record| candidates(record) == 1)
    });
    assert!(found, "the order has a candidate");
    cancel(&world, &id).await.refused(409, "a payment for this order was already seen");
}

#[tokio::test]
async fn the_status_tells_that_a_payment_was_seen() {
    let world = World::alone().await;
    let id = world.create(&new_order()).await;
    let row = world.row(&id).await.unwrap();
    let seen = Order {
        updated_at: row.updated_at.next(row.updated_at),
        candidates: vec![TransferId(7)],
        ..row
    };
    world.apply(vec![Change::Order(seen)]).await;
    assert_eq!(status(&world, &id).await["payment_seen"], true);
}

#[tokio::test]
async fn commands_on_a_broken_log_are_500() {
    let world = World::start().await;
    let id = world.create(&new_order()).await;
    world.log_writes.set(true);
    pay(&world, &id, "eth", "DAI").await.refused(500, "internal server error");
    cancel(&world, &id).await.refused(500, "internal server error");
}

#[tokio::test]
async fn pages_of_allowed_origins_may_call_the_checkout_and_nothing_else() {
    let world = World::alone().await;
    let id = world.create(&new_order()).await;
    let path = format!("/api/v1/user/orders/{id}/status?{}", world.link(&id));
    let get = |origin: &'static str, path: String| {
        let request = world.request(Method::GET, &path).header("Origin", origin);
        async move { Answer::of(request.send().await.unwrap()).await }
    };
    let answer = get(ORIGIN, path.clone()).await;
    assert_eq!(answer.header("access-control-allow-origin"), ORIGIN);
    assert_eq!(answer.header("vary"), "origin");
    let answer = get("https://evil.test", path.clone()).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, ""));
    let answer = get(ORIGIN, "/api/v1/admin/orders".into()).await;
    assert_eq!(answer.header("access-control-allow-origin"), "");

    let ask = |origin: &'static str, path: String| {
        let request = world
            .request(Method::OPTIONS, &path)
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST");
        async move { Answer::of(request.send().await.unwrap()).await }
    };
    let payment = format!("/api/v1/user/orders/{id}/payment");
    let answer = ask(ORIGIN, payment.clone()).await;
    assert_eq!(answer.status, 204, "a preflight carries no signature");
    assert_eq!(answer.header("access-control-allow-origin"), ORIGIN);
    assert_eq!(answer.header("access-control-allow-methods"), "GET, POST");
    assert_eq!(answer.header("access-control-allow-headers"), "content-type");
    let answer = ask("https://evil.test", payment).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, ""));
    ask(ORIGIN, "/api/v1/service/orders".into()).await.refused(405, "method not allowed");
}
