//! The whole pipeline behind endpoints with faults, played from seeds: blocks are mined and reorganised while orders
//! are paid in time, late, wrongly or not at all, and ingest is stopped, killed and started again. In the end the
//! tables must equal the chain.
//!
//! Requests pass a gate one by one, and the world changes only while it is closed: a run is a function of its seed,
//! except for time-outs and thread scheduling. Chain time is the clock of all stages, so that the waits of the second
//! check take no time; polls, time-outs and the backoff of endpoints that failed are shorter than in production.
//!
//! `TIDEMARK_FAULT_SEEDS` is the number of seeds, or a range such as `17..18`.

pub(crate) mod chain;
pub(crate) mod customer;
mod faults;
mod play;
pub(crate) mod run;
pub(crate) mod shop;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

use crate::sabotage::Defect;

/// Number of seeds of a run, unless another one is requested.
const SEEDS: u64 = 12;
/// Maximum number of seeds to find a planted defect.
const PLANTED_SEEDS: u64 = 24;
/// Concurrent runs, which mostly wait.
const AT_ONCE: usize = 4;
/// Minimum counts of a full run by kind: half of those at the time of writing, less of rare kinds.
const COUNTS_MIN: [(&str, usize); 13] = [
    ("payments", 95),
    ("paid", 43),
    ("expired", 20),
    ("reorganised", 26),
    ("started again", 14),
    ("omitted", 2),
    ("omitted in one form", 2),
    ("invented", 6),
    ("fork grown", 4),
    ("renumbered", 23),
    ("no receipts", 18),
    ("young tags", 2),
    ("faults", 53),
];

/// Seeds to play: those that are requested, otherwise the first `usual` ones.
pub(crate) fn seeds(usual: u64) -> Range<u64> {
    let Some(text) = std::env::var_os("TIDEMARK_FAULT_SEEDS") else { return 0..usual };
    let text = text.to_str().unwrap();
    match text.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => 0..text.parse().unwrap(),
    }
}

/// Returns the outcome of a run. A run that panicked is red, and does not end the others.
fn outcome(ended: Result<play::Outcome, JoinError>) -> play::Outcome {
    let red = |error: JoinError| play::Outcome {
        result: Err(error.to_string()),
        counts: BTreeMap::new(),
    };
    ended.unwrap_or_else(red)
}

/// Plays seeds, and returns the outcome of each.
async fn play_all(seeds: Range<u64>, defect: Defect) -> BTreeMap<u64, play::Outcome> {
    let (mut runs, places) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    for seed in seeds {
        let places = places.clone();
        runs.spawn(async move {
            let _place = places.acquire().await.unwrap();
            (seed, outcome(tokio::spawn(play::play(seed, defect)).await))
        });
    }
    let mut outcomes = BTreeMap::new();
    while let Some(ended) = runs.join_next().await {
        let (seed, outcome) = ended.unwrap();
        if let Err(problem) = &outcome.result {
            println!("seed {seed}: {problem}");
        }
        outcomes.insert(seed, outcome);
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_leave_each_payment_final_once() {
    let outcomes = play_all(seeds(SEEDS), Defect::None).await;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, count) in outcomes.values().flat_map(|outcome| &outcome.counts) {
        *counts.entry(name).or_default() += count;
    }
    println!("{} seeds: {counts:?}", outcomes.len());
    let red: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.result.is_err()).collect();
    let first = red.iter().map(|(seed, outcome)| format!("\nseed {seed}: {:?}", outcome.result));
    assert!(red.is_empty(), "{}", first.collect::<String>());
    if outcomes.len() as u64 >= SEEDS {
        for (what, least) in COUNTS_MIN {
            let count = counts.get(what).copied().unwrap_or_default();
            assert!(count >= least, "{what}: {count} times, and not {least}");
        }
    }
}

#[tokio::test]
async fn a_run_that_panics_is_a_red_one() {
    let ended = tokio::spawn(async { panic!("out of the way") }).await;
    let problem = outcome(ended).result.unwrap_err();
    assert!(problem.contains("out of the way"), "{problem}");
}

/// Expects that a seed fails with one of these words.
async fn found(defect: Defect, words: &[&str]) {
    for seeds in (0..PLANTED_SEEDS).step_by(AT_ONCE).map(|from| from..from + AT_ONCE as u64) {
        for (seed, outcome) in play_all(seeds, defect).await {
            let Err(problem) = outcome.result else { continue };
            if words.iter().any(|word| problem.contains(word)) {
                println!("{defect:?} is found by seed {seed}");
                return;
            }
        }
    }
    panic!("{defect:?} is not found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_omission_without_the_second_check_is_found() {
    found(Defect::OneCheck, &["omission"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_chain_after_the_start_is_found() {
    found(Defect::AnyChain, &["halted"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn logs_that_were_removed_are_found() {
    found(Defect::Removed, &["invention", "unpaid", "payer"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_index_in_the_identity_is_found() {
    found(Defect::IndexInIdentity, &["invention"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_null_receipt_that_denies_is_found() {
    found(Defect::NullDenies, &["omission"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_vouched_height_that_never_falls_is_found() {
    found(Defect::VouchedNeverFalls, &["invention", "unpaid", "payer"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hold_that_is_forgotten_is_found() {
    found(Defect::HoldForgotten, &["invention", "unpaid", "payer"]).await;
}
