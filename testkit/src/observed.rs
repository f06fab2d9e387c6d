//! A log that reports its workers' events, and can have a planted bug.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use log::{
    Error, Event, LayeredLog, Log, LogLayer, NewRecord, Offset, Step, StepError, TopicPartition,
    Worker, WorkerLayer, WorkerSpec, layered,
};
use schemas::record::{DepositCommand, DepositCommandBody};
use schemas::{Partition, Topic};

/// Receives the reports, and may kill a worker within a step.
pub trait Observer: Send + Sync + 'static {
    fn report(&self, report: &Report);
    /// Called by a worker at this point. It may block; on `false` the worker dies.
    fn reached(&self, group: &str, point: &str) -> bool;
}

/// Event of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Assignment of partitions, with these committed positions.
    Assigned,
    /// Loss of partitions.
    Revoked,
    /// Commit of a step, with these positions.
    Committed,
    /// Failure of a commit, with its cause.
    Failed,
    /// Hold at this point of a step.
    Held,
    /// End of the worker, with its outcome.
    Ended,
}

impl What {
    const ALL: [Self; 6] =
        [Self::Assigned, Self::Revoked, Self::Committed, Self::Failed, Self::Held, Self::Ended];
}

/// A report about a worker of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub what: What,
    pub group: String,
    pub positions: BTreeMap<TopicPartition, Offset>,
    pub text: String,
}

/// Records the positions of groups, and kills a worker between two halves of a step.
#[derive(Debug, Default)]
pub struct Progress {
    pub positions: Mutex<BTreeMap<TopicPartition, Offset>>,
    /// Number of passages up to the one at which the worker dies; 0: it never dies.
    pub passages: AtomicU32,
}

impl Observer for Progress {
    fn report(&self, report: &Report) {
        if [What::Committed, What::Assigned].contains(&report.what) {
            self.positions.lock().unwrap().extend(&report.positions);
        }
    }

    fn reached(&self, _group: &str, _point: &str) -> bool {
        let one_less = |passages: u32| passages.checked_sub(1);
        self.passages.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) != Ok(1)
    }
}

/// Defect planted in the steps of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    None,
    /// Offsets are committed separately, before the outputs.
    OffsetsFirst,
    /// Offsets are committed separately, after the outputs.
    OffsetsLast,
}

impl Bug {
    const ALL: [Self; 3] = [Self::None, Self::OffsetsFirst, Self::OffsetsLast];

    pub fn parse(text: &str) -> Self {
        let is = |bug: &Self| format!("{bug:?}") == text;
        Self::ALL.into_iter().find(is).unwrap_or_else(|| panic!("no bug {text}"))
    }
}

/// Point between the halves of a step with an order's reply to a lane.
pub const BETWEEN_ANSWERS: &str = "BetweenAnswers";

impl Report {
    pub fn new(what: What, group: &str, text: &str) -> Self {
        let (group, text) = (group.to_owned(), text.replace('\n', " "));
        Self { what, group, positions: BTreeMap::new(), text }
    }

    pub fn line(&self) -> String {
        let Self { what, group, positions, text } = self;
        let position = |(of, offset): (&TopicPartition, &Offset)| format!("{of}@{offset}");
        let positions: Vec<_> = positions.iter().map(position).collect();
        format!("{what:?} {group} {} {text}", positions.join(","))
    }

    /// Parses a line of [`Report::line`]; `None` for any other text.
    pub fn parse(line: &str) -> Option<Self> {
        let [what, group, positions, text] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let what = What::ALL.into_iter().find(|known| format!("{known:?}") == what)?;
        let position = |text: &str| {
            let (of, offset) = text.split_once('@')?;
            Some((partition(of)?, Offset(offset.parse().ok()?)))
        };
        let positions = positions.split_terminator(',').map(position).collect::<Option<_>>()?;
        Some(Self { positions, ..Self::new(what, group, text) })
    }
}

fn partition(text: &str) -> Option<TopicPartition> {
    let (name, partition) = text.split_once('/')?;
    let topic = Topic::ALL.into_iter().find(|topic| topic.name() == name)?;
    Some(TopicPartition { topic, partition: Partition(partition.parse().ok()?) })
}

struct Observed {
    observer: Arc<dyn Observer>,
    bug: Bug,
}

/// A log that reports to `observer`.
pub fn observed(log: Arc<dyn Log>, observer: Arc<dyn Observer>, bug: Bug) -> Arc<dyn Log> {
    Arc::new(LayeredLog::new(log, Observed { observer, bug }))
}

impl LogLayer for Observed {
    fn worker(&self, log: &dyn Log, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        let (observer, group, bug) = (self.observer.clone(), spec.group, self.bug);
        Ok(layered(log.worker(spec)?, ObservedWorker { observer, group, bug }))
    }
}

struct ObservedWorker {
    observer: Arc<dyn Observer>,
    group: &'static str,
    bug: Bug,
}

impl ObservedWorker {
    fn report(&self, what: What, positions: BTreeMap<TopicPartition, Offset>, text: &str) {
        self.observer.report(&Report { positions, ..Report::new(what, self.group, text) });
    }

    /// The bug: commits one step as two.
    fn commit_in_two(&self, worker: &mut dyn Worker, step: Step) -> Result<(), StepError> {
        let answers = step.records.iter().any(is_answer);
        let outputs = Step { records: step.records, offsets: Vec::new() };
        let offsets = Step { records: Vec::new(), offsets: step.offsets };
        let (first, second) =
            if self.bug == Bug::OffsetsFirst { (offsets, outputs) } else { (outputs, offsets) };
        worker.commit(first)?;
        if answers && !self.observer.reached(self.group, BETWEEN_ANSWERS) {
            return Err(StepError::Fatal("the process died".into()));
        }
        worker.commit(second)
    }
}

/// `true` if a record is an order's reply to a lane about a transfer.
fn is_answer(record: &NewRecord) -> bool {
    let value = record.value.as_deref().unwrap_or_default();
    record.to.topic == Topic::DepositsCommands
        && schemas::decode::<DepositCommand>(value).is_ok_and(|command| {
            use DepositCommandBody::{Refused, Settled};
            matches!(command.body, Settled { .. } | Refused { .. })
        })
}

impl WorkerLayer for ObservedWorker {
    fn poll(&mut self, worker: &mut dyn Worker, timeout: Duration) -> Result<Event, Error> {
        let event = worker.poll(timeout)?;
        match &event {
            Event::Assigned(assigned) => {
                let at =
                    |one: &log::Assigned| one.committed.as_ref().map_or(Offset(0), |c| c.offset);
                let all = assigned.iter().map(|one| (one.partition, at(one))).collect();
                self.report(What::Assigned, all, "");
            }
            Event::Revoked(lost) => {
                let all = lost.iter().map(|of| (*of, Offset(0))).collect();
                self.report(What::Revoked, all, "");
            }
            Event::Records(_) | Event::Idle => {}
        }
        Ok(event)
    }

    fn write_ahead(&mut self, worker: &mut dyn Worker, records: &mut Vec<NewRecord>) {
        if self.bug == Bug::None {
            worker.write_ahead(records);
        }
    }

    fn commit(&mut self, worker: &mut dyn Worker, step: Step) -> Result<(), StepError> {
        let at = step.offsets.iter().map(|(of, committed)| (*of, committed.offset)).collect();
        let result = match self.bug {
            Bug::None => worker.commit(step),
            Bug::OffsetsFirst | Bug::OffsetsLast => self.commit_in_two(worker, step),
        };
        match &result {
            Ok(()) => self.report(What::Committed, at, ""),
            Err(error) => self.report(What::Failed, BTreeMap::new(), &error.to_string()),
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_back_from_their_lines() {
        let of = TopicPartition { topic: Topic::TransfersRaw, partition: Partition(3) };
        let positions = BTreeMap::from([
            (of, Offset(7)),
            (TopicPartition { partition: Partition(0), ..of }, Offset(1)),
        ]);
        for what in What::ALL {
            let report = Report::new(what, "processor.matching", "fenced: by another");
            assert_eq!(Report::parse(&report.line()), Some(report.clone()));
            let report = Report { positions: positions.clone(), text: String::new(), ..report };
            assert_eq!(Report::parse(&report.line()), Some(report));
        }
        assert_eq!(Report::parse("test observed ... ok"), None);
    }
}
