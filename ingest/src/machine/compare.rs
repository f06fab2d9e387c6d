//! Whether two answers about the same blocks agree, transfer by transfer.

use schemas::record::{Block, Observation};

use super::{EventLog, History, Receipt, Watch};

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

/// The first position among equal transfers of a transaction that none has: those that were published keep theirs.
pub(crate) fn next_ordinal(
    history: &History,
    number: i64,
    new: &Observation,
    others: &[(Block, Observation)],
) -> i32 {
    let live = history.between(number, number);
    let equal = live.iter().chain(others).filter(|(block, other)| {
        block.number == number && same(&Observation { log_index: new.log_index, ..*other }, new)
    });
    equal.map(|(_, other)| other.ordinal.saturating_add(1)).max().unwrap_or(0)
}
