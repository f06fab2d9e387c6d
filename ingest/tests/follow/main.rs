//! Ingest over real HTTP and the embedded log: what reaches `transfers.raw` and `chains`, whatever
//! the endpoint does.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod cut;
mod failover;
mod front;
mod rescan;
mod resolve;
mod share;
mod tron;
mod watched;
mod world;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use alloy_primitives::U256;
use cut::CutAfterRetract;
use devnet::{Fault, Reorg, TransferCall};
use log::{LayeredLog, Log, NewRecord, StepError, TopicPartition};
use schemas::record::{ChainBody, ChainRecord};
use schemas::{Address, AlertKind, Amount, Blockchain, Hash, Headers, Topic};
use tidemark_ingest::{ChainConfig, Error, Policy, Rewind, RewindError, Tag, Target};
use tokio_util::sync::CancellationToken;
use world::{PAYER, TOKEN, World, config, devnet, followed, pay, pay_in_block, wallet};

const ETH: Blockchain = Blockchain::Eth;

type Render = dyn Fn() -> String + Send + Sync;

/// Renders the metrics. The process has one recorder; values from before it are lost.
fn metrics() -> &'static Render {
    static RENDER: LazyLock<Box<Render>> = LazyLock::new(|| {
        let recorder = runtime::telemetry::init_metrics().unwrap();
        runtime::metrics::describe(tidemark_ingest::metrics::METRICS);
        Box::new(move || runtime::telemetry::exposition(&recorder))
    });
    &**RENDER
}

fn tx(hash: Hash) -> alloy_primitives::B256 {
    alloy_primitives::B256::new(hash.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn dust_and_equal_transfers_are_all_published() {
    let (_devnet, chain, mut world, run) = followed(ETH, |_| ()).await;
    let mut sent = Vec::new();
    for round in 0..10 {
        sent.extend((0..30).map(|dust| pay(&chain, round % 2, 1 + dust % 3)));
        chain.mine(1).unwrap();
    }
    let call =
        |value| TransferCall { token: TOKEN, from: PAYER, to: wallet(0), value: U256::from(value) };
    let foreign = TransferCall { token: wallet(9), ..call(7) };
    let other = TransferCall { to: wallet(9), ..call(7) };
    let twice = chain.batch(vec![call(7), foreign, other, call(0), call(7)]).unwrap();
    sent.extend([Hash(twice.0); 2]);
    world.mine(ETH, &chain, 1);
    world.until_confirmed(ETH, 29);
    run.stop().await;
    let published = world.published(ETH);
    assert_eq!(published.transactions(), sent);
    let last: Vec<_> =
        published.live.values().rev().take(2).map(|(block, seen)| (block, seen)).collect();
    let [(block, second), (_, first)] = last.as_slice() else { panic!() };
    assert_eq!((first.log_index, first.ordinal, second.log_index, second.ordinal), (0, 0, 4, 1));
    assert_eq!(first.value, Amount::parse("0.000007").unwrap());
    assert_eq!(block.timestamp.0, i64::try_from(chain.head().timestamp).unwrap());
    let progress = published.progress.clone().unwrap();
    assert_eq!((progress.confirmed, progress.head.number), (29, 31));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_reorg_moves_a_transaction() {
    let (_devnet, chain, mut world, run) = followed(ETH, |_| ()).await;
    let moved = pay(&chain, 0, 5);
    let kept = pay(&chain, 1, 6);
    world.mine(ETH, &chain, 1);
    chain.reorg(1, Reorg::Move { tx: tx(moved), to_offset: 1 }).unwrap();
    world.until_head(ETH, &chain);
    run.stop().await;
    let published = world.published(ETH);
    assert_eq!(published.transactions(), [kept, moved]);
    let retracts = |record: &&ChainRecord| matches!(record.body, ChainBody::Retract(_));
    assert_eq!(published.records.iter().filter(retracts).count(), 2);
    let payments: Vec<_> = published
        .records
        .iter()
        .filter_map(|record| match &record.body {
            ChainBody::Transfer(seen) if seen.tx_hash == moved => {
                Some((seen.payment(), record.block.number))
            }
            _ => None,
        })
        .collect();
    let [(before, 21), (after, 22)] = payments.as_slice() else { panic!("{payments:?}") };
    assert_eq!(before, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn restart_in_the_middle_of_a_reorg_continues() {
    let devnet = devnet(20).await;
    let (chain, mut world) = (devnet.chain(), World::new());
    let stop = CancellationToken::new();
    let cut = CutAfterRetract { stop: stop.clone() };
    let log = LayeredLog::new(Arc::new(world.log.clone()), cut);
    let run = world.run_on(Arc::new(log), config(ETH, devnet.url()), stop);
    world.until_head(ETH, &chain);
    let kept = pay(&chain, 0, 5);
    chain.mine(1).unwrap();
    let (moved, dropped) = (pay(&chain, 0, 6), pay(&chain, 1, 7));
    world.mine(ETH, &chain, 2);
    chain.reorg(2, Reorg::Drop(tx(dropped))).unwrap();
    // The run ends by itself, right after the step that retracts.
    run.task.await.unwrap().unwrap();
    world.until("retracted", |world| world.published(ETH).transactions() == [kept]);
    assert_eq!(world.published(ETH).head().map(|head| head.number), Some(21));
    // While no ingest runs, the chain is reorganised again.
    chain.reorg(2, Reorg::Keep).unwrap();
    let run = world.run(config(ETH, devnet.url()));
    world.until_head(ETH, &chain);
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), [kept, moved]);
    assert_eq!(world.published(ETH).epoch(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn faults_of_the_endpoint_lose_nothing() {
    let short = |config: &mut ChainConfig| config.request_timeout = Duration::from_secs(1);
    let (_devnet, chain, mut world, run) = followed(ETH, short).await;
    let error = |code, message: &str| Fault::RpcError { code, message: message.to_owned() };
    let mut sent = Vec::new();
    for fault in [
        Fault::HttpStatus(429),
        Fault::HttpStatus(503),
        Fault::Malformed,
        Fault::Hang(Duration::from_secs(2)),
        error(-32_005, "daily request count exceeded, request rate limited"),
        error(-32_000, "unknown block"),
    ] {
        chain.fail_next(1, fault);
        sent.push(pay(&chain, 0, 5));
        world.mine(ETH, &chain, 1);
    }
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn catching_up_adapts_to_the_range_served() {
    let devnet = devnet(20).await;
    let (chain, mut world) = (devnet.chain(), World::new());
    chain.limit_range(Some(7));
    let mut sent = Vec::new();
    for _ in 0..60 {
        sent.push(pay(&chain, 1, 5));
        chain.mine(3).unwrap();
    }
    let mut chain_config = config(ETH, devnet.url());
    chain_config.start_block = Some(21);
    let run = world.run(chain_config);
    world.until_head(ETH, &chain);
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), sent);
    // One request by hash for each of the 180 blocks, and a few for each range of at most 7 blocks. Without ranges
    // there would be two for each block, 360 in all. Some requests may be retried.
    let asked = chain.request_count("eth_getLogs");
    assert!(asked < 340, "{asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn logs_that_trail_their_headers_are_caught_by_a_lag() {
    let devnet = devnet(20).await;
    let (chain, mut world) = (devnet.chain(), World::new());
    chain.lag_logs(1);
    let mut chain_config = config(ETH, devnet.url());
    chain_config.lag = 1;
    let run = world.run(chain_config);
    world.until("begun", |world| world.published.contains_key(&ETH));
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(pay_in_block(&chain));
        let before_head = i64::try_from(chain.head().number).unwrap() - 1;
        world.until("scanned up to the block before the head", |world| {
            world.published(ETH).head().is_some_and(|head| head.number == before_head)
        });
    }
    chain.mine(1).unwrap();
    world.until("all published", |world| world.published(ETH).transactions() == sent);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn logs_that_trail_their_headers_are_found_late() {
    let (_devnet, chain, mut world, run) = followed(ETH, |_| ()).await;
    chain.lag_logs(1);
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(pay_in_block(&chain));
        // The payment's block is scanned, and has no logs yet.
        world.until_head(ETH, &chain);
        assert!(world.published(ETH).transactions().len() < sent.len());
    }
    chain.mine(2).unwrap();
    world.until("all published", |world| world.published(ETH).transactions() == sent);
    world.until_confirmed(ETH, 25);
    run.stop().await;
    assert_eq!(world.published(ETH).confirmed(), 25);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_chain_with_a_wrong_endpoint_or_log_halts_alone() {
    // The recorder serves the whole test process: no other test follows these chains.
    const ELSEWHERE: Blockchain = Blockchain::Op;
    const SPOILED: Blockchain = Blockchain::Linea;
    let render = metrics();
    let devnet = devnet(20).await;
    let (chain, mut world, spoiled) = (devnet.chain(), World::new(), World::new());
    let lane = world::LAYOUT.lanes_of(SPOILED).next().unwrap();
    let to = TopicPartition { topic: Topic::TransfersRaw, partition: lane };
    let mut newer = schemas::encode(&schemas::record::example::chain_record()).unwrap();
    newer[1] ^= 1;
    let (key, value, headers) = (Vec::new(), Some(newer), Headers::default());
    spoiled.log.produce(vec![NewRecord { to, key, value, headers }]).await.unwrap();
    let mut elsewhere = config(ELSEWHERE, devnet.url());
    elsewhere.chain_id = 1;
    let halted = [world.run(elsewhere), spoiled.run(config(SPOILED, devnet.url()))];
    let well = world.run(config(ETH, devnet.url()));
    world.until_head(ETH, &chain);
    world.until("halted", |_| {
        let text = render();
        let is_halted = |chain| format!("tidemark_ingest_halted{{blockchain=\"{chain}\"}} 1");
        [ELSEWHERE, SPOILED].iter().all(|chain| text.contains(&is_halted(chain)))
    });
    let sent = pay_in_block(&chain);
    world.until("published", |world| {
        world.published.get(&ETH).is_some_and(|published| published.transactions() == [sent])
    });
    assert!(!world.published.contains_key(&ELSEWHERE));
    let [alert] = &world.alerts()[..] else { panic!("{:?}", world.alerts()) };
    assert_eq!((alert.kind, alert.blockchain), (AlertKind::ChainHalted, Some(ELSEWHERE)));
    let wrong = format!("the endpoint of {ELSEWHERE} serves chain id 31337, not 1");
    let shown = |detail: &serde_json::Value| {
        let is_ours = detail["blockchain"] == ELSEWHERE.as_str();
        is_ours.then(|| detail["halted"].as_str().unwrap_or_default().to_owned())
    };
    let shown: String = world.readiness.details().iter().find_map(shown).unwrap();
    for text in [&alert.message, &world.readiness.alarms()[0], &shown] {
        assert!(text.contains(&wrong), "{text}");
    }
    let well_shown = world.readiness.details().into_iter().find(|one| one["blockchain"] == "eth");
    let well_shown = well_shown.unwrap();
    assert_eq!(well_shown["halted"], serde_json::Value::Null);
    assert_eq!(well_shown["endpoints"][0]["endpoint"], devnet.url().trim_end_matches('/'));
    assert_eq!(well_shown["endpoints"][0]["in_use"], true);
    for run in halted.into_iter().chain([well]) {
        assert!(!run.task.is_finished());
        run.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_second_ingest_of_a_chain_ends_the_first() {
    let (devnet, chain, mut world, first) = followed(ETH, |_| ()).await;
    let fence = world.log.writer("ingest-eth").unwrap();
    chain.mine(1).unwrap();
    let error = first.task.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Step(StepError::Fenced(_))), "{error}");
    drop(fence);
    let second = world.run(config(ETH, devnet.url()));
    world.until_head(ETH, &chain);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_aborted_step_is_tried_again_unchanged() {
    let (_devnet, chain, mut world, run) = followed(ETH, |_| ()).await;
    world.log.fail_next_commit();
    let sent = pay(&chain, 0, 5);
    world.mine(ETH, &chain, 1);
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), [sent]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn halted_chain_continues_after_a_rewind() {
    // The recorder serves the whole test process: no other test follows this chain.
    const HALTED: Blockchain = Blockchain::Avaxc;
    let render = metrics();
    let (broken, polygon) = (devnet(20).await, devnet(60).await);
    let mut world = World::new();
    let chains = [config(HALTED, broken.url()), config(Blockchain::Polygon, polygon.url())];
    let runs = chains.map(|chain_config| world.run(chain_config));
    world.until_head(HALTED, &broken.chain());
    world.until_head(Blockchain::Polygon, &polygon.chain());
    for _ in 0..2 {
        broken.chain().mine(20).unwrap();
        world.until_head(HALTED, &broken.chain());
    }
    world.until("final above what leaves", |world| {
        let progress = &world.published[&HALTED].progress;
        progress.as_ref().is_some_and(|progress| progress.finalized > 30)
    });
    broken.chain().reorg(30, Reorg::Keep).unwrap();
    world.until("halted", |_| render().contains("tidemark_ingest_halted{blockchain=\"avaxc\"} 1"));
    let sent = pay_in_block(&polygon.chain());
    world.until_head(Blockchain::Polygon, &polygon.chain());
    assert_eq!(world.published(Blockchain::Polygon).transactions(), [sent]);
    assert_eq!(world.published(HALTED).progress.as_ref().unwrap().head.number, 60);
    let alarms = world.readiness.alarms();
    assert!(alarms[0].contains("`tidemark chain rewind avaxc --find`"), "{alarms:?}");

    let kept = pay(&broken.chain(), 1, 6);
    broken.chain().mine(1).unwrap();
    let now = runtime::Clock::now(&runtime::SystemClock);
    let halted = config(HALTED, broken.url());
    let rewind = |height| Rewind::write(&world.log, &halted, Target::Published(height), now);
    assert!(matches!(rewind(60), Err(RewindError::NotBelow(60))));
    assert!(matches!(rewind(3), Err(RewindError::Gone(_))));
    assert!(rewind(25).unwrap().to.number <= 25);
    world.until_head(HALTED, &broken.chain());
    assert_eq!(world.published(HALTED).transactions(), [kept]);
    assert!(world.readiness.alarms().is_empty());
    for run in runs {
        assert!(!run.task.is_finished());
        run.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn tron_has_its_own_addresses_and_failed_payments() {
    const TRON: Blockchain = Blockchain::Tron;
    let by_tag = |config: &mut ChainConfig| {
        config.policy = Policy::flat(None, Some(Tag::Finalized));
    };
    let (_devnet, chain, mut world, run) = followed(TRON, by_tag).await;
    let failed = pay(&chain, 0, 4);
    chain.fail_transaction(tx(failed));
    let sent = pay(&chain, 0, 5);
    world.mine(TRON, &chain, 1);
    chain.mine(6).unwrap();
    world.until_confirmed(TRON, 21);
    run.stop().await;
    let published = world.published(TRON);
    assert_eq!(published.confirmed(), 21, "by the tag");
    assert_eq!(published.transactions(), [sent], "a failed one pays nothing");
    let (_, seen) = published.live.values().next().unwrap();
    let expected = Address::new(TRON.address_family(), wallet(0).0.0);
    assert_eq!(seen.to_address, expected);
    assert!(seen.to_address.to_string().starts_with('T'));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn more_wallets_than_a_filter_takes_and_none_at_all() {
    let devnet = devnet(20).await;
    let (chain, mut world) = (devnet.chain(), World::new());
    let mut many = config(ETH, devnet.url());
    let family = ETH.address_family();
    many.wallets = (0..1200).map(|number| Address::new(family, wallet(number).0.0)).collect();
    let mut none = config(Blockchain::Base, devnet.url());
    none.wallets = Vec::new();
    let runs = [many, none].map(|chain_config| world.run(chain_config));
    world.until_head(ETH, &chain);
    world.until_head(Blockchain::Base, &chain);
    let sent = [0, 499, 500, 1199].map(|number| pay(&chain, number, 5));
    world.mine(ETH, &chain, 1);
    world.until_head(Blockchain::Base, &chain);
    for run in runs {
        run.stop().await;
    }
    assert_eq!(world.published(ETH).transactions(), sent);
    assert_eq!(world.published(Blockchain::Base).transactions(), []);
}
