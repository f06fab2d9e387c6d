//! Acquisition of a chain, whose state on the log is shown before any request, and its release.

use metrics::gauge;
use runtime::metrics::NO_VALUE;

use super::backoff::Backoff;
use super::stall::Stall;
use super::{Ended, Runner};
use crate::{Error, metrics as names, watched};

/// Metrics of a chain that are exported only by the process that follows it.
const OF_THE_FOLLOWER: [&str; 8] = [
    names::HEAD_BLOCK,
    names::FINALIZED_BLOCK,
    names::LAST_BLOCK_TIMESTAMP,
    names::LAG_BLOCKS,
    names::CHECKED_BLOCK,
    names::ALONE,
    names::RANGE_BLOCKS,
    names::HALTED,
];

impl Runner {
    /// Shows the chain's height on the log. The time without progress counts from its last head, so that neither a
    /// restart nor another owner resets it.
    pub(super) async fn take_up(&mut self) -> Result<(), Ended> {
        let mut backoff = Backoff::new(self.chain.blockchain);
        let last = loop {
            let (log, blockchain) = (self.log.clone(), self.chain.blockchain);
            let read = tokio::task::spawn_blocking(move || watched::last(&*log, blockchain));
            match read.await.map_err(Error::from)? {
                Ok(last) => break last,
                Err(log::Error::Transient(cause)) => {
                    self.wait(backoff.again(&cause.to_string())).await?;
                }
                Err(error) => return Err(error.into()),
            }
        };
        self.last = last.as_ref().map(|(progress, _)| progress.head);
        let published = last.map(|(_, appended_at)| appended_at);
        self.scan = Stall::since(published);
        self.read_alerts().await?;
        gauge!(names::ALONE, "blockchain" => self.chain.blockchain.as_str()).set(0);
        self.show(None, None);
        Ok(())
    }
}

impl Drop for Runner {
    /// Clears the follower's gauges: another process may follow the chain now.
    fn drop(&mut self) {
        for metric in OF_THE_FOLLOWER {
            gauge!(metric, "blockchain" => self.chain.blockchain.as_str()).set(NO_VALUE);
        }
    }
}
