//! Follows one chain: sends the cursor's questions, publishes its decisions.

mod alerts;
mod backoff;
mod halt;
mod report;
mod stall;
mod take_up;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use log::{self, Log, NewRecord, OpenAlerts, StepError, Writer};
use metrics::counter;
use runtime::readiness::{Alarm, Detail};
use runtime::{Clock, Readiness};
use schemas::record::{Alert, Block, ChainRecord, Watch};
use schemas::{Address, Epoch, UnixMicros};
use tokio_util::sync::CancellationToken;

use self::backoff::Backoff;
use self::stall::{Attempt, Stall};
use crate::endpoints::{AllWrong, Endpoints, Fault, Fetched, NotBegun, Pauses};
use crate::machine::{
    Cursor, Decision, Difference, History, Lost, Next, Note, Refusal, Role, Rules,
};
use crate::metrics as names;
use crate::rpc::Failure;
use crate::tags::TagCheck;
use crate::{ChainConfig, Error, lost, publish, restore, watched};

/// Maximum wait for an endpoint that is behind: the lag is mostly short, even with long block times.
const BEHIND_WAIT_MAX: Duration = Duration::from_secs(2);

/// Follows the chain until `stop`. Transient failures are retried. A chain is halted with an alarm, and other chains
/// are still followed, in two cases. After a reorganisation that is too deep, if its past records cannot be read back,
/// or if the configuration lacks a watch of the log, the halt lasts until a rewind by hand, or a restart. If all its
/// endpoints serve another chain, or other contracts, it lasts until one serves the configured ones.
///
/// # Errors
/// [`Error`] if another ingest fences it, or the log or this process failed.
pub async fn follow(
    chain: ChainConfig,
    readiness: Readiness,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let chain = Arc::new(chain);
    let endpoints = Endpoints::new(chain.clone(), Pauses::default())?;
    Runner::new(chain, endpoints, readiness, log, clock, stop).run().await
}

enum Ended {
    Stopped,
    /// Reason and remedy.
    Halted(String),
    Failed(Error),
}

/// The writer, and the published state.
struct Opened {
    writer: Box<dyn Writer>,
    history: Option<History>,
    lost: Option<Lost>,
    unannounced: Vec<Watch>,
    /// Pairs of wallet and contract without a watch on the log.
    added: Vec<(Address, Address)>,
}

impl<E: Into<Error>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

pub(crate) struct Runner {
    chain: Arc<ChainConfig>,
    endpoints: Endpoints,
    readiness: Readiness,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    /// Alerts to publish.
    alerts: Vec<Alert>,
    /// Open alerts, including unpublished ones.
    open: OpenAlerts,
    /// Time the topic `alerts` was last read for open ones.
    alerts_read_at: Option<UnixMicros>,
    /// Raised while no endpoint serves the configured chain.
    alarm: Option<Alarm>,
    scan: Stall,
    check: Stall,
    /// The chain's entry among the readiness details.
    detail: Detail,
    /// Blocks by which the endpoint's head was ahead of the last scanned one, at the last poll.
    lag_blocks: Option<i64>,
    /// The last scanned block; none before the log was read, or if it has none.
    last: Option<Block>,
    /// The endpoint of the last answer in the role [`Role::First`].
    tip_of: Option<usize>,
    /// Number of published transfers that only one endpoint has checked.
    alone: usize,
    /// Epoch of the records that are followed; `None` before they were read.
    epoch: Option<Epoch>,
}

impl Runner {
    pub(crate) fn new(
        chain: Arc<ChainConfig>,
        endpoints: Endpoints,
        readiness: Readiness,
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Self {
        let detail = readiness.detail();
        Self {
            chain,
            endpoints,
            readiness,
            log,
            clock,
            stop,
            alerts: Vec::new(),
            open: OpenAlerts::default(),
            alerts_read_at: None,
            alarm: None,
            scan: Stall::default(),
            check: Stall::default(),
            detail,
            lag_blocks: None,
            last: None,
            tip_of: None,
            alone: 0,
            epoch: None,
        }
    }

    pub(crate) async fn run(mut self) -> Result<(), Error> {
        loop {
            // A stop drops a pending request or wait; a commit under way is finished first.
            let ended = match self.follow().await {
                Err(Ended::Halted(reason)) => self.halted(reason).await,
                ended => ended.map(|never| match never {}),
            };
            match ended {
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::Stopped) => return Ok(()),
                Err(Ended::Halted(_)) | Ok(()) => {}
            }
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, Ended> {
        self.epoch = None;
        self.take_up().await?;
        self.begin().await?;
        let Opened { mut writer, history, lost, unannounced, added } = self.open().await?;
        self.log_start(history.as_ref(), lost);
        let mut cursor = self.cursor(lost, history, unannounced);
        cursor.watch_from_here(added);
        let mut backoff = Backoff::new(self.chain.blockchain);
        let mut tags = TagCheck::new(&self.chain);
        loop {
            let Fetched { index, ask, result, is_asked } = self.fetch(&cursor).await?;
            let (scanned, failed_checks) = (cursor.last_scanned(), cursor.failed_checks());
            if ask.role == Role::First && self.endpoints.is_switched() {
                cursor.switch();
            }
            if ask.role == Role::First && self.tip_of.replace(index) != Some(index) {
                cursor.switch_tip();
            }
            let (decision, failure) = match result {
                Ok(mut answer) => {
                    self.measure_lag(&ask, &answer, scanned);
                    self.endpoints.note_head(index, &ask, &answer);
                    let found = tags.check(&ask, &mut answer, cursor.history());
                    self.report_tags(index, &found);
                    (cursor.answer(answer, self.clock.now()), None)
                }
                Err(failure) if self.endpoints.is_gap(index, &ask, &failure) => {
                    (cursor.report_gap(self.clock.now()), Some(failure))
                }
                Err(failure) => (cursor.fail(failure.refusal).into(), Some(failure)),
            };
            self.note_scanner(scanned, cursor.last_scanned());
            // A refused second check always continues with `Next::Ask`, even if its range cannot
            // shrink.
            let is_shorter = decision.next == Next::Ask && cursor.failed_checks() == failed_checks;
            if is_asked {
                self.judge(index, ask.role, &decision, failure.as_ref(), is_shorter);
            }
            self.report_notes(&decision.notes);
            self.note_alerts(&decision.notes, index);
            let failure = failure.as_ref();
            let attempt = Attempt { index, role: ask.role, decision: &decision, failure };
            self.read_alerts().await?;
            self.watch_progress(&attempt, &cursor);
            if decision.publish.is_empty() {
                self.send_alerts().await?;
            } else {
                writer = self.commit(writer, &decision.publish).await?;
                backoff.clear();
            }
            self.measure(&cursor, &decision);
            self.epoch = cursor.history().map(History::epoch);
            self.pause(decision.next, index, failure, &mut backoff).await?;
        }
    }

    /// Waits before the next question, as decided. Fails with [`Ended::Halted`] if the chain is to be halted.
    async fn pause(
        &mut self,
        next: Next,
        index: usize,
        failure: Option<&Failure>,
        backoff: &mut Backoff,
    ) -> Result<(), Ended> {
        let name = self.chain.blockchain.as_str();
        match (next, failure) {
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
            // `Endpoints` waits before its next request, or chooses another endpoint.
            (Next::Retry(_), Some(failure)) => {
                backoff.failed(self.endpoints.name(index), failure);
            }
            (Next::Retry(reason), None) => {
                counter!(names::RETRIES_TOTAL, "blockchain" => name).increment(1);
                backoff.note(reason);
            }
            (Next::Halt(_), _) if self.endpoints.may_be_other(index).await => {
                backoff.note("the endpoint may be of another chain");
            }
            (Next::Halt(reason), _) => {
                return Err(Ended::Halted(format!(
                    "{reason}: reorganised below its finalized height; find out which fork is canonical, then \
                     set another endpoint and reload or restart, or run `tidemark chain rewind {name} --find`, \
                     which takes it back to the newest block that both forks have"
                )));
            }
        }
        Ok(())
    }

    fn cursor(
        &self,
        lost: Option<Lost>,
        history: Option<History>,
        unannounced: Vec<Watch>,
    ) -> Cursor {
        let rules = Rules { lost, ..self.chain.rules() };
        #[cfg_attr(not(test), expect(unused_mut, reason = "a planted defect is a change of it"))]
        let mut cursor = Cursor::new(rules, history, unannounced);
        #[cfg(test)]
        {
            cursor.sabotage = self.endpoints.sabotage;
        }
        cursor
    }

    /// Notes the endpoint that scanned new blocks, or a rewind.
    fn note_scanner(&mut self, before: Option<Block>, last: Option<Block>) {
        let Some(last) = last.filter(|last| Some(*last) != before) else { return };
        if before.is_some_and(|before| before.number > last.number) {
            self.endpoints.rewound(last.number);
        } else {
            self.endpoints.scanned(last.number);
        }
    }

    /// Notes a success or a fault of an endpoint.
    fn judge(
        &mut self,
        index: usize,
        role: Role,
        decision: &Decision,
        failure: Option<&Failure>,
        is_shorter: bool,
    ) {
        match (failure, &decision.next) {
            // Retried at once with a shorter range.
            (Some(Failure { refusal: Refusal::Size { .. }, .. }), _) if is_shorter => {
                self.endpoints.count(index, Refusal::Size { hint: None }.class());
            }
            (Some(failure), _) => self.endpoints.refused(index, failure),
            (None, _) if role != Role::First => self.judge_second(index, &decision.notes),
            (None, Next::Behind) => self.endpoints.failed(index, Fault::Behind, ""),
            (None, Next::Retry(reason)) => {
                self.endpoints.failed(index, Fault::Contradiction, reason);
            }
            (None, Next::Ask) if decision.publish.is_empty() => {}
            (None, Next::Ask | Next::AtTip | Next::Halt(_)) => self.endpoints.served(index),
        }
    }

    /// Notes the result of a second check. A first endpoint that checks its own scan is not blamed for it.
    fn judge_second(&mut self, index: usize, notes: &[Note]) {
        match Note::check(notes) {
            None => self.endpoints.served(index),
            Some(_) if self.endpoints.is_first(index) => {}
            Some((why, block)) => {
                let fault = match why {
                    Difference::Behind => Fault::Behind,
                    Difference::Fork => Fault::Forked,
                    Difference::Contradiction => Fault::Contradiction,
                };
                let Block { number, hash, timestamp } = block;
                let cause = format!("block {number} differs from {hash} of {timestamp}");
                self.endpoints.failed(index, fault, &cause);
            }
        }
    }

    /// Waits until there is an endpoint of the configured chain.
    async fn begin(&mut self) -> Result<(), Ended> {
        let mut backoff = Backoff::new(self.chain.blockchain);
        loop {
            let begun = tokio::select! {
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                begun = self.endpoints.begin() => begun,
            };
            match begun {
                Ok(()) => break,
                Err(NotBegun::AllWrong(wrong)) => self.all_wrong(wrong).await?,
                Err(NotBegun::Refused(index, failure)) => {
                    backoff.failed(self.endpoints.name(index), &failure);
                    self.not_begun(index, &failure);
                    self.send_alerts().await?;
                    if failure.refusal == Refusal::Behind {
                        self.wait(self.chain.poll_interval.min(BEHIND_WAIT_MAX)).await?;
                    }
                }
            }
        }
        self.alarm = None;
        Ok(())
    }

    /// Sends the cursor's question. A stop drops the request.
    async fn fetch(&mut self, cursor: &Cursor) -> Result<Fetched, Ended> {
        loop {
            let fetched = tokio::select! {
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                fetched = self.endpoints.fetch(cursor) => fetched,
            };
            match fetched {
                Ok(fetched) => {
                    if fetched.is_asked {
                        self.alarm = None;
                    }
                    return Ok(fetched);
                }
                Err(wrong) => self.all_wrong(wrong).await?,
            }
        }
    }

    async fn all_wrong(&mut self, AllWrong(cause): AllWrong) -> Result<(), Ended> {
        let name = self.chain.blockchain.as_str();
        let reason = format!(
            "{cause}: no endpoint serves what is configured, so nothing of {name} is scanned; set another endpoint, \
             or repair the configuration, and reload or restart. They are asked again from time to time"
        );
        let alarm = self.raise_halt(&reason).await?;
        self.alarm = Some(alarm);
        Ok(())
    }

    async fn wait(&self, time: Duration) -> Result<(), Ended> {
        tokio::select! {
            () = self.stop.cancelled() => Err(Ended::Stopped),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// Fences a predecessor, then reads the published records: in this order none is missed. Also finds the configured
    /// watches that the records lack.
    async fn open(&self) -> Result<Opened, Ended> {
        let mut backoff = Backoff::new(self.chain.blockchain);
        loop {
            let (log, chain) = (self.log.clone(), self.chain.clone());
            let opened = tokio::task::spawn_blocking(move || {
                let writer = log.writer(&chain.writer())?;
                let scanned = watched::progress(&*log, chain.blockchain)?;
                let known = scanned.as_ref().map_or(&[][..], |progress| &progress.watched);
                watched::check(chain.blockchain, Some(&chain), known)?;
                let mut history = restore::restore(&*log, &chain)?;
                let scanned = scanned.as_ref();
                let lost = lost::find(&*log, chain.blockchain, scanned, history.as_ref())?;
                let (mut unannounced, added) = (chain.unannounced(known), chain.added(known));
                if lost.is_some() {
                    (history, unannounced) = (None, chain.watched());
                }
                Ok::<_, Error>(Opened { writer, history, lost, unannounced, added })
            });
            match opened.await.map_err(Error::from)? {
                Ok(opened) => return Ok(opened),
                Err(Error::Log(log::Error::Transient(cause))) => {
                    self.wait(backoff.again(&cause.to_string())).await?;
                }
                Err(error @ (Error::Restore { .. } | Error::Vanished { .. })) => {
                    return Err(Ended::Halted(format!(
                        "{}: to continue could lose a payment; repair that, and reload or restart",
                        error.coded()
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Publishes a step, and retries an aborted commit: the cursor already counts the step as published.
    async fn commit(
        &mut self,
        mut writer: Box<dyn Writer>,
        records: &[ChainRecord],
    ) -> Result<Box<dyn Writer>, Ended> {
        let mut step = publish::step(records, self.chain.watched(), &self.log.layout())?;
        step.extend(self.encoded_alerts()?);
        let step: Arc<Vec<NewRecord>> = Arc::new(step);
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
        self.alerts.clear();
        self.count(records);
        Ok(writer)
    }
}
