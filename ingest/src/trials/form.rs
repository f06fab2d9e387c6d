//! Answers in other formats, and pruned history.

use schemas::AlertKind;
use testkit::faults::Fault;

use super::world::World;

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
