//! `webhooks.dispatch`, `.retry.*` and `.defer.*` -> POSTs -> `webhooks.attempts`, and the next
//! retry or deferral, or `webhooks.dead`.
//!
//! Each step collects attempts that have ended, starts what is due, and commits attempt, retry, dead and defer records
//! with the offsets they complete, once they are many, have waited for a moment ([`Results`]), or an order's next event
//! waits for them. It never waits for a receiver. The results of an aborted step are kept and committed by the next
//! one, so its POSTs are not repeated.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::consumer::{Handler, Member, POLL_TIMEOUT, Plan};
use log::{
    Assigned, NewRecord, NewerRecord, Record, StageContext, Step, TopicPartition, Unreadable,
    dead_letter,
};
use schemas::record::{Attempt, Delivery};
use schemas::{AttemptOutcome, CodecError, Layout, SchemaName, Stage, Topic, UnixMicros};
use tokio_util::sync::CancellationToken;

use super::elapsed;
use super::engine::Engine;
use super::job::{Back, Inbox, Job};
use super::results::{Finished, Results};
use super::sequences::Sequences;
use crate::error::Error;
use crate::machine::partitions::{Partitions, Position};
use crate::machine::schedule::{self, Answer, Reason, Verdict};
use crate::machine::sequence::Admitted;
use crate::metrics;

/// Poll time-out while attempts are under way: short, so that their results are committed soon.
const POLL_BUSY: Duration = Duration::from_millis(5);
/// Maximum number of retried or deferred records that one step takes, so that a backlog of them does not delay fresh
/// events.
const WAITED_MAX: usize = 64;
/// Time for the last commit, after the last attempt has timed out.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// Delivers webhooks until the process stops; then it starts no more, waits for the attempts under way (each
/// bounded by the time-out), commits, and returns. Blocks: runs on a thread of its own.
///
/// # Errors
/// [`Error`] if the log failed for good; what was not committed is attempted again by the next run.
pub fn run_deliverer(engine: &Engine, context: &StageContext) -> Result<(), Error> {
    engine.follow_alerts(context);
    log::consumer::run(context, Deliverer::new(context.log.layout(), engine))
}

pub(super) struct Deliverer {
    layout: Layout,
    engine: Engine,
    inbox: Arc<Inbox>,
    partitions: Partitions,
    sequences: Sequences,
    /// Tokens that cancel the attempts of each partition when it is lost.
    losses: HashMap<TopicPartition, CancellationToken>,
    /// Jobs to offer to their hosts in the next turn: events that waited for the last commit, and jobs that could not
    /// start while the inbox was closed.
    ready: Vec<Job>,
    finished: Results,
    /// `true` after the step with the finished results was aborted. Until that step is committed, no attempt
    /// starts, because its result might not be committed either.
    is_stalled: bool,
    /// The log could not be polled, so another process may have the partitions by now.
    is_cut_off: bool,
    /// Deadline for the attempts under way, set once the process stops. Then no record is taken and no attempt starts.
    drain_until: Option<Instant>,
    /// A record that needs a newer version. The attempts under way end and are committed, then the stage stops: an
    /// attempt whose result was lost would be repeated at every start.
    newer: Option<NewerRecord>,
}

/// Consumer group of the deliverer, and its topics.
#[must_use]
pub fn deliverer_inputs() -> (&'static str, Vec<Topic>) {
    let carries_delivery = |topic: &Topic| topic.spec().schema == SchemaName::Delivery;
    let topics = Topic::read_by(Stage::Webhooks).filter(carries_delivery).collect();
    (Deliverer::GROUP, topics)
}

impl Handler for Deliverer {
    const GROUP: &'static str = "webhooks.deliverer";
    type Error = Error;

    fn topics(&self) -> Vec<Topic> {
        deliverer_inputs().1
    }

    fn assigned(&mut self, assigned: Vec<Assigned>, member: &mut Member<'_>) -> Result<(), Error> {
        assigned.iter().for_each(|partition| self.partitions.assign(partition));
        let taken: BTreeSet<_> = assigned.iter().map(|input| input.partition.partition).collect();
        let now = self.now();
        taken.into_iter().try_for_each(|partition| self.sequences.restore(partition, member, now))
    }

    /// Cancels the attempts of the lost partitions and drops their waiting jobs. The new owner makes its own attempts,
    /// perhaps of a newer event of the order.
    fn revoked(&mut self, lost: &[TopicPartition]) -> Result<(), Error> {
        for partition in lost {
            self.partitions.revoke(*partition);
            self.losses.remove(partition).inspect(CancellationToken::cancel);
        }
        self.sequences.revoke(lost);
        let partitions = &self.partitions;
        self.ready.retain(|job| partitions.owns(&job.position));
        self.finished.retain(|finished| partitions.owns(&finished.position));
        self.is_stalled &= !self.finished.is_empty();
        Ok(())
    }

    fn step(&mut self, records: &[Arc<Record>], member: &mut Member<'_>) -> Result<Plan, Error> {
        let now = self.now();
        for record in records {
            // Skipped records are not committed, so the next run reads them again.
            if self.is_ending() {
                member.pause(record.from);
                continue;
            }
            match read(record) {
                Err(unreadable @ Unreadable::Newer(_)) => {
                    self.newer = unreadable.garbage(record).err();
                    member.pause(record.from);
                }
                delivery => self.partitions.receive(record.clone(), delivery, now),
            }
        }
        self.land()?;
        if let Some(newer) =
            self.newer.take_if(|_| self.inbox.is_empty() && self.finished.is_empty())
        {
            return Err(newer.into());
        }
        self.launch()?;
        for (partition, paused) in self.partitions.pause_changes() {
            if paused {
                member.pause(partition);
            } else {
                member.resume(partition);
            }
        }
        self.inbox.set_next_due(self.partitions.next_due());
        self.engine.report();
        let now = Instant::now();
        if !self.is_commit_due(now) {
            return Ok(Plan::Nothing);
        }
        self.finished.commit_begins(now);
        Ok(Plan::commit(self.plan()))
    }

    fn poll_failed(&mut self) {
        self.is_cut_off = true;
        self.inbox.close();
    }

    fn committed(&mut self) {
        self.finished.committed(Instant::now());
        self.is_stalled = false;
        self.ready.extend(self.sequences.committed());
    }

    /// Finished results are kept for the next step, so their POSTs are not repeated. [`Partitions`] skips records that
    /// are read again.
    fn aborted(&mut self) -> Result<(), Error> {
        self.is_stalled = true;
        self.inbox.close();
        Ok(())
    }

    /// Time until an attempt may have ended, or a record is due.
    fn poll_timeout(&self) -> Duration {
        let is_idle = self.inbox.is_empty() && self.finished.is_empty();
        let longest = if is_idle { POLL_TIMEOUT } else { POLL_BUSY };
        // A due record without room waits for an attempt to end, not for time to pass.
        if self.is_stalled || self.is_ending() || !self.engine.hosts().has_room() {
            return longest;
        }
        if !self.ready.is_empty() {
            return MILLI;
        }
        let now = self.now();
        self.partitions.next_due().map_or(longest, |due| elapsed(now, due).clamp(MILLI, longest))
    }

    /// `true` once the attempts under way are committed, or their deadline has passed; waiting records stay in the log.
    fn is_drained(&mut self) -> bool {
        let drain_max = self.engine.config().timeout + DRAIN_MARGIN;
        let until = *self.drain_until.get_or_insert_with(|| Instant::now() + drain_max);
        self.inbox.close();
        if self.inbox.is_empty() && self.finished.is_empty() {
            return true;
        }
        let (left, is_over) = (self.inbox.under_way(), Instant::now() >= until);
        if is_over {
            tracing::warn!(
                left,
                "webhooks stopped with attempts under way; the next run repeats them"
            );
        }
        is_over
    }
}

impl Deliverer {
    pub(super) fn new(layout: Layout, engine: &Engine) -> Self {
        Self {
            layout,
            inbox: engine.open_inbox(),
            partitions: Partitions::default(),
            sequences: Sequences::default(),
            losses: HashMap::new(),
            ready: Vec::new(),
            finished: Results::default(),
            is_stalled: false,
            is_cut_off: false,
            drain_until: None,
            newer: None,
            engine: engine.clone(),
        }
    }

    fn now(&self) -> UnixMicros {
        self.engine.clock().now()
    }

    /// `true` if no more records are taken and no attempts started.
    fn is_ending(&self) -> bool {
        self.drain_until.is_some() || self.newer.is_some()
    }

    /// `true` if the results are to be committed now. They are not delayed after an abort, while the stage ends, or if
    /// an order's next event waits for them.
    fn is_commit_due(&self, now: Instant) -> bool {
        let is_awaited = self.is_stalled || self.is_ending() || self.sequences.is_awaited();
        is_awaited || self.finished.is_due(now)
    }

    /// Handles the jobs that returned to the inbox.
    fn land(&mut self) -> Result<(), Error> {
        let now = self.now();
        for back in self.inbox.take() {
            match back {
                Back::Ended(ended) => {
                    if let (job, Some(answer)) = ended? {
                        self.answered(&job, &answer, now)?;
                    }
                }
                Back::Spilled(job, reason) => self.defer(&job, reason)?,
                Back::Unsent(job) if self.partitions.owns(&job.position) => self.ready.push(job),
                Back::Unsent(_) => {}
            }
        }
        Ok(())
    }

    fn answered(&mut self, job: &Job, answer: &Answer, now: UnixMicros) -> Result<(), Error> {
        if answer.outcome == AttemptOutcome::Local {
            let is_unreachable = self.engine.hosts().is_unreachable(&job.host, now);
            let reason = if is_unreachable { Reason::Unreachable } else { Reason::Local };
            return self.defer(job, reason);
        }
        metrics::attempted(answer.outcome, answer.took);
        let (emitted_at, max_attempts) =
            (job.delivery.emitted_at, self.engine.config().max_attempts);
        if answer.outcome == AttemptOutcome::Delivered {
            metrics::delivered(elapsed(emitted_at, now));
        }
        let verdict = schedule::decide(&job.delivery, answer, max_attempts);
        let attempted = (emitted_at, answer.outcome);
        let alert = self.engine.endpoints().attempted(&job.host, attempted, now)?;
        self.conclude(job, verdict, alert, None)
    }

    /// Concludes a delivery: collects the records of its verdict.
    fn conclude(
        &mut self,
        job: &Job,
        verdict: Verdict,
        alert: Option<NewRecord>,
        deferred: Option<Reason>,
    ) -> Result<(), Error> {
        let mut records: Vec<_> = alert.into_iter().collect();
        if let Some(attempt) = &verdict.attempt {
            records.push(self.record(job, attempt)?);
        }
        // A newer event of its order supersedes the next attempt.
        let is_overtaken = self.sequences.is_overtaken(job);
        if let Some((topic, next)) = &verdict.next {
            records.push(if is_overtaken && *topic != Topic::WebhooksDead {
                self.supersede(job, next)?
            } else {
                self.write(job, *topic, next.clone())?
            });
        }
        if matches!(verdict.next, Some((Topic::WebhooksDead, _))) {
            let cause = verdict.attempt.as_ref().map(schedule::cause_of).unwrap_or_default();
            records.extend(self.engine.endpoints().gave_up(&job.host, &cause, self.now())?);
        }
        if self.finish(job.position, records) {
            self.sequences.ended(job);
            match &verdict.next {
                Some((Topic::WebhooksDead, _)) => report_dead(job, verdict.attempt.as_ref()),
                Some(_) if is_overtaken => metrics::superseded(),
                Some((Topic::WebhooksDefer(_), _)) => {
                    deferred.inspect(|reason| metrics::deferred(*reason));
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Admits due records, and starts the attempts that their hosts permit, unless none may start at present.
    fn launch(&mut self) -> Result<(), Error> {
        let is_cut_off = std::mem::take(&mut self.is_cut_off);
        if self.is_ending() || self.is_stalled || is_cut_off {
            self.inbox.close();
            return Ok(());
        }
        self.inbox.open(Instant::now());
        let now = self.now();
        let ready = std::mem::take(&mut self.ready);
        ready.into_iter().for_each(|job| self.engine.offer(job, now));
        self.sequences.expire(now);
        let mut waited = 0;
        while self.engine.hosts().has_room() {
            let due = self.partitions.take_due(now, waited < WAITED_MAX);
            let Some((position, record, delivery)) = due else { break };
            waited += usize::from(position.from.topic != Topic::WebhooksDispatch);
            match delivery {
                Ok(delivery) => self.admit(position, record, delivery, now)?,
                Err(unreadable) => {
                    let reason = unreadable.garbage(&record)?;
                    let letter = dead_letter(&record, Self::GROUP, &reason)?;
                    self.finish(position, vec![letter]);
                }
            }
        }
        while waited < WAITED_MAX && self.engine.hosts().has_room() {
            let engine = &self.engine;
            let early = self.partitions.take_early(|delivery| engine.wants(delivery));
            let Some((position, record, delivery)) = early else { break };
            waited += 1;
            self.admit(position, record, delivery, now)?;
        }
        self.engine.turn(now);
        // Handles the jobs that were given back at once.
        self.land()
    }

    fn admit(
        &mut self,
        position: Position,
        record: Arc<Record>,
        mut delivery: Delivery,
        now: UnixMicros,
    ) -> Result<(), Error> {
        let (host, refused) = self.engine.find(&mut delivery);
        let lost = self.losses.entry(position.from).or_default().clone();
        let (host, inbox) = (host.into(), self.inbox.clone());
        let job = Job { position, record, delivery, host, inbox, lost };
        if let Some(cause) = refused {
            return self.conclude(&job, schedule::give_up(&job.delivery, cause, now), None, None);
        }
        let overtaken = match self.sequences.admit(job, now)? {
            Admitted::Start(job) => {
                self.engine.offer(job, now);
                return Ok(());
            }
            Admitted::Wait { overtaken, .. } => overtaken,
            Admitted::Overtaken(job) => Some(job),
            Admitted::Repeated(job) => {
                self.finish(job.position, Vec::new());
                None
            }
        };
        if let Some(job) = overtaken {
            let superseded = self.supersede(&job, &job.delivery)?;
            if self.finish(job.position, vec![superseded]) {
                metrics::superseded();
            }
        }
        Ok(())
    }

    /// Defers a job that cannot be sent soon, unless [`schedule::decide_deferral`] counts an attempt or gives it up.
    fn defer(&mut self, job: &Job, reason: Reason) -> Result<(), Error> {
        let (now, max_attempts) = (self.now(), self.engine.config().max_attempts);
        let (emitted_at, mut alert) = (job.delivery.emitted_at, None);
        if reason == Reason::Unreachable {
            let attempted = (emitted_at, AttemptOutcome::Local);
            alert = self.engine.endpoints().attempted(&job.host, attempted, now)?;
        } else {
            self.engine.endpoints().deferred(&job.host, emitted_at, now);
        }
        let verdict = schedule::decide_deferral(&job.delivery, reason, now, max_attempts);
        self.conclude(job, verdict, alert, Some(reason))
    }

    /// Record of a superseded attempt: a newer event of the order is sent instead.
    fn supersede(&self, job: &Job, delivery: &Delivery) -> Result<NewRecord, CodecError> {
        self.record(job, &schedule::supersede(delivery, self.now()))
    }

    fn record(&self, job: &Job, attempt: &Attempt) -> Result<NewRecord, CodecError> {
        let key = job.delivery.key();
        let partition = self.layout.webhook(&key);
        let record = NewRecord::encode(Topic::WebhooksAttempts, partition, key, attempt)?;
        Ok(record.traced(job.record.traceparent()))
    }

    /// Record of the delivery for a retry or defer topic, or for `webhooks.dead`.
    fn write(&self, job: &Job, topic: Topic, delivery: Delivery) -> Result<NewRecord, CodecError> {
        let due_at = schedule::due_at(topic, self.now());
        let delivery = Delivery { due_at, ..delivery };
        let key = delivery.key();
        let record = NewRecord::encode(topic, self.layout.webhook(&key), key, &delivery)?;
        Ok(record.traced(job.record.traceparent()))
    }

    /// Completes a record with its results. If the partition was lost meanwhile, drops them and returns `false`.
    fn finish(&mut self, position: Position, records: Vec<NewRecord>) -> bool {
        let is_ours = self.partitions.complete(&position);
        if is_ours {
            self.finished.push(Finished { position, records }, Instant::now());
        }
        is_ours
    }

    /// Plans a step: the records of all results, and the offset to which they bring each partition.
    fn plan(&self) -> Step {
        let entries = self.sequences.entries();
        let finished = self.finished.iter().map(|finished| finished.position.from);
        let touched: BTreeSet<TopicPartition> =
            finished.chain(entries.iter().map(|(of, _)| *of)).collect();
        let offset = |partition| Some((partition, self.partitions.committed(&partition)?));
        let records = self.finished.iter().flat_map(|finished| &finished.records);
        Step {
            records: records.chain(entries.iter().map(|(_, entry)| entry)).cloned().collect(),
            offsets: touched.into_iter().filter_map(offset).collect(),
        }
    }
}

impl Drop for Deliverer {
    /// Cancels the attempts under way, and those that wait.
    fn drop(&mut self) {
        self.losses.values().for_each(CancellationToken::cancel);
    }
}

/// The delivery in a record.
fn read(record: &Record) -> Result<Delivery, Unreadable> {
    let delivery = record.read()?;
    schedule::check(&delivery).map_err(|reason| Unreadable::Garbage(reason.to_owned()))?;
    Ok(delivery)
}

fn report_dead(job: &Job, last: Option<&Attempt>) {
    let delivery = &job.delivery;
    metrics::dead();
    tracing::error!(
        order.id = delivery.order_id.map(tracing::field::display),
        transfer.id = delivery.transfer_id.map(tracing::field::display),
        webhook.id = delivery.event_id,
        webhook.attempt = delivery.attempt,
        webhook.host = &*job.host,
        cause = last.map(schedule::cause_of),
        "a webhook was never acknowledged; it is in webhooks.dead and can be sent again by hand"
    );
}
