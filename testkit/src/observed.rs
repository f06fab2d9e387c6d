//! A log that reports what its workers do, and into which a bug can be put.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use log::{
    Error, Event, LayeredLog, Log, LogLayer, NewRecord, Offset, Step, StepError, TopicPartition,
    Worker, WorkerLayer, WorkerSpec, layered,
};
use schemas::record::{DepositCommand, DepositCommandBody};
use schemas::{Partition, Topic};

/// Gets the reports, and may end the process between two halves of a step.
pub trait Observer: Send + Sync + 'static {
    fn report(&self, report: &Report);
    /// A worker is at this point. It may not return; if it returns false, the worker dies.
    fn reached(&self, group: &str, point: &str) -> bool;
}

/// What a worker did: its group and what else belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It owns more partitions, with these committed positions.
    Assigned(String, BTreeMap<TopicPartition, Offset>),
    /// It lost partitions.
    Revoked(String, Vec<TopicPartition>),
    /// A step is committed, with these positions.
    Committed(String, BTreeMap<TopicPartition, Offset>),
    /// A step is not, for this cause.
    Failed(String, String),
    /// It is held at a point.
    Held(String, String),
    /// It ended, and how.
    Ended(String, String),
}

/// Remembers how far the groups are, and lets a worker die between two halves of a step.
#[derive(Debug, Default)]
pub struct Progress {
    pub positions: Mutex<BTreeMap<TopicPartition, Offset>>,
    /// At which of the next passages the worker dies; never if none.
    pub passages: AtomicU32,
}

impl Observer for Progress {
    fn report(&self, report: &Report) {
        if let Report::Committed(_, at) | Report::Assigned(_, at) = report {
            self.positions.lock().unwrap().extend(at);
        }
    }

    fn reached(&self, _group: &str, _point: &str) -> bool {
        let one_less = |passages: u32| passages.checked_sub(1);
        self.passages.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) != Ok(1)
    }
}

/// What is wrong with the steps of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    None,
    /// Offsets are committed on their own, before the outputs.
    OffsetsFirst,
    /// Offsets are committed on their own, after the outputs.
    OffsetsLast,
}

impl Bug {
    const ALL: [Self; 3] = [Self::None, Self::OffsetsFirst, Self::OffsetsLast];

    pub fn parse(text: &str) -> Self {
        let is = |bug: &Self| format!("{bug:?}") == text;
        Self::ALL.into_iter().find(is).unwrap_or_else(|| panic!("no bug {text}"))
    }
}

/// Between the two halves of a step that holds an answer of an order to a lane.
pub const BETWEEN_ANSWERS: &str = "BetweenAnswers";

impl Report {
    pub fn group(&self) -> &str {
        match self {
            Self::Assigned(group, _)
            | Self::Revoked(group, _)
            | Self::Committed(group, _)
            | Self::Failed(group, _)
            | Self::Held(group, _)
            | Self::Ended(group, _) => group,
        }
    }

    pub fn line(&self) -> String {
        let mut line = String::new();
        let (word, group, places): (_, _, Vec<String>) = match self {
            Self::Assigned(group, at) => ("assigned", group, positions(at)),
            Self::Committed(group, at) => ("committed", group, positions(at)),
            Self::Revoked(group, lost) => {
                ("revoked", group, lost.iter().map(ToString::to_string).collect())
            }
            Self::Failed(group, cause) => ("failed", group, vec![cause.replace('\n', " ")]),
            Self::Held(group, point) => ("held", group, vec![point.clone()]),
            Self::Ended(group, cause) => ("ended", group, vec![cause.replace('\n', " ")]),
        };
        write!(line, "{word} {group} {}", places.join(" ")).unwrap();
        line
    }

    /// Reads such a line; none for any other.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        let (word, group, rest) = (words.next()?, words.next()?.to_owned(), words.next()?);
        let pairs = || {
            let pair = |word: &str| {
                let (of, offset) = word.split_once('@')?;
                Some((partition(of)?, Offset(offset.parse().ok()?)))
            };
            rest.split_whitespace().map(pair).collect::<Option<BTreeMap<_, _>>>()
        };
        Some(match word {
            "assigned" => Self::Assigned(group, pairs()?),
            "committed" => Self::Committed(group, pairs()?),
            "revoked" => {
                let lost = rest.split_whitespace().map(partition).collect::<Option<_>>()?;
                Self::Revoked(group, lost)
            }
            "failed" => Self::Failed(group, rest.to_owned()),
            "held" => Self::Held(group, rest.to_owned()),
            "ended" => Self::Ended(group, rest.to_owned()),
            _ => return None,
        })
    }
}

fn positions(at: &BTreeMap<TopicPartition, Offset>) -> Vec<String> {
    at.iter().map(|(of, offset)| format!("{of}@{offset}")).collect()
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
    fn report(&self, report: impl FnOnce(String) -> Report) {
        self.observer.report(&report(self.group.to_owned()));
    }

    /// The bug: what must be one step is two.
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

/// Whether a record is the answer of an order to a lane about a transfer.
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
                let at = |committed: &Option<log::Committed>| {
                    committed.as_ref().map_or(Offset(0), |committed| committed.offset)
                };
                let all = assigned.iter().map(|one| (one.partition, at(&one.committed))).collect();
                self.report(|group| Report::Assigned(group, all));
            }
            Event::Revoked(lost) => self.report(|group| Report::Revoked(group, lost.clone())),
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
            Ok(()) => self.report(|group| Report::Committed(group, at)),
            Err(error) => self.report(|group| Report::Failed(group, error.to_string())),
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
        let at = BTreeMap::from([(of, Offset(7))]);
        let group = || "processor.matching".to_owned();
        for report in [
            Report::Assigned(group(), at.clone()),
            Report::Committed(group(), at),
            Report::Revoked(group(), vec![of]),
            Report::Failed(group(), "fenced: by another".to_owned()),
            Report::Held(group(), "AfterSend".to_owned()),
            Report::Ended(group(), "well".to_owned()),
        ] {
            assert_eq!(Report::parse(&report.line()), Some(report));
        }
        assert_eq!(Report::parse("test observed ... ok"), None);
    }
}
