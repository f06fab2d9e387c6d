//! Manual rewind of a chain. It may go below the finalized height, and so end the halt after a reorganisation that
//! deep.
//!
//! One atomic step, as ingest writes for a reorganisation: retracts of the live transfers above a block, and a head at
//! it in the next epoch. If that block is below the finalized height, it becomes the finalized height. Opening the
//! chain's writer fences a running ingest.
//!
//! Without records down to the height, the target is the endpoints' block there. Transfers without records cannot be
//! retracted one by one: the head of the next epoch makes the lanes drop their state above it.

mod fork;

use log::Log;
use schemas::record::{Block, ChainBody, ChainRecord, Head, Observation, Watch};
use schemas::{Epoch, FORGET_SECONDS, UnixMicros};

use crate::endpoints::clients;
use crate::machine::{Ask, History, Lost, Point, Tags};
use crate::rpc::Endpoint;
use crate::{ChainConfig, Error, lost, publish, restore, watched};

/// Reason why a chain cannot be rewound to a height.
#[derive(Debug, thiserror::Error)]
pub enum RewindError {
    #[error(transparent)]
    Ingest(#[from] Error),
    #[error("the log has no record of the chain: there is nothing to take back")]
    Unknown,
    #[error("the chain is scanned up to {0}: give a height below that")]
    NotBelow(i64),
    /// A rewind to [`Target::Shown`] needs no published block.
    #[error("no block at or below that height was published: the log begins at {0}")]
    Gone(i64),
    #[error("the endpoints have the last scanned block {0}: there is nothing to take back")]
    NothingToTakeBack(i64),
    #[error(
        "the endpoints have none of the published blocks, of which {0} is the lowest: give the height that both forks have"
    )]
    NoCommon(i64),
    #[error("the endpoints do not say which block {0} is: {1}")]
    Endpoints(i64, String),
    #[error(
        "block {} is more than a day older than the last one: the processor has forgotten transfers after it, and \
         would take them for new ones",
        .0.number
    )]
    TooOld(Block),
}

/// Block to rewind to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The newest published one at or below a height.
    Published(i64),
    /// One that the endpoints have ([`Target::shown`]), where the log has none: its records are gone, or begin later.
    Shown(Block),
}

impl Target {
    /// The block at a height, as the endpoints of the chain have it.
    ///
    /// # Errors
    /// [`RewindError::Endpoints`] unless at least one has it and no other has a different block.
    pub async fn shown(chain: &ChainConfig, height: i64) -> Result<Self, RewindError> {
        Self::shown_or_gone(chain, height)
            .await?
            .ok_or_else(|| RewindError::Endpoints(height, "no endpoint has it".to_owned()))
    }

    /// As [`Target::shown`], with `None` if every endpoint lacks the block.
    async fn shown_or_gone(chain: &ChainConfig, height: i64) -> Result<Option<Self>, RewindError> {
        let (mut shown, mut failures) = (Vec::new(), Vec::new());
        for endpoint in clients(chain)? {
            match block_of(&endpoint, chain, height).await {
                Ok(Some(block)) if shown.contains(&block) => {}
                Ok(Some(block)) => shown.push(block),
                Ok(None) => {}
                Err(cause) => failures.push(format!("{}: {cause}", endpoint.name())),
            }
        }
        match shown.as_slice() {
            [block] => Ok(Some(Self::Shown(*block))),
            [] if failures.is_empty() => Ok(None),
            [] => Err(RewindError::Endpoints(height, failures.join("; "))),
            forks => {
                let hashes: Vec<_> = forks.iter().map(|block| block.hash.to_string()).collect();
                let cause = format!("they have different ones: {}", hashes.join(", "));
                Err(RewindError::Endpoints(height, cause))
            }
        }
    }

    const fn height(self) -> i64 {
        match self {
            Self::Published(height) => height,
            Self::Shown(block) => block.number,
        }
    }
}

/// The block of an endpoint of the configured chain at a height, if it has one.
async fn block_of(
    endpoint: &Endpoint,
    chain: &ChainConfig,
    height: i64,
) -> Result<Option<Block>, String> {
    let found = endpoint.fetch_chain_id().await.map_err(|failure| failure.message)?;
    if found != chain.chain_id {
        return Err(format!("serves chain id {found}, not {}", chain.chain_id));
    }
    let ask = Ask { blocks: vec![Point::Number(height)], ..Ask::default() };
    let answer = endpoint.fetch(&ask).await.map_err(|failure| failure.message)?;
    let header = answer.blocks.into_iter().next().flatten();
    Ok(header.map(|header| header.block).filter(|block| block.number == height))
}

/// Plan of a rewind: the blocks and transfers to retract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewind {
    /// The last scanned block.
    pub from: Block,
    /// The new last block.
    pub to: Block,
    pub epoch: Epoch,
    /// The transfers above `to`, `true` for confirmed ones. Empty if their records are gone: lanes then drop those they
    /// have.
    pub retracted: Vec<(Block, Observation, bool)>,
    /// `true` if the records are gone.
    pub is_lost: bool,
    /// Watches to announce again.
    watches: Vec<Watch>,
    head: Head,
    observed_at: UnixMicros,
}

/// Known state of the chain.
enum Known {
    Whole(Box<History>),
    /// Records are gone: the last block, and the newest epoch and time of any progress record.
    Lost(Block, Lost),
}

impl Known {
    fn read(log: &dyn Log, chain: &ChainConfig, height: i64) -> Result<Self, RewindError> {
        let scanned = watched::progress(log, chain.blockchain).map_err(Error::from)?;
        let history = restore::restore_down_to(log, chain, height)?;
        let lost = lost::find(log, chain.blockchain, scanned.as_ref(), history.as_ref());
        match (lost.map_err(Error::from)?, scanned, history) {
            (Some(lost), Some(scanned), _) => Ok(Self::Lost(scanned.head, lost)),
            (_, _, Some(history)) => Ok(Self::Whole(Box::new(history))),
            (_, _, None) => Err(RewindError::Unknown),
        }
    }

    fn last(&self) -> Block {
        match self {
            Self::Whole(history) => history.last(),
            Self::Lost(last, _) => *last,
        }
    }

    fn block(&self, target: Target) -> Result<Block, RewindError> {
        match (self, target) {
            (_, Target::Shown(block)) => Ok(block),
            (Self::Whole(history), Target::Published(height)) => history
                .anchor_at_or_below(height)
                .ok_or_else(|| RewindError::Gone(history.lowest())),
            (Self::Lost(last, _), Target::Published(_)) => Err(RewindError::Gone(last.number + 1)),
        }
    }
}

impl Rewind {
    /// Plans a rewind, and writes nothing. Blocks the thread.
    ///
    /// # Errors
    /// [`RewindError`].
    pub fn plan(
        log: &dyn Log,
        chain: &ChainConfig,
        target: Target,
        now: UnixMicros,
    ) -> Result<Self, RewindError> {
        Self::of(&Known::read(log, chain, target.height())?, chain, target, now)
    }

    fn of(
        known: &Known,
        chain: &ChainConfig,
        target: Target,
        now: UnixMicros,
    ) -> Result<Self, RewindError> {
        let from = known.last();
        if target.height() >= from.number {
            return Err(RewindError::NotBelow(from.number));
        }
        let to = known.block(target)?;
        if to.timestamp.plus(FORGET_SECONDS) < from.timestamp {
            return Err(RewindError::TooOld(to));
        }
        let next = |epoch: Epoch| Epoch(epoch.0.saturating_add(1));
        match known {
            Known::Whole(history) => {
                let head = history.head();
                let retracted = |(block, seen)| (block, seen, head.confirms(&block, &seen));
                Ok(Self {
                    from,
                    to,
                    epoch: next(history.epoch()),
                    retracted: history.above(to.number).map(retracted).collect(),
                    is_lost: false,
                    watches: Vec::new(),
                    head: head_at(to, head),
                    observed_at: history.observed_at().next(now),
                })
            }
            Known::Lost(_, lost) => Ok(Self {
                from,
                to,
                epoch: next(lost.epoch),
                retracted: Vec::new(),
                is_lost: true,
                watches: chain.watched(),
                head: first_head(chain, to),
                observed_at: lost.observed_at.next(now),
            }),
        }
    }

    /// Fences the ingest of the chain and writes the rewind. Blocks the thread.
    ///
    /// # Errors
    /// [`RewindError`]; nothing was written then.
    pub fn write(
        log: &dyn Log,
        chain: &ChainConfig,
        target: Target,
        now: UnixMicros,
    ) -> Result<Self, RewindError> {
        let known = watched::known(log, chain.blockchain).map_err(Error::from)?;
        // Before fencing: after a loss of records the configured watches replace those of the log, so the configuration
        // must have all of the log's.
        if Self::plan(log, chain, target, now)?.is_lost {
            watched::check(chain.blockchain, Some(chain), &known)?;
        }
        let mut writer = log.writer(&chain.writer()).map_err(Error::from)?;
        let known = watched::known(log, chain.blockchain).map_err(Error::from)?;
        let rewind = Self::plan(log, chain, target, now)?;
        let watched = if rewind.is_lost { rewind.watches.clone() } else { known };
        let step = publish::step(&rewind.records(chain), watched, &log.layout())?;
        writer.commit(step).map_err(Error::from)?;
        Ok(rewind)
    }

    fn records(&self, chain: &ChainConfig) -> Vec<ChainRecord> {
        let record = |block, body| chain.record(self.epoch, self.observed_at, block, body);
        let retracted = self.retracted.iter();
        let retracts = retracted.map(|(block, seen, _)| record(*block, ChainBody::Retract(*seen)));
        let watches = self.watches.iter().cloned();
        let watches = watches.map(|watch| record(self.to, ChainBody::Watch(watch)));
        let head = record(self.to, ChainBody::Head(self.head.clone()));
        retracts.chain(watches).chain([head]).collect()
    }
}

/// First head, at the block before the first scanned one: every block up to it counts as confirmed.
fn first_head(chain: &ChainConfig, to: Block) -> Head {
    let rules = chain.rules();
    let mut confirmed = rules.policy.confirmed(to.number, Tags::default());
    for tier in &mut confirmed {
        (tier.number, tier.timestamp) = (to.number, Some(to.timestamp));
    }
    let match_window_seconds = rules.match_window_seconds;
    let (held, has_gap) = (Vec::new(), false);
    Head { confirmed, finalized: to.number, match_window_seconds, held, has_gap }
}

/// The head at a block below the last one: nothing after it counts as scanned, confirmed or final.
fn head_at(to: Block, last: &Head) -> Head {
    let mut head = Head { finalized: last.finalized.min(to.number), ..last.clone() };
    for tier in &mut head.confirmed {
        tier.number = tier.number.min(to.number);
        tier.timestamp = tier.timestamp.min(Some(to.timestamp));
    }
    head.held.retain(|held| held.block.number <= to.number);
    head
}

#[cfg(test)]
mod tests;
