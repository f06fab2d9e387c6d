//! Secrets with names and scopes, and commands of operators that the interface does not define.

use schemas::record::{
    Alert, AuditEntry, DepositCommand, DepositCommandBody, Observation, Order, OrderCommandBody,
    StopScope, Transfer, example,
};
use schemas::{
    AlertState, Amount, AuditAction, Blockchain, OrderCause, OrderStatus, Partition, Secret,
    Stablecoin, Topic, TransferId, TransferStatus, UnixMicros, UnixSeconds, UnknownReason,
};
use serde_json::{Value, json};
use store::Change;
use testkit::eventually;
use tidemark_api::{AdminSecret, Config, Scope};

use crate::admin::routes;
use crate::world::{
    ADMIN_SECRET, Answer, NOW, UNKNOWN_ORDER, World, config, new_order, new_order_with, transfer,
    wallet,
};

pub(crate) const READER: &str = "secret-of-the-books";
pub(crate) const OPERATOR: &str = "secret-of-the-night-shift";

pub(crate) fn with_operators() -> Config {
    let of = |name: &str, scope, secret| AdminSecret {
        name: name.to_owned(),
        scope,
        secret: Secret::new(secret),
    };
    let operators =
        vec![of("books", Scope::Read, READER), of("night-shift", Scope::Operate, OPERATOR)];
    Config { operators, ..config() }
}

async fn by(world: &World, secret: &str, route: &str) -> Answer {
    let request = world.request(&route.replacen(' ', " /api/v1/admin", 1));
    let request = request.header("X-Forwarded-For", "192.0.2.1, 198.51.100.9");
    Answer::to(request.header("Service-Admin-Authorization", secret)).await
}

#[tokio::test]
async fn a_secret_may_do_what_its_scope_says() {
    let (world, id) = World::with(with_operators(), true).await.with_order().await;
    for secret in [ADMIN_SECRET, READER, OPERATOR] {
        for route in [
            "GET /orders".to_owned(),
            format!("GET /orders/{id}"),
            format!("GET /orders/{id}/webhooks"),
            "GET /deposits".to_owned(),
            "GET /wallets".to_owned(),
            "GET /health?verbose=1".to_owned(),
        ] {
            assert_eq!(by(&world, secret, &route).await.status, 200, "{route}");
        }
    }
    let before = world.commands().len();
    for route in routes().iter().filter(|route| route.starts_with("POST ")) {
        for route in [route.clone(), route.replace(UNKNOWN_ORDER, &id)] {
            by(&world, READER, &route).await.refused(403, "this secret may only read");
        }
    }
    assert_eq!(world.commands().len(), before, "a refused command is no command");
    let paid = by(&world, OPERATOR, &format!("POST /orders/{id}/mark-paid")).await;
    assert_eq!((paid.status, &paid.json()["status"]), (200, &json!("paid")));
    for secret in ["secret-of-the-book", "secret-of-the-books2", "books", ""] {
        by(&world, secret, "GET /orders").await.refused(401, "invalid admin secret");
    }
}

#[tokio::test]
async fn an_operator_cancels_what_waits_and_nothing_else() {
    let world = World::start().await;
    let (waiting, seen, paid) = (
        world.create(&new_order()).await,
        world.create(&new_order()).await,
        world.create(&new_order()).await,
    );
    let cancel = |id: &str| format!("POST /orders/{id}/cancel");
    let answer = world.admin(&cancel(&waiting)).await;
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("cancelled")));
    let listed = world.admin(&format!("GET /orders/{waiting}")).await;
    assert_eq!(listed.json(), answer.json(), "the operator reads their own write");
    world.admin(&cancel(&waiting)).await.refused(409, "order is not pending");

    world.command(&seen, OrderCommandBody::CandidateSeen { transfer_id: TransferId(7) }).await;
    let refusal = "a payment for this order was already seen";
    world.admin(&cancel(&seen)).await.refused(409, refusal);
    assert_eq!(world.admin(&format!("POST /orders/{paid}/mark-paid")).await.status, 200);
    world.admin(&cancel(&paid)).await.refused(409, "order is not pending");

    let orders = world.records::<Order>(Topic::Orders);
    let cancelled: Vec<_> =
        orders.iter().filter(|order| order.status == OrderStatus::Cancelled).collect();
    let [order] = cancelled[..] else { panic!("{cancelled:?}") };
    assert!(order.status_changed && order.cause == OrderCause::Cancelled, "a webhook follows");
    assert_eq!(order.order_id.to_string(), waiting);
}

/// Every action has an audit entry; and a request refused at once changes nothing.
#[tokio::test]
async fn what_operators_do_is_on_record() {
    let world = World::with(with_operators(), true).await;
    let (waiting, other) = (world.create(&new_order()).await, world.create(&new_order()).await);
    let unknown = Transfer { status: TransferStatus::NoMatchedDeposit, ..transfer(7) };
    world.apply([Change::Transfer(unknown)]).await;
    let routes = [
        (OPERATOR, format!("POST /orders/{waiting}/cancel")),
        (ADMIN_SECRET, format!("POST /orders/{other}/mark-paid")),
        (OPERATOR, format!("POST /orders/{other}/resend-webhook")),
        (OPERATOR, "POST /transfers/7/resend-webhook".to_owned()),
    ];
    let before = world.commands().len();
    world.faults.audit_writes.set(true);
    for (secret, route) in &routes {
        by(&world, secret, route).await.refused(500, "internal server error");
    }
    world.faults.audit_writes.set(false);
    by(&world, READER, &routes[0].1).await.refused(403, "this secret may only read");
    let nobodys = format!("POST /orders/{UNKNOWN_ORDER}/mark-paid");
    by(&world, OPERATOR, &nobodys).await.refused(404, "resource not found");
    assert_eq!((world.commands().len(), world.deliveries().len()), (before, 0));
    assert_eq!(world.records::<AuditEntry>(Topic::Audit), []);

    for (secret, route) in &routes {
        assert_eq!(by(&world, secret, route).await.status, 200, "{route}");
    }
    let commands = world.commands();
    use OrderCommandBody::{Cancel, MarkPaid as Paid, ResendWebhook};
    let asked = |is_it: fn(&OrderCommandBody) -> bool| {
        let found = commands.iter().find(|command| is_it(&command.body)).unwrap();
        assert!(found.command_id.is_some());
        found.command_id
    };
    let (waiting, other) = (waiting.parse().unwrap(), other.parse().unwrap());
    let entry = |operator: &str, action, order_id, transfer_id, command_id| AuditEntry {
        operator: operator.to_owned(),
        client: Some("198.51.100.9".to_owned()),
        action,
        order_id,
        transfer_id,
        command_id,
        subject: None,
        requested_at: runtime::Clock::now(&*world.clock),
    };
    use AuditAction::{CancelOrder, MarkPaid, ResendOrder, ResendTransfer};
    let resent = asked(|of| matches!(of, ResendWebhook(_)));
    let expected = [
        entry("night-shift", CancelOrder, Some(waiting), None, asked(|of| matches!(of, Cancel))),
        entry("admin", MarkPaid, Some(other), None, asked(|of| matches!(of, Paid(_)))),
        entry("night-shift", ResendOrder, Some(other), None, resent),
        entry("night-shift", ResendTransfer, None, Some(TransferId(7)), None),
    ];
    assert_eq!(world.records::<AuditEntry>(Topic::Audit), expected);
}

/// Unknown transfer of 9.00 that its lane has forgotten, at a wallet of the shop.
pub(crate) fn underpaid(world: &World) -> Transfer {
    let observation = Observation {
        value: Amount::parse("9.00").unwrap(),
        to_address: wallet(0xab),
        ..example::transfer().observation
    };
    let lane = world.log.layout().lane(Blockchain::Eth, &observation.to_address);
    Transfer {
        transfer_id: TransferId::from_parts(lane, 7),
        blockchain: Blockchain::Eth,
        status: TransferStatus::NoMatchedDeposit,
        fulfillment_id: None,
        order_id: None,
        deposit_id: None,
        reason: Some(UnknownReason::AmountMismatch),
        value_text: observation.value.to_string(),
        observation,
        ..example::transfer()
    }
}

/// A command of an operator with a body.
pub(crate) async fn post(world: &World, secret: &str, path: &str, body: Value) -> Answer {
    let request = world.request(&format!("POST {path}"));
    let request = request.header("Service-Admin-Authorization", secret);
    Answer::to(request.body(body.to_string())).await
}

async fn stop(world: &World, path: &str, body: Value) -> Answer {
    post(world, OPERATOR, &format!("/api/v1/admin/{path}"), body).await
}

/// The audit entry is on the log before the alert is resolved.
#[tokio::test]
async fn an_open_alert_is_resolved() {
    let world = World::with(with_operators(), false).await;
    let raised = example::alert();
    let body = json!({ "alert_id": raised.alert_id, "reason": "refunded" });
    stop(&world, "alerts/resolve", body.clone()).await.refused(404, "resource not found");
    world.write(Topic::Alerts, Partition(0), &raised).await;
    for (body, problem) in [
        (json!({}), "alert_id: is missing"),
        (
            json!({ "alert_id": raised.alert_id, "reason": "a\nb" }),
            "reason: must not have control characters",
        ),
    ] {
        stop(&world, "alerts/resolve", body).await.refused(400, problem);
    }
    world.faults.audit_writes.set(true);
    stop(&world, "alerts/resolve", body.clone()).await.refused(500, "internal server error");
    world.faults.audit_writes.set(false);
    assert_eq!(world.records::<Alert>(Topic::Alerts).len(), 1);
    assert_eq!(stop(&world, "alerts/resolve", body.clone()).await.status, 200);
    let alerts = world.records::<Alert>(Topic::Alerts);
    let [_, end] = alerts.as_slice() else { panic!("{alerts:?}") };
    assert_eq!((end.state, &end.alert_id), (AlertState::Resolved, &raised.alert_id));
    assert!(end.message.ends_with(": refunded"), "{}", end.message);
    let audit = world.records::<AuditEntry>(Topic::Audit);
    assert_eq!(audit.last().unwrap().action, AuditAction::ResolveAlert);
    stop(&world, "alerts/resolve", body).await.refused(404, "resource not found");
}

/// Each lane of each chain in the stop's scope gets the command, after the audit entry.
#[tokio::test]
async fn payments_are_stopped_and_resumed() {
    let world = World::with(with_operators(), false).await;
    let commands = || world.records::<DepositCommand>(Topic::DepositsCommands);
    let (own, nobodys) = (wallet(0xab).to_string(), wallet(0x77).to_string());
    let none = "subject: is no wallet, no coin, no contract and no chain";
    let chain = "blockchain: \"bsc\" is not one of eth, polygon, base, arb, op, linea, avaxc, tron";
    for (body, problem) in [
        (json!({}), "subject: is missing"),
        (json!({ "subject": "usdc" }), none),
        (json!({ "subject": nobodys }), "subject: is not watched on any chain"),
        (json!({ "subject": own, "blockchain": "linea" }), "subject: is not watched on linea"),
        (json!({ "subject": "op", "blockchain": "eth" }), "subject: is another chain"),
        (json!({ "subject": "USDC", "blockchain": "bsc" }), chain),
    ] {
        stop(&world, "stops", body).await.refused(400, problem);
    }
    world.faults.audit_writes.set(true);
    let polygon = json!({ "subject": "USDC", "blockchain": "polygon" });
    stop(&world, "stops", polygon.clone()).await.refused(500, "internal server error");
    world.faults.audit_writes.set(false);
    assert_eq!(commands(), []);

    assert_eq!(stop(&world, "stops", polygon.clone()).await.status, 200);
    // A stop of an address reads the tables, to check that it is watched. A stop of a coin does not.
    world.faults.store_reads.set(true);
    assert_eq!(stop(&world, "stops", polygon.clone()).await.status, 200);
    world.faults.store_reads.set(false);
    let watched = json!({ "subject": own });
    assert_eq!(stop(&world, "stops", watched).await.status, 200);
    assert_eq!(stop(&world, "stops/end", polygon).await.status, 200);
    let blockchain = Some(Blockchain::Polygon);
    let usdc = StopScope { blockchain, stablecoin: Some(Stablecoin::Usdc), address: None };
    let at_wallet = StopScope { blockchain: None, stablecoin: None, address: Some(wallet(0xab)) };
    let (first, last) = (DepositCommandBody::Stop(usdc), DepositCommandBody::Resume(usdc));
    let sent = commands();
    let of = |body: DepositCommandBody| {
        let found = sent.iter().filter(move |command| command.body == body);
        found.map(|command| command.blockchain).collect::<Vec<_>>()
    };
    assert_eq!((of(first), of(last)), (vec![Blockchain::Polygon; 2], vec![Blockchain::Polygon]));
    let evm = Blockchain::ALL.iter().copied().filter(|chain| *chain != Blockchain::Tron);
    assert_eq!(of(DepositCommandBody::Stop(at_wallet)), evm.collect::<Vec<_>>());
    let entries: Vec<_> = world
        .records::<AuditEntry>(Topic::Audit)
        .into_iter()
        .map(|entry| (entry.operator, entry.action, entry.subject.unwrap()))
        .collect();
    let entry = |action, subject: &str| ("night-shift".to_owned(), action, subject.to_owned());
    let expected = [
        entry(AuditAction::Stop, "USDC on polygon"),
        entry(AuditAction::Stop, "USDC on polygon"),
        entry(AuditAction::Stop, &own),
        entry(AuditAction::Resume, "USDC on polygon"),
    ];
    assert_eq!(entries, expected);
}

pub(crate) async fn attach(world: &World, id: TransferId, body: Value) -> Answer {
    post(world, ADMIN_SECRET, &format!("/api/v1/admin/transfers/{id}/attach"), body).await
}

#[tokio::test]
async fn unknown_transfer_is_attached_to_an_order() {
    let world = World::start().await;
    let (order, other) = (world.create(&new_order()).await, world.create(&new_order()).await);
    let sent = underpaid(&world);
    let id = sent.transfer_id;
    world.apply([Change::Transfer(sent)]).await;
    let whole = json!({ "order_id": order });
    attach(&world, id, whole.clone()).await.refused(
        409,
        "transfer brings less than the order's amount: with \"accept_less\": true it pays the order in full",
    );
    let less = json!({ "order_id": order, "accept_less": true });
    let answer = attach(&world, id, less.clone()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let paid = answer.json();
    assert_eq!((&paid["status"], &paid["paid_by"]), (&json!("paid"), &json!(id.0)));
    assert_eq!(paid["paid_value"], json!("9.00"));
    let listed = world.admin(&format!("GET /orders/{order}")).await;
    assert_eq!(listed.json(), paid, "the operator reads their own write");

    let matched = || async {
        let matched = world.records::<Transfer>(Topic::TransfersMatched);
        matched.first().cloned()
    };
    let matched = eventually("the transfer is matched", matched).await;
    assert_eq!((matched.transfer_id, matched.status), (id, TransferStatus::Matched));
    assert_eq!(matched.order_id.map(|of| of.to_string()), Some(order.clone()));
    let orders = world.records::<Order>(Topic::Orders);
    let ends: Vec<_> = orders.iter().filter(|order| order.status_changed).collect();
    let [end] = ends[..] else { panic!("{ends:?}") };
    assert_eq!((end.cause, end.order_id.to_string()), (OrderCause::Attached, order.clone()));

    // A client that lost the answer repeats the request; it pays no second order, though the tables are behind.
    assert_eq!(attach(&world, id, less).await.status, 200);
    let elsewhere = json!({ "order_id": other, "accept_less": true });
    let changed = "the transfer or the order has changed meanwhile, read both again";
    attach(&world, id, elsewhere.clone()).await.refused(409, changed);
    world.apply([Change::Transfer(matched)]).await;
    let refusal = "only a transfer that is no_matched_deposit can be attached";
    attach(&world, id, elsewhere).await.refused(409, refusal);
    assert_eq!(world.records::<Transfer>(Topic::TransfersMatched).len(), 1);

    let audit = world.records::<AuditEntry>(Topic::Audit);
    let asked = |entry: &AuditEntry| {
        let order = entry.order_id.map(|id| id.to_string());
        (entry.action, order, entry.transfer_id, entry.command_id.is_some())
    };
    let entry = |order: &str| (AuditAction::AttachTransfer, Some(order.to_owned()), Some(id), true);
    let asked: Vec<_> = audit.iter().map(asked).collect();
    assert_eq!(asked, [entry(&order), entry(&order), entry(&other)]);
}

#[tokio::test]
async fn what_cannot_be_attached_is_refused() {
    let (world, order) = World::start().await.with_order().await;
    let sent = underpaid(&world);
    let id = sent.transfer_id;
    let body = json!({ "order_id": order, "accept_less": true });
    attach(&world, id, body.clone()).await.refused(404, "resource not found");
    world.apply([Change::Transfer(sent.clone())]).await;
    for (body, problem) in [
        (json!({}), "order_id: is missing"),
        (json!({ "order_id": 7 }), "order_id: must be a string"),
        (json!({ "order_id": order, "accept_less": 1 }), "accept_less: must be true or false"),
    ] {
        attach(&world, id, body).await.refused(400, problem);
    }
    let nobodys = json!({ "order_id": UNKNOWN_ORDER });
    attach(&world, id, nobodys).await.refused(404, "resource not found");
    // The other reasons have their texts in `machine/attach.rs`.
    let (orphaned_at, updated_at) = (Some(UnixSeconds(NOW)), sent.updated_at.next(sent.updated_at));
    world.apply([Change::Transfer(Transfer { orphaned_at, updated_at, ..sent })]).await;
    attach(&world, id, body).await.refused(409, "transfer is no longer in the chain");
    assert_eq!(world.records::<AuditEntry>(Topic::Audit), []);
}

#[tokio::test]
async fn a_transfer_that_pays_nothing_has_candidates() {
    let (world, near) = World::start().await.with_order().await;
    let far = world.create(&new_order_with(&[("amount", "15")])).await;
    let unpaid = world.create(&new_order()).await;
    for id in [&near, &far] {
        assert_eq!(world.pay(id, "eth", "DAI").await.status, 201);
    }
    let asked = world.row(&near).await.unwrap().deposits.remove(0);
    let value = asked.value.unwrap();
    let cent = 10_u128.pow(16);
    let sent = Transfer {
        status: TransferStatus::NoMatchedDeposit,
        created_at: UnixSeconds(NOW),
        observation: Observation {
            value: Amount::from_parts(value.parts() - cent).unwrap(),
            to_address: asked.wallet_address,
            stablecoin: asked.stablecoin,
            ..example::transfer().observation
        },
        ..example::transfer()
    };
    let route = "GET /transfers/7/candidates";
    world.apply([Change::Transfer(sent.clone())]).await;
    let found = world.admin(route).await.json();
    let ids: Vec<_> = found.as_array().unwrap().iter().map(|one| &one["order_id"]).collect();
    assert_eq!(ids, [&json!(near), &json!(far)], "and not {unpaid}, whose customer has no wallet");
    assert_eq!(found[0]["difference"], json!("-0.01"));
    assert_eq!(found[0]["value"], json!(value.to_string()));

    let updated_at = UnixMicros(sent.updated_at.0 + 1);
    let named = Some(far.parse().unwrap());
    let reason = Some(UnknownReason::Late);
    let sent = Transfer { candidate_order_id: named, reason, updated_at, ..sent };
    world.apply([Change::Transfer(sent.clone())]).await;
    assert_eq!(world.admin(route).await.json()[0]["order_id"], json!(far));
    let (status, updated_at) = (TransferStatus::Matched, UnixMicros(sent.updated_at.0 + 1));
    world.apply([Change::Transfer(Transfer { status, updated_at, ..sent })]).await;
    assert_eq!(world.admin(route).await.json(), json!([]));
}

/// The same key signs both: a relay that sees a webhook may not send it back as a request of the merchant.
#[tokio::test]
async fn a_webhook_is_no_request() {
    let (world, id) = World::start().await.with_order().await;
    let refusal = "signature verification failed";
    for path in ["/orders", "/orders/status", "/orders/list", "/orders/changes"] {
        for body in [
            json!({ "event_type": "order_status_changed", "order_id": id, "status": "paid" }),
            json!({ "event_type": "unknown_transfer", "transfer_id": 7, "timestamp": NOW }),
            json!({ "event_type": 7, "order_id": id }),
        ] {
            world.service(path, &body).await.refused(401, refusal);
        }
    }
    let mut named = new_order_with(&[("note", "\"event_type\":1")]);
    named["nested"] = json!({ "event_type": 1 });
    assert_eq!(world.service("/orders", &named).await.status, 201);
}
