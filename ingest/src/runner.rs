//! Follows one chain: fetches what the cursor asks for, publishes what it decides.

mod backoff;
mod report;

use std::sync::Arc;
use std::time::Duration;

use log::{self, Log, NewRecord, StepError, Writer};
use metrics::{counter, gauge};
use runtime::Clock;
use schemas::record::{ChainRecord, Watch};
use tokio_util::sync::CancellationToken;

use self::backoff::Backoff;
use crate::machine::{Answer, Cursor, History, Next};
use crate::metrics as names;
use crate::rpc::{Endpoint, Failure};
use crate::{ChainConfig, Error, publish, restore, watched};

/// How long to wait before an endpoint of another chain is asked for its chain id again.
const CHAIN_ID_WAIT: Duration = Duration::from_secs(30);
/// The longest wait for an endpoint that is behind: mostly for a moment, even where blocks are rare.
const BEHIND_WAIT_MAX: Duration = Duration::from_secs(2);

/// Follows the chain until `stop`. Transient failures are retried. A chain that was reorganised
/// too deeply, or whose past records cannot be read back, is halted with an alarm and does nothing
/// more, so that other chains are followed; so is one whose endpoint serves another chain, until it serves
/// the configured one.
///
/// # Errors
/// [`Error`] if another ingest took over, or the log or this process failed.
pub async fn follow(
    chain: ChainConfig,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let endpoint = Endpoint::new(&chain)?;
    let chain = Arc::new(chain);
    let mut runner = Runner { chain, endpoint, log, clock, stop, chain_id_wait: CHAIN_ID_WAIT };
    let stopped = runner.stop.clone();
    // Cancelled between questions only: a step under way is finished first.
    match runner.follow().await {
        Err(Ended::Failed(error)) => Err(error),
        Err(Ended::Halted) => {
            stopped.cancelled().await;
            Ok(())
        }
        Err(Ended::Stopped) => Ok(()),
        Ok(never) => match never {},
    }
}

enum Ended {
    Stopped,
    Halted,
    Failed(Error),
}

/// The writer, what was published, and what is to be announced as watched.
type Opened = (Box<dyn Writer>, Option<History>, Vec<Watch>);

impl<E: Into<Error>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

struct Runner {
    chain: Arc<ChainConfig>,
    endpoint: Endpoint,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    chain_id_wait: Duration,
}

impl Runner {
    async fn follow(&mut self) -> Result<std::convert::Infallible, Ended> {
        let name = self.chain.blockchain.as_str();
        gauge!(names::HALTED, "blockchain" => name).set(0);
        self.warn_of_unused_endpoints();
        self.check_chain_id().await?;
        let (mut writer, history, unannounced) = self.open().await?;
        self.log_start(history.as_ref());
        let mut cursor = Cursor::new(self.chain.rules(), history, unannounced);
        let mut backoff = Backoff::new(self.chain.blockchain);
        loop {
            let fetched = self.fetch(&cursor).await?;
            let (decision, failure) = match fetched {
                Ok(answer) => (cursor.answer(answer, self.clock.now()), None),
                Err(failure) => {
                    self.count_failure(&failure);
                    (cursor.fail(failure.refusal).into(), Some(failure))
                }
            };
            self.report_notes(&decision.notes);
            if !decision.publish.is_empty() {
                writer = self.commit(writer, &decision.publish).await?;
                backoff.clear();
            }
            self.measure(&cursor, &decision);
            match (decision.next, failure) {
                (Next::Ask, _) => {}
                (Next::AtTip, _) => {
                    backoff.clear();
                    self.wait(self.chain.poll_interval).await?;
                }
                (Next::Behind, _) => {
                    counter!(names::BEHIND_TOTAL, "blockchain" => name).increment(1);
                    backoff.behind();
                    self.wait(self.chain.poll_interval.min(BEHIND_WAIT_MAX)).await?;
                }
                (Next::Retry(_), Some(failure)) => self.wait(backoff.failed(&failure)).await?,
                (Next::Retry(reason), None) => {
                    counter!(names::RETRIES_TOTAL, "blockchain" => name).increment(1);
                    self.wait(backoff.again(reason)).await?;
                }
                (Next::Halt(reason), _) => {
                    gauge!(names::HALTED, "blockchain" => name).set(1);
                    tracing::error!(
                        blockchain = name,
                        reason,
                        "chain halted: reorganised deeper than its window; find out which fork is \
                         canonical, then set a larger reorg_window or another endpoint and restart"
                    );
                    return Err(Ended::Halted);
                }
            }
        }
    }

    /// Fetches what the cursor asks for. Dropped at a stop: nothing depends on it.
    async fn fetch(&self, cursor: &Cursor) -> Result<Result<Answer, Failure>, Ended> {
        let ask = cursor.ask();
        tokio::select! {
            () = self.stop.cancelled() => Err(Ended::Stopped),
            fetched = self.endpoint.fetch(&ask) => Ok(fetched),
        }
    }

    async fn wait(&self, time: Duration) -> Result<(), Ended> {
        tokio::select! {
            () = self.stop.cancelled() => Err(Ended::Stopped),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// Returns once the endpoint serves the configured chain.
    async fn check_chain_id(&self) -> Result<(), Ended> {
        let (blockchain, expected) = (self.chain.blockchain, self.chain.chain_id);
        let halted = gauge!(names::HALTED, "blockchain" => blockchain.as_str());
        let mut backoff = Backoff::new(blockchain);
        let mut logged = None;
        loop {
            let fetched = tokio::select! {
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                fetched = self.endpoint.fetch_chain_id() => fetched,
            };
            match fetched {
                Ok(found) if found == expected => {
                    halted.set(0);
                    if logged.is_some() {
                        let name = blockchain.as_str();
                        tracing::info!(
                            blockchain = name,
                            "endpoint of {name} now serves the configured chain"
                        );
                    }
                    return Ok(());
                }
                Ok(found) => {
                    halted.set(1);
                    // One line for each wrong chain, however often the endpoint is asked.
                    if logged.replace(found) != Some(found) {
                        let error = Error::ChainId { blockchain, expected, found };
                        tracing::error!(
                            blockchain = blockchain.as_str(),
                            cause = %error,
                            "chain halted: its endpoint serves another chain; set another endpoint, or the \
                             right chain_id"
                        );
                    }
                    self.wait(self.chain_id_wait).await?;
                }
                Err(failure) => {
                    self.count_failure(&failure);
                    self.wait(backoff.failed(&failure)).await?;
                }
            }
        }
    }

    /// Fences a predecessor, then reads what it and we published: in this order nothing is missed. Also
    /// what of the configuration it does not say is watched.
    async fn open(&self) -> Result<Opened, Ended> {
        let mut backoff = Backoff::new(self.chain.blockchain);
        loop {
            let (log, chain) = (self.log.clone(), self.chain.clone());
            let opened = tokio::task::spawn_blocking(move || {
                let writer = log.writer(&format!("ingest-{}", chain.blockchain))?;
                let known = watched::known(&*log, chain.blockchain)?;
                watched::check(chain.blockchain, Some(&chain), &known)?;
                let history = restore::restore(&*log, &chain)?;
                Ok::<_, Error>((writer, history, chain.unannounced(&known)))
            });
            match opened.await.map_err(Error::from)? {
                Ok(opened) => return Ok(opened),
                Err(Error::Log(log::Error::Transient(cause))) => {
                    self.wait(backoff.again(&cause.to_string())).await?;
                }
                Err(error @ (Error::Restore { .. } | Error::Vanished { .. })) => {
                    let name = self.chain.blockchain.as_str();
                    gauge!(names::HALTED, "blockchain" => name).set(1);
                    tracing::error!(
                        blockchain = name,
                        cause = %error,
                        "chain halted: its past records cannot be read back, or the configuration lacks \
                         what they say is watched, and to continue could lose a payment; repair that and \
                         restart"
                    );
                    return Err(Ended::Halted);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Publishes a step, and retries until it is committed: the cursor counts it as published already.
    async fn commit(
        &self,
        mut writer: Box<dyn Writer>,
        records: &[ChainRecord],
    ) -> Result<Box<dyn Writer>, Ended> {
        let step = publish::step(records, self.chain.watched(), &self.log.layout());
        let step: Arc<Vec<NewRecord>> = Arc::new(step.map_err(Error::Encode)?);
        let mut backoff = Backoff::new(self.chain.blockchain);
        loop {
            let step = step.clone();
            let committed = tokio::task::spawn_blocking(move || {
                let result = writer.commit(step.to_vec());
                (writer, result)
            });
            let (returned, result) = committed.await.map_err(Error::from)?;
            writer = returned;
            match result {
                Ok(()) => break,
                Err(StepError::Aborted(cause)) => {
                    self.wait(backoff.again(&cause.to_string())).await?
                }
                Err(error @ (StepError::Fenced(_) | StepError::Fatal(_))) => {
                    return Err(error.into());
                }
            }
        }
        self.count(records);
        Ok(writer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::RpcUrl;
    use crate::machine::Policy;
    use crate::simulation::{Served, Shelf, chain};

    #[tokio::test]
    async fn a_wrong_endpoint_is_asked_until_right() {
        let ids = std::sync::Mutex::new(vec!["0x1", "0x3", "0x2", "0x2"]);
        let served = Served::start(Arc::new(move |_| {
            let id = ids.lock().unwrap().pop();
            (200, json!({ "jsonrpc": "2.0", "id": 0, "result": id }).to_string())
        }))
        .await;
        let mut chain = chain(Policy::flat(Some(3), None));
        chain.rpc_url = RpcUrl::parse(&served.url).unwrap();
        let runner = Runner {
            endpoint: Endpoint::new(&chain).unwrap(),
            chain: Arc::new(chain),
            log: Arc::new(Shelf::new()),
            clock: Arc::new(runtime::SystemClock),
            stop: CancellationToken::new(),
            chain_id_wait: Duration::from_millis(1),
        };
        assert!(runner.check_chain_id().await.is_ok());
        assert_eq!(served.sizes(), [1; 4]);
    }
}
