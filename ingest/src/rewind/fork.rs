//! The newest published block that the endpoints still have: the target of a rewind.

use std::sync::Arc;

use log::Log;
use schemas::FORGET_SECONDS;
use schemas::record::Block;

use super::{RewindError, Target};
use crate::{ChainConfig, restore};

/// Minimum number of heights that are read back at first; each further read covers four times the range.
pub(super) const DEPTH_MIN: i64 = 256;

impl Target {
    /// The newest published block that the endpoints have too.
    ///
    /// # Errors
    /// [`RewindError`]; [`RewindError::Endpoints`] if they disagree or do not answer.
    pub async fn common(log: Arc<dyn Log>, chain: &ChainConfig) -> Result<Self, RewindError> {
        let is_shown = async |block: &Block| {
            Ok(Self::shown_or_gone(chain, block.number).await? == Some(Self::Shown(*block)))
        };
        newest_common(log, chain, is_shown).await.map(|block| Self::Published(block.number))
    }
}

/// The newest published block for which `is_shown` holds.
pub(super) async fn newest_common(
    log: Arc<dyn Log>,
    chain: &ChainConfig,
    is_shown: impl AsyncFn(&Block) -> Result<bool, RewindError>,
) -> Result<Block, RewindError> {
    let mut depth = chain.reorg_window.max(DEPTH_MIN);
    let mut lowest_read = i64::MAX;
    loop {
        let (log, of) = (log.clone(), chain.clone());
        let read = tokio::task::spawn_blocking(move || published(&*log, &of, depth));
        let blocks = read.await.map_err(|_| RewindError::Unknown)??;
        let (Some(lowest), Some(last)) = (blocks.first(), blocks.last()) else {
            return Err(RewindError::Unknown);
        };
        if is_shown(last).await? {
            return Err(RewindError::NothingToTakeBack(last.number));
        }
        if is_shown(lowest).await? {
            return newest_shown(&blocks, is_shown).await;
        }
        if lowest.timestamp.plus(FORGET_SECONDS) < last.timestamp {
            return Err(RewindError::TooOld(*lowest));
        }
        if lowest.number >= lowest_read {
            return Err(RewindError::NoCommon(lowest.number));
        }
        // Published blocks may be further apart than the range that was read.
        let read = last.number.saturating_sub(lowest.number);
        (lowest_read, depth) = (lowest.number, depth.max(read).saturating_mul(4));
    }
}

/// The blocks that were published for the last `depth` heights, the lowest first.
fn published(log: &dyn Log, chain: &ChainConfig, depth: i64) -> Result<Vec<Block>, RewindError> {
    let history = restore::restore(log, chain)?.ok_or(RewindError::Unknown)?;
    let last = history.last().number;
    let history = restore::restore_down_to(log, chain, last.saturating_sub(depth))?;
    let history = history.ok_or(RewindError::Unknown)?;
    let mut blocks = history.anchors_below(i64::MAX, usize::MAX);
    blocks.reverse();
    Ok(blocks)
}

/// The newest of the blocks that is shown, by bisection. The first one is shown, and forks share all blocks below a
/// common one.
async fn newest_shown(
    blocks: &[Block],
    is_shown: impl AsyncFn(&Block) -> Result<bool, RewindError>,
) -> Result<Block, RewindError> {
    let (mut shown, mut not_shown) = (0, blocks.len());
    while shown + 1 < not_shown {
        let middle = usize::midpoint(shown, not_shown);
        match blocks.get(middle) {
            Some(block) if is_shown(block).await? => shown = middle,
            Some(_) | None => not_shown = middle,
        }
    }
    blocks.get(shown).copied().ok_or(RewindError::Unknown)
}
