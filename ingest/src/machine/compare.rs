//! Comparison of answers about the same blocks, as multisets of transfers. The position of a log in
//! its block does not count: nodes number logs differently, and correct it later.

use std::collections::{HashMap, HashSet};

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

/// Difference between two answers about a block.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Transfers that the second answer lacks, and the number of equal ones before each.
    pub(crate) missing: Vec<(usize, Observation)>,
    /// Transfers that only the second answer has, and the number of equal ones before each.
    pub(crate) extra: Vec<(usize, Observation)>,
}

/// Compares the transfers of one block. If one answer has more equal transfers than the other, the last ones are the
/// difference.
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
        // Logs with unknown indexes come last: they are the extra ones, if both number logs the same way.
        other.sort_by_key(|seen| mine.iter().all(|known| known.log_index != seen.log_index));
        difference.extra.extend(other.into_iter().enumerate().skip(mine.len()));
    }
    difference
}

/// Reason why receipts do not explain the logs of their transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unexplained {
    /// A transaction has no receipt.
    Missing,
    /// A transaction is in another block than its logs.
    Moved,
    /// A successful transaction has a log that its receipt lacks.
    Lacking,
}

/// Returns the failed transactions, whose logs moved nothing. `receipts` are those of `transactions`, in order.
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

/// Returns the content of a log, without its position.
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

/// Returns `true` if one answer has all logs of another, each at least as often.
fn includes<'a>(
    all: impl IntoIterator<Item = &'a EventLog>,
    some: impl IntoIterator<Item = &'a EventLog>,
) -> bool {
    let all = contents(all);
    contents(some).into_iter().all(|(content, count)| all.get(&content) >= Some(&count))
}

/// Two answers about a block, of the same endpoint.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Logs that both have, each as often as it has distinct indexes in both.
    pub(crate) certain: Vec<EventLog>,
    /// Logs of one answer alone, and copies with one index: duplicates or equal transfers.
    pub(crate) doubted: Vec<EventLog>,
    /// `true` if one answer has logs that the other one lacks.
    pub(crate) differ: bool,
}

impl Merged {
    pub(crate) fn of(first: &[EventLog], second: &[EventLog]) -> Self {
        let mut merged = Self::default();
        if first == second && !has_copies(first) {
            merged.certain = first.to_vec();
            return merged;
        }
        let mut known = HashSet::new();
        for log in first.iter().chain(second) {
            if !known.insert(content(log)) {
                continue;
            }
            let ((ours, our_count), (theirs, their_count)) =
                (equal(log, first), equal(log, second));
            let (certain, count) = (ours.len().min(theirs.len()), our_count.max(their_count));
            merged.differ |= ours.len() != theirs.len();
            let distinct = if ours.len() >= theirs.len() { ours } else { theirs };
            let copies = distinct.last().copied().into_iter().cycle();
            let all: Vec<_> = distinct.iter().copied().chain(copies).take(count).collect();
            let (certain, doubted) = all.split_at(certain);
            merged.certain.extend(certain.iter().copied().cloned());
            merged.doubted.extend(doubted.iter().copied().cloned());
        }
        merged.certain.sort_by_key(|log| (log.log_index, log.tx_hash));
        merged
    }
}

/// Returns `true` if a log occurs more than once with one index; `logs` are in order.
fn has_copies(logs: &[EventLog]) -> bool {
    logs.iter().zip(logs.iter().skip(1)).any(|(log, next)| log == next)
}

/// The logs of `answer`, which are in order, that are equal to `log` except for their indexes: one for each index, and
/// the number of all.
fn equal<'a>(log: &EventLog, answer: &'a [EventLog]) -> (Vec<&'a EventLog>, usize) {
    let mut distinct: Vec<_> =
        answer.iter().filter(|other| content(other) == content(log)).collect();
    let count = distinct.len();
    distinct.dedup();
    (distinct, count)
}

/// Next free ordinal among equal payments of a transaction: published ones keep theirs.
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

#[cfg(test)]
mod tests {
    use schemas::{BlockHash, Hash, UnixSeconds};

    use super::*;
    use crate::machine::Policy;
    use crate::simulation::{chain, event};

    const HASH: BlockHash = Hash([5; 32]);
    const BLOCK: Block = Block { number: 5, hash: HASH, timestamp: UnixSeconds(1005) };

    /// Equal logs with these indexes.
    fn logs(positions: &[i32]) -> Vec<EventLog> {
        positions.iter().map(|position| event(BLOCK, *position, 7)).collect()
    }

    #[test]
    fn two_answers_are_merged_as_multisets() {
        for (first, second, certain, doubted, differ) in [
            (&[3][..], &[3][..], &[3][..], &[][..], false),
            (&[3, 4], &[8, 9], &[3, 4], &[], false),
            // One answer has it with two indexes, the other one with a single index, once or several times.
            (&[0], &[3, 4], &[3], &[4], true),
            (&[0, 0], &[3, 4], &[3], &[4], true),
            (&[3, 4], &[0, 0, 0], &[3], &[4, 4], true),
            // A duplicate, or two transfers with one index.
            (&[3, 3], &[3], &[3], &[3], false),
            (&[0, 0], &[0, 0], &[0], &[0], false),
            (&[0], &[0, 0, 0], &[0], &[0, 0], false),
            (&[], &[3], &[], &[3], true),
            (&[3], &[], &[], &[3], true),
        ] {
            let merged = Merged::of(&logs(first), &logs(second));
            let expected = Merged { certain: logs(certain), doubted: logs(doubted), differ };
            assert_eq!(merged, expected, "{first:?} {second:?}");
        }
        let other = vec![event(BLOCK, 3, 8)];
        let merged = Merged::of(&logs(&[3]), &other);
        assert_eq!((merged.certain, merged.doubted), (vec![], [logs(&[3]), other].concat()));
    }

    #[test]
    fn extra_transfers_are_those_with_unknown_logs() {
        let rules = chain(Policy::flat(Some(3), None)).rules();
        for (ours, theirs, missing, extra) in [
            (&[3][..], &[3, 4][..], &[][..], &[(1, 4)][..]),
            (&[4], &[3, 4], &[], &[(1, 3)]),
            (&[1], &[3, 4], &[], &[(1, 4)]),
            (&[0], &[0, 0], &[], &[(1, 0)]),
            (&[0], &[0, 0, 0], &[], &[(1, 0), (2, 0)]),
            (&[0, 1], &[0], &[(1, 1)], &[]),
            (&[0, 1], &[4, 5], &[], &[]),
        ] {
            let [(ours, _), (theirs, _)] =
                [ours, theirs].map(|positions| rules.watch.observe(&logs(positions)));
            let differ = difference(&ours, &theirs);
            let short = |all: Vec<(usize, Observation)>| -> Vec<_> {
                all.into_iter().map(|(rank, seen)| (rank, seen.log_index)).collect()
            };
            assert_eq!(
                (short(differ.missing), short(differ.extra)),
                (missing.to_vec(), extra.to_vec())
            );
        }
    }
}
