//! `POST /api/v1/service/orders` (spec 4.1).

use std::collections::HashSet;
use std::time::Duration;

use runtime::Clock;
use schemas::record::{CreateOrder, Order, OrderCommand, OrderCommandBody};
use schemas::{Amount, OrderCause, OrderStatus, Topic, UnixSeconds};
use serde_json::{Value, json};
use tidemark_api::Percent;

use crate::raw::Raw;
use crate::world::{
    ADMIN_SECRET, Answer, NO_FREE_AMOUNT, NOT_FOLLOWED, NOW, ORDER_FIELDS, World, config, fields,
    new_order, new_order_with, wallet,
};

pub(crate) const NO_WALLET: &str = "no wallet available for the selected chain and coin";
pub(crate) const TRON: &str = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t";

fn creates(world: &World) -> Vec<CreateOrder> {
    let create = |command: OrderCommand| match command.body {
        OrderCommandBody::Create(create) => Some(create),
        _ => None,
    };
    world.commands().into_iter().filter_map(create).collect()
}

/// `Location` is the signed checkout link; `Idempotent-Replayed` marks the order of an earlier request.
#[tokio::test]
async fn a_created_order_has_a_location() {
    let world = World::start().await;
    let create = async || {
        let answer = world.create_once("k", &new_order()).await.with_status(201);
        let link = answer.header("location").to_owned();
        (link, answer.header("idempotent-replayed").to_owned())
    };
    let (link, replayed) = create().await;
    assert_eq!(replayed, "");
    assert_eq!(create().await, (link.clone(), "true".to_owned()));
    let path = link.strip_prefix("https://pay.test").unwrap();
    Answer::to(world.request(&format!("GET {path}"))).await.with_status(303);
    // The link is valid until LINK_SECONDS after the deadline of the order.
    world.advance(1800 + 24 * 3600);
    assert_eq!(Answer::to(world.request(&format!("GET {path}"))).await.status, 303);
    world.advance(1);
    assert_eq!(Answer::to(world.request(&format!("GET {path}"))).await.status, 401);
}

/// Each answer has the id of its request, which is the id of its trace if the request has one.
#[tokio::test]
async fn every_answer_has_a_request_id() {
    let world = World::alone().await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    for route in ["GET /health", "GET /nowhere", "POST /api/v1/service/orders", "GET /checkout/x"] {
        let made = Answer::to(world.request(route)).await;
        let id = made.header("x-request-id");
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{route}: {id}");
        let traced =
            world.request(route).header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
        assert_eq!(Answer::to(traced).await.header("x-request-id"), trace, "{route}");
    }
}

#[tokio::test]
async fn spec_4_1_create_answers_201_with_the_object_of_2_2() {
    let world = World::alone().await;
    let order = world.service("/orders", &new_order()).await.with_status(201).json();
    assert_eq!(fields(&order), ORDER_FIELDS);
    assert_eq!(order["merchant_order_id"], "A-1");
    assert_eq!(order["amount"], "10.50");
    assert_eq!(order["status"], "pending");
    assert_eq!(order["created_at"], NOW);
    let id: uuid::Uuid = order["order_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(id.get_version_num(), 7);
}

#[tokio::test]
async fn new_order_is_a_command_and_a_first_row() {
    let (world, id) = World::alone().await.with_order().await;
    let [create] = creates(&world).try_into().unwrap();
    assert_eq!((create.expires_at, create.payment), (UnixSeconds(NOW + 1800), None));
    let [command] = world.commands().try_into().unwrap();
    assert_eq!(command.order_id.to_string(), id);
    let row = world.row(&id).await.unwrap();
    assert_eq!((row.version, row.cause), (1, OrderCause::Created));
    assert_eq!((row.updated_at, row.command_id), (command.issued_at, command.command_id));
    assert_eq!((row.status, row.status_changed), (OrderStatus::Pending, false));
    assert_eq!(row.deposits, []);
    assert_eq!(row.created_at, command.issued_at.seconds());
    assert_eq!((row.expires_at, row.amount_text), (create.expires_at, create.amount_text));
}

#[tokio::test]
async fn first_row_is_the_processors_first_record() {
    let (world, id) = World::start().await.with_order().await;
    let row = world.row(&id).await.unwrap();
    // A command that is answered after the create shows that the first record is on the log.
    world.cancel(&id).await;
    assert_eq!(world.records::<Order>(Topic::Orders)[0], row);
}

#[tokio::test]
async fn order_with_chain_and_coin_asks_for_a_deposit() {
    let world = World::start().await;
    let chosen = [("blockchain", "eth"), ("stablecoin", "USDT")];
    world.create(&new_order_with(&chosen[..1])).await;
    assert_eq!(creates(&world)[0].payment, None, "a chain alone opens nothing");
    for _ in 0..20 {
        world.create(&new_order_with(&chosen)).await;
    }
    let payments: Vec<_> = creates(&world).into_iter().filter_map(|of| of.payment).collect();
    assert_eq!(payments.len(), 20);
    for payment in &payments {
        assert_eq!(payment.wallets.len(), 2);
        let wallets: HashSet<_> = payment.wallets.iter().copied().collect();
        assert_eq!(wallets, HashSet::from([wallet(0xab), wallet(0x02)]));
        assert_eq!(payment.late_window_seconds, 86_400);
        assert!(payment.amounts.exact_first, "the shop shows the amount itself");
        assert_eq!(payment.amounts.digits, 6);
        assert_eq!(payment.amounts.limit, Amount::parse("0.105").unwrap(), "1 % of 10.50");
    }
    let draws: HashSet<_> = payments.iter().map(|payment| payment.amounts.draws.0).collect();
    assert_eq!(draws.len(), 20, "each order has its own draws");
    let first: HashSet<_> = payments.iter().map(|payment| payment.wallets[0]).collect();
    assert_eq!(first.len(), 2, "orders start at different wallets");
}

#[tokio::test]
async fn the_records_of_a_request_carry_its_trace() {
    let world = World::alone().await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let body = new_order().to_string();
    for trace in [parent, "nonsense"] {
        world.service_with("/orders", &body, |r| r.header("traceparent", trace)).await;
    }
    let records = world.raw_records(Topic::OrdersCommands);
    let mut traces: Vec<_> = records.iter().map(|record| record.header("traceparent")).collect();
    traces.sort();
    assert_eq!(traces, [None, Some(parent.as_bytes())]);

    let stop = world.request("POST /api/v1/admin/stops").header("traceparent", parent);
    let stop = stop.header("Service-Admin-Authorization", ADMIN_SECRET);
    let stop = stop.body(json!({ "subject": "USDC", "blockchain": "polygon" }).to_string());
    assert_eq!(Answer::to(stop).await.status, 200);
    for topic in [Topic::Audit, Topic::DepositsCommands] {
        let records = world.raw_records(topic);
        let [record] = records.as_slice() else { panic!("{records:?}") };
        assert_eq!(record.header("traceparent"), Some(parent.as_bytes()), "{topic}");
    }
}

#[tokio::test]
async fn an_order_that_nobody_can_pay_is_refused() {
    let mut config = config();
    (config.matching.limit, config.matching.head_age_max) =
        (Percent::default(), Duration::from_secs(600));
    let world = World::with(config, true).await;
    let body = new_order_with(&[("blockchain", "eth"), ("stablecoin", "DAI")]);
    world.create(&body).await;
    // The amount is taken at the only wallet.
    world.create_once("k", &body).await.refused(409, NO_FREE_AMOUNT);
    // The repeated create asks for the amount again, as it may be free by now.
    world.create_once("k", &body).await.refused(409, NO_FREE_AMOUNT);
    let mut commands = world.commands();
    commands.retain(|command| command.command_id.is_some());
    assert_eq!(commands.len(), 3, "{commands:?}");
    let is_choice = |c: &&OrderCommand| matches!(c.body, OrderCommandBody::ChoosePayment(_));
    let choice = commands.iter().find(is_choice).unwrap();
    let of_order = commands.iter().filter(|command| command.order_id == choice.order_id);
    assert_eq!(of_order.count(), 2, "{commands:?}");
    // The order ended without an amount: the merchant gets an error, and sends no customer to it.
    world.admin(&format!("POST /orders/{}/cancel", choice.order_id)).await.with_status(200);
    world.create_once("k", &body).await.refused(409, "order is not pending");

    world.advance(601);
    let polygon = new_order_with(&[("blockchain", "polygon"), ("stablecoin", "USDC")]);
    world.service("/orders", &polygon).await.refused(409, NOT_FOLLOWED);
    assert_eq!(creates(&world).len(), 2, "there is no third order");
    // An order without a coin is accepted, as the customer may choose one that is followed.
    world.create(&new_order_with(&[("blockchain", "polygon")])).await;
}

/// A lane that refused the deposit of a fixed choice is asked for the price again, not for a raised amount.
#[tokio::test]
async fn a_repeated_create_asks_for_the_price_again() {
    let world = World::start().await;
    let stop = async |path: &str| {
        let request = world.request(&format!("POST /api/v1/admin/{path}"));
        let request = request.header("Service-Admin-Authorization", ADMIN_SECRET);
        let body = json!({ "subject": "USDT", "blockchain": "eth" });
        Answer::to(request.body(body.to_string())).await.with_status(200);
    };
    let body = new_order_with(&[("blockchain", "eth"), ("stablecoin", "USDT")]);
    // The lanes know of the stop, and the tables do not.
    stop("stops").await;
    world.create_once("k", &body).await.refused(409, NOT_FOLLOWED);
    stop("stops/end").await;
    let order = world.create_once("k", &body).await.with_status(201).json();
    let payment = world.pay(order["order_id"].as_str().unwrap(), "eth", "USDT").await;
    assert_eq!(payment.with_status(201).json()["value"], "10.50");
}

#[tokio::test]
async fn ignored_fields_are_named() {
    let world = World::start().await;
    let answer = world.service("/orders", &new_order()).await;
    assert_eq!((answer.status, answer.header("tidemark-ignored-fields")), (201, ""));
    let body = new_order_with(&[("colour", "red"), ("customer_id", "7")]);
    for _ in 0..2 {
        let answer = world.create_once("k", &body).await.with_status(201);
        assert_eq!(answer.header("tidemark-ignored-fields"), "colour, customer_id");
    }
}

/// A create that was accepted before the configuration changed gets the same answer again.
#[tokio::test]
async fn repeated_create_outlives_the_configuration() {
    let mut world = World::start().await;
    let body = new_order_with(&[("blockchain", "polygon")]);
    let first = world.create_once("k", &body).await.with_status(201);
    let mut config = config();
    config.wallets[2].retired = true;
    config.merchant.name = "Another Shop".into();
    world.serve(config).await;
    let again = world.create_once("k", &body).await;
    assert_eq!((again.status, again.body), (201, first.body));
    assert_eq!(creates(&world).len(), 1);
    world.service("/orders", &body).await.refused(400, NO_WALLET);
}

/// A merchant who is refused would create the order again with another key: both could be paid.
#[tokio::test]
async fn a_repeated_create_outlives_the_checks_of_a_new_one() {
    let mut world = World::start().await;
    let sender = wallet(0x77).to_string();
    let fields = [
        ("blockchain", "eth"),
        ("stablecoin", "USDT"),
        ("expecting_wallet_address", sender.as_str()),
    ];
    let (open, fixed) = (new_order_with(&fields[2..]), new_order_with(&fields));
    let create = async |world: &World| {
        let (one, other) =
            (world.create_once("k", &open).await, world.create_once("l", &fixed).await);
        [one, other].map(|answer| answer.with_status(201).body)
    };
    let first = create(&world).await;
    let mut config = config();
    config.wallets[2].address = wallet(0x77);
    world.serve(config).await;
    assert_eq!(create(&world).await, first);
    for body in [&open, &fixed] {
        let text = "expecting_wallet_address: is a wallet of the merchant";
        world.service("/orders", body).await.refused(400, text);
    }
}

/// Defects of one field alone have their table in `machine/new_order.rs`.
#[tokio::test]
async fn what_cannot_be_an_order_is_refused_in_plain_text() {
    let world = World::alone().await;
    let of = |chain, coin| new_order_with(&[("blockchain", chain), ("stablecoin", coin)]);
    let mut fine = of("eth", "USDT");
    fine["amount"] = json!("1.0000001");
    let mut sender = of("eth", "USDT");
    sender["expecting_wallet_address"] = json!(TRON);
    let address = wallet(0xab).to_string();
    let own = new_order_with(&[("expecting_wallet_address", address.as_str())]);
    let digits = "amount: must have at most 6 digits after the point";
    for (body, text) in [
        (new_order_with(&[("order_id", "")]), "order_id: must not be empty"),
        (new_order_with(&[("amount", "0")]), "amount: must be greater than zero"),
        (of("tron", "DAI"), "stablecoin: DAI is not available on tron"),
        (of("base", "USDC"), "stablecoin: USDC is not available on base"),
        (of("eth", "USDC"), NO_WALLET),
        (fine, "amount: must have at most 6 digits after the point for USDT on eth"),
        (sender, "expecting_wallet_address: is not an address of eth"),
        (own, "expecting_wallet_address: is a wallet of the merchant"),
        // No wallet can ever take these, whatever their customer chooses.
        (new_order_with(&[("blockchain", "base")]), NO_WALLET),
        (new_order_with(&[("blockchain", "linea")]), NO_WALLET),
        (new_order_with(&[("stablecoin", "USDT"), ("amount", "29.949999999999999")]), digits),
        (new_order_with(&[("blockchain", "polygon"), ("amount", "0.0000001")]), digits),
        (
            new_order_with(&[("stablecoin", "DAI"), ("expecting_wallet_address", TRON)]),
            "expecting_wallet_address: is not an address of a chain that the order can be paid on",
        ),
        (
            new_order_with(&[("expected_wallet_address", &address)]),
            "body: \"expected_wallet_address\" is not a field, expecting_wallet_address is",
        ),
        (
            new_order_with(&[("currency", "EUR")]),
            "body: \"currency\" is not supported: amounts are in whole units of the stablecoin",
        ),
        (
            new_order_with(&[("webhook_url", "http://localhost:9000/")]),
            "webhook_url: must not be the local name \"localhost\": webhooks.allowed_networks has what is called beside the internet",
        ),
        (json!([new_order()]), "body: must be a JSON object"),
    ] {
        world.service("/orders", &body).await.refused(400, text);
    }
    let answer =
        world.service_with("/orders", "{\"order_id\": ", |request| request).await.with_status(400);
    assert!(answer.body.starts_with("body: EOF while parsing"), "{}", answer.body);
    assert_eq!(world.commands(), [], "no refused request reaches the log");
}

#[tokio::test]
async fn spec_4_1_receivers_inside_the_network_are_refused() {
    let world = World::alone().await;
    for (url, address) in [
        ("http://127.0.0.1/", "127.0.0.1"),
        ("http://10.0.0.5/hook", "10.0.0.5"),
        ("http://127.1/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://0x7f000001/", "127.0.0.1"),
        ("http://0177.0.0.1/", "127.0.0.1"),
        ("http://127.0.0.1./", "127.0.0.1"),
        ("http://0/", "0.0.0.0"),
        ("http://169.254.169.254/latest", "169.254.169.254"),
        ("https://[::1]:8443/", "::1"),
        ("http://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1"),
        ("http://[::ffff:7f00:1]/", "::ffff:127.0.0.1"),
        ("http://\u{ff11}27.0.0.1/", "127.0.0.1"),
    ] {
        let body = new_order_with(&[("webhook_url", url)]);
        let text = format!(
            "webhook_url: must not be the private address {address}: webhooks.allowed_networks has those that are called"
        );
        world.service("/orders", &body).await.refused(400, &text);
    }
    assert_eq!(world.commands(), []);
}

#[tokio::test]
async fn bodies_above_the_limit_are_refused() {
    let world = World::alone().await;
    let padded = |length: usize| format!("{}{}", new_order(), " ".repeat(length));
    let room = 64 * 1024 - new_order().to_string().len();
    world.service_with("/orders", &padded(room), |request| request).await.with_status(201);
    let answer = world.service_with("/orders", &padded(room + 1), |request| request).await;
    answer.refused(413, "body: must be at most 64 KiB");
}

/// The time limit of a request may end it after its command was sent.
#[tokio::test]
async fn a_create_that_takes_too_long_may_have_been_done() {
    let world = World::alone().await;
    let maybe = "the order may have been created: repeat the request with the same Idempotency-Key";
    for (route, text) in [("orders", maybe), ("orders/status", "the service is busy, try again")] {
        let now = world.clock.now().seconds();
        let route = format!("POST /api/v1/service/{route} HTTP/1.1\r\nhost: x\r\n");
        let head = format!("{route}service-signature: {now}.AAAA\r\n");
        let answer = Raw::answer_without_body(&world, &head).await;
        assert_eq!((answer.status, answer.body.as_str()), (503, text));
    }
}

#[tokio::test]
async fn log_not_writable_is_503_and_leaves_no_row() {
    let (world, id) = World::alone().await.with_order().await;
    world.faults.log_writes.set(true);
    for answer in [world.pay(&id, "eth", "DAI").await, world.cancel(&id).await] {
        answer.refused(500, "internal server error");
    }
    let text = "the order may have been created: repeat the request with the same Idempotency-Key";
    for answer in
        [world.service("/orders", &new_order()).await, world.create_once("k", &new_order()).await]
    {
        answer.refused(503, text);
        assert_eq!(answer.header("retry-after"), "1");
    }
    let page = store::Page { limit: 10, offset: 0 };
    let rows = world.store.orders(store::OrderFilter::default(), page).await.unwrap();
    assert_eq!(rows.len(), 1, "the first create: {rows:?}");
}

#[tokio::test]
async fn store_not_writable_does_not_undo_the_command() {
    let world = World::alone().await;
    world.faults.store_writes.set(true);
    let id = world.create(&new_order()).await;
    assert_eq!(world.commands().len(), 1);
    assert_eq!(world.row(&id).await, None, "the projector will write it");
}

#[tokio::test]
async fn the_same_key_and_body_is_the_same_order() {
    let world = World::start().await;
    let send = async |body: Value| world.create_once("k-1", &body).await;
    let first = send(new_order()).await.with_status(201);
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
    // The same answer again, whatever the status of the order is now.
    world.admin(&format!("POST /orders/{id}/mark-paid")).await;
    assert_eq!(send(new_order()).await.json(), first.json());
}

#[tokio::test]
async fn concurrent_requests_with_one_key_make_one_order() {
    let world = World::start().await;
    let send = async |amount| {
        let fields = [("amount", amount), ("blockchain", "eth"), ("stablecoin", "USDT")];
        world.create_once("k-2", &new_order_with(&fields)).await
    };
    let (a, b, c, d) = tokio::join!(send("1.00"), send("1.00"), send("2.00"), send("2.00"));
    let answers = [a, b, c, d];
    let of = |status| answers.iter().filter(move |answer| answer.status == status);
    assert_eq!((of(201).count(), of(409).count()), (2, 2), "{answers:?}");
    let made: HashSet<_> = of(201).map(|answer| &answer.body).collect();
    assert_eq!(made.len(), 1, "both requests with the winning body get the order: {answers:?}");
    let payments = creates(&world).into_iter().filter_map(|create| create.payment);
    let wallets: HashSet<_> = payments.map(|payment| payment.wallets).collect();
    assert_eq!(wallets.len(), 1, "one order's commands try the wallets in one order");
    // The row is that of the create that won, not that of the last command.
    let order = of(201).map(Answer::json).next().unwrap();
    let row = world.row(order["order_id"].as_str().unwrap()).await.unwrap();
    assert_eq!(row.amount_text, order["amount"].as_str().unwrap());
}

#[tokio::test]
async fn a_key_has_1_to_255_visible_characters() {
    let world = World::start().await;
    for key in ["a-1~!", &"x".repeat(255)] {
        assert_eq!(world.create_once(key, &new_order()).await.status, 201, "{key}");
    }
    for key in ["", "a b", "a\tb", "\u{e9}", &"x".repeat(256)] {
        let answer = world.create_once(key, &new_order()).await;
        answer.refused(400, "Idempotency-Key: must be 1 to 255 visible characters");
    }
}
