//! `webhooks.dispatch`, `.retry.*` and `.defer.*` -> POSTs -> `webhooks.attempts` and what follows.
//!
//! The loop polls, collects attempts that have ended, starts what is due, and commits: attempt,
//! retry, dead and defer records in one step with the offsets they complete. It never sleeps and
//! never waits for a receiver. A step that is aborted is kept and committed again, so its POSTs are
//! not repeated.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{Envelope, dead_letter};
use log::{
    Error as LogError, Event, Log, NewRecord, Record, Step, StepError, TopicPartition, Worker,
    WorkerSpec,
};
use runtime::Clock;
use schemas::record::Delivery;
use schemas::{AttemptOutcome, Layout, RETRY_DELAYS_SECONDS, Topic, UnixMicros};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{BACK_OFF, BATCH_MAX, POLL_IDLE, back_off};
use crate::config::Config;
use crate::error::Error;
use crate::guard::host_key;
use crate::machine::gate::{Admission, Gate};
use crate::machine::partitions::{Partitions, Place};
use crate::machine::schedule::{self, Answer};
use crate::metrics;
use crate::sender::Sender;

const GROUP: &str = "webhooks.deliverer";
/// How long a poll waits while attempts are under way: their permits are wanted back soon.
const POLL_BUSY: Duration = Duration::from_millis(5);
/// What is left for the last commit, after the last attempt has run out of time.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);

/// Delivers webhooks until `stop`, as `member` of the group; then it starts no more, waits for the attempts under way (each
/// bounded by the time-out), commits, and returns. Attempts run as tasks of `handle`. Blocks: runs
/// on a thread of its own.
///
/// # Errors
/// [`Error`] if the log cannot go on; what was not committed is attempted again by the next run.
pub fn run_deliverer(
    log: &dyn Log,
    config: &Config,
    clock: Arc<dyn Clock>,
    handle: Handle,
    member: &str,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let spec = WorkerSpec {
        group: GROUP,
        member: member.to_owned(),
        topics: topics(),
        batch_max: BATCH_MAX,
    };
    let Some(worker) = log::retry(stop, GROUP, || log.worker(spec.clone()))? else {
        return Ok(());
    };
    let mut deliverer = Deliverer::new(worker, log.layout(), config, clock, handle)?;
    while !stop.is_cancelled() {
        if deliverer.turn()? == Turn::LogAway {
            back_off(stop);
        }
    }
    deliverer.drain(config.timeout + DRAIN_MARGIN)
}

fn topics() -> Vec<Topic> {
    let levels = 0_u8..;
    let retries = levels.zip(RETRY_DELAYS_SECONDS).map(|(level, _)| Topic::WebhooksRetry(level));
    [Topic::WebhooksDispatch, Topic::WebhooksDefer(0), Topic::WebhooksDefer(1)]
        .into_iter()
        .chain(retries)
        .collect()
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Done,
    /// The log cannot be read now.
    LogAway,
}

/// A delivery on its way through the gate.
struct Job {
    place: Place,
    record: Arc<Record>,
    delivery: Delivery,
    host: String,
}

/// A record that is complete, and what must be written with its offset.
struct Finished {
    place: Place,
    records: Vec<NewRecord>,
}

pub(super) struct Deliverer {
    worker: Box<dyn Worker>,
    layout: Layout,
    clock: Arc<dyn Clock>,
    handle: Handle,
    sender: Arc<Sender>,
    max_attempts: i32,
    partitions: Partitions,
    gate: Gate<Job>,
    flights: JoinSet<(Job, Answer)>,
    finished: Vec<Finished>,
    /// After an aborted step: when to try again. Until then nothing is started, for its result
    /// could not be kept.
    stalled_until: Option<Instant>,
    /// The process stops: nothing is taken or started any more.
    is_draining: bool,
}

impl Deliverer {
    pub(super) fn new(
        worker: Box<dyn Worker>,
        layout: Layout,
        config: &Config,
        clock: Arc<dyn Clock>,
        handle: Handle,
    ) -> Result<Self, Error> {
        Ok(Self {
            worker,
            layout,
            sender: Arc::new(Sender::new(config, clock.clone())?),
            clock,
            handle,
            max_attempts: config.max_attempts,
            partitions: Partitions::new(config.first_delay),
            gate: Gate::new(config.concurrency, config.concurrency_per_host),
            flights: JoinSet::new(),
            finished: Vec::new(),
            stalled_until: None,
            is_draining: false,
        })
    }

    pub(super) fn turn(&mut self) -> Result<Turn, Error> {
        let turn = self.poll()?;
        self.land()?;
        self.launch()?;
        for (partition, paused) in self.partitions.pause_changes() {
            if paused {
                self.worker.pause(partition);
            } else {
                self.worker.resume(partition);
            }
        }
        self.commit()?;
        let now = self.clock.now();
        let oldest = self.partitions.next_due().map_or(Duration::ZERO, |due| elapsed(due, now));
        metrics::load(self.gate.running(), oldest);
        Ok(turn)
    }

    fn poll(&mut self) -> Result<Turn, Error> {
        match self.worker.poll(self.poll_timeout()) {
            Ok(Event::Assigned(assigned)) => {
                assigned.iter().for_each(|partition| self.partitions.assign(partition));
            }
            Ok(Event::Revoked(partitions)) => {
                partitions.iter().for_each(|partition| self.partitions.revoke(*partition));
                self.forget_lost();
            }
            // What is not taken note of is not committed, and so read again.
            Ok(Event::Records(_)) if self.is_draining => {}
            Ok(Event::Records(records)) => {
                records.into_iter().for_each(|record| self.partitions.receive(record));
            }
            Ok(Event::Idle) => {}
            Err(LogError::Transient(cause)) => {
                tracing::debug!(cause, "webhooks cannot read the log, trying again");
                return Ok(Turn::LogAway);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Turn::Done)
    }

    /// Until something can have happened: an attempt has ended, or a record is due.
    fn poll_timeout(&self) -> Duration {
        let longest = if self.flights.is_empty() { POLL_IDLE } else { POLL_BUSY };
        // What is due and has no permit waits for an attempt to end, not for time to pass.
        if self.stalled_until.is_some() || !self.gate.has_room() {
            return longest;
        }
        let now = self.clock.now();
        self.partitions.next_due().map_or(longest, |due| elapsed(now, due).clamp(MILLI, longest))
    }

    /// Drops what belongs to partitions that are gone. Attempts under way end by themselves; their
    /// results do not count, the new owner makes its own.
    fn forget_lost(&mut self) {
        let partitions = &self.partitions;
        self.gate.retain_waiting(|job| partitions.owns(&job.place));
        self.finished.retain(|finished| partitions.owns(&finished.place));
    }

    /// Collects the attempts that have ended.
    fn land(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.flights.try_join_next() {
            let (job, answer) = ended?;
            self.gate.release(&job.host);
            metrics::attempted(answer.outcome, answer.took);
            let verdict = schedule::decide(&job.delivery, &answer, self.max_attempts);
            let mut envelope = Envelope::of(&job.record);
            let key = job.delivery.key();
            let partition = self.layout.webhook(&key);
            let attempts = Topic::WebhooksAttempts;
            let mut records =
                vec![envelope.wrap(attempts, partition, key.as_str(), &verdict.attempt)?];
            if let Some((topic, next)) = &verdict.next {
                records.push(envelope.wrap(*topic, partition, key, next)?);
                if *topic == Topic::WebhooksDead {
                    report_dead(next);
                }
            }
            if answer.outcome == AttemptOutcome::Delivered {
                metrics::delivered(elapsed(job.delivery.emitted_at, self.clock.now()));
            }
            self.finish(job.place, records);
        }
        Ok(())
    }

    /// Starts what may start.
    fn launch(&mut self) -> Result<(), Error> {
        if self.is_draining || self.stalled_until.is_some() {
            return Ok(());
        }
        let now = self.clock.now();
        for job in self.gate.overdue(now) {
            self.defer(&job)?;
        }
        while let Some(job) = self.gate.next_ready() {
            self.start(job);
        }
        while self.gate.has_room() {
            let Some((place, record)) = self.partitions.take_due(now) else { break };
            match read(&record) {
                Ok(delivery) => self.admit(place, record, delivery, now)?,
                Err(reason) => {
                    let letter = dead_letter(&record, GROUP, &reason)?;
                    self.finish(place, vec![letter]);
                }
            }
        }
        Ok(())
    }

    fn admit(
        &mut self,
        place: Place,
        record: Arc<Record>,
        delivery: Delivery,
        now: UnixMicros,
    ) -> Result<(), Error> {
        let host = host_key(&delivery.url);
        let job = Job { place, record, delivery, host: host.clone() };
        match self.gate.admit(&host, job, now) {
            Admission::Start(job) => self.start(job),
            Admission::Wait => {}
            Admission::Deferred(job) => self.defer(&job)?,
        }
        Ok(())
    }

    fn start(&mut self, job: Job) {
        let sender = self.sender.clone();
        let span = tracing::info_span!("webhooks.attempt", webhook.id = job.delivery.event_id);
        let flight = async move {
            let answer = sender.send(&job.delivery).await;
            (job, answer)
        };
        self.flights.spawn_on(flight.instrument(span), &self.handle);
    }

    /// Its host is busy: the same delivery again a little later. Not an attempt.
    fn defer(&mut self, job: &Job) -> Result<(), Error> {
        metrics::deferred();
        let key = job.delivery.key();
        let partition = self.layout.webhook(&key);
        let mut envelope = Envelope::of(&job.record);
        let topic = schedule::defer_to(job.place.from.topic);
        let again = envelope.wrap(topic, partition, key, &job.delivery)?;
        self.finish(job.place, vec![again]);
        Ok(())
    }

    fn finish(&mut self, place: Place, records: Vec<NewRecord>) {
        if self.partitions.complete(&place) {
            self.finished.push(Finished { place, records });
        }
    }

    fn commit(&mut self) -> Result<(), Error> {
        if self.stalled_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        self.stalled_until = None;
        if self.finished.is_empty() {
            return Ok(());
        }
        match self.worker.commit(self.step()) {
            Ok(()) => self.finished.clear(),
            Err(StepError::Aborted(cause)) => {
                // The worker reads again from the last commit; the partitions know those records. What
                // has finished is kept for the next step.
                tracing::warn!(cause, "webhooks cannot write the log, trying again");
                self.stalled_until = Some(Instant::now() + BACK_OFF);
            }
            Err(StepError::Fenced(cause)) => {
                tracing::info!(cause, "webhooks lost partitions to another member");
                self.partitions.clear();
                self.forget_lost();
            }
            Err(error @ StepError::Fatal(_)) => return Err(error.into()),
        }
        Ok(())
    }

    fn step(&self) -> Step {
        let touched: BTreeSet<TopicPartition> =
            self.finished.iter().map(|finished| finished.place.from).collect();
        let offset = |partition| Some((partition, self.partitions.committed(&partition)?));
        Step {
            records: self.finished.iter().flat_map(|f| f.records.iter().cloned()).collect(),
            offsets: touched.into_iter().filter_map(offset).collect(),
        }
    }

    /// Ends in order: what is under way is finished and committed, what waits stays in the log.
    pub(super) fn drain(&mut self, within: Duration) -> Result<(), Error> {
        self.is_draining = true;
        self.gate.retain_waiting(|_| false);
        for partition in self.partitions.owned() {
            self.worker.pause(partition);
        }
        let deadline = Instant::now() + within;
        while !(self.flights.is_empty() && self.finished.is_empty()) {
            if Instant::now() >= deadline {
                let left = self.flights.len();
                tracing::warn!(
                    left,
                    "webhooks stopped with attempts under way; the next run repeats them"
                );
                break;
            }
            if self.turn()? == Turn::LogAway {
                std::thread::park_timeout(POLL_IDLE);
            }
        }
        Ok(())
    }
}

const MILLI: Duration = Duration::from_millis(1);

/// The delivery in a record.
fn read(record: &Record) -> Result<Delivery, String> {
    let value = record.value.as_deref().ok_or("the record has no value")?;
    let delivery: Delivery = schemas::decode(value).map_err(|error| error.to_string())?;
    schedule::check(&delivery)?;
    Ok(delivery)
}

/// Time from `earlier` to `later`, zero if it is the other way round.
fn elapsed(earlier: UnixMicros, later: UnixMicros) -> Duration {
    let micros = later.0.saturating_sub(earlier.0);
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

fn report_dead(delivery: &Delivery) {
    metrics::dead();
    tracing::error!(
        order.id = delivery.order_id.map(tracing::field::display),
        transfer.id = delivery.transfer_id.map(tracing::field::display),
        webhook.id = delivery.event_id,
        webhook.attempt = delivery.attempt,
        webhook.host = host_key(&delivery.url),
        "a webhook was never acknowledged; it is in webhooks.dead and can be sent again by hand"
    );
}
