//! The built executable against a real EVM node, over HTTP alone: as one process on the embedded back
//! ends, and as nine on Kafka and CQL. The scenarios are the same.

use std::cell::Cell;
use std::collections::BTreeMap;

use reqwest::{Method, StatusCode};
use serde_json::json;
use testkit::harness::{
    Anvil, BUYER, Chain, Client, Cluster, Merchant, Received, Tidemark, eventually, now, payable,
};

const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";
const CONFIRMATIONS: u64 = 4;
/// The default of `matching.match_window`.
const MATCH_WINDOW_SECONDS: u64 = 600;
/// The default of `orders.ttl`.
const ORDER_TTL_SECONDS: u64 = 1800;

/// The chain, the merchant and the client of a running service.
struct World {
    anvil: Anvil,
    merchant: Merchant,
    client: Client,
    /// Number of webhooks of the scenarios that ended.
    webhooks: Cell<usize>,
}

/// External parts of an installation: the chain's node and settings, the merchant, a folder.
async fn surroundings() -> (Anvil, Merchant, Chain, tempfile::TempDir) {
    let (anvil, merchant) = (Anvil::start().await, Merchant::start().await);
    let chain = Chain::at("eth", anvil.url(), WALLET, &format!("confirmations = {CONFIRMATIONS}"));
    (anvil, merchant, chain, tempfile::tempdir().unwrap())
}

/// Timestamp of an event by its webhook, in Unix seconds.
fn emitted_at(webhook: &Received) -> i64 {
    let timestamp = webhook.event["timestamp"].as_i64().unwrap();
    assert!((0..600).contains(&(now() - timestamp)), "{webhook:?}");
    timestamp
}

/// One scenario on one process.
async fn on_embedded(scenario: impl AsyncFnOnce(&World)) {
    on_embedded_with("", scenario).await;
}

/// The same with more configuration.
async fn on_embedded_with(more: &str, scenario: impl AsyncFnOnce(&World)) {
    let (anvil, merchant, chain, dir) = surroundings().await;
    let tidemark = Tidemark::start(dir.path(), &[chain], merchant.url(), more).await;
    let client = tidemark.client();
    let world = World { anvil, merchant, client, webhooks: Cell::default() };
    scenario(&world).await;
    assert!(tidemark.stop().await.success());
    world.assert_no_other_webhook();
}

impl World {
    /// Ends a scenario with this many webhooks: the webhook of a further order shows that no other was in flight.
    async fn end(&self, webhooks: usize) {
        let before = self.webhooks.get();
        let last = self.unpriced_order(&format!("last-{before}")).await;
        self.client.user(Method::POST, &last, "cancel", None).await;
        self.assert_notified_once(&last, "cancelled").await;
        self.webhooks.set(before + webhooks + 1);
        self.assert_no_other_webhook();
    }

    fn assert_no_other_webhook(&self) {
        let received = self.merchant.received();
        assert_eq!(received.len(), self.webhooks.get(), "{received:?}");
    }

    /// An order whose customer chooses how to pay.
    async fn unpriced_order(&self, reference: &str) -> String {
        self.client.unpriced_order(reference, "5", self.merchant.url()).await
    }

    async fn order(&self, reference: &str, amount: &str) -> String {
        let order = self.client.create(reference, amount, "eth", self.merchant.url()).await;
        assert_eq!(order["status"], "pending");
        assert_eq!(order["amount"], amount, "echoed as sent");
        order["order_id"].as_str().unwrap().to_owned()
    }

    /// Checks the number of webhooks of a paid order, also in the Admin API.
    async fn assert_delivered(&self, order: &str, reference: &str, times: usize) {
        let shown = eventually("the count of deliveries", || async {
            let path = format!("/orders?merchant_order_id={reference}");
            let shown = self.client.admin(&path).await.ok()?[0].clone();
            (shown["webhook_retry_count"] == times).then_some(shown)
        })
        .await;
        let (first, last) = (&shown["webhook_success_at"], &shown["webhook_last_tried_at"]);
        assert!(first.is_i64() && first.as_i64() <= last.as_i64(), "{shown}");
        let received = self.merchant.with("order_id", &json!(order));
        assert_eq!(received.len(), times, "{received:?}");
        assert!(received.iter().all(|webhook| webhook.event["status"] == "paid"));
    }

    /// Checks the only webhook of an order: its status and its fields.
    async fn assert_notified_once(&self, order: &str, status: &str) -> Received {
        let shown = self.client.order_with_status(order, status).await;
        let received = self.merchant.awaited("order_id", &json!(order)).await;
        let [webhook] = &received[..] else { panic!("{received:?}") };
        assert!(webhook.is_signed());
        let mut event = shown;
        event.as_object_mut().unwrap().remove("created_at");
        event["event_type"] = json!("order_status_changed");
        event["timestamp"] = json!(emitted_at(webhook));
        assert_eq!(webhook.event, event);
        webhook.clone()
    }
}

async fn a_payment_becomes_a_webhook(world: &World) {
    let order = world.order("A-1", "12.50").await;
    let deposit = world.client.deposit(&order).await;
    assert_eq!(deposit["value"], "12.50");

    let tx = world.anvil.transfer(&[(WALLET, 12_500_000)]).await;
    world.anvil.mine(1).await;
    let seen = world.client.transfer_with_status(WALLET, &tx, "waiting_for_confirmation").await;
    assert_eq!(seen["blockchain_confirmed"], false);
    // One block short of confirmation. Another transfer in the last block shows that the block was scanned.
    world.anvil.mine(CONFIRMATIONS - 3).await;
    let dust = world.anvil.transfer(&[(WALLET, 1)]).await;
    world.anvil.mine(1).await;
    world.client.transfer_with_status(WALLET, &dust, "waiting_for_confirmation").await;
    let still = world.client.transfer_with_status(WALLET, &tx, "waiting_for_confirmation").await;
    assert_eq!(still["id"], seen["id"]);
    world.anvil.mine(1).await;
    world.client.order_with_status(&order, "paid").await;
    let webhook = world.assert_notified_once(&order, "paid").await;
    let body = json!({
        "event_type": "order_status_changed", "order_id": order, "merchant_order_id": "A-1",
        "status": "paid", "amount": "12.50", "timestamp": emitted_at(&webhook),
    });
    assert_eq!(webhook.event, body);
    let paid = world.client.transfer_with_status(WALLET, &tx, "matched").await;
    assert_eq!(paid["id"], seen["id"]);
    assert!(paid["fulfillment_id"].is_i64());
    assert_eq!(paid["value"], "12.50");
    // The other transfer gets no deposit in its match window.
    world.anvil.call("evm_increaseTime", json!([MATCH_WINDOW_SECONDS + 60])).await;
    world.anvil.mine(CONFIRMATIONS).await;
    let dust = world.client.transfer_with_status(WALLET, &dust, "no_matched_deposit").await;
    world.merchant.awaited("transfer_id", &dust["id"]).await;
    world.end(2).await;
}

async fn a_reorganised_payment_pays_once(world: &World) {
    let order = world.order("R-1", "30.00").await;
    world.client.deposit(&order).await;
    let tx = world.anvil.transfer(&[(WALLET, 30_000_000)]).await;
    world.anvil.mine(2).await;
    let seen = world.client.transfer_with_status(WALLET, &tx, "waiting_for_confirmation").await;
    // anvil replaces the two blocks; the transaction is in the second new one.
    let raw = world.anvil.call("eth_getRawTransactionByHash", json!([tx])).await;
    world.anvil.call("anvil_reorg", json!([2, [[raw, 1]]])).await;
    world.anvil.mine(1).await;
    let moved = eventually("the transfer to move", || async {
        let path = format!("/wallets/{WALLET}/transfers");
        let list = world.client.admin(&path).await.ok()?;
        let moved = list.as_array()?.iter().find(|t| t["txn_hash"] == tx)?.clone();
        (moved["block_number"] != seen["block_number"]).then_some(moved)
    })
    .await;
    assert_eq!(moved["id"], seen["id"], "the same payment keeps its id");
    world.anvil.mine(CONFIRMATIONS).await;
    world.client.order_with_status(&order, "paid").await;
    world.assert_notified_once(&order, "paid").await;
    world.client.transfer_with_status(WALLET, &tx, "matched").await;
    let list = world.client.admin(&format!("/wallets/{WALLET}/transfers")).await.unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    world.end(1).await;
}

async fn a_batch_payout_pays_two_orders(world: &World) {
    let first = world.order("B-1", "10.00").await;
    // Orders of different partitions reach the lane in any order: wait until this one has.
    let one = world.client.deposit(&first).await;
    let second = world.order("B-2", "10.00").await;
    let two = world.client.deposit(&second).await;
    assert_eq!(one["value"], "10.00");
    let digits = two["value"].as_str().unwrap().strip_prefix("10.00").unwrap();
    assert_eq!(digits.len(), 4, "the second order gets its own payable amount: {two}");
    let units = 10_000_000 + digits.parse::<u64>().unwrap();
    world.anvil.transfer(&[(WALLET, units.into()), (WALLET, 10_000_000)]).await;
    world.anvil.mine(CONFIRMATIONS).await;
    for order in [&first, &second] {
        world.client.order_with_status(order, "paid").await;
        world.assert_notified_once(order, "paid").await;
    }
    // A second payment of a paid order is unknown at once: the amount is still reserved.
    let tx = world.anvil.transfer(&[(WALLET, 10_000_000)]).await;
    world.anvil.mine(CONFIRMATIONS).await;
    let unknown = world.client.transfer_with_status(WALLET, &tx, "no_matched_deposit").await;
    let webhook = world.merchant.awaited("transfer_id", &unknown["id"]).await.remove(0);
    let body = json!({
        "event_type": "unknown_transfer", "transfer_id": unknown["id"], "blockchain": "eth",
        "timestamp": emitted_at(&webhook),
    });
    assert_eq!(webhook.event, body);
    assert!(webhook.is_signed());
    // An operator resends the webhook.
    let path = format!("/transfers/{}/resend-webhook", unknown["id"]);
    assert_eq!(world.client.admin_post(&path).await.0, StatusCode::OK);
    eventually("the resent webhook", || async {
        (world.merchant.with("transfer_id", &unknown["id"]).len() == 2).then_some(())
    })
    .await;
    // An operator also resends an order's webhook; each delivery is counted (spec 2.3).
    world.assert_delivered(&first, "B-1", 1).await;
    let path = format!("/orders/{first}/resend-webhook");
    assert_eq!(world.client.admin_post(&path).await.0, StatusCode::OK);
    world.assert_delivered(&first, "B-1", 2).await;
    world.end(5).await;
}

async fn customers_cancel_operators_mark_paid(world: &World) {
    let order = world.unpriced_order("C-1").await;
    let id = order.as_str();
    let choice = json!({ "blockchain": "eth", "stablecoin": "USDT" });
    let (status, first) =
        world.client.user(Method::POST, id, "payment", Some(choice.clone())).await;
    assert_eq!(status, StatusCode::CREATED, "{first}");
    let (_, again) = world.client.user(Method::POST, id, "payment", Some(choice)).await;
    assert_eq!(first, again, "chosen twice, the same choice gives the same deposit");
    let (status, text) = world.client.user(Method::POST, id, "cancel", None).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    world.assert_notified_once(id, "cancelled").await;
    let (status, text) = world.client.user(Method::POST, id, "cancel", None).await;
    assert_eq!((status, text.as_str()), (StatusCode::CONFLICT, "order is not pending"));
    let (status, text) = world.client.admin_post(&format!("/orders/{id}/mark-paid")).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    world.client.order_with_status(id, "paid").await;
    let statuses = eventually("the second webhook", || async {
        let received = world.merchant.with("order_id", &json!(id));
        (received.len() > 1)
            .then(|| received.into_iter().map(|webhook| webhook.event["status"].clone()))
    })
    .await;
    assert_eq!(statuses.collect::<Vec<_>>(), ["cancelled", "paid"]);
    // Another order expires.
    let late = world.order("C-2", "6.00").await;
    world.client.deposit(&late).await;
    world.anvil.call("evm_increaseTime", json!([ORDER_TTL_SECONDS + 60])).await;
    world.anvil.mine(CONFIRMATIONS).await;
    // Blocks are confirmed once they are a few seconds old.
    world.anvil.call("evm_increaseTime", json!([60])).await;
    world.anvil.mine(1).await;
    world.assert_notified_once(&late, "expired").await;
    world.end(3).await;
}

async fn what_the_merchant_fixed_is_kept(world: &World) {
    let create = |reference: &str, sender: &str| {
        let mut body = payable(reference, "8.00", "eth", world.merchant.url());
        body["expecting_wallet_address"] = json!(sender);
        let client = world.client.clone();
        async move { client.try_order(&body).await.unwrap().unwrap() }
    };
    let stranger = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
    let theirs = create("S-1", stranger).await;
    let deposit = world.client.deposit(&theirs).await;
    assert_eq!(deposit["user_address"], stranger);
    assert_eq!(deposit["blockchain"], "eth");
    assert_eq!(deposit["token"], "USDT");
    // The customer cannot change the merchant's choice.
    let other = json!({ "blockchain": "polygon", "stablecoin": "USDT" });
    let (status, _) = world.client.user(Method::POST, &theirs, "payment", Some(other)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    // The amount from another sender is unknown once no deposit for that sender can open.
    let tx = world.anvil.transfer(&[(WALLET, 8_000_000)]).await;
    world.anvil.mine(CONFIRMATIONS).await;
    world.anvil.call("evm_increaseTime", json!([MATCH_WINDOW_SECONDS + 60])).await;
    world.anvil.mine(1).await;
    world.client.transfer_with_status(WALLET, &tx, "no_matched_deposit").await;
    world.client.order_with_status(&theirs, "pending").await;
    // The same amount from the expected sender pays.
    let ours = create("S-2", BUYER).await;
    let value = world.client.deposit(&ours).await["value"].clone();
    assert_eq!(value, "8.00", "orders that name their senders share an amount");
    world.anvil.transfer(&[(WALLET, 8_000_000)]).await;
    world.anvil.mine(CONFIRMATIONS).await;
    world.client.order_with_status(&ours, "paid").await;
    world.assert_notified_once(&ours, "paid").await;
    let (status, text) = world.client.user(Method::POST, &theirs, "cancel", None).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    world.assert_notified_once(&theirs, "cancelled").await;
    // Three webhooks: of both orders, and of the other sender's transfer.
    world.end(3).await;
}

/// A flood of dust at the wallet: the shop lists each, and gets no webhook.
async fn dust_is_recorded_and_not_announced(world: &World) {
    const COUNT: usize = 1_000;
    let dust = vec![(WALLET, 9_999); COUNT / 4];
    for _ in 0..4 {
        world.anvil.transfer(&dust).await;
    }
    let more = world.anvil.transfer(&[(WALLET, 10_000)]).await;
    world.anvil.mine(CONFIRMATIONS).await;
    world.anvil.call("evm_increaseTime", json!([MATCH_WINDOW_SECONDS + 60])).await;
    world.anvil.mine(1).await;
    let shown = eventually("every transfer to be unknown", || async {
        // By id, because rows added while reading move others to the next page.
        let mut all = BTreeMap::new();
        for offset in (0..=COUNT).step_by(200) {
            let page = "status=no_matched_deposit&limit=200";
            let path = format!("/wallets/{WALLET}/transfers?{page}&offset={offset}");
            let list = world.client.admin(&path).await.ok()?;
            all.extend(list.as_array()?.iter().map(|row| (row["id"].as_i64(), row.clone())));
        }
        (all.len() == COUNT + 1).then_some(all)
    })
    .await;
    assert!(shown.values().all(|transfer| transfer["reason"] == "no_deposit"));
    let more = shown.values().find(|transfer| transfer["txn_hash"] == more).unwrap();
    world.merchant.awaited("transfer_id", &more["id"]).await;
    world.end(1).await;
}

mod embedded {
    use super::{on_embedded, on_embedded_with};

    #[tokio::test(flavor = "multi_thread")]
    async fn dust_is_recorded_and_not_announced() {
        let more = "[webhooks.dust_threshold]\nUSDT = \"0.01\"\n";
        on_embedded_with(more, super::dust_is_recorded_and_not_announced).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_payment_becomes_a_webhook() {
        on_embedded(super::a_payment_becomes_a_webhook).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_reorganised_payment_pays_once() {
        on_embedded(super::a_reorganised_payment_pays_once).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_batch_payout_pays_two_orders() {
        on_embedded(super::a_batch_payout_pays_two_orders).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn customers_cancel_operators_mark_paid() {
        on_embedded(super::customers_cancel_operators_mark_paid).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_the_merchant_fixed_is_kept() {
        on_embedded(super::what_the_merchant_fixed_is_kept).await;
    }
}

mod distributed {
    use super::*;

    /// In sequence on one cluster. The first scenario counts all transfers on the chain; the last one advances the
    /// clock past an order's lifetime.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_scenario_on_one_cluster() {
        let (anvil, merchant, chain, dir) = surroundings().await;
        let cluster = Cluster::start(dir.path(), &[chain], merchant.url(), "").await;
        let client = cluster.client();
        let world = World { anvil, merchant, client, webhooks: Cell::default() };
        a_reorganised_payment_pays_once(&world).await;
        a_batch_payout_pays_two_orders(&world).await;
        what_the_merchant_fixed_is_kept(&world).await;
        a_payment_becomes_a_webhook(&world).await;
        customers_cancel_operators_mark_paid(&world).await;
        cluster.stop().await;
        world.assert_no_other_webhook();
    }
}
