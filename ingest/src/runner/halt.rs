//! A halt, which is reported by alarm and alert.

use std::time::Duration;

use runtime::readiness::Alarm;
use schemas::{AlertKind, Epoch};

use super::stall::Stall;
use super::{Ended, Runner};
use crate::{Error, watched};

/// Interval of reads of the log for a rewind of the chain.
const READ_INTERVAL: Duration = Duration::from_secs(5);

impl Runner {
    /// Reports the halt of the chain, and returns once it was rewound. A restart retries too: the halt is not
    /// persisted.
    pub(super) async fn halted(&mut self, reason: String) -> Result<(), Ended> {
        (self.scan, self.check) = (Stall::default(), Stall::default());
        let _alarm = self.raise_halt(&reason).await?;
        // The chain may have been rewound since the last step.
        let mut before = self.epoch;
        loop {
            let epoch = self.epoch().await?;
            before = before.or(epoch);
            if epoch > before {
                return Ok(());
            }
            // An operator may have resolved the alert: it is then raised again.
            self.read_alerts().await?;
            self.note_alert(AlertKind::ChainHalted, "", reason.clone());
            self.send_alerts().await?;
            self.wait(READ_INTERVAL).await?;
        }
    }

    /// Reports the halt of the chain, until the alarm is dropped.
    pub(super) async fn raise_halt(&mut self, reason: &str) -> Result<Alarm, Ended> {
        let name = self.chain.blockchain.as_str();
        tracing::error!(blockchain = name, reason, "chain halted");
        self.show(None, Some(reason));
        let alarm = self.readiness.alarm(format!("{name} is halted: {reason}"));
        self.read_alerts().await?;
        self.note_alert(AlertKind::ChainHalted, "", reason.to_owned());
        self.send_alerts().await?;
        Ok(alarm)
    }

    /// The chain's epoch; `None` if it is unknown.
    async fn epoch(&self) -> Result<Option<Epoch>, Ended> {
        let (log, blockchain) = (self.log.clone(), self.chain.blockchain);
        let read = tokio::task::spawn_blocking(move || watched::progress(&*log, blockchain));
        match read.await.map_err(Error::from)? {
            Ok(progress) => Ok(progress.map(|progress| progress.epoch)),
            Err(log::Error::Transient(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
