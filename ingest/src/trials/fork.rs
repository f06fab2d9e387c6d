//! Endpoints on a fork, endpoints that invent blocks or receive none, and tags that come too early: confirmation
//! reaches as far as two endpoints have shown the chain.

use std::time::Duration;

use devnet::Reorg;
use schemas::{AlertKind, Amount};
use testkit::faults::Fault;

use super::world::World;
use crate::rehearsal::customer::exact;
use crate::{Policy, Tag, Tier};

/// Blocks by which a fork grows: more than any tier asks for.
const GROWTH: u64 = 30;

/// Grows the chain and the fork of the first endpoint, enough to confirm the whole fork if ingest believed it.
async fn grown(world: &mut World) {
    for _ in 0..GROWTH {
        world.mine();
        world.chain.stale().unwrap().mine_at(world.chain.now).unwrap();
        world.settle().await;
    }
    world.asked(200, |world| world.pass(1)).await;
}

/// Greater amounts need more blocks, and only the first endpoint shows those.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deep_tier_of_a_fork_pays_nothing() {
    let mut world = World::new(20, 2).await;
    let small = Tier { below: Amount::parse("1000").ok(), depth: Some(3), tag: None };
    let large = Tier { below: None, depth: Some(14), tag: None };
    world.config.policy = Policy { tiers: vec![small, large] };
    world.opens().await;
    let (small, large) = (world.order(0, 20).await, world.order(1, 5000).await);
    world.pay(&small);
    let sent = world.chain.send(vec![exact(&large)]);
    world.mine();
    let paid_at = world.chain.head().number;
    (0..4).for_each(|_| world.mine());
    world.paid_in_time(&small).await;
    let depth = world.chain.head().number - paid_at + 1;
    assert!(depth < 14, "the greater amount is not confirmed yet");
    world.chain.reorg(depth, Reorg::Drop(sent), true).await;
    world.fault(0, Fault::Stale);
    grown(&mut world).await;
    world.assert_unpaid(&large).await;
    world.heal(0);
    world.ends_well().await;
}

/// The second endpoint no longer accepts its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn alone_on_a_fork_pays_nothing_above_the_bound() {
    let mut world = World::new(21, 2).await;
    // Longer than the time between two checks on a busy machine: otherwise each would ask endpoint 1 first.
    world.pauses.repair = Duration::from_secs(3);
    world.opens().await;
    let (small, large) = (world.order(0, 50).await, world.order(1, 900).await);
    world.fault(1, Fault::Unauthorized);
    world.pay(&small);
    world.paid(&[&small]).await;
    world.chain.leave_stale().await;
    world.chain.stale().unwrap().batch(vec![exact(&large)]).unwrap();
    world.fault(0, Fault::Stale);
    grown(&mut world).await;
    world.assert_unpaid(&large).await;
    assert!(world.alerts(AlertKind::ConfirmingAlone) == 1, "{}", world.shown());
    world.heal(0);
    world.heal(1);
    world.until("its end", |world| world.ended(AlertKind::ConfirmingAlone) > 0).await;
    world.ends_well().await;
    assert_eq!(world.alerts(AlertKind::ConfirmingAlone), 1);
    assert_eq!(world.ended(AlertKind::ConfirmingAlone), 1);
}

/// The first endpoint lies: it answers only when the second one's head is old, with future-dated blocks above that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_liar_that_waits_for_an_old_head_pays_nothing() {
    const AHEAD: u64 = 6;
    const OLD: i64 = 7;
    let mut world = World::new(22, 2).await;
    // A short maximum pause: an endpoint that is often behind would hardly be asked otherwise.
    world.pauses.max = Duration::from_millis(400);
    world.opens().await;
    let deposit = world.order(0, 500).await;
    world.chain.leave_stale().await;
    let fork = world.chain.stale().unwrap();
    fork.batch(vec![exact(&deposit)]).unwrap();
    world.fault(0, Fault::Stale);
    for _ in 0..60 {
        // The first endpoint holds its answer while the chain grows.
        world.behaviour(0).answers_after = i64::MAX;
        world.until_still("it waits", |world| world.chain.proxies[0].is_holding()).await;
        world.mine();
        while fork.head().number < world.chain.head().number + AHEAD {
            fork.mine_at(fork.head().timestamp.max(world.chain.now) + 10).unwrap();
        }
        world.behaviour(0).answers_after = OLD;
        world.pass(OLD.unsigned_abs());
        let due = world.requests() + 20;
        world.until_still("its step is over", |world| world.requests() >= due).await;
    }
    world.assert_unpaid(&deposit).await;
    world.heal(0);
    world.ends_well().await;
}

/// The node of the first endpoint receives no more blocks: all that it answers is correct.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_frozen_head_of_one_endpoint_stops_nothing() {
    const FROZEN: Duration = Duration::from_millis(100);
    let mut world = World::new(24, 2).await;
    (world.pauses.frozen, world.pauses.stuck) = (FROZEN, FROZEN);
    world.opens().await;
    let deposit = world.order(0, 50).await;
    world.chain.leave_stale().await;
    world.fault(0, Fault::Stale);
    world.pay(&deposit);
    world.paid(&[&deposit]).await;
    world.heal(0);
    world.ends_well().await;
}

/// The first endpoint tags the newest block as final.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_young_tag_pays_nothing() {
    let mut world = World::new(23, 2).await;
    world.config.policy = Policy::flat(None, Some(Tag::Finalized));
    world.opens().await;
    let deposit = world.order(0, 20_000).await;
    world.behaviour(0).tags_are_young = true;
    world.pay(&deposit);
    world.mine();
    world.mine();
    // Old enough for every check, with one block on top.
    world.asked(200, |world| world.pass(1)).await;
    world.assert_unpaid(&deposit).await;
    world.paid(&[&deposit]).await;
    world.heal(0);
    world.ends_well().await;
}
