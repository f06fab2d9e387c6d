//! Orders that the processor has forgotten, and that only the tables still have.

use std::time::{Duration, Instant};

use schemas::record::{Order, OrderCommandBody, example};
use schemas::{OrderCause, Topic};
use serde_json::json;
use store::Change;

use crate::operators::{attach, underpaid};
use crate::world::{World, new_order, new_order_with};

/// Longer than the processor keeps an ended order without a deposit.
const EIGHT_DAYS: u64 = 8 * 24 * 3600;

impl World {
    /// Advances time until the processor has forgotten the order. A head advances chain time too,
    /// because the processor's timers run only a limited time ahead of the chains.
    async fn forget(&self, id: &str) {
        let mut tail = self.log.tail(&[Topic::OrdersChangelog]).unwrap();
        self.advance(EIGHT_DAYS);
        self.chain(example::chain_head().body).await;
        let is_tombstone = |record: &std::sync::Arc<log::Record>| {
            record.key == id.as_bytes() && record.value.is_none()
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !tail.poll(Duration::from_millis(20)).unwrap().iter().any(is_tombstone) {
            assert!(Instant::now() < deadline, "{id} was not forgotten");
        }
    }
}

#[tokio::test]
async fn an_operator_reaches_an_order_that_was_forgotten() {
    let world = World::start().await;
    let created = world.create_once("k", &new_order()).await.json();
    let id = created["order_id"].as_str().unwrap();
    world.cancel(id).await;
    for (what, status) in [("resend-webhook", "cancelled"), ("mark-paid", "paid")] {
        world.forget(id).await;
        world.admin(&format!("POST /orders/{id}/{what}")).await.with_status(200);
        assert_eq!(world.row(id).await.unwrap().status.as_str(), status);
    }
    world.forget(id).await;
    // Only the tables have the order: the api answers from them, as for any order that has ended.
    let again = world.create_once("k", &new_order()).await;
    assert_eq!((again.status, again.json()), (201, created.clone()));
    let other = world.create_once("k", &new_order_with(&[("amount", "11.00")])).await;
    other.refused(409, "Idempotency-Key was used with another body");
    world.cancel(id).await.refused(409, "order is not pending");
    world.pay(id, "eth", "USDT").await.refused(409, "order is not pending");

    let orders = world.records::<Order>(Topic::Orders);
    let found: Vec<_> = orders.iter().map(|order| (order.version, order.cause)).collect();
    use OrderCause as Cause;
    let expected = [
        (1, Cause::Created),
        (2, Cause::Cancelled),
        (3, Cause::WebhookResent),
        (4, Cause::MarkedPaid),
    ];
    assert_eq!(found, expected);
    let commands = world.commands();
    let is_create = |body: &OrderCommandBody| matches!(body, OrderCommandBody::Create(_));
    assert_eq!(commands.iter().filter(|command| is_create(&command.body)).count(), 1);
}

#[tokio::test]
async fn a_forgotten_order_is_attached_to() {
    let (world, id) = World::start().await.with_order().await;
    world.cancel(&id).await;
    world.forget(&id).await;
    let sent = underpaid(&world);
    let transfer = sent.transfer_id;
    world.apply([Change::Transfer(sent)]).await;
    let answer = attach(&world, transfer, json!({ "order_id": id, "accept_less": true })).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["paid_by"], json!(transfer.0));
    assert_eq!(world.row(&id).await.unwrap().status.as_str(), "paid");
}
