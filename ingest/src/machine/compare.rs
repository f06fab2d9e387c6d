//! How answers about the same blocks are compared: as multisets of transfers. The position of a log in its block is no
//! part of that: nodes number logs differently, and correct it later.

use std::collections::HashMap;

use schemas::TxHash;
use schemas::record::{Block, Observation};

use super::{EventLog, History, Outcome, Proof, Watch};

/// The payments among sifted logs of several blocks, with the heights of their blocks.
pub(crate) fn payments(watch: &Watch, logs: &[EventLog]) -> Vec<(i64, Observation)> {
    let blocks = logs.chunk_by(|a, b| a.block_number == b.block_number);
    let seen = blocks.flat_map(|logs| {
        let number = logs.first().map_or(-1, |log| log.block_number);
        let (seen, _) = watch.observe(logs);
        seen.into_iter().map(move |seen| (number, seen))
    });
    seen.collect()
}

/// How two answers about a block differ.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// What the second one lacks, with how many equal ones of a transaction come before it.
    pub(crate) missing: Vec<(usize, Observation)>,
    /// What the second one has more, with how many equal ones come before it.
    pub(crate) extra: Vec<(usize, Observation)>,
}

/// Compares the transfers of one block. Of equal ones the first positions are those that both have.
pub(crate) fn difference(ours: &[Observation], theirs: &[Observation]) -> Comparison {
    let mut difference = Comparison::default();
    let equal = |all: &[Observation], one: &Observation| -> Vec<Observation> {
        let mut equal: Vec<_> = all.iter().filter(|other| other.is_equal(one)).copied().collect();
        equal.sort_by_key(|seen| seen.ordinal);
        equal
    };
    let is_first = |all: &[Observation], at: usize| {
        all.get(at).is_some_and(|one| !all.iter().take(at).any(|before| before.is_equal(one)))
    };
    for (_, one) in ours.iter().enumerate().filter(|(at, _)| is_first(ours, *at)) {
        let (mine, other) = (equal(ours, one), equal(theirs, one));
        difference.missing.extend(mine.into_iter().enumerate().skip(other.len()));
    }
    for (_, one) in theirs.iter().enumerate().filter(|(at, _)| is_first(theirs, *at)) {
        let (mine, mut other) = (equal(ours, one), equal(theirs, one));
        let more = other.len().saturating_sub(mine.len());
        // Those whose logs we do not know, if the numbering is the same.
        other.retain(|seen| mine.iter().all(|known| known.log_index != seen.log_index));
        let from = other.len().saturating_sub(more);
        let ranks = mine.len()..;
        difference.extra.extend(ranks.zip(other.into_iter().skip(from)));
    }
    difference
}

/// Why receipts do not explain the logs of their transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unexplained {
    /// A transaction has none.
    Missing,
    /// A transaction is in another block than its logs.
    Moved,
    /// A successful transaction has a log that its receipt lacks.
    Lacking,
}

/// The transactions that failed, by the receipts of all, which are in the same order: their logs moved nothing.
pub(crate) fn failed(
    transactions: &[Outcome],
    receipts: &[Proof],
    logs: &[EventLog],
) -> Result<Vec<TxHash>, Unexplained> {
    let mut failed = Vec::new();
    for (Outcome { transaction, .. }, proof) in transactions.iter().zip(receipts) {
        let receipt = match proof {
            Proof::Receipt(receipt) => receipt,
            Proof::Unlisted => return Err(Unexplained::Moved),
            Proof::Unknown => return Err(Unexplained::Missing),
        };
        let its = || logs.iter().filter(|log| log.tx_hash == *transaction);
        if its().any(|log| log.block_hash != receipt.block_hash) {
            return Err(Unexplained::Moved);
        }
        if !receipt.succeeded {
            failed.push(*transaction);
        } else if !includes(&receipt.logs, its()) {
            return Err(Unexplained::Lacking);
        }
    }
    Ok(failed)
}

type Content<'a> = (TxHash, [u8; 20], &'a [[u8; 32]], &'a [u8]);

/// What makes a log, but for its position.
pub(crate) fn content(log: &EventLog) -> Content<'_> {
    (log.tx_hash, log.address, &log.topics, &log.data)
}

fn contents<'a>(logs: impl IntoIterator<Item = &'a EventLog>) -> HashMap<Content<'a>, usize> {
    let mut counts = HashMap::new();
    for log in logs {
        *counts.entry(content(log)).or_default() += 1;
    }
    counts
}

/// Whether one answer has all logs of another, each as often.
fn includes<'a>(
    all: impl IntoIterator<Item = &'a EventLog>,
    some: impl IntoIterator<Item = &'a EventLog>,
) -> bool {
    let all = contents(all);
    contents(some).into_iter().all(|(content, count)| all.get(&content) >= Some(&count))
}

/// Takes the further copies of sorted logs out.
pub(crate) fn repeated(logs: &mut Vec<EventLog>) -> Vec<EventLog> {
    let copies = logs.iter().zip(logs.iter().skip(1)).filter(|(a, b)| a == b);
    let copies = copies.map(|(_, copy)| copy.clone()).collect();
    logs.dedup();
    copies
}

/// The logs that only one of two answers about a block has, each as often as it has it more.
pub(crate) fn only_in_one(first: &[EventLog], second: &[EventLog]) -> Vec<EventLog> {
    let more = |one: &[EventLog], other: &[EventLog]| {
        let mut left = contents(other);
        let mut found = Vec::new();
        for log in one {
            match left.get_mut(&content(log)) {
                Some(count) if *count > 0 => *count -= 1,
                _ => found.push(log.clone()),
            }
        }
        found
    };
    let mut only = more(first, second);
    only.extend(more(second, first));
    only
}

/// The first position among equal payments of a transaction that none has: those that were published keep theirs.
pub(crate) fn next_ordinal(
    history: &History,
    number: i64,
    new: &Observation,
    others: &[(Block, Observation)],
) -> i32 {
    let live = history.between(number, number);
    let equal = live
        .iter()
        .chain(others)
        .filter(|(block, other)| block.number == number && other.is_equal(new));
    equal.map(|(_, other)| other.ordinal.saturating_add(1)).max().unwrap_or(0)
}
