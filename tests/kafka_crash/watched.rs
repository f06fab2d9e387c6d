//! A log that tells what its workers do, and into which a bug can be put.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use log::{
    Committed, Error, Event, LayeredLog, Log, LogLayer, NewRecord, Offset, Step, StepError,
    TopicPartition, Worker, WorkerLayer, WorkerSpec, layered,
};
use schemas::record::{DepositCommand, DepositCommandBody};
use schemas::{Partition, Topic};

/// Who is told, and who may end the process in between.
pub(crate) trait Witness: Send + Sync + 'static {
    /// Something happened.
    fn tell(&self, news: &News);
    /// A worker is at this point. It may not return; if it returns false, the worker dies.
    fn reached(&self, group: &str, point: &str) -> bool;
}

/// What a worker did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// It owns more partitions, and the group was there in them.
    Assigned(String, BTreeMap<TopicPartition, Offset>),
    /// It lost partitions.
    Revoked(String, Vec<TopicPartition>),
    /// A step is committed up to here.
    Taken(String, BTreeMap<TopicPartition, Offset>),
    /// A step is not.
    Failed(String, String),
    /// It waits at a point.
    At(String, String),
    /// It ended, and how.
    Ended(String, String),
}

/// What is wrong with the worker's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// Offsets are committed on their own, before the outputs.
    OffsetsFirst,
    /// Offsets are committed on their own, after the outputs.
    OffsetsLast,
}

impl Bug {
    const ALL: [Self; 3] = [Self::None, Self::OffsetsFirst, Self::OffsetsLast];

    pub(crate) fn parse(text: &str) -> Self {
        let is = |bug: &Self| format!("{bug:?}") == text;
        Self::ALL.into_iter().find(is).unwrap_or_else(|| panic!("no bug {text}"))
    }
}

/// Between the two halves of a step that holds an answer of an order to a lane.
pub(crate) const BETWEEN_ANSWERS: &str = "BetweenAnswers";

impl News {
    /// The group that they are about.
    pub(crate) fn group(&self) -> &str {
        match self {
            Self::Assigned(group, _)
            | Self::Revoked(group, _)
            | Self::Taken(group, _)
            | Self::Failed(group, _)
            | Self::At(group, _)
            | Self::Ended(group, _) => group,
        }
    }

    /// As one line.
    pub(crate) fn line(&self) -> String {
        let mut line = String::new();
        let (word, group, places): (_, _, Vec<String>) = match self {
            Self::Assigned(group, at) => ("assigned", group, positions(at)),
            Self::Taken(group, at) => ("taken", group, positions(at)),
            Self::Revoked(group, lost) => {
                ("revoked", group, lost.iter().map(ToString::to_string).collect())
            }
            Self::Failed(group, cause) => ("failed", group, vec![cause.replace('\n', " ")]),
            Self::At(group, point) => ("at", group, vec![point.clone()]),
            Self::Ended(group, cause) => ("ended", group, vec![cause.replace('\n', " ")]),
        };
        write!(line, "{word} {group} {}", places.join(" ")).unwrap();
        line
    }

    /// Reads such a line; none for any other.
    pub(crate) fn parse(line: &str) -> Option<Self> {
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
            "taken" => Self::Taken(group, pairs()?),
            "revoked" => {
                let lost = rest.split_whitespace().map(partition).collect::<Option<_>>()?;
                Self::Revoked(group, lost)
            }
            "failed" => Self::Failed(group, rest.to_owned()),
            "at" => Self::At(group, rest.to_owned()),
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

/// Reports what the workers of a log do to a witness, and puts the bug in.
struct Watched {
    witness: Arc<dyn Witness>,
    bug: Bug,
}

/// The log with a witness.
pub(crate) fn watched(log: Arc<dyn Log>, witness: Arc<dyn Witness>, bug: Bug) -> Arc<dyn Log> {
    Arc::new(LayeredLog::new(log, Watched { witness, bug }))
}

impl LogLayer for Watched {
    fn worker(&self, log: &dyn Log, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        let (witness, group, bug) = (self.witness.clone(), spec.group, self.bug);
        Ok(layered(log.worker(spec)?, WatchedWorker { witness, group, bug }))
    }
}

struct WatchedWorker {
    witness: Arc<dyn Witness>,
    group: &'static str,
    bug: Bug,
}

impl WatchedWorker {
    fn tell(&self, news: impl FnOnce(String) -> News) {
        self.witness.tell(&news(self.group.to_owned()));
    }

    /// The bug: what must be one step is two.
    fn commit_in_two(&self, worker: &mut dyn Worker, step: Step) -> Result<(), StepError> {
        let answers = step.records.iter().any(is_answer);
        let outputs = Step { records: step.records, offsets: Vec::new() };
        let offsets = Step { records: Vec::new(), offsets: step.offsets };
        let (first, second) =
            if self.bug == Bug::OffsetsFirst { (offsets, outputs) } else { (outputs, offsets) };
        worker.commit(first)?;
        if answers && !self.witness.reached(self.group, BETWEEN_ANSWERS) {
            return Err(StepError::Fatal("the process died".into()));
        }
        worker.commit(second)
    }
}

/// Whether a record tells a lane what an order says about a transfer.
fn is_answer(record: &NewRecord) -> bool {
    let value = record.value.as_deref().unwrap_or_default();
    record.to.topic == Topic::DepositsCommands
        && schemas::decode::<DepositCommand>(value).is_ok_and(|command| {
            use DepositCommandBody::{Refused, Settled};
            matches!(command.body, Settled { .. } | Refused { .. })
        })
}

impl WorkerLayer for WatchedWorker {
    fn poll(&mut self, worker: &mut dyn Worker, timeout: Duration) -> Result<Event, Error> {
        let event = worker.poll(timeout)?;
        match &event {
            Event::Assigned(assigned) => {
                let at = |committed: &Option<Committed>| {
                    committed.as_ref().map_or(Offset(0), |committed| committed.offset)
                };
                let all = assigned.iter().map(|one| (one.partition, at(&one.committed))).collect();
                self.tell(|group| News::Assigned(group, all));
            }
            Event::Revoked(lost) => self.tell(|group| News::Revoked(group, lost.clone())),
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
            Ok(()) => self.tell(|group| News::Taken(group, at)),
            Err(error) => self.tell(|group| News::Failed(group, error.to_string())),
        }
        result
    }
}

#[test]
fn news_come_back_as_they_were_told() {
    let of = TopicPartition { topic: Topic::TransfersRaw, partition: Partition(3) };
    let at = BTreeMap::from([(of, Offset(7))]);
    let group = || "processor.matching".to_owned();
    for news in [
        News::Assigned(group(), at.clone()),
        News::Taken(group(), at),
        News::Revoked(group(), vec![of]),
        News::Failed(group(), "fenced: by another".to_owned()),
        News::At(group(), "AfterSend".to_owned()),
        News::Ended(group(), "well".to_owned()),
    ] {
        assert_eq!(News::parse(&news.line()), Some(news));
    }
    assert_eq!(News::parse("test watched ... ok"), None);
}
