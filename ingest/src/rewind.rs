//! Takes a chain back below its finalized height, by hand: what ends a halt after a reorganisation that is deeper
//! than was promised.
//!
//! One atomic step, as ingest writes for a reorganisation: retracts of what is live above a block, and a head at it in
//! the next epoch. That block is final from then on. Opening the chain's writer fences a running ingest.

use log::Log;
use schemas::record::{Block, ChainBody, ChainRecord, Head, Observation};
use schemas::{Epoch, FORGET_SECONDS, UnixMicros};

use crate::machine::History;
use crate::{ChainConfig, Error, publish, restore, watched};

/// Why a chain cannot be taken back to a height.
#[derive(Debug, thiserror::Error)]
pub enum RewindError {
    #[error(transparent)]
    Ingest(#[from] Error),
    #[error("the log has no record of the chain: there is nothing to take back")]
    Unknown,
    #[error("the chain is scanned up to {0}: give a height below that")]
    NotBelow(i64),
    #[error("no block at or below that height was published: the log begins at {0}")]
    Gone(i64),
    #[error(
        "block {} is more than a day older than the last one: the processor has forgotten transfers after it, and \
         would take them for new ones",
        .0.number
    )]
    TooOld(Block),
}

/// What a rewind takes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewind {
    /// The last scanned block.
    pub from: Block,
    /// The newest published block at or below the height: the new last one.
    pub to: Block,
    pub epoch: Epoch,
    /// The transfers after it, and whether they counted as confirmed.
    pub retracted: Vec<(Block, Observation, bool)>,
    head: Head,
    observed_at: UnixMicros,
}

impl Rewind {
    /// What a rewind to a height would take back. Blocks.
    ///
    /// # Errors
    /// [`RewindError`].
    pub fn plan(
        log: &dyn Log,
        chain: &ChainConfig,
        height: i64,
        now: UnixMicros,
    ) -> Result<Self, RewindError> {
        let history = restore::restore_down_to(log, chain, height)?.ok_or(RewindError::Unknown)?;
        Self::of(&history, height, now)
    }

    fn of(history: &History, height: i64, now: UnixMicros) -> Result<Self, RewindError> {
        let from = history.last();
        if height >= from.number {
            return Err(RewindError::NotBelow(from.number));
        }
        let to = history.anchor_at_or_below(height).ok_or_else(|| {
            RewindError::Gone(
                history.anchors_below(i64::MAX, usize::MAX).last().map_or(0, |b| b.number),
            )
        })?;
        if to.timestamp.plus(FORGET_SECONDS) < from.timestamp {
            return Err(RewindError::TooOld(to));
        }
        let head = history.head();
        let is_confirmed = |(block, seen): (Block, Observation)| {
            let confirmed = block.number <= head.confirmed_number(seen.value);
            (block, seen, confirmed)
        };
        Ok(Self {
            from,
            to,
            epoch: Epoch(history.epoch().0.saturating_add(1)),
            retracted: history.above(to.number).map(is_confirmed).collect(),
            head: head_at(to, head),
            observed_at: history.observed_at().next(now),
        })
    }

    /// Fences the ingest of the chain and writes the rewind to a height. Blocks.
    ///
    /// # Errors
    /// [`RewindError`]; nothing was written then.
    pub fn write(
        log: &dyn Log,
        chain: &ChainConfig,
        height: i64,
        now: UnixMicros,
    ) -> Result<Self, RewindError> {
        let mut writer = log.writer(&chain.writer()).map_err(Error::from)?;
        let known = watched::known(log, chain.blockchain).map_err(Error::from)?;
        let rewind = Self::plan(log, chain, height, now)?;
        let step = publish::step(&rewind.records(chain), known, &log.layout());
        let step = step.map_err(Error::Encode)?;
        writer.commit(step).map_err(Error::from)?;
        Ok(rewind)
    }

    fn records(&self, chain: &ChainConfig) -> Vec<ChainRecord> {
        let record = |block, body| ChainRecord {
            blockchain: chain.blockchain,
            epoch: self.epoch,
            block,
            observed_at: self.observed_at,
            body,
            confirmed: false,
        };
        let retracted = self.retracted.iter();
        let retracts = retracted.map(|(block, seen, _)| record(*block, ChainBody::Retract(*seen)));
        let head = record(self.to, ChainBody::Head(self.head.clone()));
        retracts.chain([head]).collect()
    }
}

/// The head at a block below the last one: nothing after it is scanned, and it is final.
fn head_at(to: Block, last: &Head) -> Head {
    let mut head = Head { finalized: last.finalized.min(to.number), ..last.clone() };
    for tier in &mut head.confirmed {
        tier.number = tier.number.min(to.number);
        tier.timestamp = tier.timestamp.min(Some(to.timestamp));
    }
    head
}
