//! Manual decision on held transfers, about which endpoints disagree.
//!
//! One atomic step. Accepted transfers leave the last head's list, so its height confirms them. Rejected ones are
//! retracted, and a head at the same block in the next epoch follows. Opening the chain's writer fences a running
//! ingest.

use log::Log;
use schemas::record::{ChainBody, ChainRecord, Head, Held};
use schemas::{Epoch, TxHash, UnixMicros};

use crate::machine::History;
use crate::{ChainConfig, Error, publish, restore, watched};

/// Reason why a transfer cannot be decided.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error(transparent)]
    Ingest(#[from] Error),
    #[error("the log has no record of the chain: it holds nothing")]
    Unknown,
    #[error("no transfer of transaction {0} is held; {1}")]
    NotHeld(TxHash, String),
    #[error(
        "block {0} is not confirmed for all amounts yet, up to {1} is: until then its endpoints are asked again, and would \
         hold the transfer once more; decide when it is"
    )]
    NotConfirmed(i64, i64),
    #[error(
        "block {0} is not final yet, up to {1} is: its endpoints are asked once more when it is, and the one that has \
         the transfer would bring it back; reject it then"
    )]
    NotFinal(i64, i64),
}

/// Operator's finding about a disputed transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The chain has it.
    Accept,
    /// The chain does not have it.
    Reject,
}

/// Decision about a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    pub verdict: Verdict,
    /// Its transfers that were held.
    pub transfers: Vec<Held>,
    /// Number of transfers that are still held.
    pub left: usize,
    /// Epoch of the head that was written.
    pub epoch: Epoch,
}

impl Resolution {
    /// Fences the ingest of the chain and writes the verdict. Blocks the thread.
    ///
    /// # Errors
    /// [`ResolveError`]; nothing was written then.
    pub fn write(
        log: &dyn Log,
        chain: &ChainConfig,
        tx_hash: TxHash,
        verdict: Verdict,
        now: UnixMicros,
    ) -> Result<Self, ResolveError> {
        let history = || restore::restore(log, chain)?.ok_or(ResolveError::Unknown);
        // Checked before ingest is fenced.
        Self::of(chain, &history()?, tx_hash, verdict)?;
        let mut writer = log.writer(&chain.writer()).map_err(Error::from)?;
        let history = history()?;
        let resolution = Self::of(chain, &history, tx_hash, verdict)?;
        let watched = watched::known(log, chain.blockchain).map_err(Error::from)?;
        let records = resolution.records(chain, &history, now);
        let step = publish::step(&records, watched, &log.layout())?;
        writer.commit(step).map_err(Error::from)?;
        Ok(resolution)
    }

    fn of(
        chain: &ChainConfig,
        history: &History,
        tx_hash: TxHash,
        verdict: Verdict,
    ) -> Result<Self, ResolveError> {
        let Head { held, finalized, .. } = history.head();
        let transfers: Vec<_> =
            held.iter().filter(|held| held.transfer.tx_hash == tx_hash).copied().collect();
        if transfers.is_empty() {
            return Err(ResolveError::NotHeld(tx_hash, names(held)));
        }
        let newest = transfers.iter().map(|held| held.block.number).max().unwrap_or(-1);
        if newest > history.checked() {
            return Err(ResolveError::NotConfirmed(newest, history.checked()));
        }
        // Where depth alone confirms, the check of final blocks would find a retracted transfer.
        if verdict == Verdict::Reject && chain.policy.is_shallow() && newest > *finalized {
            return Err(ResolveError::NotFinal(newest, *finalized));
        }
        let epoch = history.epoch();
        let epoch = match verdict {
            Verdict::Accept => epoch,
            Verdict::Reject => Epoch(epoch.0.saturating_add(1)),
        };
        Ok(Self { verdict, left: held.len().saturating_sub(transfers.len()), transfers, epoch })
    }

    fn records(&self, chain: &ChainConfig, history: &History, now: UnixMicros) -> Vec<ChainRecord> {
        let observed_at = history.observed_at().next(now);
        let record = |block, body| chain.record(self.epoch, observed_at, block, body);
        let retracted = self.transfers.iter().filter(|_| self.verdict == Verdict::Reject);
        let retracts = retracted.map(|held| record(held.block, ChainBody::Retract(held.transfer)));
        let mut head: Head = history.head().clone();
        head.held.retain(|held| !self.transfers.contains(held));
        retracts.chain([record(history.last(), ChainBody::Head(head))]).collect()
    }
}

/// The transactions of held transfers.
fn names(held: &[Held]) -> String {
    let mut names: Vec<_> = held.iter().map(|held| held.transfer.tx_hash.to_string()).collect();
    names.dedup();
    if names.is_empty() { "nothing is".to_owned() } else { format!("held: {}", names.join(", ")) }
}
