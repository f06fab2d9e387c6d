//! Manual rescans: acceptance of transfers, each published once.

use std::sync::Arc;

use devnet::{Devnet, Reorg};
use log::Log;
use runtime::{Clock, SystemClock};
use schemas::{AlertKind, Hash};
use tidemark_ingest::{ChainConfig, Rescan, RescanError};
use tokio::task::block_in_place;

use crate::ETH;
use crate::front::Front;
use crate::world::{World, config, devnet, endpoint, pay};

/// Lets ingest scan and confirm block 21, and miss the two payments in it.
async fn miss(devnet: &Devnet, world: &mut World) -> [Hash; 2] {
    let (node, front) = (devnet.chain(), Front::of(devnet.url()).await);
    front.blind();
    let run = world.run(config(ETH, &front.url));
    world.until_head(ETH, &node);
    let sent = [pay(&node, 0, 5), pay(&node, 1, 5)];
    for _ in 0..2 {
        world.mine(ETH, &node, 5);
    }
    world.until_confirmed(ETH, 21);
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), []);
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn rescan_needs_the_receipts_of_two_endpoints() {
    let devnet = devnet(20).await;
    let (node, mut world) = (devnet.chain(), World::new());
    let sent = miss(&devnet, &mut world).await;
    node.lag_logs(1000);
    let log: Arc<dyn Log> = Arc::new(world.log.clone());
    let (a, b) = (Front::of(devnet.url()).await, Front::of(devnet.url()).await);
    let mut chain = config(ETH, &a.url);
    chain.endpoints.push(endpoint(ETH, &b.url));
    let ask = async |from, to| Rescan::find(&log, &chain, (from, to), |_, _| {}).await;
    // The numbers of missing and of unproven transfers, and of endpoints that answered.
    let counts = async || {
        let found = ask(1, 99).await.unwrap();
        (found.missing.len(), found.unproven.len(), found.endpoints)
    };
    assert_eq!(ask(1, 99).await.unwrap().missing, [], "they still trail");
    node.clear_faults();
    // Endpoint b has neither logs nor receipts: only one endpoint proves the transfers.
    b.deny();
    assert_eq!(counts().await, (0, 2, 2));
    // b has the logs in blocks without the transactions; once a has such blocks too, the logs count
    // as invented.
    b.admit();
    b.unlist();
    assert_eq!(counts().await, (0, 2, 2));
    a.unlist();
    assert_eq!(counts().await, (0, 0, 2));
    a.admit();
    b.admit();
    b.answer(|body| body.contains("eth_chainId").then(|| (401, String::new())));
    let found = ask(1, 99).await.unwrap();
    assert_eq!((found.missing.len(), found.unproven.len(), found.left_out.len()), (0, 2, 1));
    b.pass();
    assert!(matches!(ask(99, 99).await, Err(RescanError::NotScanned(30))));
    let mut steps = Vec::new();
    let found = Rescan::find(&log, &chain, (1, 99), |asked, all| steps.push((asked, all)));
    let found = found.await.unwrap();
    assert_eq!((found.to, found.missing.len(), found.unproven.len()), (30, 2, 0));
    assert_eq!(steps.last(), Some(&(60, 60)));

    let write = |found: &Rescan| {
        let now = SystemClock.now();
        block_in_place(|| found.write(&*log, &chain, now)).unwrap()
    };
    // A concurrent rescan found part of it.
    let mut some = ask(21, 21).await.unwrap();
    some.missing.truncate(1);
    assert_eq!((write(&some), write(&found), write(&some), write(&found)), (1, 1, 0, 0));
    assert_eq!(ask(1, 99).await.unwrap().missing, []);
    let run = world.run(config(ETH, devnet.url()));
    world.mine(ETH, &node, 1);
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), sent);
    assert!(world.published(ETH).records.iter().all(|record| record.epoch.0 == 0));
    let kinds: Vec<_> = world.alerts().iter().map(|alert| alert.kind).collect();
    assert_eq!(kinds, [AlertKind::LateFind; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn rescan_fences_a_follower_only_when_it_writes() {
    let devnet = devnet(20).await;
    let (node, mut world) = (devnet.chain(), World::new());
    let log: Arc<dyn Log> = Arc::new(world.log.clone());
    let chain = config(ETH, devnet.url());
    let none = Rescan::find(&log, &chain, (1, 5), |_, _| {}).await;
    assert!(matches!(none, Err(RescanError::Unknown)), "{none:?}");
    let front = Front::of(devnet.url()).await;
    front.blind();
    let run = world.run(config(ETH, &front.url));
    world.until_head(ETH, &node);
    let sent = pay(&node, 0, 5);
    world.mine(ETH, &node, 10);
    let found = Rescan::find(&log, &chain, (21, 21), |_, _| {}).await.unwrap();
    assert!(!run.task.is_finished());
    let now = SystemClock.now();
    block_in_place(|| found.write(&*log, &chain, now)).unwrap();
    node.mine(1).unwrap();
    assert!(run.task.await.unwrap().unwrap_err().is_fenced());
    let run = world.run(chain);
    world.until_head(ETH, &node);
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), [sent], "once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_find_is_void_after_a_reorganisation() {
    // Block 21 of 30 stays, or is replaced.
    for (depth, is_replaced) in [(5, false), (12, true)] {
        let devnet = devnet(20).await;
        let (node, mut world) = (devnet.chain(), World::new());
        let sent = miss(&devnet, &mut world).await;
        let (log, chain) = (Arc::new(world.log.clone()), config(ETH, devnet.url()));
        let shared: Arc<dyn Log> = log.clone();
        let found = Rescan::find(&shared, &chain, (1, 99), |_, _| {}).await.unwrap();
        assert_eq!(found.missing.len(), 2);
        node.reorg(depth, Reorg::Keep).unwrap();
        let run = world.run(chain.clone());
        world.until_head(ETH, &node);
        run.stop().await;
        let written = block_in_place(|| found.write(&*log, &chain, SystemClock.now()));
        assert!(matches!(written, Err(RescanError::Reorganised)), "{depth}: {written:?}");
        let expected = if is_replaced { sent.to_vec() } else { Vec::new() };
        assert_eq!(world.published(ETH).transactions(), expected, "{depth}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_endpoint_that_left_the_chain_proves_nothing() {
    let devnet = devnet(20).await;
    let (node, mut world) = (devnet.chain(), World::new());
    miss(&devnet, &mut world).await;
    let log: Arc<dyn Log> = Arc::new(world.log.clone());
    let find = async |chain: &ChainConfig, reorg: bool| {
        let scanned = |asked, all| {
            if reorg && asked == all {
                node.reorg(5, Reorg::Keep).unwrap();
            }
        };
        let found = Rescan::find(&log, chain, (21, 21), scanned).await.unwrap();
        (found.missing.len(), found.unproven.len())
    };
    let chain = config(ETH, devnet.url());
    assert_eq!(find(&chain, false).await, (2, 0));
    assert_eq!(find(&chain, true).await, (0, 2));
}
