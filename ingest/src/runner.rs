//! Follows one chain: asks its endpoint what the cursor wants to know, publishes what it decides.

use std::sync::Arc;
use std::time::Duration;

use log::{self, Log, NewRecord, StepError, Writer};
use metrics::{counter, gauge, histogram};
use runtime::Clock;
use schemas::Blockchain;
use schemas::record::{ChainBody, ChainRecord};
use tokio_util::sync::CancellationToken;

use crate::machine::{Cursor, Decision, History, Next, Note, Refusal};
use crate::metrics as names;
use crate::rpc::{Endpoint, Failure};
use crate::{ChainConfig, Error, publish, restore};

/// First wait after something went wrong; it doubles each time.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Longest wait.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long to wait before a wrong endpoint is asked again which chain it serves.
const CHAIN_ID_WAIT: Duration = Duration::from_secs(30);

/// Follows the chain until `stop`. Whatever may pass is waited out. A chain that was reorganised
/// too deeply, or whose past records cannot be read back, is halted with an alarm and does nothing
/// more, so that other chains go on; so is one whose endpoint serves another chain, until it serves
/// the right one.
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

/// Why following ended.
enum Ended {
    Stopped,
    Halted,
    Failed(Error),
}

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
        self.warn_of_unused();
        self.check_chain_id().await?;
        let (mut writer, history) = self.open().await?;
        self.tell_start(history.as_ref());
        let mut cursor = Cursor::new(self.chain.rules(), history);
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
            self.tell_notes(&decision.notes);
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
                        "the chain was reorganised deeper than its window and is halted: find out \
                         which chain is right, then set a larger reorg_window or another endpoint \
                         and restart"
                    );
                    return Err(Ended::Halted);
                }
            }
        }
    }

    /// Asks the open question. Dropped at a stop: nothing depends on it.
    async fn fetch(
        &self,
        cursor: &Cursor,
    ) -> Result<Result<crate::machine::Answer, Failure>, Ended> {
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
        let mut told = None;
        loop {
            let fetched = tokio::select! {
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                fetched = self.endpoint.fetch_chain_id() => fetched,
            };
            match fetched {
                Ok(found) if found == expected => {
                    halted.set(0);
                    if told.is_some() {
                        let name = blockchain.as_str();
                        tracing::info!(blockchain = name, "the endpoint of {name} is right now");
                    }
                    return Ok(());
                }
                Ok(found) => {
                    halted.set(1);
                    // Each wrong chain is told once, however often it is looked at.
                    if told.replace(found) != Some(found) {
                        let error = Error::ChainId { blockchain, expected, found };
                        tracing::error!(
                            blockchain = blockchain.as_str(),
                            cause = %error,
                            "the chain is halted: set its own endpoint, or the right chain_id"
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

    /// Fences a predecessor, then reads what it and we published: in this order nothing is missed.
    async fn open(&self) -> Result<(Box<dyn Writer>, Option<History>), Ended> {
        let mut backoff = Backoff::new(self.chain.blockchain);
        loop {
            let (log, chain) = (self.log.clone(), self.chain.clone());
            let opened = tokio::task::spawn_blocking(move || {
                let writer = log.writer(&format!("ingest-{}", chain.blockchain))?;
                let history = restore::restore(&*log, &chain)?;
                Ok::<_, Error>((writer, history))
            });
            match opened.await.map_err(Error::from)? {
                Ok(opened) => return Ok(opened),
                Err(Error::Log(log::Error::Transient(cause))) => {
                    self.wait(backoff.again(&cause)).await?;
                }
                Err(error @ Error::Restore { .. }) => {
                    let name = self.chain.blockchain.as_str();
                    gauge!(names::HALTED, "blockchain" => name).set(1);
                    tracing::error!(
                        blockchain = name,
                        cause = %error,
                        "the chain is halted, since going on by a guess could lose a payment: \
                         repair its past records and restart"
                    );
                    return Err(Ended::Halted);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Publishes a step, however often it takes. The cursor counts it as published already.
    async fn commit(
        &self,
        mut writer: Box<dyn Writer>,
        records: &[ChainRecord],
    ) -> Result<Box<dyn Writer>, Ended> {
        let step: Arc<Vec<NewRecord>> =
            Arc::new(publish::step(records, &self.log.layout()).map_err(Error::Encode)?);
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
                Err(StepError::Aborted(cause)) => self.wait(backoff.again(&cause)).await?,
                Err(error @ (StepError::Fenced(_) | StepError::Fatal(_))) => {
                    return Err(error.into());
                }
            }
        }
        self.count(records);
        Ok(writer)
    }

    fn count_failure(&self, failure: &Failure) {
        let (name, class) = (self.chain.blockchain.as_str(), failure.refusal.class());
        counter!(names::RPC_ERRORS_TOTAL, "blockchain" => name, "class" => class).increment(1);
    }

    fn count(&self, records: &[ChainRecord]) {
        let name = self.chain.blockchain.as_str();
        let (mut transfers, mut retracts) = (0, 0);
        for record in records {
            match record.body {
                ChainBody::Transfer(_) => transfers += 1,
                ChainBody::Retract(_) => retracts += 1,
                ChainBody::Head(_) => {}
            }
        }
        counter!(names::STEPS_TOTAL, "blockchain" => name).increment(1);
        counter!(names::TRANSFERS_TOTAL, "blockchain" => name).increment(transfers);
        counter!(names::RETRACTS_TOTAL, "blockchain" => name).increment(retracts);
        if let Some(last) = records.last() {
            tracing::debug!(
                blockchain = name,
                block.number = last.block.number,
                transfers,
                retracts,
                "published a step of {name}"
            );
        }
    }

    fn measure(&self, cursor: &Cursor, decision: &Decision) {
        let name = self.chain.blockchain.as_str();
        // Blocks and seconds stay far below 2^52, where an f64 is exact.
        gauge!(names::RANGE_BLOCKS, "blockchain" => name).set(cursor.range_blocks() as f64);
        let Some(history) = cursor.history() else { return };
        let age = self.clock.now().seconds().0.saturating_sub(history.last().timestamp.0);
        gauge!(names::LAG_SECONDS, "blockchain" => name).set(age as f64);
        if !decision.publish.is_empty() {
            gauge!(names::HEAD_BLOCK, "blockchain" => name).set(history.last().number as f64);
            gauge!(names::FINALIZED_BLOCK, "blockchain" => name)
                .set(history.head().finalized as f64);
        }
    }

    fn warn_of_unused(&self) {
        let unused = self.chain.rpc_unused;
        if unused > 0 {
            let name = self.chain.blockchain.as_str();
            tracing::warn!(
                blockchain = name,
                endpoint = %self.chain.rpc_url,
                unused,
                "only the first endpoint of {name} is used for now"
            );
        }
    }

    fn tell_start(&self, history: Option<&History>) {
        let name = self.chain.blockchain.as_str();
        let endpoint = self.chain.rpc_url.to_string();
        match history {
            Some(history) => tracing::info!(
                blockchain = name,
                endpoint,
                block.number = history.last().number,
                epoch = history.epoch().0,
                "going on to follow {name} where the log ends"
            ),
            None => tracing::info!(
                blockchain = name,
                endpoint,
                "following {name} for the first time: the log has nothing of it"
            ),
        }
    }

    fn tell_notes(&self, notes: &[Note]) {
        let name = self.chain.blockchain.as_str();
        for note in notes {
            match note {
                Note::Skipped(skipped) => {
                    counter!(names::SKIPPED_TOTAL, "blockchain" => name).increment(1);
                    tracing::error!(
                        blockchain = name,
                        contract = %skipped.contract,
                        txn_hash = %skipped.tx_hash,
                        log_index = skipped.log_index,
                        "left out a transfer whose value no amount can hold: check the contract \
                         and its decimals in the configuration"
                    );
                }
                Note::Rewound { from, to, retracted } => {
                    let depth = from.number.saturating_sub(to.number);
                    histogram!(names::REORG_DEPTH_BLOCKS, "blockchain" => name)
                        .record(depth as f64);
                    tracing::warn!(
                        blockchain = name,
                        from.number = from.number,
                        from.hash = %from.hash,
                        to.number = to.number,
                        to.hash = %to.hash,
                        retracted,
                        "{name} was reorganised: going back to the newest block that still stands"
                    );
                }
            }
        }
    }
}

/// An endpoint is mostly behind for a moment only, even where blocks are rare.
const BEHIND_WAIT_MAX: Duration = Duration::from_secs(2);
/// An endpoint that is behind for this many polls in a row is worth a line in the log.
const BEHIND_MAX: u32 = 10;

/// How long to wait after trouble; tells each new cause once.
struct Backoff {
    blockchain: Blockchain,
    delay: Duration,
    cause: Option<String>,
    behind: u32,
}

impl Backoff {
    fn new(blockchain: Blockchain) -> Self {
        Self { blockchain, delay: BACKOFF_MIN, cause: None, behind: 0 }
    }

    /// After a request without an answer.
    fn failed(&mut self, failure: &Failure) -> Duration {
        let (name, class) = (self.blockchain.as_str(), failure.refusal.class());
        if failure.refusal != Refusal::Fatal {
            return self.again(&format!("{class}: {}", failure.message));
        }
        if self.is_new(&failure.message) {
            tracing::error!(
                blockchain = name,
                cause = failure.message,
                "the endpoint of {name} does not serve what is needed: check its URL and plan"
            );
        }
        // Asking soon again would only annoy it.
        BACKOFF_MAX
    }

    /// After anything else that may pass.
    fn again(&mut self, cause: &str) -> Duration {
        let name = self.blockchain.as_str();
        if self.is_new(cause) {
            tracing::warn!(blockchain = name, cause, "following {name} is held up and tried again");
        }
        let delay = self.delay;
        self.delay = delay.saturating_mul(2).min(BACKOFF_MAX);
        delay
    }

    /// After a poll of an endpoint that does not have what was scanned already.
    fn behind(&mut self) {
        self.behind = self.behind.saturating_add(1);
        if self.behind == BEHIND_MAX {
            let name = self.blockchain.as_str();
            let cause = "the endpoint stays behind what was scanned, or behind start_block";
            tracing::warn!(blockchain = name, cause, "following {name} is held up");
        }
    }

    /// Everything is well.
    fn clear(&mut self) {
        self.behind = 0;
        if self.cause.take().is_some() {
            let name = self.blockchain.as_str();
            tracing::info!(blockchain = name, "following {name} goes on");
        }
        self.delay = BACKOFF_MIN;
    }

    fn is_new(&mut self, cause: &str) -> bool {
        let new = self.cause.as_deref() != Some(cause);
        if new {
            self.cause = Some(cause.to_owned());
        }
        new
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
    async fn a_wrong_endpoint_is_looked_at_again_until_it_is_right() {
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

    #[test]
    fn backoff_doubles_to_its_maximum_and_starts_again_after_success() {
        let mut backoff = Backoff::new(Blockchain::Eth);
        let waits: Vec<_> = (0..8).map(|_| backoff.again("x").as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        backoff.clear();
        assert_eq!(backoff.again("x"), BACKOFF_MIN);
        let fatal = Failure::new(Refusal::Fatal, "method not found");
        assert_eq!(backoff.failed(&fatal), BACKOFF_MAX);
    }

    #[test]
    fn a_cause_is_told_once_until_it_changes() {
        let mut backoff = Backoff::new(Blockchain::Eth);
        let told = ["a", "a", "b", "b", "a"].map(|cause| backoff.is_new(cause));
        assert_eq!(told, [true, false, true, false, true]);
        backoff.clear();
        assert!(backoff.is_new("a"));
    }
}
