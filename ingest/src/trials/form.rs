//! Answers in other forms, and pruned history. Endpoints may number the logs of a block differently: a log's index is
//! not part of a transfer's identity.

use schemas::AlertKind;
use testkit::faults::{Behaviour, Fault, Numbering};

use super::world::World;
use crate::rehearsal::customer::stranger;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ids_as_text_and_a_null_more_are_taken() {
    let mut world = World::open(30, 1).await;
    world.fault(0, Fault::Loose);
    let deposit = world.order(0, 20).await;
    world.pay(&deposit);
    world.paid(&[&deposit]).await;
    world.ends_well().await;
}

/// The endpoint deletes blocks that were never scanned.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pruned_history_is_an_alert_and_skips_nothing() {
    let mut world = World::open(31, 1).await;
    let deposit = world.order(0, 20).await;
    world.stop_following().await;
    let (before, _) = world.head();
    world.pay(&deposit);
    for _ in 0..40 {
        world.mine();
    }
    world.behaviour(0).pruned_below = world.chain.head().number - 5;
    world.follow();
    world.until("an alert", |world| world.alerts(AlertKind::PrunedHistory) > 0).await;
    world.until("a head that says so", |world| world.head().1.has_gap).await;
    assert!(world.head().0 <= before, "nothing is skipped");
    world.heal(0);
    world.paid(&[&deposit]).await;
    assert!(!world.head().1.has_gap);
    assert_eq!(world.ended(AlertKind::PrunedHistory), 1);
    world.ends_well().await;
}

/// Pays an order in a block where a transfer between strangers comes first, so that numberings differ. Returns the
/// payment's transaction.
async fn paid_behind_a_stranger(world: &mut World) -> String {
    let deposit = world.order(0, 20).await;
    world.chain.send(vec![stranger()]);
    let sent = world.pay(&deposit);
    world.paid(&[&deposit]).await;
    sent
}

/// Returns the number of entries of a transaction in the books.
async fn booked(world: &mut World, transaction: &str) -> usize {
    world.shop.books().await.claims.iter().filter(|claim| claim.tx == transaction).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_corrected_index_is_no_second_payment() {
    let mut world = World::new(1, 1).await;
    // The payment is soon final, and then checked once more.
    world.config.reorg_window = 8;
    world.opens().await;
    world.behaviour(0).numbering = Numbering::Transaction;
    let sent = paid_behind_a_stranger(&mut world).await;
    world.heal(0);
    world.asked(400, World::mine).await;
    assert_eq!(booked(&mut world, &sent).await, 1);
    world.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_indices_by_turns_are_one_payment() {
    let mut world = World::open(2, 1).await;
    let wrong = Behaviour { numbering: Numbering::Transaction, ..Behaviour::default() };
    world.behaviour(0).backend = Some(Box::new(wrong));
    let sent = paid_behind_a_stranger(&mut world).await;
    world.asked(400, World::mine).await;
    assert_eq!(booked(&mut world, &sent).await, 1);
    world.heal(0);
    world.ends_well().await;
}

/// Two orders that are paid in one block, in which the first endpoint gives each log the same index.
async fn paid_at_one_index(endpoints: usize) {
    let mut world = World::open(3, endpoints).await;
    world.behaviour(0).numbering = Numbering::Zero;
    let (one, other) = (world.order(0, 20).await, world.order(1, 30).await);
    world.pay(&one);
    world.pay(&other);
    world.paid(&[&one, &other]).await;
    world.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn payments_at_one_index_are_both_paid() {
    paid_at_one_index(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_index_at_one_of_two_endpoints_is_no_stall() {
    paid_at_one_index(2).await;
}
