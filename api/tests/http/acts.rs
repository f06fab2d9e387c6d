//! Console functions beyond the Admin API's lists: alerts, dead letters, webhooks, files.

use log::{NewRecord, TopicPartition};
use runtime::Clock as _;
use schemas::record::{
    Alert, Attempt, AuditEntry, DeadLetter, Delivery, OrderCommand, OrderCommandBody, example,
};
use schemas::{
    AlertKind, AlertState, AttemptOutcome, AuditAction, Blockchain, DeliveryKind, Headers, OrderId,
    Partition, Topic, TransferId,
};
use store::Change;

use crate::console::{Browser, HOSTILE, unknown, world};
use crate::operators::{OPERATOR, READER, underpaid, with_operators};
use crate::world::{World, new_order};

const FIRST: Partition = Partition(0);

/// A world without a processor: the log stays as it is.
async fn idle_world() -> World {
    World::apart(with_operators(), false).await
}

fn alert(world: &World, kind: AlertKind, message: &str) -> Alert {
    Alert::raise(kind, Some(Blockchain::Eth), &"x", message.to_owned(), world.clock.now())
}

fn has_markup(page: &str) -> bool {
    page.contains("<script>") || page.contains("<img")
}

#[tokio::test]
async fn an_alert_is_resolved_and_that_is_on_record() {
    let world = world().await;
    let late = alert(&world, AlertKind::LateFind, HOSTILE);
    let halted = alert(&world, AlertKind::ChainHalted, "no endpoint answers");
    for alert in [&late, &halted] {
        world.write(Topic::Alerts, FIRST, alert).await;
    }
    let [reader, operator] = Browser::both(&world).await;
    let asks = "/console/alerts/resolve?alert_id=late_find%2Feth%2Fx";
    let [read, operated] =
        [reader.page("/console/alerts").await, operator.page("/console/alerts").await];
    assert!(!read.contains("Resolve…") && operated.contains(asks), "{operated}");
    let page = operator.page(asks).await;
    assert!(page.contains("late_find/eth/x") && !page.contains("ends by itself"), "{page}");
    let condition = operator.page("/console/alerts/resolve?alert_id=chain_halted%2Feth%2Fx").await;
    assert!(condition.contains("ends by itself"), "{condition}");
    assert!([&operated, &page].iter().all(|page| !has_markup(page)));
    let fields = [("alert_id", "late_find/eth/x"), ("reason", "refunded <b>")];
    for (wrong, status) in [
        (&[("alert_id", "late_find/eth/y")][..], 404),
        (&[], 404),
        (&[fields[0], ("reason", &"x".repeat(501))], 400),
        (&[fields[0], ("reason", "a\u{7}b")], 400),
    ] {
        assert_eq!(operator.post("/console/alerts/resolve", wrong).await.status, status);
    }
    assert_eq!(world.records::<AuditEntry>(Topic::Audit), []);
    let done = operator.post("/console/alerts/resolve", &fields).await;
    assert_eq!((done.status, done.header("location")), (303, "/console/alerts?done=resolve"));
    let page = operator.page("/console/alerts?done=resolve").await;
    assert!(page.contains("The alert is resolved.") && !page.contains(asks), "{page}");
    assert!(page.contains("resolved by night-shift: refunded &lt;b&gt;"), "{page}");
    let alerts = world.records::<Alert>(Topic::Alerts);
    let last = alerts.last().unwrap();
    assert_eq!((&last.alert_id, last.state), (&late.alert_id, AlertState::Resolved));
    // The alert is not open any more.
    assert_eq!(operator.post("/console/alerts/resolve", &fields).await.status, 404);
    assert_eq!(operator.get(asks).await.status, 404);
    assert_eq!(world.records::<Alert>(Topic::Alerts).len(), alerts.len());
    let entries = world.records::<AuditEntry>(Topic::Audit);
    assert_eq!(entries.len(), 1);
    let AuditEntry { operator, action, subject, .. } = &entries[0];
    assert_eq!((&**operator, *action), ("night-shift", AuditAction::ResolveAlert));
    assert_eq!(subject.as_deref(), Some("late_find/eth/x"));
}

/// The newest `OPEN_MAX` alerts are listed.
#[tokio::test]
async fn a_page_lists_a_hundred_open_alerts() {
    let world = idle_world().await;
    let browser = Browser::of(&world, OPERATOR).await;
    let late = |number: i64| Alert {
        alert_id: format!("late_find/eth/{number}"),
        raised_at: world.clock.now().seconds().plus(number).micros(),
        ..alert(&world, AlertKind::LateFind, "late")
    };
    for number in 0..100 {
        world.write(Topic::Alerts, FIRST, &late(number)).await;
    }
    let page = browser.page("/console/alerts").await;
    assert_eq!((page.matches("Resolve…").count(), page.contains("older ones")), (100, false));
    world.write(Topic::Alerts, FIRST, &late(100)).await;
    let page = browser.page("/console/alerts").await;
    assert!(page.contains("1 older ones are open"), "{page}");
    assert_eq!(page.matches("Resolve…").count(), 100);
    assert!(!page.contains("alert_id=late_find%2Feth%2F0\""), "the oldest: {page}");
}

/// A letter about an order command. With `is_there` the log has the command itself.
async fn letter(world: &World, body: OrderCommandBody, is_there: bool) -> DeadLetter {
    let command = OrderCommand { issued_at: world.clock.now(), body, ..example::order_command() };
    let to = TopicPartition { topic: Topic::OrdersCommands, partition: FIRST };
    let (key, value) = (b"key".to_vec(), schemas::encode(&command).unwrap());
    let offset = world.log.bounds(to).unwrap().end.0;
    if is_there {
        let (key, value) = (key.clone(), Some(value.clone()));
        let record = NewRecord { to, key, value, headers: Headers::default() };
        world.log.produce(vec![record]).await.unwrap();
    }
    DeadLetter {
        topic: to.topic.name().to_owned(),
        partition: 0,
        offset,
        group: "processor.orders".to_owned(),
        reason: HOSTILE.to_owned(),
        key,
        value,
        failed_at: world.clock.now(),
    }
}

#[tokio::test]
async fn a_made_up_letter_is_shown_and_not_put_back() {
    let world = idle_world().await;
    let good = letter(&world, OrderCommandBody::Cancel, true).await;
    let forged = letter(&world, OrderCommandBody::MarkPaid(None), false).await;
    let other = DeadLetter { offset: good.offset, ..forged.clone() };
    let gone = letter(&world, OrderCommandBody::Cancel, false).await;
    let negative = DeadLetter { offset: -1, ..gone.clone() };
    let raw = DeadLetter { reason: HOSTILE.to_owned(), ..example::dead_letter() };
    let webhook = DeadLetter {
        topic: Topic::WebhooksDispatch.name().to_owned(),
        value: schemas::encode(&dead(Some(OrderId(uuid::Uuid::nil())), None, "a.example")).unwrap(),
        ..gone.clone()
    };
    for letter in [&forged, &other, &gone, &negative, &raw, &webhook] {
        world.write(Topic::DeadLetters, FIRST, letter).await;
    }
    let browser = Browser::of(&world, OPERATOR).await;
    // Every stage may write letters, so the original record must be on the log.
    for (number, text) in [
        (0, "not believed on a letter"),
        (1, "the record there is another one"),
        (2, "--without-original 2"),
        (3, "--without-original 3"),
        (4, "tidemark rescan"),
        (5, "resend it with the Admin API"),
    ] {
        let path = format!("/console/dead-letters/{number}");
        let page = browser.page(&path).await;
        assert!(page.contains(text) && !page.contains("Put it back…"), "{number}: {page}");
        assert!(!has_markup(&page) && !page.contains("secret-path"), "{number}: {page}");
        let path = format!("{path}/replay");
        assert_eq!(browser.get(&path).await.status, 409, "{number}");
        assert_eq!(browser.post(&path, &[]).await.status, 409, "{number}");
    }
    for number in ["6", "-1", "x", "9223372036854775807"] {
        let path = format!("/console/dead-letters/{number}");
        assert_eq!(browser.get(&path).await.status, 404, "{number}");
        assert_eq!(browser.post(&format!("{path}/replay"), &[]).await.status, 404, "{number}");
    }
    assert_eq!((world.commands().len(), world.records::<AuditEntry>(Topic::Audit)), (1, vec![]));
}

#[tokio::test]
async fn a_dead_letter_is_put_back_and_that_is_on_record() {
    let world = idle_world().await;
    let good = letter(&world, OrderCommandBody::Cancel, true).await;
    world.write(Topic::DeadLetters, FIRST, &good).await;
    world.write(Topic::Alerts, FIRST, &alert(&world, AlertKind::DeadLetter, "1 letter")).await;
    let [reader, operator] = Browser::both(&world).await;
    let list = operator.page("/console/dead-letters").await;
    assert!(list.contains("orders.commands/0@0") && list.contains("Resolve…"), "{list}");
    assert!(list.contains("tidemark dead-letters skip"), "{list}");
    let of = "/console/dead-letters/0";
    let [read, operated] = [reader.page(of).await, operator.page(of).await];
    assert!(!read.contains("Put it back…") && operated.contains("/dead-letters/0/replay"));
    assert!(operated.contains("&quot;kind&quot;: &quot;cancel&quot;"), "{operated}");
    assert!([&list, &read, &operated].iter().all(|page| !has_markup(page)));

    let path = "/console/dead-letters/0/replay";
    let asks = operator.page(path).await;
    assert!(asks.contains("Put the record back?") && !asks.contains("put back before"), "{asks}");
    // Nothing is done if the audit entry cannot be written.
    world.faults.audit_writes.set(true);
    assert_eq!(operator.post(path, &[]).await.status, 500);
    world.faults.audit_writes.set(false);
    assert_eq!(world.commands().len(), 1);
    let done = operator.post(path, &[]).await;
    let to = "/console/dead-letters/0?done=replay";
    assert_eq!((done.status, done.header("location")), (303, to), "{}", done.body);
    assert!(operator.page(to).await.contains("The record was put back."));
    let commands = world.commands();
    assert_eq!((commands.len(), &commands[0]), (2, &commands[1]), "as it was");
    // A second replay is harmless, because readers of the topic tolerate duplicates. The page mentions the first one.
    assert!(operator.page(path).await.contains("It was put back before, by"));
    assert_eq!(operator.post(path, &[]).await.status, 303);
    let entries = world.records::<AuditEntry>(Topic::Audit);
    let entries: Vec<_> = entries
        .iter()
        .map(|of| (&*of.operator, of.action, of.subject.as_deref(), of.order_id))
        .collect();
    let entry = (
        "night-shift",
        AuditAction::ReplayDeadLetter,
        Some("orders.commands/0@0"),
        Some(commands[0].order_id),
    );
    assert_eq!(entries, [entry, entry]);
}

/// The limit is `CONTENT_BYTES_MAX`; the text has characters of two bytes.
#[tokio::test]
async fn a_long_record_is_cut_off_on_its_page() {
    let world = idle_world().await;
    let value = schemas::encode(&Alert {
        message: "é".repeat(30_000),
        ..alert(&world, AlertKind::LateFind, "")
    });
    let letter = DeadLetter {
        topic: Topic::Alerts.name().to_owned(),
        value: value.unwrap(),
        ..example::dead_letter()
    };
    world.write(Topic::DeadLetters, FIRST, &letter).await;
    let page = Browser::of(&world, READER).await.page("/console/dead-letters/0").await;
    let shown = page.matches('é').count();
    assert!((9_000..=10_000).contains(&shown), "{shown}");
}

/// Writes a webhook to a topic of webhooks.
async fn write(world: &World, topic: Topic, delivery: &Delivery) {
    let (key, layout) = (delivery.key(), world.log.layout());
    let record = NewRecord::encode(topic, layout.webhook(&key), key, delivery).unwrap();
    world.log.produce(vec![record]).await.unwrap();
}

/// A webhook that was given up now.
pub(crate) async fn give_up(world: &World, delivery: Delivery) {
    write(world, Topic::WebhooksDead, &delivery).await;
}

pub(crate) fn dead(order: Option<OrderId>, transfer: Option<TransferId>, host: &str) -> Delivery {
    Delivery {
        order_id: order,
        transfer_id: transfer,
        kind: transfer.map_or(DeliveryKind::OrderStatusChanged, |_| DeliveryKind::UnknownTransfer),
        url: format!("https://{host}/hooks/secret-path"),
        ..example::delivery()
    }
}

#[tokio::test]
async fn given_up_webhooks_are_sent_again_once() {
    let world = world().await;
    let (_, sent) = unknown(&world).await;
    let operator = Browser::of(&world, OPERATOR).await;
    let mut orders = Vec::new();
    for _ in 0..3 {
        let id = world.create(&new_order()).await;
        operator.post(&format!("/console/orders/{id}/mark-paid"), &[]).await.with_status(303);
        orders.push(id.parse::<OrderId>().unwrap());
    }
    world.advance(60);
    for (order, host) in
        [(orders[0], "a.example"), (orders[1], "a.example"), (orders[2], "b.example")]
    {
        give_up(&world, dead(Some(order), None, host)).await;
    }
    give_up(&world, dead(None, Some(sent.transfer_id), "a.example")).await;
    let delivered = Attempt {
        order_id: Some(orders[1]),
        outcome: AttemptOutcome::Delivered,
        attempted_at: world.clock.now(),
        ..example::attempt()
    };
    world.apply([Change::Attempt(delivered)]).await;
    let of_audit = || world.records::<AuditEntry>(Topic::Audit).split_off(3);
    let list = operator.page("/console/deliveries?host=a.example&outcome=&kind=").await;
    assert!(list.contains("a.example") && !list.contains("b.example"), "{list}");
    assert!(!list.contains("secret-path"), "{list}");
    let path = "/console/deliveries/redrive";
    assert!(list.contains(&format!("{path}?host=a.example")), "{list}");
    let reader = Browser::of(&world, READER).await;
    assert!(!reader.page("/console/deliveries").await.contains(path));
    let filter = [("host", "a.example"), ("outcome", "status"), ("kind", "")];
    let asks = operator.page(&format!("{path}?host=a.example&outcome=status")).await;
    let (first, transfer) = (orders[0].to_string(), format!("transfer {}", sent.transfer_id));
    assert!(asks.contains(&first) && asks.contains(&transfer), "{asks}");
    assert!(!asks.contains(&orders[1].to_string()), "it was delivered since: {asks}");
    assert!(!asks.contains(&orders[2].to_string()), "of another host: {asks}");
    let command = "tidemark webhook dead redrive --host a.example --outcome status";
    assert!(asks.contains(command), "{asks}");
    assert_eq!((world.deliveries().len(), of_audit().len()), (0, 0), "to ask does nothing");

    let done = operator.post(path, &filter).await;
    assert!(done.body.contains("2 of 2 webhooks are on their way."), "{}", done.body);
    let actions = |entries: &[AuditEntry]| entries.iter().map(|of| of.action).collect::<Vec<_>>();
    use AuditAction::{ResendOrder, ResendTransfer};
    let mut asked = actions(&of_audit());
    asked.sort_unstable();
    assert_eq!(asked, [ResendOrder, ResendTransfer]);
    assert!(of_audit().iter().all(|entry| entry.operator == "night-shift"));
    assert_eq!(world.deliveries().len(), 1, "of the transfer; that of an order is the processor's");
    // A second redrive skips what the first has resent.
    let again = operator.post(path, &filter).await;
    assert!(again.body.contains("2 more were asked for already"), "{}", again.body);
    assert_eq!(of_audit().len(), 2);
    assert!(operator.page(&format!("{path}?host=a.example")).await.contains("Nothing to send"));
    // Given up once more, it is sent once more.
    world.advance(60);
    give_up(&world, dead(None, Some(sent.transfer_id), "a.example")).await;
    let more = operator.post(path, &filter).await;
    assert!(more.body.contains("1 of 1 webhooks are on their way."), "{}", more.body);
    assert_eq!(world.deliveries().len(), 2);
    // A refusal concerns one webhook, not the others.
    give_up(&world, dead(Some(OrderId(uuid::Uuid::nil())), None, "c.example")).await;
    let gone = operator.post(path, &[]).await;
    assert!(gone.body.contains("not sent: resource not found"), "{}", gone.body);
    assert!(gone.body.contains("1 of 2 webhooks are on their way."), "{}", gone.body);
    for wrong in ["outcome=x", "kind=x", "before=x", "host=a&host=b"] {
        let page = operator.get(&format!("/console/deliveries?{wrong}")).await;
        assert_eq!(page.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_redrive_names_how_many_it_considered() {
    let world = idle_world().await;
    let operator = Browser::of(&world, OPERATOR).await;
    let given_up = async |number| {
        let order = OrderId(uuid::Uuid::from_u128(number));
        give_up(&world, dead(Some(order), None, "a.example")).await;
    };
    for number in 1..=200 {
        given_up(number).await;
    }
    let path = "/console/deliveries/redrive";
    let all = operator.page(path).await;
    assert!(all.contains("100 more are for the next time."), "{all}");
    assert!(!all.contains("are considered"), "{all}");
    given_up(201).await;
    let newest = operator.page(path).await;
    let text = "Only the newest 200 of 201 that were given up are considered.";
    assert!(newest.contains(text), "{newest}");
}

#[tokio::test]
async fn a_webhook_is_shown_with_body_and_answers() {
    let world = idle_world().await;
    let order = example::order().order_id;
    let event = format!("{order}.2");
    let delivery = Delivery {
        url: "https://user:pw@shop.example/hooks/secret-path?key=secret-query".to_owned(),
        body: format!("{{\"a\":\"{HOSTILE}\"}}"),
        ..dead(Some(order), None, "shop.example")
    };
    let other =
        Delivery { event_id: format!("{order}.3"), body: "other".to_owned(), ..delivery.clone() };
    write(&world, Topic::WebhooksDispatch, &other).await;
    write(&world, Topic::WebhooksDispatch, &delivery).await;
    let attempt = |number: i64, outcome| Attempt {
        event_id: event.clone(),
        attempt: i32::try_from(number).unwrap(),
        attempted_at: world.clock.now().seconds().plus(number).micros(),
        outcome,
        answer: format!("answer {number} {HOSTILE}"),
        ..example::attempt()
    };
    let attempts = [attempt(1, AttemptOutcome::Status), attempt(2, AttemptOutcome::Timeout)];
    world.apply(attempts.map(Change::Attempt)).await;
    let browser = Browser::of(&world, READER).await;
    let path = format!("/console/delivery?order={order}&event={event}");
    let page = browser.page(&path).await;
    for text in [
        "https://shop.example/…",
        "{&quot;a&quot;:&quot;&lt;/td&gt;",
        "answer 1",
        "answer 2",
        "on its way",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    for text in ["secret-path", "secret-query", "pw@", "other", "Resend"] {
        assert!(!page.contains(text), "{text}: {page}");
    }
    assert!(!has_markup(&page), "{page}");
    // The page says that the webhook was given up, and that it was delivered.
    write(&world, Topic::WebhooksDead, &delivery).await;
    assert!(browser.page(&path).await.contains("badge bad\">given up"));
    world.apply([Change::Attempt(attempt(3, AttemptOutcome::Delivered))]).await;
    assert!(browser.page(&path).await.contains("badge good\">delivered"));
    let list = browser.page("/console/deliveries").await;
    assert!(list.contains(&path.replace('&', "&amp;")), "{list}");
    // An event whose record has expired.
    let gone = Attempt { event_id: format!("{order}.1"), ..attempt(1, AttemptOutcome::Delivered) };
    world.apply([Change::Attempt(gone)]).await;
    let page = browser.page(&format!("/console/delivery?order={order}&event={order}.1")).await;
    assert!(page.contains("It was not found in the log"), "{page}");
    let operator = Browser::of(&world, OPERATOR).await;
    assert!(operator.page(&path).await.contains("Resend the webhook…"));
    for wrong in ["", "?order=x&event=y", &format!("?order={order}"), "?transfer=7&event=7.unknown"]
    {
        assert_eq!(browser.get(&format!("/console/delivery{wrong}")).await.status, 404, "{wrong}");
    }
    // A webhook may be in the record that cannot be read.
    let (key, layout) = (delivery.key(), world.log.layout());
    let topic = Topic::WebhooksDispatch;
    let record = NewRecord::encode(topic, layout.webhook(&key), key, &delivery).unwrap();
    let garbage = NewRecord { value: Some(vec![0]), ..record };
    world.log.produce(vec![garbage]).await.unwrap();
    let page = browser.page(&format!("/console/delivery?order={order}&event={order}.9")).await;
    assert!(page.contains("Not complete: 1 records") && page.contains(">unknown<"), "{page}");
}

/// The search period is `BEFORE_SECONDS`.
#[tokio::test]
async fn a_deferred_webhook_is_found_a_day_later() {
    let world = idle_world().await;
    let mut shown = Vec::new();
    for seconds in [25 * 3600 - 60, 25 * 3600 + 60] {
        let order = OrderId(uuid::Uuid::from_u128(seconds.into()));
        let event_id = format!("{order}.2");
        let delivery = Delivery { event_id, ..dead(Some(order), None, "shop.example") };
        write(&world, Topic::WebhooksDispatch, &delivery).await;
        world.advance(seconds);
        let attempt = Attempt {
            order_id: Some(order),
            event_id: delivery.event_id.clone(),
            attempted_at: world.clock.now(),
            ..example::attempt()
        };
        world.apply([Change::Attempt(attempt)]).await;
        let path = format!("/console/delivery?order={order}&event={}", delivery.event_id);
        let page = Browser::of(&world, READER).await.page(&path).await;
        shown.push(page.contains("It was not found in the log"));
    }
    assert_eq!(shown, [false, true]);
}

#[tokio::test]
async fn lists_of_records_are_files() {
    let world = idle_world().await;
    let formula = "=cmd|'/c calc'!A0";
    for number in 0..1200 {
        let alert = Alert { message: format!("{formula} {number}"), ..example::alert() };
        world.write(Topic::Alerts, FIRST, &alert).await;
    }
    let garbage = NewRecord {
        value: Some(vec![0]),
        ..NewRecord::encode(Topic::Alerts, FIRST, "", &example::alert()).unwrap()
    };
    world.log.produce(vec![garbage]).await.unwrap();
    world.write(Topic::Audit, FIRST, &example::audit_entry()).await;
    world.write(Topic::DeadLetters, FIRST, &example::dead_letter()).await;
    for host in ["a.example", "b.example"] {
        give_up(&world, dead(Some(example::order().order_id), None, host)).await;
    }
    world.apply([Change::Transfer(underpaid(&world))]).await;
    let browser = Browser::of(&world, READER).await;
    let file = async |name: &str| {
        let answer = browser.get(&format!("/console/export/{name}")).await;
        let stem = name.split('?').next().unwrap();
        assert_eq!(answer.status, 200, "{name}: {}", answer.body);
        let disposition = format!("attachment; filename=\"{stem}.csv\"");
        assert_eq!(answer.header("content-disposition"), disposition);
        answer.body.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let alerts = file("alerts").await;
    assert_eq!(alerts.len(), 1202, "with the line of the names");
    assert!(alerts[1].contains("\"'=cmd"), "no formula: {}", alerts[1]);
    assert!(alerts[1201].starts_with("1200,"), "what cannot be read is not left out");
    assert!(file("audit").await[1].contains("\"support\",\"198.51.100.9\",\"mark_paid\""));
    assert!(file("dead-letters").await[1].contains("\"transfers.raw\",2,77"));
    let deliveries = file("deliveries?host=b.example").await;
    assert!(deliveries.len() == 2 && deliveries[1].contains("\"b.example\""), "{deliveries:?}");
    assert!(!deliveries[1].contains("secret-path"), "{deliveries:?}");
    assert_eq!(file("deliveries").await.len(), 3);
    assert_eq!(file("transfers?status=no_matched_deposit&format=csv").await.len(), 2);
    assert_eq!(file("transfers?status=matched&format=csv").await.len(), 1);
    for (page, link) in [
        ("alerts", "export/alerts"),
        ("audit", "export/audit"),
        ("dead-letters", "export/dead-letters"),
        ("deliveries", "export/deliveries"),
        ("transfers", "export/transfers"),
        ("unknown", "export/transfers?status=no_matched_deposit"),
    ] {
        let page = browser.page(&format!("/console/{page}")).await;
        assert!(page.contains(&format!("/console/{link}")), "{link}: {page}");
    }
}
