//! A log whose workers and tails are parts of a process's readiness.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::Readiness;
use runtime::readiness::Part;
use schemas::Topic;

use crate::{
    Error, Event, LayeredLog, Log, LogLayer, Record, Records, Tail, TopicPartition, Worker,
    WorkerLayer, WorkerSpec, layered,
};

/// A worker without partitions for this long is a standby: the others have all of them. Longer than
/// the default session time-out, after which the group evicts a dead member.
const STANDBY_AFTER: Duration = Duration::from_secs(20);
/// Error-free time after which a log without records counts as available again: an unavailable one
/// reports errors only at intervals. Longer than the interval of attempts to connect.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// Time of the last failure of a worker or a tail.
#[derive(Debug, Default)]
struct Failure(Option<Instant>);

impl Failure {
    /// Sets the reason of a part. Only the first is logged: an unavailable log gives several in turn.
    fn note(&mut self, part: &Part, error: &Error) {
        if self.0.replace(Instant::now()).is_none() {
            part.waiting(error.to_string());
        } else {
            part.progress(error.to_string());
        }
    }

    /// `true` if the log can be read, given whether the last poll returned records.
    fn is_over(&mut self, has_records: bool) -> bool {
        self.0.take_if(|last| has_records || last.elapsed() > RECOVERED_AFTER);
        self.0.is_none()
    }
}

/// Layer that makes each worker and tail a part of the process's readiness. A worker is ready once
/// it has restored its assignment or is a standby, and while the log can be read.
pub struct WatchedLog {
    readiness: Readiness,
    /// Until the first worker or tail is opened: before that the process is not ready.
    starting: Mutex<Option<Part>>,
}

impl WatchedLog {
    /// Puts the layer over `log`. The process is not ready before `reader` has opened a worker or a
    /// tail.
    #[must_use]
    pub fn over(log: Arc<dyn Log>, readiness: Readiness, reader: &str) -> LayeredLog<Self> {
        let starting = Mutex::new(Some(readiness.part(reader, "starting")));
        LayeredLog::new(log, Self { readiness, starting })
    }

    fn part(&self, name: String, waits_for: &str) -> Part {
        let part = self.readiness.part(name, waits_for);
        self.starting.lock().unwrap_or_else(PoisonError::into_inner).take();
        part
    }
}

impl LogLayer for WatchedLog {
    fn worker(&self, log: &dyn Log, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        let name = format!("{} {}", spec.group, spec.member);
        let worker = log.worker(spec)?;
        let part = self.part(name, "joining its group");
        let watched = WatchedWorker {
            part,
            joining_since: Some(Instant::now()),
            failure: Failure::default(),
            to: 0,
            at: 0,
        };
        Ok(layered(worker, watched))
    }

    fn tail(&self, log: &dyn Log, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        let tail = log.tail(topics)?;
        let names: Vec<_> = topics.iter().map(|topic| topic.name()).collect();
        let part = self.part(format!("tail of {}", names.join(", ")), "opening it");
        Ok(Box::new(WatchedTail { tail, part, failure: Failure::default() }))
    }
}

struct WatchedWorker {
    part: Part,
    /// None once it was assigned partitions, or is a standby.
    joining_since: Option<Instant>,
    failure: Failure,
    /// Number of partitions assigned last (`to`), and of those that are restored (`at`).
    to: usize,
    at: usize,
}

impl WorkerLayer for WatchedWorker {
    fn poll(&mut self, worker: &mut dyn Worker, timeout: Duration) -> Result<Event, Error> {
        let polled = worker.poll(timeout);
        match &polled {
            Ok(Event::Assigned(assigned)) => {
                let mut partitions: Vec<_> =
                    assigned.iter().map(|one| one.partition.partition).collect();
                partitions.sort_unstable();
                partitions.dedup();
                // The next poll sets the part ready: by then the assignment is restored.
                self.failure = Failure::default();
                (self.joining_since, self.to, self.at) = (None, partitions.len(), 0);
            }
            Ok(event) => {
                let is_well = self.failure.is_over(matches!(event, Event::Records(_)));
                self.joining_since.take_if(|since| since.elapsed() > STANDBY_AFTER);
                if is_well && self.joining_since.is_none() {
                    self.part.ready();
                }
            }
            Err(error) => self.failure.note(&self.part, error),
        }
        polled
    }

    fn restore(
        &mut self,
        worker: &mut dyn Worker,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        let (at, to) = (self.at, self.to);
        self.part.progress(format!("restoring {changelog}, {at} of {to} done"));
        let restored = worker.restore(changelog, apply);
        match &restored {
            Ok(()) => self.at = self.at.saturating_add(1),
            Err(error) => self.part.waiting(format!("cannot restore {changelog}: {error}")),
        }
        restored
    }
}

struct WatchedTail {
    tail: Box<dyn Tail>,
    part: Part,
    failure: Failure,
}

impl Tail for WatchedTail {
    fn poll(&mut self, timeout: Duration) -> Result<Records, Error> {
        let polled = self.tail.poll(timeout);
        match &polled {
            Ok(records) => {
                if self.failure.is_over(!records.is_empty()) {
                    self.part.ready();
                }
            }
            Err(error) => self.failure.note(&self.part, error),
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::SystemClock;
    use schemas::Layout;

    use crate::embedded::EmbeddedLog;

    const LAYOUT: Layout = Layout { lanes: 1, orders: 3, webhooks: 1 };
    const SOON: Duration = Duration::from_millis(20);

    fn spec(member: &str) -> WorkerSpec {
        WorkerSpec {
            group: "g",
            member: member.to_owned(),
            topics: vec![Topic::OrdersCommands, Topic::Orders],
            batch_max: 10,
        }
    }

    fn watched(readiness: &Readiness) -> (impl Log, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).unwrap();
        (WatchedLog::over(Arc::new(log), readiness.clone(), "g"), dir)
    }

    #[test]
    fn worker_is_ready_when_its_share_is_restored() {
        let readiness = Readiness::default();
        let (log, _dir) = watched(&readiness);
        assert_eq!(readiness.waiting_for(), ["g: starting"]);
        let mut worker = log.worker(spec("a.0")).unwrap();
        assert_eq!(readiness.waiting_for(), ["g a.0: joining its group"]);
        let Event::Assigned(assigned) = worker.poll(SOON).unwrap() else { panic!() };
        assert_eq!(assigned.len(), 6);
        for partition in (0..3).map(schemas::Partition) {
            let changelog = TopicPartition { topic: Topic::OrdersChangelog, partition };
            worker.restore(changelog, &mut |_| {}).unwrap();
            let line = format!("g a.0: restoring {changelog}, {partition} of 3 done");
            assert_eq!(readiness.waiting_for(), [line]);
        }
        assert_eq!(worker.poll(SOON).unwrap(), Event::Idle);
        assert!(readiness.waiting_for().is_empty());
        drop(worker);
        assert!(readiness.waiting_for().is_empty());
    }

    #[test]
    fn failure_ends_by_the_next_records_or_after_a_while() {
        let readiness = Readiness::default();
        let part = readiness.part("g a.0", "joining its group");
        let mut failure = Failure::default();
        assert!(failure.is_over(false));
        for cause in ["refused", "down"] {
            failure.note(&part, &Error::Transient(cause.into()));
            let line = format!("g a.0: the log is not available: {cause}");
            assert_eq!(readiness.waiting_for(), [line]);
        }
        assert!(!failure.is_over(false), "an empty poll shows nothing");
        assert!(failure.is_over(true));
        failure.0 = Instant::now().checked_sub(RECOVERED_AFTER + SOON);
        assert!(failure.is_over(false));
    }

    #[test]
    fn a_reader_that_fails_is_not_ready() {
        let readiness = Readiness::default();
        let (log, _dir) = watched(&readiness);
        let mut tail = log.tail(&[Topic::Orders]).unwrap();
        tail.poll(SOON).unwrap();
        assert!(readiness.waiting_for().is_empty());
        let mut first = log.worker(spec("a.0")).unwrap();
        let mut second = log.worker(spec("a.0")).unwrap();
        first.poll(SOON).unwrap_err();
        second.poll(SOON).unwrap();
        second.poll(SOON).unwrap();
        let [line] = readiness.waiting_for().try_into().unwrap();
        assert!(line.starts_with("g a.0: fenced: another a.0 joined"), "{line}");
    }
}
