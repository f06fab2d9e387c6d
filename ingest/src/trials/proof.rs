//! Proofs of a payment, denials of it, and answers that say nothing.

use std::collections::HashSet;

use schemas::record::{ChainBody, ChainRecord};
use schemas::{AlertKind, Topic};
use serde_json::json;
use testkit::faults::Behaviour;

use super::world::{World, only};
use crate::rehearsal::customer::forged;

/// A payment that the only endpoint leaves out of one form of answer.
async fn paid_without(seed: u64, leaves_out: impl FnOnce(HashSet<String>) -> Behaviour) {
    let mut world = World::open(seed, 1).await;
    let deposit = world.order(0, 20).await;
    let sent = world.pay(&deposit);
    *world.behaviour(0) = leaves_out(only(&sent));
    world.paid(&[&deposit]).await;
    world.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_ranges_omit_is_paid() {
    paid_without(10, |sent| Behaviour { ranges_omit: sent, ..Behaviour::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_hashes_omit_is_paid() {
    paid_without(11, |sent| Behaviour { hashes_omit: sent, ..Behaviour::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_endpoint_without_a_receipt_is_paid() {
    paid_without(12, |sent| Behaviour { lacks_receipts: sent, ..Behaviour::default() }).await;
}

/// The second endpoint leaves the log out, and neither has a receipt.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_receipt_takes_nothing_back() {
    let mut world = World::open(13, 2).await;
    let deposit = world.order(0, 20).await;
    let sent = world.pay(&deposit);
    let lacking = Behaviour { lacks_receipts: only(&sent), ..Behaviour::default() };
    *world.behaviour(1) = Behaviour { omits: only(&sent), ..lacking.clone() };
    *world.behaviour(0) = lacking;
    world.asked(600, World::mine).await;
    let records = world.records::<ChainRecord>(Topic::TransfersRaw);
    let is_retract = |record: &&ChainRecord| matches!(record.body, ChainBody::Retract(_));
    assert_eq!(records.iter().find(is_retract), None, "{}", world.shown());
    world.heal(0);
    world.heal(1);
    world.paid(&[&deposit]).await;
    world.ends_well().await;
}

/// One endpoint has a payment and its receipt, the other one denies both.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_dispute_holds_no_other_order() {
    const OTHERS: usize = 100;
    let mut world = World::open(14, 2).await;
    let held = world.order(0, 500).await;
    world.mine();
    let invented = forged(world.chain.head(), &held, 0);
    world.behaviour(0).invents = vec![(invented, true)];
    let mut others = Vec::new();
    for number in 0..OTHERS {
        others.push(world.order(1, 1000 + number as u128).await);
    }
    for deposits in others.chunks(10) {
        for deposit in deposits {
            world.pay(deposit);
        }
        world.step().await;
    }
    world.paid(&others.iter().collect::<Vec<_>>()).await;
    world.assert_unpaid(&held).await;
    world.heal(0);
    world.ends_well().await;
}

/// The endpoint serves everything but block receipts, so it is neither down nor behind. After a restart the first
/// endpoint is asked for block receipts too, so either one can be the one that refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn receipts_refused_for_ever_leave_one_alone() {
    for refusing in [1, 0] {
        let mut world = World::open(15, 2).await;
        let (small, large) = (world.order(0, 50).await, world.order(1, 900).await);
        let error = json!({ "code": 429, "message": "too many requests" });
        // Both refuse until the restart: so the payments are scanned before it, but not checked.
        for endpoint in [0, 1] {
            world.behaviour(endpoint).block_receipts = Some(json!({ "error": error }));
        }
        world.pay(&small);
        world.pay(&large);
        world.mine();
        let block = world.chain.head().number;
        world.until_still("a scan", |world| world.head().0.unsigned_abs() >= block).await;
        world.stop_following().await;
        world.heal(1 - refusing);
        world.follow();
        world.paid(&[&small]).await;
        world.until("an alert", |world| world.alerts(AlertKind::ConfirmingAlone) > 0).await;
        world.assert_unpaid(&large).await;
        world.heal(refusing);
        world.paid(&[&large]).await;
        world.until("its end", |world| world.ended(AlertKind::ConfirmingAlone) > 0).await;
        assert_eq!(world.alerts(AlertKind::ConfirmingAlone), 1, "{}", world.shown());
        world.ends_well().await;
    }
}
