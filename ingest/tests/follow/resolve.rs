//! Disputes that an operator decides: the records, and ingest's continuation.

use log::{Log, NewRecord};
use runtime::{Clock, SystemClock};
use schemas::record::{ChainBody, ChainRecord, Held};
use schemas::{Hash, Topic, TxHash};
use tidemark_ingest::{Resolution, ResolveError, Verdict};

use crate::ETH;
use crate::world::{LAYOUT, World, config, followed, pay};

/// Publishes the last head again: it holds these transfers, and confirms and finalizes blocks up to these heights.
fn hold(world: &World, transactions: &[TxHash], (confirmed, finalized): (i64, i64)) {
    let published = world.published(ETH);
    let is_head = |record: &&ChainRecord| matches!(record.body, ChainBody::Head(_));
    let mut last = published.records.iter().rfind(is_head).unwrap().clone();
    let ChainBody::Head(head) = &mut last.body else { unreachable!("it is a head") };
    let live = published.live.values().filter(|(_, seen)| transactions.contains(&seen.tx_hash));
    head.held = live.map(|(block, transfer)| Held { block: *block, transfer: *transfer }).collect();
    assert_eq!(head.held.len(), transactions.len());
    for tier in &mut head.confirmed {
        tier.number = tier.number.max(confirmed);
    }
    head.finalized = head.finalized.max(finalized);
    last.observed_at = last.observed_at.next(SystemClock.now());
    let to_lane = |lane| NewRecord::encode(Topic::TransfersRaw, lane, ETH.as_str(), &last).unwrap();
    let step = LAYOUT.lanes_of(ETH).map(to_lane).collect();
    tokio::task::block_in_place(|| world.log.writer("ingest-eth").unwrap().commit(step)).unwrap();
}

fn resolve(world: &World, of: TxHash, verdict: Verdict) -> Result<Resolution, ResolveError> {
    let chain = config(ETH, "http://127.0.0.1:9");
    let write = || Resolution::write(&world.log, &chain, of, verdict, SystemClock.now());
    tokio::task::block_in_place(write)
}

/// Waits until the last head, and the transactions that it holds, meet a condition.
fn last_head(world: &mut World, is_so: impl Fn(&ChainRecord, &[TxHash]) -> bool) {
    world.until("a head", |world| {
        let heads = world.published(ETH).records.iter().rev();
        let found = heads.clone().find_map(|record| match &record.body {
            ChainBody::Head(head) => Some((record, head)),
            ChainBody::Transfer(_) | ChainBody::Retract(_) | ChainBody::Watch(_) => None,
        });
        found.is_some_and(|(record, head)| {
            let held: Vec<_> = head.held.iter().map(|held| held.transfer.tx_hash).collect();
            is_so(record, &held)
        })
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_operator_decides_about_what_is_held() {
    let (devnet, node, mut world, run) = followed(ETH, |_| ()).await;
    let [there, gone, other] = [5, 6, 7].map(|units| pay(&node, 0, units));
    world.mine(ETH, &node, 1);
    run.stop().await;

    let nothing = resolve(&world, there, Verdict::Accept).unwrap_err().to_string();
    assert!(nothing.ends_with("is held; nothing is"), "{nothing}");
    hold(&world, &[there], (20, 20));
    let early = resolve(&world, there, Verdict::Accept);
    assert!(matches!(early, Err(ResolveError::NotConfirmed(21, _))), "{early:?}");
    hold(&world, &[there, gone, other], (21, 20));
    last_head(&mut world, |_, held| held == [there, gone, other]);
    let unknown = resolve(&world, Hash([9; 32]), Verdict::Accept).unwrap_err().to_string();
    assert!(unknown.contains(&format!("held: {there}, {gone}")), "{unknown}");

    let accepted = resolve(&world, there, Verdict::Accept).unwrap();
    assert_eq!((accepted.transfers.len(), accepted.left, accepted.epoch.0), (1, 2, 0));
    last_head(&mut world, |_, held| held == [gone, other]);
    assert_eq!(world.published(ETH).transactions(), [there, gone, other]);

    // The check of final blocks would find it again.
    let early = resolve(&world, gone, Verdict::Reject);
    assert!(matches!(early, Err(ResolveError::NotFinal(21, 20))), "{early:?}");
    hold(&world, &[gone, other], (21, 21));
    let rejected = resolve(&world, gone, Verdict::Reject).unwrap();
    assert_eq!((rejected.transfers.len(), rejected.left, rejected.epoch.0), (1, 1, 1));
    last_head(&mut world, |record, held| record.epoch.0 == 1 && held == [other]);
    assert_eq!(world.published(ETH).transactions(), [there, other]);
    assert!(matches!(resolve(&world, gone, Verdict::Accept), Err(ResolveError::NotHeld(..))));

    let run = world.run(config(ETH, devnet.url()));
    world.mine(ETH, &node, 1);
    run.stop().await;
    last_head(&mut world, |record, _| record.epoch.0 == 1 && record.block.number == 22);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_chain_without_records_holds_nothing() {
    let world = World::new();
    let nothing = resolve(&world, Hash([1; 32]), Verdict::Reject);
    assert!(matches!(nothing, Err(ResolveError::Unknown)), "{nothing:?}");
}
