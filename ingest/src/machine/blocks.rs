//! Choice of the blocks of a range to fetch one by one to verify its logs.

use schemas::record::Block;

use super::{EventLog, Header, Next};

/// Every block of a range of at most this many is fetched by itself; of a longer range those with logs, and the end. At
/// the tip ranges are this short, and there an endpoint's logs may still be incomplete.
pub(super) const SHORT_RANGE_BLOCKS_MAX: i64 = 16;

/// Returns `true` if each block of the range is fetched by itself.
fn is_short(from: i64, to: i64) -> bool {
    to.saturating_sub(from) < SHORT_RANGE_BLOCKS_MAX
}

/// The heights before the end of the range whose headers are fetched with its logs: in a short range all, so that the
/// logs of each can be fetched by its hash; in a long range the first, whose parent must be our last block.
pub(super) fn before_end(from: i64, to: i64) -> std::ops::Range<i64> {
    from..if is_short(from, to) { to } else { from + 1 }
}

/// The blocks to fetch again, in order. In a long range those with logs, except the first block of the range, have the
/// time of the end: their own is not known yet. `headers` are those of [`before_end`], then the end; `logs` are sorted.
pub(super) fn to_verify(
    from: i64,
    last: Block,
    headers: &[Header],
    end: Block,
    logs: &[EventLog],
) -> Result<Vec<Block>, Next> {
    let forks = Err(Next::Retry("logs and headers are of two forks"));
    let in_row = if is_short(from, end.number) { headers.len() } else { 1 };
    let mut parent = last.hash;
    let mut blocks: Vec<Block> = Vec::new();
    for (number, header) in (from..).zip(headers.iter().take(in_row)) {
        if header.block.number != number {
            return Err(Next::Retry("the endpoint answered with another block"));
        }
        if header.parent != parent {
            return Err(Next::Retry("the next block has another parent"));
        }
        parent = header.block.hash;
        blocks.push(header.block);
    }
    if is_short(from, end.number) {
        let is_known = |log: &EventLog| {
            let same =
                |block: &Block| (block.number, block.hash) == (log.block_number, log.block_hash);
            blocks.iter().any(same)
        };
        return if logs.iter().all(is_known) { Ok(blocks) } else { forks };
    }
    let first = logs.first().filter(|log| log.block_number == from);
    if first.is_some_and(|log| log.block_hash != parent) {
        return forks;
    }
    blocks.retain(|_| first.is_some());
    for log in logs {
        if blocks.last().is_none_or(|block| block.number != log.block_number) {
            let (number, hash) = (log.block_number, log.block_hash);
            blocks.push(Block { number, hash, timestamp: end.timestamp });
        }
    }
    match blocks.last() {
        Some(block) if block.number == end.number && block.hash != end.hash => return forks,
        Some(block) if block.number == end.number => {}
        _ => blocks.push(end),
    }
    Ok(blocks)
}
