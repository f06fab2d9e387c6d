//! An ingest over the endpoints of a chain and a log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use log::embedded::EmbeddedLog;
use runtime::{Clock, Readiness};
use schemas::{Stablecoin, StablecoinContract};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::chain::{CHAIN_ID, Chain, DEPTH};
use super::shop::{BLOCKCHAIN, contract};
use crate::endpoints::{Endpoints, Pauses};
use crate::runner::Runner;
use crate::sabotage::Defect;
use crate::{ChainConfig, Error, Policy, simulation};

pub(crate) struct Run {
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Run {
    pub(crate) fn start(
        config: &ChainConfig,
        pauses: Pauses,
        defect: Defect,
        (log, clock): (&EmbeddedLog, Arc<impl Clock + 'static>),
        readiness: &Readiness,
    ) -> Self {
        let (chain, stop) = (Arc::new(config.clone()), CancellationToken::new());
        let mut endpoints = Endpoints::new(chain.clone(), pauses).unwrap();
        endpoints.sabotage = defect;
        let (readiness, log, until) = (readiness.clone(), Arc::new(log.clone()), stop.clone());
        let runner = Runner::new(chain, endpoints, readiness, log, clock, until);
        Self { stop, task: tokio::spawn(runner.run()) }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Stops the run in order, and waits for its end.
    pub(crate) async fn stop(self) -> Result<(), String> {
        self.stop.cancel();
        self.ended().await
    }

    /// Waits for the end, and returns its cause.
    pub(crate) async fn ended(self) -> Result<(), String> {
        let ended = self.task.await.map_err(|error| error.to_string())?;
        ended.map_err(|error| format!("ingest ended: {error}"))
    }

    /// Aborts the task, as a crash would.
    pub(crate) async fn kill(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

/// Pauses of a few milliseconds after a failure.
pub(crate) fn pauses() -> Pauses {
    let millis = Duration::from_millis;
    Pauses {
        first: millis(1),
        max: millis(20),
        repair: millis(20),
        sole_max: millis(10),
        recheck: millis(5),
        // No endpoint counts as gone: both answer again in the end.
        alone: Duration::from_secs(3600),
        stuck: Duration::from_secs(3600),
        frozen: Duration::from_secs(3600),
        stalled: Duration::from_secs(3600),
    }
}

/// The chain through its proxies, for the wallets of the shop.
pub(crate) fn config(chain: &Chain) -> ChainConfig {
    let stablecoin = Stablecoin::Usdt;
    let usdt =
        StablecoinContract { blockchain: BLOCKCHAIN, stablecoin, address: contract(), decimals: 6 };
    ChainConfig {
        chain_id: CHAIN_ID,
        endpoints: chain.proxies.iter().map(|proxy| simulation::endpoint(proxy.url())).collect(),
        request_timeout: Duration::from_millis(400),
        contracts: vec![usdt],
        stablecoins: BTreeSet::from([stablecoin]),
        poll_interval: Duration::from_millis(2),
        range_max: 30,
        reorg_window: 16,
        match_window: Duration::from_secs(20),
        ..simulation::chain(Policy::flat(Some(DEPTH), None))
    }
}
