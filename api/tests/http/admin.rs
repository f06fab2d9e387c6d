//! The admin API (spec 4.2, 5.2, 7.2, 8).

use schemas::record::{
    Alert, Attempt, ChainProgress, Deposit, Order, OrderCommandBody, Transfer, example,
};
use schemas::{
    Address, AlertKind, Amount, AttemptOutcome, Blockchain, DeliveryKind, DepositId, DepositState,
    OrderCause, OrderStatus, Stablecoin, Topic, TransferId, TransferStatus, UnixMicros,
    UnixSeconds, UnknownReason, Wallet,
};
use serde_json::{Value, json};
use store::Change;
use tidemark_api::Config;

use crate::openapi::{filled, operations};
use crate::world::{
    Answer, NOW, UNKNOWN_ORDER, UNKNOWN_URL, World, config, fields, new_order, new_order_with,
    order, transfer, wallet,
};

/// Each route of operators in the OpenAPI document, with valid ids.
pub(crate) fn routes() -> Vec<String> {
    let of_admin = operations().filter_map(|(path, method, _)| {
        let path = path.strip_prefix("/api/v1/admin").filter(|path| *path != "/health")?;
        Some(format!("{} {}", method.to_uppercase(), filled(path)))
    });
    of_admin.chain(["GET /health?verbose=1".to_owned()]).collect()
}

/// The path of the transfers of a configured wallet.
pub(crate) fn transfers() -> String {
    format!("/wallets/{}/transfers", wallet(0xab))
}

#[tokio::test]
async fn spec_5_2_every_route_but_health_needs_the_secret() {
    let world = World::alone().await;
    for route in routes() {
        for (header, status, text) in [
            (None, 401, "missing Service-Admin-Authorization header"),
            (Some(&b"wrong"[..]), 401, "invalid admin secret"),
            (Some(b""), 401, "invalid admin secret"),
            (Some(b"admin-5vN8xK2qL7wR2"), 401, "invalid admin secret"),
            (Some("schlüssel".as_bytes()), 401, "invalid admin secret"),
            (Some(b"\xff\xfe"), 400, "invalid authorization header"),
        ] {
            let mut request = world.request(&route.replacen(' ', " /api/v1/admin", 1));
            if let Some(value) = header {
                request = request.header("Service-Admin-Authorization", value);
            }
            Answer::to(request).await.refused(status, text);
        }
        // Lets the limit of wrong secrets recover.
        world.advance(1);
        let answer = world.admin(&route).await;
        // Some routes need a body.
        assert!(matches!(answer.status, 200 | 400 | 404), "{route}: {answer:?}");
    }
}

#[tokio::test]
async fn spec_7_2_a_broken_store_is_500() {
    let world = World::alone().await;
    world.faults.store_reads.set(true);
    // Routes that need no tables, or that check a body first.
    let others = ["GET /wallets", "POST /alerts/resolve", "POST /stops", "POST /stops/end"];
    for route in routes().iter().filter(|route| !others.contains(&route.as_str())) {
        world.admin(route).await.refused(500, "internal server error");
    }
}

#[tokio::test]
async fn spec_8_bounds_of_every_list() {
    let world = World::alone().await;
    let rows = (1..=21_u8).flat_map(|number| {
        let order = order(number.into());
        let (order_id, number) = (order.order_id, number.into());
        let deposit = Deposit { deposit_id: DepositId(number), order_id, ..example::deposit() };
        [Change::Order(order), Change::Deposit(deposit), Change::Transfer(transfer(number))]
    });
    world.apply(rows).await;
    let limit = "limit: must be a whole number from 1 to 200";
    let offset = "offset: must be a whole number from 0 to 100000";
    for list in ["/orders", "/deposits", &transfers()] {
        for (query, text) in [
            ("limit=0", limit),
            ("limit=201", limit),
            ("limit=-1", limit),
            ("limit=%2B5", limit),
            ("limit=", limit),
            ("limit=ten", limit),
            ("limit=99999999999999999999", limit),
            ("offset=100001", offset),
            ("offset=-1", offset),
            ("offset=1.5", offset),
            ("limit=1&limit=2", "limit: is given twice"),
        ] {
            world.admin(&format!("GET {list}?{query}")).await.refused(400, text);
        }
        for (query, count) in [
            ("", 20),
            ("limit=1", 1),
            ("limit=200", 21),
            ("limit=200&offset=100000", 0),
            ("offset=01&limit=0200", 20),
        ] {
            let ids = world.list(&format!("{list}?{query}"), "created_at").await;
            assert_eq!(ids.len(), count, "{list}?{query}");
        }
    }
}

#[tokio::test]
async fn an_invalid_filter_names_its_field() {
    let world = World::alone().await;
    let chains = "is not one of eth, polygon, base, arb, op, linea, avaxc, tron";
    let statuses = "is not one of waiting_for_confirmation, failed_to_confirm, waiting_for_match, \
                    no_matched_deposit, matched";
    for (list, name, value, problem) in [
        ("/orders", "status", "open", "is not one of pending, paid, expired, cancelled"),
        ("/deposits", "token", "EUR", "is not one of USDT, USDC, DAI"),
        ("/deposits", "blockchain", "", chains),
        (&transfers(), "status", "paid", statuses),
        (&transfers(), "blockchain", "bsc", chains),
    ] {
        let answer = world.admin(&format!("GET {list}?{name}={value}")).await;
        answer.refused(400, &format!("{name}: \"{value}\" {problem}"));
    }
    world.admin("GET /deposits?order_id=7").await.refused(400, "order_id: must be a UUID");
}

#[tokio::test]
async fn spec_4_2_orders_newest_first_as_in_2_3() {
    let world = World::alone().await;
    let mut made = Vec::new();
    for (number, status) in (1..=25_i64).zip(OrderStatus::ALL.iter().cycle()) {
        let created_at = UnixSeconds(NOW + number);
        let merchant_order_id = format!("A {}+", number % 5);
        let id = u128::from(number.unsigned_abs());
        made.push(Order { status: *status, created_at, merchant_order_id, ..order(id) });
    }
    world.apply(made.iter().cloned().map(Change::Order)).await;
    made.reverse();
    let newest = |filter: fn(&Order) -> bool| {
        let found = made.iter().filter(move |order| filter(order));
        found.map(|order| json!(order.order_id)).collect::<Vec<_>>()
    };
    let is_third: fn(&Order) -> bool = |order| order.merchant_order_id == "A 3+";
    for (query, expected) in [
        ("", &newest(|_| true)[..20]),
        ("limit=3&offset=20", &newest(|_| true)[20..23]),
        ("status=paid", &newest(|order| order.status == OrderStatus::Paid)),
        ("merchant_order_id=A%203%2B", &newest(is_third)),
        ("merchant_order_id=A", &[]),
        ("status=paid&merchant_order_id=A+3%2B", &[json!(order(18).order_id)]),
    ] {
        let path = format!("/orders?{query}");
        assert_eq!(world.list(&path, "order_id").await, expected, "{path}");
    }
}

#[tokio::test]
async fn spec_2_3_and_6_3_an_order_shows_its_delivery_state() {
    let world = World::alone().await;
    let paid_value = Amount::parse("10.51").ok();
    let order = Order { paid_by: Some(TransferId(7)), paid_value, ..order(1) };
    let attempt = |number: i32, second: i64, outcome| Attempt {
        attempt: number,
        order_id: Some(order.order_id),
        attempted_at: UnixSeconds(NOW + second).micros(),
        outcome,
        ..example::attempt()
    };
    world.apply([Change::Order(order.clone())]).await;
    let answer = world.admin("GET /orders").await.json();
    assert_eq!(answer[0]["webhook_retry_count"], 0);
    assert_eq!(answer[0]["webhook_success_at"], Value::Null);
    assert_eq!(answer[0]["webhook_last_tried_at"], Value::Null);
    let attempts = [
        attempt(1, 1, AttemptOutcome::Timeout),
        attempt(2, 3, AttemptOutcome::Delivered),
        attempt(3, 9, AttemptOutcome::Delivered),
    ];
    world.apply(attempts.map(Change::Attempt)).await;
    let answer = world.admin("GET /orders").await.json();
    let expected = json!([{
        "order_id": order.order_id,
        "merchant_order_id": "A-1001",
        "amount": "10.50",
        "status": "pending",
        "created_at": order.created_at,
        "webhook_url": "https://shop.example/hooks",
        "webhook_retry_count": 3,
        "webhook_success_at": NOW + 3,
        "webhook_last_tried_at": NOW + 9,
        // Fields that the interface does not list.
        "paid_by": 7,
        "paid_value": "10.51",
        "candidates": [7],
        "waits_for": ["eth"],
    }]);
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn the_delivery_log_of_an_order_and_of_a_transfer() {
    let world = World::alone().await;
    let order = order(1);
    let attempt = |number: i32, second: i64, outcome| Attempt {
        event_id: "e.2".into(),
        attempt: number,
        order_id: Some(order.order_id),
        transfer_id: None,
        attempted_at: UnixSeconds(NOW + second).micros(),
        outcome,
        ..example::attempt()
    };
    let attempts = [
        Attempt {
            http_status: Some(500),
            duration_ms: 3,
            answer: "no such order".into(),
            ..attempt(1, 1, AttemptOutcome::Status)
        },
        Attempt {
            http_status: None,
            cause: "a newer status was sent".into(),
            ..attempt(2, 3, AttemptOutcome::Superseded)
        },
        Attempt { order_id: None, transfer_id: Some(TransferId(7)), ..example::attempt() },
    ];
    world.apply([Change::Order(order.clone()), Change::Transfer(transfer(7))]).await;
    world.apply(attempts.map(Change::Attempt)).await;
    let path = format!("GET /orders/{}/webhooks", order.order_id);
    let listed = world.admin(&path).await.json();
    let failed = json!({
        "event_id": "e.2",
        "attempt": 1,
        "manual": false,
        "attempted_at": NOW + 1,
        "outcome": "status",
        "http_status": 500,
        "duration_ms": 3,
        "cause": "",
        "answer": "no such order",
    });
    assert_eq!(listed[0]["outcome"], "superseded");
    assert_eq!(listed[1], failed);
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let second = world.admin(&format!("{path}?limit=1&offset=1")).await.json();
    assert_eq!(second, json!([failed]));
    let orders = world.admin("GET /orders").await.json();
    assert_eq!(orders[0]["webhook_retry_count"], 1, "what made no request is not counted");
    let listed = world.admin("GET /transfers/7/webhooks").await.json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    for path in [format!("/orders/{UNKNOWN_ORDER}/webhooks"), "/transfers/8/webhooks".into()] {
        world.admin(&format!("GET {path}")).await.refused(404, "resource not found");
    }
}

#[tokio::test]
async fn spec_4_2_mark_paid_from_any_state_and_again() {
    let (world, pending) = World::start().await.with_order().await;
    let cancelled = world.create(&new_order()).await;
    world.cancel(&cancelled).await;
    for id in [&pending, &cancelled, &pending] {
        let object =
            world.admin(&format!("POST /orders/{id}/mark-paid")).await.with_status(200).json();
        assert_eq!((&object["order_id"], &object["status"]), (&json!(id), &json!("paid")));
        let listed = world.admin("GET /orders?status=paid").await.json();
        let listed = listed.as_array().unwrap().iter().find(|o| o["order_id"] == json!(id));
        assert_eq!(listed, Some(&object), "the operator reads their own write");
    }
    assert_eq!(world.deliveries(), [], "the order's record is the only cause of a webhook");
}

#[tokio::test]
async fn spec_4_2_what_does_not_exist_is_404() {
    let world = World::start().await;
    for path in [
        format!("/orders/{UNKNOWN_ORDER}/mark-paid"),
        format!("/orders/{UNKNOWN_ORDER}/resend-webhook"),
        format!("/orders/{UNKNOWN_ORDER}/cancel"),
        "/orders/A-1/mark-paid".into(),
        "/orders/%FF/resend-webhook".into(),
        "/transfers/7/resend-webhook".into(),
        "/transfers/x/resend-webhook".into(),
        "/transfers/99999999999999999999/resend-webhook".into(),
    ] {
        world.admin(&format!("POST {path}")).await.refused(404, "resource not found");
    }
    let order = format!("/orders/{UNKNOWN_ORDER}");
    for path in [&order, "/orders/A-1", "/transfers/7", "/transfers/x", "/transfers/7/candidates"] {
        world.admin(&format!("GET {path}")).await.refused(404, "resource not found");
    }
    for address in [wallet(0x77).to_string(), "x".into(), "0x".into(), "%FF".into()] {
        let route = format!("GET /wallets/{address}/transfers");
        world.admin(&route).await.refused(404, "resource not found");
    }
    assert_eq!(world.commands(), []);
}

/// The processor makes the resend a version of the order: it is on record, and newer than the last version.
#[tokio::test]
async fn spec_4_2_resend_is_a_version_of_the_order() {
    let (world, id) = World::start().await.with_order().await;
    let route = format!("POST /orders/{id}/resend-webhook");
    let pending = "order is pending: there is no status change to send";
    world.admin(&route).await.refused(409, pending);
    // The order is marked paid on the log; the row in the tables is still pending.
    world.command(&id, OrderCommandBody::MarkPaid(None)).await;
    let answer = world.admin(&route).await;
    assert_eq!((answer.status, answer.json()), (200, json!({})));
    let orders = world.records::<Order>(Topic::Orders);
    let found: Vec<_> = orders.iter().map(|o| (o.version, o.cause, o.status)).collect();
    use OrderCause as Cause;
    use OrderStatus as Status;
    let expected = [
        (1, Cause::Created, Status::Pending),
        (2, Cause::ResendRefused, Status::Pending),
        (3, Cause::MarkedPaid, Status::Paid),
        (4, Cause::WebhookResent, Status::Paid),
    ];
    assert_eq!(found, expected);
    assert!(!orders[3].status_changed && orders[3].command_id.is_some());
    assert_eq!(world.deliveries(), [], "the order's record is the only cause of a webhook");
}

#[tokio::test]
async fn spec_7_2_an_event_channel_that_fails_is_500() {
    let world = World::alone().await;
    let paid = Order { status: OrderStatus::Paid, ..order(1) };
    let unknown = Transfer { status: TransferStatus::NoMatchedDeposit, ..transfer(1) };
    world.apply([Change::Order(paid.clone()), Change::Transfer(unknown)]).await;
    world.faults.log_writes.set(true);
    for route in [
        format!("POST /orders/{}/resend-webhook", paid.order_id),
        format!("POST /orders/{}/mark-paid", paid.order_id),
        "POST /transfers/1/resend-webhook".into(),
    ] {
        world.admin(&route).await.refused(500, "internal server error");
    }
}

#[tokio::test]
async fn spec_4_2_open_deposits_as_in_2_4() {
    let world = World::with(Config { wallets: Vec::new(), ..config() }, false).await;
    let deposit = |number: i64, blockchain, stablecoin, state| Deposit {
        deposit_id: DepositId(number),
        order_id: order(u128::from(number.unsigned_abs())).order_id,
        started_at: UnixSeconds(NOW + number),
        blockchain,
        stablecoin,
        state,
        ..example::deposit()
    };
    use DepositState::{Closed, Open};
    let changes = [
        deposit(1, Blockchain::Eth, Stablecoin::Usdt, Open),
        deposit(2, Blockchain::Eth, Stablecoin::Dai, Open),
        deposit(3, Blockchain::Polygon, Stablecoin::Usdc, Open),
        deposit(4, Blockchain::Eth, Stablecoin::Usdt, Closed),
    ];
    world.apply(changes.clone().map(Change::Deposit)).await;
    for (query, expected) in [
        ("", &[3, 2, 1][..]),
        ("blockchain=eth", &[2, 1]),
        ("token=USDC", &[3]),
        ("limit=1&offset=1", &[2]),
    ] {
        assert_eq!(world.list(&format!("/deposits?{query}"), "id").await, expected, "{query}");
    }
    let route = format!("GET /deposits?order_id={}", changes[0].order_id);
    let expected = |last_scanned_at: i64| {
        json!([{
            "id": 1,
            "order_id": changes[0].order_id,
            "blockchain": "eth",
            "token": "USDT",
            "user_address": null,
            "wallet_address": "0x1111111111111111111111111111111111111111",
            "value": "10.50",
            "started_at": NOW + 1,
            "last_scanned_at": last_scanned_at,
        }])
    };
    let answer = world.admin(&route).await;
    assert_eq!(answer.json(), expected(NOW + 1), "before the first scan");
    let updated_at = UnixMicros((NOW + 99) * 1_000_000);
    let scan = ChainProgress { updated_at, ..example::chain_progress() };
    world.apply([Change::Chain(scan)]).await;
    assert_eq!(world.admin(&route).await.json(), expected(NOW + 99));
}

#[tokio::test]
async fn spec_4_2_wallets_as_configured() {
    let world = World::alone().await;
    let answer = world.admin("GET /wallets").await.json();
    assert_eq!(answer.as_array().unwrap().len(), config().wallets.len());
    let first = json!({
        "blockchain": "eth",
        "address": wallet(0xab).to_string(),
        "enabled_coins": ["USDT", "DAI"],
    });
    assert_eq!(answer[0], first);
    assert_eq!(answer[3]["blockchain"], "tron");
    assert!(answer[3]["address"].as_str().unwrap().starts_with('T'));
}

#[tokio::test]
async fn spec_4_2_transfers_of_a_wallet_as_in_2_5() {
    let world = World::alone().await;
    let mut polygon = Transfer { blockchain: Blockchain::Polygon, ..transfer(2) };
    polygon.observation.stablecoin = Stablecoin::Dai;
    polygon.status = TransferStatus::FailedToConfirm;
    (polygon.fulfillment_id, polygon.blockchain_confirmed) = (None, false);
    let eth = Transfer { orphaned_at: Some(UnixSeconds(NOW + 7)), ..transfer(1) };
    world.apply([Change::Transfer(eth), Change::Transfer(polygon)]).await;
    let address = wallet(0xab).to_string();
    for written in [address.clone(), address.to_lowercase(), address.to_uppercase()] {
        let path = format!("/wallets/{written}/transfers");
        assert_eq!(world.list(&path, "id").await, [2, 1], "{written}");
    }
    for (query, expected) in [
        ("status=matched", &[1][..]),
        ("status=failed_to_confirm", &[2]),
        ("status=waiting_for_match", &[]),
        ("blockchain=polygon", &[2]),
        ("token=DAI", &[2]),
        ("token=USDC", &[]),
        ("limit=1&offset=1", &[1]),
    ] {
        let path = format!("{}?{query}", transfers());
        assert_eq!(world.list(&path, "id").await, expected, "{query}");
    }
    let expected = json!({
        "id": 1,
        "blockchain": "eth",
        "token": "USDT",
        "from_address": "0x2222222222222222222222222222222222222222",
        "to_address": address,
        "txn_hash": format!("0x{}", "bb".repeat(32)),
        "value": "10.50",
        "block_number": 21_000_000,
        "block_timestamp": example::transfer().block.timestamp,
        "blockchain_confirmed": true,
        "created_at": NOW + 1,
        "status": "matched",
        "fulfillment_id": 9,
        // Fields that the interface does not list.
        "order_id": example::transfer().order_id,
        "reason": null,
        "candidate_order_id": null,
        "orphaned_at": NOW + 7,
    });
    let answer = world.admin(&format!("GET {}", transfers())).await.json();
    assert_eq!(answer[1], expected);
    assert_eq!(fields(&answer[0]), fields(&expected));
    assert_eq!(answer[0]["fulfillment_id"], Value::Null);
    assert_eq!(answer[0]["status"], "failed_to_confirm");
    assert_eq!(answer[0]["blockchain_confirmed"], false);

    let candidate_order_id = example::transfer().order_id;
    let unknown = Transfer {
        status: TransferStatus::NoMatchedDeposit,
        order_id: None,
        reason: Some(UnknownReason::SenderMismatch),
        candidate_order_id,
        ..transfer(3)
    };
    world.apply([Change::Transfer(unknown)]).await;
    let answer = world.admin(&format!("GET {}", transfers())).await.json();
    assert_eq!(answer[0]["reason"], "sender_mismatch");
    assert_eq!(answer[0]["candidate_order_id"], json!(candidate_order_id));
}

#[tokio::test]
async fn spec_2_1_every_chain_and_coin_by_its_word() {
    let blockchains = ["eth", "polygon", "base", "arb", "op", "linea", "avaxc", "tron"];
    // The issuer has no contract there; contracts of bridges must be configured.
    let mut nowhere = vec![("base", "USDT"), ("linea", "USDT"), ("tron", "USDC")];
    nowhere.extend(blockchains[1..].iter().map(|chain| (*chain, "DAI")));
    let mut config = config();
    config.wallets.clear();
    for blockchain in blockchains.map(|word| word.parse::<Blockchain>().unwrap()) {
        let address = Address::new(blockchain.address_family(), [7; 20]);
        let stablecoins = Stablecoin::ALL.to_vec();
        config.wallets.push(Wallet { blockchain, address, stablecoins, retired: false });
    }
    let world = World::with(config, true).await;
    assert_eq!(world.list("/wallets", "blockchain").await, blockchains);
    let pairs = blockchains.iter().flat_map(|chain| ["USDT", "USDC", "DAI"].map(|c| (*chain, c)));
    for (number, (chain, coin)) in (1..).zip(pairs) {
        let body = new_order_with(&[("blockchain", chain), ("stablecoin", coin)]);
        let answer = world.service("/orders", &body).await;
        if nowhere.contains(&(chain, coin)) {
            answer.refused(400, &format!("stablecoin: {coin} is not available on {chain}"));
            continue;
        }
        assert_eq!(answer.status, 201, "{}", answer.body);
        let (blockchain, stablecoin) = (chain.parse().unwrap(), coin.parse().unwrap());
        let deposit_id = DepositId(number);
        let deposit = Deposit { deposit_id, blockchain, stablecoin, ..example::deposit() };
        world.apply([Change::Deposit(deposit)]).await;
        let path = format!("/deposits?blockchain={chain}&token={coin}");
        assert_eq!(world.list(&path, "id").await, [number], "{path}");
        assert_eq!(world.list(&path, "blockchain").await, [chain]);
        assert_eq!(world.list(&path, "token").await, [coin]);
    }
}

#[tokio::test]
async fn spec_4_2_resend_sends_an_unknown_transfer_once() {
    let world = World::alone().await;
    for (status, number) in TransferStatus::ALL.iter().zip(1..) {
        let sent = Transfer { status: *status, ..transfer(number) };
        world.apply([Change::Transfer(sent)]).await;
        let answer = world.admin(&format!("POST /transfers/{number}/resend-webhook")).await;
        if *status != TransferStatus::NoMatchedDeposit {
            let text = format!("transfer is {status}: there is no unknown-transfer event to send");
            answer.refused(409, &text);
            continue;
        }
        assert_eq!((answer.status, answer.json()), (200, json!({})));
        let [delivery] = world.deliveries().try_into().unwrap();
        assert_eq!((delivery.attempt, delivery.manual), (1, true));
        assert_eq!(delivery.kind, DeliveryKind::UnknownTransfer);
        assert_eq!((delivery.order_id, delivery.transfer_id), (None, Some(TransferId(number))));
        assert_eq!(delivery.url, UNKNOWN_URL);
        let event = format!("{number}.unknown.");
        assert!(delivery.event_id.starts_with(&event), "{}", delivery.event_id);
        let body: Value = serde_json::from_str(&delivery.body).unwrap();
        let expected = json!({
            "event_type": "unknown_transfer",
            "transfer_id": number,
            "blockchain": "eth",
            "timestamp": NOW,
        });
        assert_eq!(body, expected);
    }
    assert_eq!(world.deliveries().len(), 1);
}

#[tokio::test]
async fn without_a_url_unknown_transfers_cannot_be_resent() {
    let mut config = config();
    config.merchant.unknown_transfer_webhook_url = None;
    let world = World::with(config, false).await;
    let unknown = Transfer { status: TransferStatus::NoMatchedDeposit, ..transfer(1) };
    world.apply([Change::Transfer(unknown)]).await;
    let answer = world.admin("POST /transfers/1/resend-webhook").await;
    answer.refused(409, "merchant.unknown_transfer_webhook_url is not configured");
}

#[tokio::test]
async fn health_shows_an_operator_how_chains_are_followed() {
    let world = World::alone().await;
    let (kind, chain) = (AlertKind::ChainHalted, Some(Blockchain::Eth));
    let halt = Alert::raise(kind, chain, &"", "no fork is known".into(), UnixMicros(7));
    world.write(Topic::Alerts, schemas::Partition(0), &halt).await;
    let detail = world.readiness.detail();
    let endpoints =
        json!([{ "endpoint": "https://rpc.test", "in_use": true, "errors": { "rate": 2 } }]);
    detail.set(
        json!({ "blockchain": "polygon", "scanned": 7, "lag_blocks": 1, "endpoints": endpoints }),
    );
    let answer = world.admin("GET /health?verbose=1").await.json();
    assert_eq!((&answer["status"], &answer["version"]), (&json!("ok"), &json!("1.2.3")));
    let of = |chain: &str| {
        let chains = answer["chains"].as_array().unwrap();
        chains.iter().find(|one| one["blockchain"] == chain).unwrap().clone()
    };
    let (eth, polygon, tron) = (of("eth"), of("polygon"), of("tron"));
    assert_eq!((&eth["halted"], &eth["endpoints"]), (&json!("no fork is known"), &Value::Null));
    let scanned = example::chain_progress().head.number;
    assert_eq!((&eth["scanned"], &eth["lag_seconds"]), (&json!(scanned), &json!(0)));
    assert_eq!((&polygon["scanned"], &polygon["lag_blocks"]), (&json!(7), &json!(1)));
    assert_eq!(polygon["endpoints"], endpoints);
    assert_eq!(tron["halted"], Value::Null);
    let over = halt.resolve("it is scanned again".into(), UnixMicros(8));
    world.write(Topic::Alerts, schemas::Partition(0), &over).await;
    let answer = world.admin("GET /health?verbose=1").await.json();
    assert_eq!(answer["chains"][0]["halted"], Value::Null);
}
