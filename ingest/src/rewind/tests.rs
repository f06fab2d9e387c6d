//! Tests of the depth to which a chain can be taken back.

use schemas::record::{Held, example};
use schemas::{BlockHash, Hash, UnixSeconds};
use serde_json::{Value, json};

use super::*;
use crate::machine::Policy;
use crate::simulation::{self, MemoryLog, Served, chain, endpoint};
use fork::{DEPTH_MIN, newest_common};

fn block(number: i64, timestamp: i64) -> Block {
    let hash: BlockHash = Hash([5; 32]);
    Block { number, hash, timestamp: UnixSeconds(timestamp) }
}

/// A log with the heads of some blocks.
fn scanned(chain: &ChainConfig, blocks: &[Block]) -> MemoryLog {
    let mut memory = MemoryLog::new();
    for block in blocks {
        let confirmed = first_head(chain, *block).confirmed;
        memory.publish(chain, &[simulation::head(*block, confirmed, -1)]);
    }
    memory
}

#[test]
fn a_chain_without_records_is_not_taken_back() {
    let chain = chain(Policy::flat(Some(3), None));
    let refused = Rewind::plan(&MemoryLog::new(), &chain, Target::Published(1), UnixMicros(1));
    assert!(matches!(refused, Err(RewindError::Unknown)), "{refused:?}");
}

#[test]
fn what_lanes_have_forgotten_is_not_taken_back() {
    let chain = chain(Policy::flat(Some(3), None));
    let now = UnixMicros(1);
    let last = block(30, FORGET_SECONDS + 1000);
    let (old, young) = (block(10, 999), block(20, 1000));
    let memory = scanned(&chain, &[old, young, last]);
    let plan = |target| Rewind::plan(&memory, &chain, target, now);
    for target in [Target::Published(10), Target::Published(19), Target::Shown(old)] {
        let refused = plan(target);
        let is_old = matches!(&refused, Err(RewindError::TooOld(to)) if *to == old);
        assert!(is_old, "{target:?}: {refused:?}");
    }
    for target in [Target::Published(20), Target::Published(29), Target::Shown(young)] {
        assert_eq!(plan(target).unwrap().to, young, "{target:?}");
    }
}

/// A held transfer pays nothing, however deep its block is.
#[test]
fn held_transfer_is_not_listed_as_confirmed() {
    let chain = chain(Policy::flat(Some(3), None));
    let [first, paid, last] = [10, 20, 30].map(|number| block(number, number));
    let transfer = ChainRecord { block: paid, ..example::chain_record() };
    let ChainBody::Transfer(seen) = transfer.body else { panic!() };
    for is_held in [false, true] {
        let mut memory = scanned(&chain, &[first]);
        let mut head = simulation::head(last, first_head(&chain, last).confirmed, -1);
        let ChainBody::Head(body) = &mut head.body else { panic!() };
        body.held.extend(is_held.then_some(Held { block: paid, transfer: seen }));
        let transfer = ChainRecord { epoch: head.epoch, ..transfer.clone() };
        memory.publish(&chain, &[transfer, head]);
        let plan = Rewind::plan(&memory, &chain, Target::Published(10), UnixMicros(1));
        assert_eq!(plan.unwrap().retracted, [(paid, seen, !is_held)]);
    }
}

/// The search finds the fork point at any height, or reports why there is none.
#[tokio::test]
async fn the_newest_common_block_is_found() {
    let chain = chain(Policy::flat(Some(3), None));
    let last = 6 * DEPTH_MIN;
    let blocks: Vec<_> = (1..=last).map(|number| block(number, 1000 + number)).collect();
    let log: std::sync::Arc<dyn Log> = std::sync::Arc::new(scanned(&chain, &blocks));
    for fork in [1, 2, 5 * DEPTH_MIN - 1, 5 * DEPTH_MIN, last - 2, last - 1] {
        let found = newest_common(log.clone(), &chain, async |of| Ok(of.number <= fork)).await;
        assert_eq!(found.unwrap().number, fork);
    }
    let found = newest_common(log.clone(), &chain, async |_| Ok(true)).await;
    assert!(matches!(found, Err(RewindError::NothingToTakeBack(n)) if n == last), "{found:?}");
    let found = newest_common(log, &chain, async |_| Ok(false)).await;
    assert!(matches!(found, Err(RewindError::NoCommon(1))), "{found:?}");
    let old = scanned(&chain, &[block(1, 1), block(2, FORGET_SECONDS + 1000)]);
    let found = newest_common(std::sync::Arc::new(old), &chain, async |_| Ok(false)).await;
    assert!(matches!(found, Err(RewindError::TooOld(_))), "{found:?}");
}

/// A node whose blocks all have this hash; with `None` it has no blocks.
async fn serving(hash: Option<u8>) -> Served {
    Served::of(move |call| {
        let hash = hash.map(|byte| Hash([byte; 32]));
        let block = json!({
            "number": call["params"][0], "hash": hash, "parentHash": hash, "timestamp": "0x1",
            "logsBloom": format!("0x{}", "f".repeat(512)), "transactions": [],
        });
        let result = match call["method"].as_str() {
            Some("eth_chainId") => json!("0x1"),
            _ if hash.is_some() => block,
            _ => Value::Null,
        };
        json!({ "result": result })
    })
    .await
}

/// One endpoint that has the block is enough; two that differ are an error.
#[tokio::test]
async fn endpoints_say_which_block_a_height_is() {
    for (served, expected) in [
        ([Some(5), Some(5)], Ok(5)),
        ([Some(5), None], Ok(5)),
        ([None, None], Err("no endpoint has it")),
        ([Some(5), Some(6)], Err("they have different ones: ")),
    ] {
        let mut chain = chain(Policy::flat(Some(3), None));
        let nodes = [serving(served[0]).await, serving(served[1]).await];
        chain.endpoints = nodes.iter().map(Served::endpoint).collect();
        match (Target::shown(&chain, 7).await, expected) {
            (Ok(Target::Shown(block)), Ok(byte)) => {
                assert_eq!((block.number, block.hash), (7, Hash([byte; 32])));
            }
            (Err(RewindError::Endpoints(7, why)), Err(words)) => {
                assert!(why.contains(words), "{why}");
            }
            (found, _) => panic!("{served:?}: {found:?}"),
        }
    }
}

/// After a reorganisation the new fork may still be shorter: none of its endpoints has the last blocks of the old one.
#[tokio::test]
async fn blocks_beyond_the_end_of_the_fork_are_no_failure() {
    let genesis_timestamp = 1_790_000_000;
    let config = devnet::Config { chain_id: 1, genesis_timestamp, ..devnet::Config::default() };
    let devnet = devnet::Devnet::start(config, ([127, 0, 0, 1], 0).into()).await.unwrap();
    devnet.chain().mine(4).unwrap();
    let mut chain = chain(Policy::flat(Some(3), None));
    chain.endpoints = vec![endpoint(devnet.url())];
    let Target::Shown(common) = Target::shown(&chain, 3).await.unwrap() else { panic!("a block") };
    let after = |number| block(number, common.timestamp.0 + number);
    let memory = scanned(&chain, &[common, after(4), after(5), after(6)]);
    let found = Target::common(std::sync::Arc::new(memory), &chain).await;
    assert!(matches!(found, Ok(Target::Published(3))), "{found:?}");
    let refused = Target::shown(&chain, 6).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.ends_with("6 is: no endpoint has it"), "{text}");
}
