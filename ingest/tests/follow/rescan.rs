//! Blocks that are asked for again by hand: what is believed, and that it is published once.

use std::sync::Arc;

use log::Log;
use runtime::{Clock, SystemClock};
use schemas::AlertKind;
use tidemark_ingest::{EndpointConfig, Rescan, RescanError, RpcUrl};

use crate::ETH;
use crate::front::Front;
use crate::world::{World, config, devnet, pay};

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn rescan_needs_the_receipts_of_two_endpoints() {
    let devnet = devnet(20).await;
    let (node, mut world) = (devnet.chain(), World::new());
    node.lag_logs(1000);
    let run = world.run(config(ETH, devnet.url()));
    world.until_head(ETH, &node);
    let sent = [pay(&node, 0, 5), pay(&node, 1, 5)];
    node.mine(10).unwrap();
    world.until_head(ETH, &node);
    world.until("confirmed", |world| {
        world.published(ETH).progress.as_ref().is_some_and(|progress| progress.confirmed >= 21)
    });
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), []);

    let log: Arc<dyn Log> = Arc::new(world.log.clone());
    let (a, b) = (Front::of(devnet.url()).await, Front::of(devnet.url()).await);
    let mut chain = config(ETH, &a.url);
    chain.endpoints.push(EndpointConfig::new(RpcUrl::parse(&b.url).unwrap()));
    let ask = async |from, to| Rescan::find(&log, &chain, (from, to), |_, _| {}).await;
    assert_eq!(ask(1, 99).await.unwrap().missing, [], "they still trail");
    node.clear_faults();
    // The other one knows of no transfer, or is not there at all.
    b.deny();
    let found = ask(1, 99).await.unwrap();
    assert_eq!((found.missing.len(), found.unproven.len(), found.endpoints), (0, 2, 2));
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
        tokio::task::block_in_place(|| found.write(&*log, &chain, now)).unwrap()
    };
    assert_eq!((write(&found), write(&found)), (2, 0));
    assert_eq!(ask(1, 99).await.unwrap().missing, []);
    let run = world.run(config(ETH, devnet.url()));
    node.mine(1).unwrap();
    world.until_head(ETH, &node);
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
    node.lag_logs(1000);
    let run = world.run(chain.clone());
    world.until_head(ETH, &node);
    let sent = pay(&node, 0, 5);
    node.mine(10).unwrap();
    world.until_head(ETH, &node);
    node.clear_faults();
    let found = Rescan::find(&log, &chain, (21, 21), |_, _| {}).await.unwrap();
    assert!(!run.task.is_finished());
    let now = SystemClock.now();
    tokio::task::block_in_place(|| found.write(&*log, &chain, now)).unwrap();
    node.mine(1).unwrap();
    assert!(run.task.await.unwrap().unwrap_err().is_fenced());
    let run = world.run(chain);
    world.until_head(ETH, &node);
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), [sent], "once");
}
