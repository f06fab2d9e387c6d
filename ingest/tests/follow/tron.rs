//! A node of Tron, over real sockets: its native interface decides finality and success.

use std::sync::Arc;

use devnet::{Chain, Config, Devnet, Fault, NativeFault, Token, tron};
use log::Log;
use runtime::{Clock, SystemClock};
use schemas::{AlertKind, Blockchain};
use tidemark_ingest::{ChainConfig, Policy, Rescan, Tag};

use crate::world::{Run, TOKEN, World, config, pay};

const TRON: Blockchain = Blockchain::Tron;
const OUTCOMES: &str = "gettransactioninfobyblocknum";
/// Blocks after which a block is solidified, whatever slots are missed here.
const SOLID: u64 = 30;

/// A node of some height.
async fn node(height: u64) -> Devnet {
    let token = Token { address: TOKEN, decimals: 6, symbol: "USDT".to_owned() };
    let chain = Config { block_interval_secs: 3, tokens: vec![token], ..Config::default() };
    let chain = Chain::new(chain).unwrap();
    chain.mine(height).unwrap();
    Devnet::serve_tron(chain, ([127, 0, 0, 1], 0).into()).await.unwrap()
}

fn followed(devnet: &Devnet) -> ChainConfig {
    let policy = Policy::flat(None, Some(Tag::Finalized));
    ChainConfig { policy, reorg_window: 64, ..config(TRON, devnet.url()) }
}

/// A node whose chain is followed, and was scanned up to its head.
async fn begun() -> (Devnet, Chain, World, Run) {
    let devnet = node(40).await;
    let (chain, mut world) = (devnet.chain(), World::new());
    let run = world.run(followed(&devnet));
    world.until_head(TRON, &chain);
    (devnet, chain, world, run)
}

fn confirmed(world: &World) -> i64 {
    world.published(TRON).confirmed()
}

fn height(chain: &Chain) -> i64 {
    i64::try_from(chain.head().number).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn payment_counts_once_its_block_has_all_outcomes() {
    let (_devnet, chain, mut world, run) = begun().await;
    chain.skip_slots(1).unwrap();
    // One that failed pays nothing, even where its log remains.
    chain.fail_transaction(alloy_primitives::B256::new(pay(&chain, 0, 5).0));
    let sent = pay(&chain, 0, 5);
    chain.mine(1).unwrap();
    let paid_at = height(&chain);
    world.until_head(TRON, &chain);
    assert_eq!(world.published(TRON).transactions(), [sent]);
    assert_eq!(chain.request_count(OUTCOMES), 0, "nothing is final yet");
    chain.break_native(Some(NativeFault::FirstOutcomes(1)));
    chain.mine(SOLID).unwrap();
    world.until_head(TRON, &chain);
    world.until("asked for outcomes again", |_| chain.request_count(OUTCOMES) > 2);
    assert!(confirmed(&world) < paid_at);
    chain.break_native(None);
    world.until_confirmed(TRON, paid_at);
    run.stop().await;
    assert_eq!(world.published(TRON).transactions(), [sent]);
    assert_eq!(world.published(TRON).epoch(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_turns_out_to_have_failed_is_taken_back() {
    let (_devnet, chain, mut world, run) = begun().await;
    let (failing, sent) = (pay(&chain, 0, 5), pay(&chain, 1, 6));
    chain.mine(1).unwrap();
    let paid_at = height(&chain);
    world.until_head(TRON, &chain);
    assert_eq!(world.published(TRON).transactions(), [failing, sent]);
    chain.fail_transaction(alloy_primitives::B256::new(failing.0));
    chain.mine(SOLID).unwrap();
    world.until("taken back", |world| world.published(TRON).transactions() == [sent]);
    world.until_confirmed(TRON, paid_at);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn busy_node_is_retried_lite_node_uses_json_rpc() {
    for is_lite in [false, true] {
        let devnet = node(40).await;
        let (chain, mut world) = (devnet.chain(), World::new());
        if is_lite {
            let text = tron::LITE_NODE;
            chain.break_native(Some(NativeFault::Body { status: 200, text }));
        }
        let run = world.run(followed(&devnet));
        world.until_head(TRON, &chain);
        chain.fail_next(2, Fault::Body { status: 200, text: tron::BUSY });
        if !is_lite {
            let text = tron::SUSPENDED;
            chain.break_native(Some(NativeFault::Body { status: 403, text }));
        }
        let sent = pay(&chain, 0, 5);
        chain.mine(1).unwrap();
        let paid_at = height(&chain);
        chain.mine(SOLID).unwrap();
        if !is_lite {
            let asked = chain.request_count("getblock");
            world.until("suspended", |_| chain.request_count("getblock") > asked);
            chain.break_native(None);
        }
        world.until_confirmed(TRON, paid_at);
        run.stop().await;
        assert_eq!(world.published(TRON).transactions(), [sent]);
        assert_eq!(chain.request_count(OUTCOMES) == 0, is_lite);
    }
}

/// Sends a payment that fails and keeps its log, and one that succeeds, and mines until their block is solidified.
/// Returns the second one.
fn pay_both(chain: &Chain) -> schemas::Hash {
    chain.fail_transaction(alloy_primitives::B256::new(pay(chain, 0, 5).0));
    let sent = pay(chain, 0, 6);
    chain.mine(1 + SOLID).unwrap();
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn rescan_needs_an_outcome_of_success() {
    let (devnet, chain, mut world, run) = begun().await;
    run.stop().await;
    // After a long outage a check asks only for logs.
    chain.lag_logs(10_000);
    let paid_at = height(&chain) + 1;
    let sent = pay_both(&chain);
    chain.mine(1300).unwrap();
    let run = world.run(followed(&devnet));
    world.until("confirmed without it", |world| {
        chain.mine(1).unwrap();
        confirmed(world) >= paid_at
    });
    run.stop().await;
    assert_eq!(world.published(TRON).transactions(), []);
    chain.lag_logs(0);
    let (log, config): (Arc<dyn Log>, _) = (Arc::new(world.log.clone()), followed(&devnet));
    let find = || Rescan::find(&log, &config, (paid_at, paid_at), |_, _| {});
    // Outcomes that are not complete prove nothing, and are asked for more than once.
    chain.break_native(Some(NativeFault::FirstOutcomes(1)));
    let found = find().await.unwrap();
    assert_eq!((found.missing.len(), found.unproven.len()), (0, 2));
    assert!(found.left_out[0].contains("gave no receipt: behind"), "{:?}", found.left_out);
    assert!(chain.request_count(OUTCOMES) > 2);
    chain.break_native(None);
    let found = find().await.unwrap();
    let missing: Vec<_> = found.missing.iter().map(|(_, seen)| seen.tx_hash).collect();
    assert_eq!((missing, found.unproven.len(), found.left_out.len()), (vec![sent], 0, 0));
    let now = SystemClock.now();
    assert_eq!(tokio::task::block_in_place(|| found.write(&*log, &config, now)).unwrap(), 1);
    assert_eq!(find().await.unwrap().missing, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn late_find_needs_success_at_the_first_endpoint() {
    // The same commands make the same chain.
    let (first, second) = (node(40).await, node(40).await);
    let (one, other) = (first.chain(), second.chain());
    let mut followed_by_both = followed(&first);
    followed_by_both.endpoints.extend(followed(&second).endpoints);
    let mut world = World::new();
    let run = world.run(followed_by_both);
    world.until_head(TRON, &one);
    one.lag_logs(1000);
    let (sent, paid_at) = (pay(&one, 0, 5), height(&one) + 1);
    assert_eq!(pay(&other, 0, 5), sent);
    // JSON-RPC of the first endpoint has a receipt of success all the while.
    one.break_native(Some(NativeFault::FirstOutcomes(0)));
    let mine = |count| [&one, &other].map(|chain| drop(chain.mine(count).unwrap()));
    mine(1 + SOLID);
    world.until("its outcome is asked for again", |_| {
        mine(1);
        one.request_count(OUTCOMES) > 2
    });
    assert!(confirmed(&world) < paid_at);
    assert_eq!(world.published(TRON).transactions(), []);
    one.break_native(None);
    world.until("found late", |world| {
        mine(1);
        world.published.get(&TRON).is_some_and(|one| one.transactions() == [sent])
    });
    world.until_confirmed(TRON, paid_at);
    run.stop().await;
    assert!(world.alerts().iter().any(|alert| alert.kind == AlertKind::LateFind));
}

/// A hole in the index of logs, which the outcomes of the same node do not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_the_index_lacks_is_found_by_outcomes() {
    let (_devnet, chain, mut world, run) = begun().await;
    let sent = pay(&chain, 0, 5);
    chain.leave_unindexed(alloy_primitives::B256::new(sent.0));
    chain.mine(1).unwrap();
    let paid_at = height(&chain);
    world.until_head(TRON, &chain);
    assert_eq!(world.published(TRON).transactions(), []);
    chain.mine(SOLID).unwrap();
    world.until("confirmed", |world| {
        chain.mine(1).unwrap();
        confirmed(world) >= paid_at
    });
    run.stop().await;
    assert_eq!(world.published(TRON).transactions(), [sent]);
    assert!(world.alerts().iter().any(|alert| alert.kind == AlertKind::LateFind));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn rescan_does_not_outvote_a_failed_outcome() {
    let nodes = [node(40).await, node(40).await, node(40).await];
    let mut config = followed(&nodes[0]);
    let rest = nodes[1..].iter().flat_map(|node| followed(node).endpoints);
    config.endpoints.extend(rest);
    let chains = nodes.each_ref().map(Devnet::chain);
    let mut world = World::new();
    chains[0].lag_logs(1000);
    let run = world.run(followed(&nodes[0]));
    world.until_head(TRON, &chains[0]);
    let paid_at = height(&chains[0]) + 1;
    let sent = chains.each_ref().map(|chain| pay(chain, 0, 5))[0];
    for chain in &chains {
        chain.mine(1 + SOLID).unwrap();
    }
    world.until_head(TRON, &chains[0]);
    run.stop().await;
    chains[0].lag_logs(0);
    chains[2].fail_transaction(alloy_primitives::B256::new(sent.0));
    let log: Arc<dyn Log> = Arc::new(world.log.clone());
    let find = || Rescan::find(&log, &config, (paid_at, paid_at), |_, _| {});
    let found = find().await.unwrap();
    assert_eq!((found.endpoints, found.missing.len(), found.unproven.len()), (3, 0, 1));
    chains[2].clear_faults();
    assert_eq!(find().await.unwrap().missing.len(), 1);
}
