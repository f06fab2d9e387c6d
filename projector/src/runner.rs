//! Reads a batch, writes its rows, commits its offsets; again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{
    self, Committed, Event, Log, NewRecord, Offset, Record, Step, StepError, TopicPartition,
    Worker, WorkerSpec,
};
use runtime::task;
use schemas::Topic;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::machine::{TOPICS, plan_change};
use super::{Error, GROUP};
use crate::metrics::{APPLY_RETRIES, APPLY_SECONDS, BATCH_RECORDS, LAG_RECORDS, ROWS_APPLIED};
use store::{Change, Store, coalesce};

/// Records in one batch at most.
pub(super) const BATCH_MAX: usize = 500;
/// How long one poll waits, and so how long `stop` may go unseen.
const POLL: Duration = Duration::from_millis(100);
/// The first wait after a failure that may pass; it doubles up to the longest, which is well below
/// the time in which a worker must poll to keep its partitions.
const RETRY_DELAY: Duration = Duration::from_millis(100);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(3);
/// How long to wait before a log that is away is asked again.
const LOG_AWAY: Duration = Duration::from_millis(500);
/// How often lag is measured.
const LAG_INTERVAL: Duration = Duration::from_secs(10);

/// Records read and not committed.
#[derive(Debug, Default)]
struct Batch {
    changes: Vec<Change>,
    letters: Vec<(TopicPartition, NewRecord)>,
    /// Where the group goes on after this batch.
    offsets: BTreeMap<TopicPartition, Offset>,
}

pub(super) struct Runner {
    log: Arc<dyn Log>,
    store: Arc<dyn Store>,
    handle: Handle,
    stop: CancellationToken,
    worker: Box<dyn Worker>,
    /// Owned partitions and where the group is in them, if it was there before.
    positions: HashMap<TopicPartition, Option<Offset>>,
    batch: Batch,
    /// Set while the store cannot take the batch: no partition brings more until it does.
    paused: bool,
    retry_delay: Duration,
    lag_measured: Option<Instant>,
}

impl Runner {
    /// Joins the group; none if `stop` came first.
    pub(super) fn start(
        log: Arc<dyn Log>,
        store: Arc<dyn Store>,
        handle: Handle,
        member: String,
        stop: CancellationToken,
    ) -> Result<Option<Self>, Error> {
        let topics = TOPICS.to_vec();
        let spec = WorkerSpec { group: GROUP, member, topics, batch_max: BATCH_MAX };
        let Some(worker) = log::insist(&stop, GROUP, || log.worker(spec.clone()))? else {
            return Ok(None);
        };
        Ok(Some(Self {
            log,
            store,
            handle,
            stop,
            worker,
            positions: HashMap::new(),
            batch: Batch::default(),
            paused: false,
            retry_delay: RETRY_DELAY,
            lag_measured: None,
        }))
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        while !self.stop.is_cancelled() {
            match self.worker.poll(POLL) {
                Ok(event) => self.take(event)?,
                Err(log::Error::Transient(cause)) => {
                    tracing::debug!(cause, "the projector cannot read the log now, and waits");
                    task::wait(&self.stop, LOG_AWAY);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if !self.batch.offsets.is_empty() && self.apply()? {
                self.commit()?;
            }
            self.measure_lag();
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Assigned(assigned) => {
                for one in assigned {
                    if self.paused {
                        self.worker.pause(one.partition);
                    }
                    self.positions.insert(one.partition, one.committed.map(|at| at.offset));
                }
            }
            Event::Revoked(revoked) => {
                // Their rows may still be written: the next owner writes the same ones.
                for partition in revoked {
                    self.positions.remove(&partition);
                    self.batch.offsets.remove(&partition);
                    self.batch.letters.retain(|(from, _)| *from != partition);
                }
                if self.batch.offsets.is_empty() {
                    self.batch = Batch::default();
                    self.resume();
                }
            }
            Event::Records(records) => {
                metrics::histogram!(BATCH_RECORDS).record(count(records.len()));
                for record in &records {
                    self.plan(record)?;
                }
            }
            Event::Idle => {}
        }
        Ok(())
    }

    fn plan(&mut self, record: &Record) -> Result<(), Error> {
        match plan_change(record.from.topic, record.value.as_deref()) {
            Ok(change) => self.batch.changes.extend(change),
            Err(poison) => {
                let letter = log::dead_letter(record, GROUP, &poison.to_string())?;
                self.batch.letters.push((record.from, letter));
            }
        }
        self.batch.offsets.insert(record.from, record.offset.next());
        Ok(())
    }

    /// Writes the rows of the batch. False: the store cannot take them now, and the batch stays.
    fn apply(&mut self) -> Result<bool, Error> {
        let rows = coalesce(&self.batch.changes);
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for row in &rows {
            *counts.entry(row.table()).or_default() += 1;
        }
        let begun = Instant::now();
        match self.handle.block_on(self.store.apply(rows)) {
            Ok(()) => {}
            Err(store::Error::Transient(cause)) => {
                metrics::counter!(APPLY_RETRIES).increment(1);
                // Told once, by the readiness of the tables.
                tracing::debug!(cause, "the projector cannot write the tables now, and waits");
                self.pause();
                self.wait();
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        metrics::histogram!(APPLY_SECONDS).record(begun.elapsed());
        for (table, rows) in counts {
            metrics::counter!(ROWS_APPLIED, "table" => table).increment(rows);
        }
        Ok(true)
    }

    /// Commits what was applied. An aborted step is read, applied and committed again.
    fn commit(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.batch);
        let offsets = batch.offsets.iter().map(|(partition, offset)| {
            (*partition, Committed { offset: *offset, metadata: String::new() })
        });
        let step = Step {
            records: batch.letters.into_iter().map(|(_, letter)| letter).collect(),
            offsets: offsets.collect(),
        };
        let result = self.worker.commit(step);
        self.resume();
        match result {
            Ok(()) => {
                let done = batch.offsets.into_iter().map(|(at, offset)| (at, Some(offset)));
                self.positions.extend(done);
                self.retry_delay = RETRY_DELAY;
            }
            Err(StepError::Aborted(cause)) => {
                tracing::warn!(cause, "the projector's offsets were not committed, it reads again");
                self.wait();
            }
            Err(StepError::Fenced(cause)) => {
                tracing::warn!(cause, "the projector lost its partitions and joins again");
                self.positions.clear();
                self.wait();
            }
            Err(error @ StepError::Fatal(_)) => return Err(error.into()),
        }
        Ok(())
    }

    /// Brings no more records, but goes on polling: the worker keeps its partitions meanwhile.
    fn pause(&mut self) {
        self.paused = true;
        for partition in self.positions.keys() {
            self.worker.pause(*partition);
        }
    }

    fn resume(&mut self) {
        if std::mem::take(&mut self.paused) {
            for partition in self.positions.keys() {
                self.worker.resume(*partition);
            }
        }
    }

    /// Waits before another try, or until `stop`.
    fn wait(&mut self) {
        let delay = self.retry_delay;
        self.retry_delay = (delay * 2).min(RETRY_DELAY_MAX);
        task::wait(&self.stop, delay);
    }

    /// Counts what is appended and not committed, now and then: it costs a look at each partition.
    fn measure_lag(&mut self) {
        if self.lag_measured.is_some_and(|at| at.elapsed() < LAG_INTERVAL) {
            return;
        }
        self.lag_measured = Some(Instant::now());
        let mut lags: BTreeMap<Topic, i64> = TOPICS.iter().map(|topic| (*topic, 0)).collect();
        for (partition, position) in &self.positions {
            match self.log.bounds(*partition) {
                Ok(bounds) => {
                    let position = position.map_or(bounds.start, |at| at.max(bounds.start));
                    let lag = bounds.end.0.saturating_sub(position.0).max(0);
                    *lags.entry(partition.topic).or_default() += lag;
                }
                Err(error) => {
                    // Each further look might wait as long, and the worker has to poll meanwhile.
                    tracing::debug!(%error, "cannot measure the projector's lag");
                    return;
                }
            }
        }
        for (topic, lag) in lags {
            let lag = u32::try_from(lag).unwrap_or(u32::MAX);
            metrics::gauge!(LAG_RECORDS, "topic" => topic.name()).set(f64::from(lag));
        }
    }
}

fn count(records: usize) -> f64 {
    f64::from(u32::try_from(records).unwrap_or(u32::MAX))
}
