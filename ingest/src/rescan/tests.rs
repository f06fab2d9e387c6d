//! Tests of missing transfers, and of an endpoint's answers about them.

use std::sync::atomic::{AtomicU32, Ordering};

use schemas::Hash;

use super::*;
use crate::machine::Policy;
use crate::simulation::{self, MemoryLog, Served, chain, replies};

const HASH: BlockHash = Hash([5; 32]);

fn block(number: i64) -> Block {
    Block { number, hash: HASH, timestamp: UnixSeconds(1000 + number) }
}

fn event(log_index: i32, units: u128) -> EventLog {
    simulation::event(block(5), log_index, units)
}

fn head(chain: &ChainConfig, number: i64) -> ChainRecord {
    let tags = crate::machine::Tags::default();
    simulation::head(block(number), chain.rules().policy.confirmed(number, tags), -1)
}

/// Returns a history with these payments in block 5, between the heads of blocks 4 and 6.
fn history(chain: &ChainConfig, logs: &[EventLog]) -> History {
    let payments = payments(&chain.rules().watch, logs).into_iter();
    let payment = |seen| chain.record(Epoch(0), UnixMicros(5), block(5), ChainBody::Transfer(seen));
    let payments = payments.map(|(_, seen)| payment(seen));
    let records = [head(chain, 4)].into_iter().chain(payments).chain([head(chain, 6)]);
    records.fold(None, |history, record| History::fold(history, &record)).unwrap()
}

#[test]
fn transfers_are_missing_whatever_their_index() {
    let chain = chain(Policy::flat(Some(3), None));
    let watch = &chain.rules().watch;
    let missing = |had: &[EventLog], shows: &[EventLog]| {
        let known = published(&history(&chain, had), 1, 9);
        let new = shown(watch, shows).into_iter().filter(|(place, _)| !known.contains(place));
        new.map(|(_, seen)| (seen.log_index, seen.ordinal)).collect::<Vec<_>>()
    };
    assert_eq!(missing(&[], &[event(0, 7), event(1, 7)]), [(0, 0), (1, 1)]);
    // A node that numbers logs otherwise shows no other payment.
    assert_eq!(missing(&[event(3, 7)], &[event(0, 7)]), []);
    assert_eq!(missing(&[event(3, 7)], &[event(0, 8), event(3, 9)]), [(0, 0), (3, 0)]);
    // Of two equal ones one is missing, wherever the other is.
    assert_eq!(missing(&[event(0, 7)], &[event(0, 7), event(1, 7)]), [(1, 1)]);
    assert_eq!(missing(&[event(1, 7)], &[event(0, 7), event(1, 7)]), [(1, 1)]);
    assert_eq!(missing(&[event(0, 7), event(1, 7)], &[event(0, 7)]), []);
    let other_block = EventLog { block_hash: Hash([6; 32]), ..event(0, 7) };
    assert_eq!(missing(&[event(0, 7)], &[other_block]), [(0, 0)]);
}

#[tokio::test]
async fn blocks_before_the_log_are_not_compared() {
    let chain = chain(Policy::flat(Some(3), None));
    let mut memory = MemoryLog::new();
    for number in 1..=40 {
        memory.publish(&chain, &[head(&chain, number)]);
    }
    let known = async |memory: &MemoryLog, from| {
        let log: Arc<dyn Log> = Arc::new(memory.clone());
        known(&log, &chain, from).await.map(|history| history.last().number)
    };
    assert_eq!(known(&memory, 2).await.unwrap(), 40);
    memory.expire(10);
    assert_eq!(known(&memory, 32).await.unwrap(), 40);
    for from in [2, 31] {
        let gone = known(&memory, from).await;
        assert!(matches!(gone, Err(RescanError::Gone(31))), "{gone:?}");
    }
}

#[tokio::test]
async fn a_range_that_no_endpoint_has_is_not_rescanned() {
    let mut chain = chain(Policy::flat(Some(3), None));
    let mut memory = MemoryLog::new();
    for number in [1, 5] {
        memory.publish(&chain, &[head(&chain, number)]);
    }
    let log: Arc<dyn Log> = Arc::new(memory);
    let served = Served::start(Arc::new(|_: &[serde_json::Value]| (401, String::new()))).await;
    chain.endpoints = vec![served.endpoint()];
    let found = Rescan::find(&log, &chain, (2, 5), |_, _| {}).await;
    let Err(RescanError::NoEndpoint(why)) = found else { panic!("{found:?}") };
    assert!(why.contains("HTTP status 401"), "{why}");
}

#[tokio::test]
async fn an_endpoint_has_five_attempts_at_a_small_range() {
    // The first two failures halve the range, to one block.
    let outage = 2 + ATTEMPTS - 1;
    let scan_after = async |failures: u32| {
        let asked = AtomicU32::new(0);
        let answers = move |calls: &[serde_json::Value]| {
            if asked.fetch_add(1, Ordering::Relaxed) < failures {
                return (503, "suspended for 0 s".to_owned());
            }
            replies(calls, |_| serde_json::json!({"jsonrpc": "2.0", "result": []}))
        };
        let served = Served::start(Arc::new(answers)).await;
        let rules = chain(Policy::flat(Some(3), None)).rules();
        let range = (Flow::Received, 1, 4);
        scan(&served.client(), &rules, 4, range, &mut |_| {}).await.map(|logs| logs.len())
    };
    assert_eq!(scan_after(outage).await, Ok(0));
    assert!(scan_after(outage + 1).await.unwrap_err().contains("HTTP status 503"));
}
