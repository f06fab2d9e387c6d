//! A halt: it is shown where a person checks, and lasts until the chain was rewound.

use std::time::Duration;

use log::{self, NewRecord};
use metrics::gauge;
use schemas::record::Alert;
use schemas::{AlertKind, Epoch, Partition, Topic};

use super::{Ended, Runner};
use crate::{Error, metrics as names, watched};

/// How often the log is asked whether the chain was rewound.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

impl Runner {
    /// Says why the chain is halted, and returns once it was rewound. A restart tries again as well: the halt itself is
    /// no state.
    pub(super) async fn halted(&self, reason: String) -> Result<(), Ended> {
        let name = self.chain.blockchain.as_str();
        gauge!(names::HALTED, "blockchain" => name).set(1);
        tracing::error!(blockchain = name, reason, "chain halted");
        let _alarm = self.readiness.alarm(format!("{name} is halted: {reason}"));
        if let Err(error) = self.raise(reason).await {
            tracing::warn!(blockchain = name, %error, "the alert about the halt is not on the log");
        }
        let mut before = None;
        loop {
            let epoch = self.epoch().await?;
            before = before.or(epoch);
            if epoch.is_some() && epoch != before {
                return Ok(());
            }
            self.wait(LOOK_INTERVAL).await?;
        }
    }

    async fn raise(&self, message: String) -> Result<(), Error> {
        let blockchain = self.chain.blockchain;
        let alert = Alert {
            kind: AlertKind::ChainHalted,
            blockchain: Some(blockchain),
            transfer_id: None,
            order_id: None,
            message,
            raised_at: self.clock.now(),
        };
        let alert = NewRecord::encode(Topic::Alerts, Partition(0), blockchain.as_str(), &alert);
        self.log.produce(vec![alert.map_err(Error::Encode)?]).await?;
        Ok(())
    }

    /// The chain's epoch; none if the log does not answer.
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
