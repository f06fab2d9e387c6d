//! Committed records that the two machines read and wrote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{Error, Event, Log, Offset, Record, TopicPartition, WorkerSpec};
use processor::machine::{matching, orders};
use processor::wire::Wire;
use schemas::{Layout, Stage, Topic};

/// Number of records in one read.
const PAGE: usize = 2000;

/// `true` if the topic holds the rows of a machine.
pub(crate) fn is_changelog(topic: Topic) -> bool {
    [matching::State::CHANGELOG, orders::State::CHANGELOG].contains(&topic)
}

/// `true` if the topic holds the inputs taken by each step of a machine.
pub(crate) fn is_steps(topic: Topic) -> bool {
    [matching::State::STEPS, orders::State::STEPS].contains(&topic)
}

/// Next offset of a group in each partition.
pub type Positions = BTreeMap<TopicPartition, Offset>;

/// The records of `transfers.raw` and of all topics that the processor writes.
#[derive(Debug, Clone)]
pub struct Reading {
    layout: Layout,
    partitions: BTreeMap<TopicPartition, Vec<Arc<Record>>>,
}

impl Reading {
    /// Reads all records. Blocks.
    ///
    /// # Errors
    /// [`Error`] if the log cannot be reached.
    pub fn of(log: &dyn Log) -> Result<Self, Error> {
        let layout = log.layout();
        let mut partitions = BTreeMap::new();
        for topic in Topic::written_by(Stage::Processor).chain([Topic::TransfersRaw]) {
            for partition in topic.all_partitions(&layout) {
                let of = TopicPartition { topic, partition };
                let mut records: Vec<Arc<Record>> = Vec::new();
                loop {
                    let next = records.last().map_or(Offset(0), |last| last.offset.next());
                    let page = log.read(of, next, PAGE)?;
                    if page.is_empty() {
                        break;
                    }
                    records.extend(page);
                }
                partitions.insert(of, records);
            }
        }
        Ok(Self { layout, partitions })
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub fn records(&self, of: TopicPartition) -> &[Arc<Record>] {
        self.partitions.get(&of).map_or(&[], Vec::as_slice)
    }

    /// The records of a partition, to be altered by a test.
    pub fn records_mut(&mut self, of: TopicPartition) -> &mut Vec<Arc<Record>> {
        self.partitions.entry(of).or_default()
    }

    pub fn partitions(&self) -> impl Iterator<Item = TopicPartition> {
        self.partitions.keys().copied()
    }

    /// The records of a partition that the group has taken.
    pub(super) fn below(&self, of: TopicPartition, committed: &Positions) -> &[Arc<Record>] {
        let all = self.records(of);
        let end = committed.get(&of).copied().unwrap_or_default();
        &all[..all.partition_point(|record| record.offset < end)]
    }

    /// `true` if the groups have taken every input.
    pub fn is_taken(&self, committed: &Positions) -> bool {
        self.untaken(committed).is_empty()
    }

    /// The inputs that are not taken, by partition.
    pub fn untaken(&self, committed: &Positions) -> BTreeMap<TopicPartition, usize> {
        let inputs = matching::State::INPUTS.iter().chain(orders::State::INPUTS);
        inputs
            .flat_map(|topic| topic.all_partitions(&self.layout).map(|p| (*topic, p)))
            .map(|(topic, partition)| TopicPartition { topic, partition })
            .map(|of| (of, self.records(of).len() - self.below(of, committed).len()))
            .filter(|(_, untaken)| *untaken > 0)
            .collect()
    }
}

/// Reads the committed positions of both machines' groups by joining the groups. The former members must have left, or
/// lose their partitions within `patience`. Blocks.
pub fn committed(log: &dyn Log, patience: Duration) -> Result<Positions, String> {
    let mut positions = join::<matching::State>(log, patience)?;
    positions.extend(join::<orders::State>(log, patience)?);
    Ok(positions)
}

fn join<M: Wire>(log: &dyn Log, patience: Duration) -> Result<Positions, String> {
    let wanted = M::INPUTS.iter().map(|t| t.all_partitions(&log.layout()).count()).sum::<usize>();
    let spec = WorkerSpec {
        group: M::GROUP,
        member: "auditor".to_owned(),
        topics: M::INPUTS.to_vec(),
        batch_max: 1,
    };
    let mut worker = log.worker(spec).map_err(|error| error.to_string())?;
    let mut positions = Positions::new();
    let begun = Instant::now();
    while positions.len() < wanted {
        if begun.elapsed() > patience {
            return Err(format!("{}: {} of {wanted} partitions", M::GROUP, positions.len()));
        }
        match worker.poll(Duration::from_millis(100)) {
            Ok(Event::Assigned(assigned)) => positions.extend(assigned.into_iter().map(|one| {
                (one.partition, one.committed.map_or(Offset(0), |committed| committed.offset))
            })),
            Ok(Event::Revoked(lost)) => positions.retain(|of, _| !lost.contains(of)),
            Ok(Event::Records(_) | Event::Idle) | Err(Error::Transient(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(positions)
}
