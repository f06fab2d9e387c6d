//! A log that counts its workers' records, and times each part of a step.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use log::kafka::{StepObserver, StepPoint};
use log::{
    Error, Event, LayeredLog, Log, LogLayer, NewRecord, Record, Step, StepError, TopicPartition,
    Worker, WorkerLayer, WorkerSpec, layered,
};
use schemas::Topic;
use serde::{Deserialize, Serialize};
use testkit::measure::{cpu_time, resident_bytes};
use tokio_util::sync::CancellationToken;

/// The first of this many equal parts of the inputs is not counted: the JIT compiler of Kafka Streams needs a warm-up,
/// and the other measured programs get the same.
const WARM_UP: u64 = 5;

/// Records written to one topic.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) records: u64,
    /// Keys and values.
    pub(crate) bytes: u64,
    pub(crate) header_bytes: u64,
}

/// Work done by the workers of a process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) inputs: u64,
    pub(crate) input_bytes: u64,
    pub(crate) steps: u64,
    pub(crate) nanos: u64,
    /// User and system time of the whole process.
    pub(crate) cpu_nanos: u64,
    pub(crate) written: BTreeMap<String, Written>,
    /// Time of all workers together, by part of the loop and of the commit.
    pub(crate) phases: BTreeMap<String, u64>,
    /// Changelog entries read, and the time from the first worker's start of reading to the last one's end.
    pub(crate) restored: u64,
    pub(crate) restore_nanos: u64,
    pub(crate) restored_resident_bytes: u64,
}

impl Report {
    pub(crate) fn records(&self) -> u64 {
        self.written.values().map(|written| written.records).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.written.values().map(|written| written.bytes + written.header_bytes).sum()
    }
}

#[derive(Debug)]
struct Counts {
    report: Report,
    /// All inputs, including the warm-up.
    taken: u64,
    begun: Option<(Instant, Duration)>,
    restore_begun: Option<Instant>,
}

/// Shared by the workers of a process.
#[derive(Debug)]
pub(crate) struct Tally {
    expected: u64,
    counts: Mutex<Counts>,
    /// Cancelled when all expected inputs are committed.
    done: CancellationToken,
}

impl Tally {
    pub(crate) fn new(expected: u64) -> Arc<Self> {
        Self::begun(expected, None)
    }

    /// Counts from now on, without a limit.
    pub(crate) fn endless() -> Arc<Self> {
        Self::begun(u64::MAX, Some((Instant::now(), cpu_time(std::process::id()))))
    }

    fn begun(expected: u64, begun: Option<(Instant, Duration)>) -> Arc<Self> {
        let report = Report::default();
        let counts = Mutex::new(Counts { report, taken: 0, begun, restore_begun: None });
        Arc::new(Self { expected, counts, done: CancellationToken::new() })
    }

    pub(crate) fn done(&self) -> &CancellationToken {
        &self.done
    }

    pub(crate) fn report(&self) -> Report {
        self.counts().report.clone()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spent(&self, phase: &str, time: Duration) {
        let mut counts = self.counts();
        if counts.begun.is_some() {
            let phases = &mut counts.report.phases;
            *phases.entry(phase.to_owned()).or_default() += nanos(time);
        }
    }

    /// Counts a commit.
    fn committed(&self, inputs: Taken, written: BTreeMap<Topic, Written>) {
        let mut counts = self.counts();
        counts.taken += inputs.records;
        if let Some((started, cpu)) = counts.begun {
            let report = &mut counts.report;
            report.inputs += inputs.records;
            report.input_bytes += inputs.bytes;
            report.steps += 1;
            for (topic, more) in written {
                let all = report.written.entry(topic.name().to_owned()).or_default();
                all.records += more.records;
                all.bytes += more.bytes;
                all.header_bytes += more.header_bytes;
            }
            report.nanos = nanos(started.elapsed());
            report.cpu_nanos = nanos(cpu_time(std::process::id()).saturating_sub(cpu));
        } else if counts.taken >= self.expected / WARM_UP {
            counts.begun = Some((Instant::now(), cpu_time(std::process::id())));
        }
        if counts.taken >= self.expected {
            self.done.cancel();
        }
    }
}

/// Measures the parts of a commit.
impl StepObserver for Tally {
    fn reached(&self, point: StepPoint) {
        thread_local! {
            static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
        }
        let phase = match point {
            StepPoint::AfterBegin => "commit: begin",
            StepPoint::AfterSend => "commit: send",
            StepPoint::AfterOffsets => "commit: offsets",
            StepPoint::AfterDrain => "commit: drain",
            StepPoint::AfterCommit => "commit: commit",
            StepPoint::AfterAbort => "abort",
            _ => return SINCE.set(Some(Instant::now())),
        };
        if let Some(since) = SINCE.take() {
            self.spent(phase, since.elapsed());
        }
    }
}

/// Counts the work of a log's workers into a tally.
struct Metered(Arc<Tally>);

/// A log that counts into `tally`.
pub(crate) fn metered(log: impl Log, tally: Arc<Tally>) -> Arc<dyn Log> {
    Arc::new(LayeredLog::new(Arc::new(log), Metered(tally)))
}

impl LogLayer for Metered {
    fn worker(&self, log: &dyn Log, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        let (read, written) = (Taken::default(), BTreeMap::new());
        let layer = MeteredWorker { tally: self.0.clone(), read, written, since: Instant::now() };
        Ok(layered(log.worker(spec)?, layer))
    }
}

/// Inputs of a step.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    records: u64,
    bytes: u64,
}

struct MeteredWorker {
    tally: Arc<Tally>,
    /// Read and not committed yet.
    read: Taken,
    /// Written ahead of the step.
    written: BTreeMap<Topic, Written>,
    /// End of the last poll, or of the last write ahead.
    since: Instant,
}

fn count(written: &mut BTreeMap<Topic, Written>, records: &[NewRecord]) {
    for record in records {
        let topic = written.entry(record.to.topic).or_default();
        topic.records += 1;
        topic.bytes += (record.key.len() + record.value.as_ref().map_or(0, Vec::len)) as u64;
        topic.header_bytes += record.headers.as_bytes().len() as u64;
    }
}

impl WorkerLayer for MeteredWorker {
    fn poll(&mut self, worker: &mut dyn Worker, timeout: Duration) -> Result<Event, Error> {
        let started = Instant::now();
        let event = worker.poll(timeout)?;
        self.since = Instant::now();
        self.tally.spent("poll", self.since - started);
        if let Event::Records(records) = &event {
            self.read.records += records.len() as u64;
            let bytes = |record: &Arc<Record>| {
                let value = record.value.as_ref().map_or(0, Vec::len);
                (record.key.len() + value + record.headers.as_bytes().len()) as u64
            };
            self.read.bytes += records.iter().map(bytes).sum::<u64>();
        }
        Ok(event)
    }

    fn write_ahead(&mut self, worker: &mut dyn Worker, records: &mut Vec<NewRecord>) {
        self.tally.spent("decide and encode", self.since.elapsed());
        let mut written = self.written.clone();
        count(&mut written, records);
        worker.write_ahead(records);
        if records.is_empty() {
            self.written = written;
        }
        self.since = Instant::now();
    }

    fn commit(&mut self, worker: &mut dyn Worker, step: Step) -> Result<(), StepError> {
        self.tally.spent("decide and encode", self.since.elapsed());
        let read = std::mem::take(&mut self.read);
        let mut written = std::mem::take(&mut self.written);
        count(&mut written, &step.records);
        worker.commit(step)?;
        self.tally.committed(read, written);
        Ok(())
    }

    fn restore(
        &mut self,
        worker: &mut dyn Worker,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        let begun = *self.tally.counts().restore_begun.get_or_insert_with(Instant::now);
        let mut entries = 0;
        worker.restore(changelog, &mut |record| {
            entries += 1;
            apply(record);
        })?;
        let resident = resident_bytes(std::process::id());
        let report = &mut self.tally.counts().report;
        report.restored += entries;
        report.restore_nanos = nanos(begun.elapsed());
        report.restored_resident_bytes = resident;
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
