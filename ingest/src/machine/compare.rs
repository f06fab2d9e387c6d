//! Whether two answers about the same blocks agree, transfer by transfer.

use schemas::TxHash;
use schemas::record::{Block, Observation};

use super::{EventLog, History, Outcome, Proof, Receipt, Watch};

/// Whether both are the same event: its position among equal ones, and whose wallet sent it, are ours to say.
pub(crate) fn same(a: &Observation, b: &Observation) -> bool {
    let plain = |seen: &Observation| Observation { ordinal: 0, from_own_wallet: false, ..*seen };
    plain(a) == plain(b)
}

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

/// Whether a receipt has a transfer, in its block.
pub(crate) fn proves(
    watch: &Watch,
    receipt: Option<&Receipt>,
    block: Block,
    transfer: &Observation,
) -> bool {
    let Some(receipt) = receipt else { return false };
    let logs = receipt.logs.iter().cloned();
    let Ok(logs) = watch.sift(logs, block.number, block.number) else {
        return false;
    };
    let mut seen = payments(watch, &logs).into_iter();
    let is_here = receipt.succeeded && receipt.block_hash == block.hash;
    is_here && seen.any(|(_, seen)| same(&seen, transfer))
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
    for (Outcome { transaction, .. }, receipt) in transactions.iter().zip(receipts) {
        let receipt = receipt.receipt().ok_or(Unexplained::Missing)?;
        let its = || logs.iter().filter(|log| log.tx_hash == *transaction);
        if its().any(|log| log.block_hash != receipt.block_hash) {
            return Err(Unexplained::Moved);
        }
        if !receipt.succeeded {
            failed.push(*transaction);
        } else if !receipt.has(its()) {
            return Err(Unexplained::Lacking);
        }
    }
    Ok(failed)
}

/// The first position among equal payments of a transaction that none has: those that were published keep theirs. The
/// contract of a stablecoin is no part of a payment, so two of them share the positions.
pub(crate) fn next_ordinal(
    history: &History,
    number: i64,
    new: &Observation,
    others: &[(Block, Observation)],
) -> i32 {
    let live = history.between(number, number);
    let payment = |seen: &Observation| Observation { ordinal: 0, ..*seen }.payment();
    let equal = live
        .iter()
        .chain(others)
        .filter(|(block, other)| block.number == number && payment(other) == payment(new));
    equal.map(|(_, other)| other.ordinal.saturating_add(1)).max().unwrap_or(0)
}
