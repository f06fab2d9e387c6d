//! The checkout's API, as `docs/merchant/checkout.md` describes it.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use schemas::record::{ChainBody, Observation, Order, OrderCommandBody, example};
use schemas::{OrderStatus, Stablecoin, Topic, TransferId};
use serde_json::{Value, json};
use store::Change;
use tidemark_api::{Amounts, Percent};

use crate::create::{NO_WALLET, TRON};
use crate::world::{
    Answer, MERCHANT_SECRET, NO_FREE_AMOUNT, NOT_FOLLOWED, NOW, ORDER_FIELDS, ORIGIN,
    UNKNOWN_ORDER, World, config, fields, link, new_order, new_order_with, transfer, wallet,
};

/// Routes of the checkout for one order, but for its events; without the query of a link.
fn routes(order_id: &str) -> [String; 5] {
    [
        format!("GET /api/v1/user/chains?order_id={order_id}&"),
        format!("GET /api/v1/user/orders/{order_id}/status?"),
        format!("POST /api/v1/user/orders/{order_id}/payment?"),
        format!("POST /api/v1/user/orders/{order_id}/cancel?"),
        format!("POST /api/v1/user/orders/{order_id}/transactions?"),
    ]
}

async fn send(world: &World, route: &str, link: &str) -> Answer {
    let hash = "01".repeat(32);
    let body = json!({ "blockchain": "eth", "stablecoin": "USDT", "txn_hash": hash }).to_string();
    Answer::to(world.request(&format!("{route}{link}")).body(body)).await
}

async fn status(world: &World, id: &str) -> Value {
    world.user(id, "GET", "status", &json!({})).await.json()
}

/// The form "I have paid" shows a transaction, but only its transfers to wallets of this order.
#[tokio::test]
async fn a_customer_who_paid_asks_for_the_transaction() {
    let world = World::start().await;
    let (order, unpaid) = (world.create(&new_order()).await, world.create(&new_order()).await);
    assert_eq!(world.pay(&order, "eth", "USDT").await.status, 201);
    let given = world.row(&order).await.unwrap().deposits[0].wallet_address;
    let rows = (1..=250_u8).map(|number| {
        let mut transfer = transfer(number.into());
        transfer.observation.tx_hash = schemas::Hash([number; 32]);
        transfer.observation.to_address = if number == 9 { wallet(0x77) } else { given };
        Change::Transfer(transfer)
    });
    world.apply(rows).await;
    let ask = async |id: &str, hash: String| {
        world.advance(6);
        world.user(id, "POST", "transactions", &json!({ "txn_hash": hash })).await
    };
    for (number, found) in [("01", 1), ("fa", 1), ("09", 0), ("ff", 0)] {
        let hash = format!("0x{}", number.repeat(32));
        let answer = ask(&order, hash.clone()).await;
        let transfers = answer.json()["transfers"].as_array().unwrap().clone();
        assert_eq!((answer.status, transfers.len()), (200, found), "{number}");
        let is_known = |of: &Value| of["txn_hash"] == hash && of["status"] == "matched";
        assert!(transfers.iter().all(is_known), "{transfers:?}");
    }
    let answer = ask(&unpaid, "01".repeat(32)).await;
    assert_eq!(answer.json()["transfers"], json!([]), "it was given no wallet");
    for hash in ["", "0x", "0x01", &"g1".repeat(32), &"01".repeat(33)] {
        let problem = "txn_hash: must be 64 hex digits, with or without 0x";
        ask(&order, hash.to_owned()).await.refused(400, problem);
    }
}

#[tokio::test]
async fn a_link_for_one_order_reaches_no_other() {
    let world = World::start().await;
    let (own, other) = (world.create(&new_order()).await, world.create(&new_order()).await);
    let link = world.link(&own);
    for route in routes(&other) {
        let answer = send(&world, &route, &link).await;
        answer.refused(401, "signature verification failed");
    }
    assert_eq!(world.row(&other).await.unwrap().status, OrderStatus::Pending);
    assert_eq!(world.commands().len(), 2, "the two creates");
    for route in routes(&own) {
        let answer = send(&world, &route, &link).await;
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    }
    for route in routes(UNKNOWN_ORDER) {
        send(&world, &route, &world.link(UNKNOWN_ORDER)).await.refused(404, "order not found");
    }
}

#[tokio::test]
async fn an_invalid_link_reaches_nothing_on_any_route() {
    let (world, id) = World::alone().await.with_order().await;
    let end = NOW + 60;
    let good = link(MERCHANT_SECRET, &id, end);
    let (exp, sig) = good.split_once('&').unwrap();
    for route in routes(&id) {
        for query in [
            "",
            exp,
            sig,
            &format!("exp={}&{sig}", end + 1),
            &format!("exp=x&{sig}"),
            &format!("{exp}&sig=%00"),
            &format!("{good}A"),
            &format!("{good}&{sig}"),
            &format!("{good}&{good}"),
            &link("another-secret", &id, end),
            &link(MERCHANT_SECRET, &id, NOW - 1),
        ] {
            let answer = send(&world, &route, query).await;
            answer.refused(401, "signature verification failed");
        }
    }
    for route in routes("A-1") {
        send(&world, &route, &good).await.refused(401, "signature verification failed");
    }
    let [_, status, ..] = routes(&id);
    world.advance(60);
    assert_eq!(send(&world, &status, &good).await.status, 200, "its last second");
    world.advance(1);
    send(&world, &status, &good).await.refused(401, "signature verification failed");
}

#[tokio::test]
async fn only_what_is_followed_and_not_retired_is_offered() {
    let mut config = config();
    config.matching.head_age_max = Duration::from_secs(600);
    config.wallets[2].retired = true;
    let world = World::with(config.clone(), true).await;
    let offered = async || -> Vec<String> {
        let answer = Answer::to(world.request("GET /api/v1/user/chains")).await.json();
        let words = answer.as_array().unwrap().iter().map(|chain| chain["blockchain"].clone());
        words.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(offered().await, ["eth", "tron"]);
    let plain = Answer::to(world.request("GET /api/v1/user/chains")).await.body;
    for (query, status) in [("lang=de&utm_source=x", 200), ("lang=de&exp=1", 401), ("sig=", 401)] {
        let answer = Answer::to(world.request(&format!("GET /api/v1/user/chains?{query}"))).await;
        assert_eq!((answer.status, answer.body == plain), (status, status == 200), "{query}");
    }
    let id = world.create(&new_order()).await;
    world.pay(&id, "polygon", "USDC").await.refused(400, NO_WALLET);
    world.advance(600);
    assert_eq!(offered().await, ["eth", "tron"]);
    world.advance(1);
    assert_eq!(offered().await, [""; 0]);
    world.pay(&id, "eth", "USDT").await.refused(409, NOT_FOLLOWED);
    world.watch(&config.wallets[0]).await;
    assert_eq!(offered().await, ["eth"]);
    assert_eq!(world.pay(&id, "eth", "USDT").await.status, 201);
    assert_eq!(world.list("/wallets", "blockchain").await, ["eth", "eth", "polygon", "tron"]);
}

#[tokio::test]
async fn chains_are_those_that_the_order_can_be_paid_on() {
    let world = World::alone().await;
    let eth = json!({ "blockchain": "eth", "name": "Ethereum", "stablecoins": ["USDT", "DAI"] });
    let polygon = json!({ "blockchain": "polygon", "name": "Polygon", "stablecoins": ["USDC"] });
    let tron = json!({ "blockchain": "tron", "name": "Tron (TRC20)", "stablecoins": ["USDT"] });
    let dai = json!({ "blockchain": "eth", "name": "Ethereum", "stablecoins": ["DAI"] });
    for (fields, expected) in [
        (vec![], json!([eth, polygon, tron])),
        (vec![("blockchain", "eth")], json!([eth])),
        (vec![("blockchain", "tron")], json!([tron])),
        (vec![("stablecoin", "DAI")], json!([dai])),
        (vec![("amount", "0.0000001")], json!([dai])),
        (vec![("expecting_wallet_address", TRON)], json!([tron])),
    ] {
        let id = world.create(&new_order_with(&fields)).await;
        let [chains, ..] = routes(&id);
        let answer = send(&world, &chains, &world.link(&id)).await;
        assert_eq!(answer.json(), expected, "{fields:?}");
    }
}

#[tokio::test]
async fn a_choice_answers_what_to_pay() {
    let (world, other) = World::start().await.with_order().await;
    assert_eq!(world.pay(&other, "eth", "DAI").await.status, 201);
    let id = world.create(&new_order()).await;
    world.advance(5);
    let payment = world.pay(&id, "eth", "DAI").await.with_status(201).json();
    let value = payment["value"].as_str().unwrap();
    let expected = json!({
        "blockchain": "eth",
        "token": "DAI",
        "contract": "0x6B175474E89094C44Da98b954EedeAC495271d0F",
        "decimals": 18,
        "wallet_address": wallet(0xab).to_string(),
        "value": value,
        "expires_at": NOW + 1800,
        "deposit": {
            "order_id": id,
            "blockchain": "eth",
            "token": "DAI",
            "user_address": null,
            "wallet_address": wallet(0xab).to_string(),
            "value": value,
            "started_at": NOW + 5,
            "last_scanned_at": NOW,
        },
    });
    assert_eq!(payment, expected);
    assert_eq!(world.pay(&id, "eth", "DAI").await.json(), expected, "chosen twice, the same");
    let other = world.pay(&id, "tron", "USDT").await.json();
    assert_eq!(other["deposit"]["id"], Value::Null, "it would count what the shop sells");
    assert!(other["wallet_address"].as_str().unwrap().starts_with('T'));

    let shown = status(&world, &id).await;
    let of_checkout =
        ["deposits", "expires_at", "payment_possible", "payment_seen", "stopped", "transfers"];
    let mut names = [&ORDER_FIELDS[..], &of_checkout].concat();
    names.sort_unstable();
    assert_eq!(fields(&shown), names);
    assert_eq!(shown["amount"], "10.50", "the order's amount never changes");
    let deposits = shown["deposits"].as_array().unwrap();
    assert_eq!(deposits.last(), Some(&other["deposit"]));
    assert_eq!((&shown["payment_seen"], &shown["expires_at"]), (&json!(false), &json!(NOW + 1800)));
}

#[tokio::test]
async fn an_order_with_both_fixed_has_its_deposit_already() {
    let world = World::start().await;
    let id = world.create(&new_order_with(&[("blockchain", "eth"), ("stablecoin", "DAI")])).await;
    let answer = world.pay(&id, "eth", "DAI").await;
    assert_eq!((answer.status, &answer.json()["deposit"]["order_id"]), (201, &json!(id)));
    world.pay(&id, "tron", "DAI").await.refused(400, "blockchain: the merchant selected eth");
    world.pay(&id, "eth", "USDT").await.refused(400, "stablecoin: the merchant selected DAI");
}

#[tokio::test]
async fn a_choice_must_be_complete_known_and_payable() {
    let (world, id) = World::start().await.with_order().await;
    let coins = "stablecoin: \"EUR\" is not one of USDT, USDC, DAI";
    for (body, text) in [
        (json!({}), "blockchain: is missing"),
        (json!({ "blockchain": "eth" }), "stablecoin: is missing"),
        (json!({ "blockchain": 1, "stablecoin": "DAI" }), "blockchain: must be a string"),
        (json!({ "blockchain": "eth", "stablecoin": "EUR" }), coins),
        (json!([]), "body: must be a JSON object"),
        (json!({ "blockchain": "eth", "stablecoin": "USDC" }), NO_WALLET),
        (json!({ "blockchain": "tron", "stablecoin": "DAI" }), NO_WALLET),
        (json!({ "blockchain": "base", "stablecoin": "USDC" }), NO_WALLET),
    ] {
        world.user(&id, "POST", "payment", &body).await.refused(400, text);
    }
    assert_eq!(world.commands().len(), 1, "the create");
}

#[tokio::test]
async fn a_choice_without_a_free_amount_is_refused() {
    let mut config = config();
    config.matching.amounts = Amounts::ExactFirst;
    config.matching.limit = Percent::default();
    config.orders.late_window = Duration::ZERO;
    let (world, first) = World::with(config, true).await.with_order().await;
    assert_eq!(world.pay(&first, "eth", "DAI").await.status, 201);
    let id = world.create(&new_order()).await;
    world.pay(&id, "eth", "DAI").await.refused(409, NO_FREE_AMOUNT);
    world.cancel(&first).await;
    // An amount is free from the first head after its deposit closed. The lane may read a head before
    // the close, and the choice before the head, so both are repeated.
    for _ in 0..50 {
        // Stays within the rate limit of a link.
        world.advance(6);
        world.chain(example::chain_head().body).await;
        let answer = world.pay(&id, "eth", "DAI").await;
        if answer.status == 201 {
            return;
        }
        answer.refused(409, NO_FREE_AMOUNT);
    }
    panic!("the amount came free");
}

/// The amount that a customer pays reveals only the price of the order, and differs from it.
#[tokio::test]
async fn amounts_at_checkout_are_unique() {
    let world = World::start().await;
    let mut values = HashSet::new();
    for _ in 0..5 {
        let id = world.create(&new_order()).await;
        let value = world.pay(&id, "eth", "DAI").await.json()["value"].as_str().unwrap().to_owned();
        assert!(value.starts_with("10.50") && value.len() == "10.501234".len(), "{value}");
        assert!(!value.ends_with('0'), "{value}: rounded, it is nobody's");
        assert_eq!(world.pay(&id, "eth", "DAI").await.json()["value"], value.as_str());
        assert!(values.insert(value), "{values:?}");
    }
}

#[tokio::test]
async fn cancel_ends_a_pending_order_for_good() {
    let (world, id) = World::start().await.with_order().await;
    let order = world.cancel(&id).await.with_status(200).json();
    assert_eq!(fields(&order), ORDER_FIELDS);
    assert_eq!(order["status"], "cancelled");
    assert_eq!(status(&world, &id).await["status"], "cancelled", "the customer reads it at once");
    world.cancel(&id).await.refused(409, "order is not pending");
    world.pay(&id, "eth", "DAI").await.refused(409, "order is not pending");
    assert_eq!(world.commands().len(), 2, "the row is enough to refuse the second");
}

/// The order remains pending until a chain has confirmed a block after its deadline.
#[tokio::test]
async fn nobody_is_asked_to_pay_after_the_deadline() {
    let (world, id) = World::start().await.with_order().await;
    let first = world.pay(&id, "eth", "DAI").await.with_status(201);
    world.advance(1800);
    assert_eq!(world.pay(&id, "eth", "DAI").await.with_status(201).body, first.body);
    world.advance(1);
    world.pay(&id, "eth", "DAI").await.refused(409, "order is not pending");
    assert_eq!(status(&world, &id).await["status"], "pending");
}

/// A page that polls by POST, or an attacker, repeats a request: it is answered without a command.
#[tokio::test]
async fn repeated_choice_or_cancel_is_answered_from_row() {
    let (world, id) = World::start().await.with_order().await;
    let first = world.pay(&id, "eth", "DAI").await;
    for _ in 0..20 {
        let again = world.pay(&id, "eth", "DAI").await;
        assert_eq!((again.status, again.json()), (201, first.json()));
    }
    world.change(&id, |row| row.candidates = vec![TransferId(7)]).await;
    assert_eq!(status(&world, &id).await["payment_seen"], true);
    for _ in 0..20 {
        let seen = "a payment for this order was already seen";
        world.cancel(&id).await.refused(409, seen);
    }
    let cancel = |row: &mut Order| {
        (row.status, row.candidates) = (OrderStatus::Cancelled, Vec::new());
    };
    world.change(&id, cancel).await;
    for _ in 0..20 {
        for answer in [world.pay(&id, "eth", "DAI").await, world.cancel(&id).await] {
            answer.refused(409, "order is not pending");
        }
    }
    assert_eq!(world.commands().len(), 3, "create, choose and the answer of the lane");
}

#[tokio::test]
async fn a_link_may_command_so_often_and_no_more() {
    let mut config = config();
    config.matching.amounts = Amounts::ExactFirst;
    config.matching.limit = Percent::default();
    let world = World::with(config, true).await;
    let (holder, id) = (world.create(&new_order()).await, world.create(&new_order()).await);
    assert_eq!(world.pay(&holder, "eth", "DAI").await.status, 201);
    for _ in 0..8 {
        world.pay(&id, "eth", "DAI").await.refused(409, NO_FREE_AMOUNT);
    }
    let sent = world.commands().len();
    for answer in [world.pay(&id, "eth", "DAI").await, world.cancel(&id).await] {
        answer.refused(429, "too many requests for this order, try again later");
        assert_eq!(answer.header("retry-after"), "6");
    }
    assert_eq!(world.commands().len(), sent);
    assert_eq!(world.cancel(&holder).await.status, 200, "another link is not limited");
    assert_eq!(status(&world, &id).await["status"], "pending", "reading is not limited");
    world.advance(6);
    assert_eq!(world.cancel(&id).await.status, 200);
}

/// Customers of one address cannot take the service away from other addresses or the merchant.
#[tokio::test]
async fn customers_of_one_address_are_limited_together() {
    let mut world = World::start().await;
    world.customer_requests = NonZeroU32::new(4);
    world.serve(config()).await;
    let id = world.create(&new_order()).await;
    let from = async |address: &str, route: &str| {
        Answer::to(world.request(route).header("X-Forwarded-For", address)).await
    };
    let status = format!("GET /api/v1/user/orders/{id}/status?{}", world.link(&id));
    let routes = [
        status.as_str(),
        "GET /api/v1/user/orders/none/status?exp=1&sig=none",
        "GET /checkout/none",
        "GET /api/v1/user/chains",
    ];
    for route in routes.into_iter().cycle().take(8) {
        assert_ne!(from("198.51.100.9", route).await.status, 429, "{route}");
    }
    for route in routes {
        let answer = from("198.51.100.9", route).await;
        answer.refused(429, "too many requests from this address, try again later");
        assert_eq!(answer.header("retry-after"), "1");
    }
    let preflight = format!("OPTIONS /api/v1/user/orders/{id}/cancel");
    assert_ne!(from("198.51.100.9", &preflight).await.status, 429, "a browser's own question");
    for address in ["198.51.100.8", "2001:db8:0:1::1"] {
        assert_eq!(from(address, &status).await.status, 200, "{address}");
    }
    let others = ["2001:db8:0:1::2", "2001:db8:0:1:ffff::"];
    for address in others.into_iter().cycle().take(7) {
        assert_eq!(from(address, &status).await.status, 200, "{address}");
    }
    assert_eq!(from("2001:db8:0:1::3", &status).await.status, 429, "one customer's network");
    for _ in 0..9 {
        let body = json!({ "order_id": id }).to_string();
        let forwarded =
            |request: reqwest::RequestBuilder| request.header("X-Forwarded-For", "198.51.100.9");
        let answer = world.service_with("/orders/status", &body, forwarded).await;
        assert_eq!(answer.status, 200, "what is signed is not limited");
        for free in ["GET /health", "GET /checkout/page.css"] {
            assert_eq!(from("198.51.100.9", free).await.status, 200, "{free}");
        }
    }
    world.advance(1);
    for _ in 0..4 {
        assert_eq!(from("198.51.100.9", &status).await.status, 200);
    }
    assert_eq!(from("198.51.100.9", &status).await.status, 429);
}

#[tokio::test]
async fn the_processor_decides_when_the_row_is_old() {
    let (world, id) = World::start().await.with_order().await;
    world.command(&id, OrderCommandBody::MarkPaid(None)).await;
    world.pay(&id, "eth", "DAI").await.refused(409, "order is not pending");
    let id = world.create(&new_order()).await;
    world.command(&id, OrderCommandBody::MarkPaid(None)).await;
    world.cancel(&id).await.refused(409, "order is not pending");
}

#[tokio::test]
async fn cancel_is_refused_once_a_payment_was_seen() {
    let world = World::start().await;
    let fixed = [("blockchain", "eth"), ("stablecoin", "DAI")];
    let id = world.create(&new_order_with(&fixed)).await;
    assert_eq!(world.pay(&id, "eth", "DAI").await.json()["value"], "10.50");
    let mut orders = world.log.tail(&[Topic::Orders]).unwrap();
    let ChainBody::Transfer(seen) = example::chain_record().body else { panic!("a transfer") };
    let contract = "0x6B175474E89094C44Da98b954EedeAC495271d0F".parse().unwrap();
    let (stablecoin, to_address) = (Stablecoin::Dai, wallet(0xab));
    let seen = Observation { stablecoin, contract, to_address, ..seen };
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
    world.cancel(&id).await.refused(409, "a payment for this order was already seen");
}

#[tokio::test]
async fn allowed_origins_may_call_the_checkout_only() {
    let (world, id) = World::alone().await.with_order().await;
    let with = async |origin: &str, route: &str| {
        let request = world.request(route).header("Origin", origin);
        Answer::to(request.header("Access-Control-Request-Method", "POST")).await
    };
    let allowed = |answer: &Answer| answer.header("access-control-allow-origin").to_owned();
    let route = format!("{}{}", routes(&id)[1], world.link(&id));
    let answer = with(ORIGIN, &route).await;
    assert_eq!((&*allowed(&answer), answer.header("vary")), (ORIGIN, "origin"));
    let answer = with("https://evil.test", &route).await;
    assert_eq!((answer.status, &*allowed(&answer)), (200, ""));
    for route in &routes(&id)[2..] {
        let answer = with("https://evil.test", &format!("{route}{}", world.link(&id))).await;
        answer.refused(403, "origin not allowed");
        assert_eq!((&*allowed(&answer), answer.header("vary")), ("", "origin"));
    }
    assert_eq!(world.commands().len(), 1, "the create");
    for origin in [ORIGIN, &format!("http://{}", world.address())] {
        let route = format!("{}{}", routes(&id)[4], world.link(&id));
        let answer = with(origin, &route).await;
        assert_eq!(answer.status, 400, "{origin}: {}", answer.body);
    }

    let preflight = format!("OPTIONS /api/v1/user/orders/{id}/payment");
    let answer = with(ORIGIN, &preflight).await;
    assert_eq!((answer.status, &*allowed(&answer)), (204, ORIGIN), "it carries no signature");
    assert_eq!(answer.header("access-control-allow-methods"), "GET, POST");
    assert_eq!(answer.header("access-control-allow-headers"), "content-type");
    let answer = with("https://evil.test", &preflight).await;
    assert_eq!((answer.status, &*allowed(&answer)), (204, ""));
    let answer = with(ORIGIN, "OPTIONS /api/v1/service/orders").await;
    answer.refused(405, "method not allowed");
}
