//! The log: partitioned topics with consumer groups and one atomic step.
//!
//! The stages see these traits alone. They are shaped so that Kafka transactions serve them unchanged:
//! a [`Worker`] is one consumer with one transactional producer on one thread; its step is outputs,
//! changelog and input offsets in one transaction; partitions come and go by [`Event::Assigned`] and
//! [`Event::Revoked`]; an aborted step is undone by the stage and read again.
//!
//! **Invariants** (the conformance suite in `tests/` checks each one on every back end): a record is
//! seen by readers only after its step is committed; records of a partition have increasing offsets and
//! non-decreasing append times; a worker that lost a partition cannot commit for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemas::{Headers, Layout, Partition, Topic, UnixMicros};

pub mod config;
pub mod consumer;
mod dead_letter;
pub mod embedded;
mod envelope;
mod error;
pub mod kafka;
mod layer;
pub mod metrics;
mod retry;
mod stage;
mod watched;

pub use config::Config;
pub use dead_letter::dead_letter;
pub use envelope::Envelope;
pub use error::{Cause, Error, StepError};
pub use layer::{LayeredLog, LogLayer, WorkerLayer, layered};
pub use retry::retry;
pub use stage::StageContext;
pub use watched::WatchedLog;

/// A place in a partition. The next offset of a reader is where it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub i64);

impl Offset {
    /// The place after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl std::fmt::Display for Offset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One partition of one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Topic,
    /// The partition.
    pub partition: Partition,
}

impl std::fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// A record to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// Where to.
    pub to: TopicPartition,
    /// Key: what compaction keeps the last of.
    pub key: Vec<u8>,
    /// Value; none is a tombstone, for compacted topics.
    pub value: Option<Vec<u8>>,
    /// Headers.
    pub headers: Headers,
}

/// A record as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it is.
    pub from: TopicPartition,
    /// Its place there.
    pub offset: Offset,
    /// When the log took it: the same for everyone who reads it, whenever. Does not decrease within a
    /// partition while the clocks of Kafka's brokers do not step back.
    pub appended_at: UnixMicros,
    /// Key.
    pub key: Vec<u8>,
    /// Value; none is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers.
    pub headers: Headers,
}

impl Record {
    /// The value of a header, if it is there.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name)
    }
}

/// How far a group has read a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Committed {
    /// The next record to read.
    pub offset: Offset,
    /// A short text (at most 4,000 bytes) that the group keeps with it.
    pub metadata: String,
}

/// A partition that a worker now owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// The partition.
    pub partition: TopicPartition,
    /// Where the group was; none if it never committed here, and then reading starts at the beginning.
    pub committed: Option<Committed>,
}

/// What a poll brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The worker owns more partitions. Predecessors are fenced and their steps are final: state can be
    /// restored now.
    Assigned(Vec<Assigned>),
    /// The worker lost partitions: their state is to be dropped. Nothing for them can be committed.
    Revoked(Vec<TopicPartition>),
    /// Records, in order within each partition.
    Records(Vec<Arc<Record>>),
    /// Nothing within the time given.
    Idle,
}

/// One atomic step: all of it becomes visible and durable, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Outputs and changelog.
    pub records: Vec<NewRecord>,
    /// For each input partition, where the group goes on.
    pub offsets: Vec<(TopicPartition, Committed)>,
}

/// Bytes of the text that a group keeps with an offset.
const METADATA_BYTES_MAX: usize = 4000;

impl Step {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.offsets.is_empty()
    }

    /// What every back end refuses.
    fn check_metadata(&self) -> Result<(), StepError> {
        let is_long = |(_, at): &&(_, Committed)| at.metadata.len() > METADATA_BYTES_MAX;
        let Some((of, _)) = self.offsets.iter().find(is_long) else { return Ok(()) };
        let text = format!("the metadata for {of} is longer than {METADATA_BYTES_MAX} bytes");
        Err(StepError::Fatal(text.into()))
    }

    /// Makes an input part of the step: once it is committed, the group continues after it.
    pub fn take(&mut self, input: &Record) {
        let next = Committed { offset: input.offset.next(), metadata: String::new() };
        match self.offsets.iter_mut().rev().find(|(of, _)| *of == input.from) {
            Some((_, committed)) => *committed = next,
            None => self.offsets.push((input.from, next)),
        }
    }
}

/// Who a worker is.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    /// Consumer group: its members share the partitions.
    pub group: &'static str,
    /// Name of this member, stable over restarts; also names its transactions.
    pub member: String,
    /// Input topics. Partition i of all of them goes to the same member.
    pub topics: Vec<Topic>,
    /// How many records one poll brings at most.
    pub batch_max: usize,
}

/// First and next offset of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The oldest record kept.
    pub start: Offset,
    /// The next record to be written.
    pub end: Offset,
}

/// A log.
#[async_trait]
pub trait Log: Send + Sync + 'static {
    /// How many partitions its topics have.
    fn layout(&self) -> Layout;

    /// Appends records and returns when they are durable. Records of one call keep their order within a
    /// partition; they are not one atomic step.
    ///
    /// # Errors
    /// [`Error::Transient`]: some may have been written.
    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error>;

    /// A writer of atomic steps without input. It fences an earlier writer of the same name.
    ///
    /// # Errors
    /// [`Error`] if the log cannot be reached.
    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error>;

    /// Joins a group.
    ///
    /// # Errors
    /// [`Error`] if the log cannot be reached.
    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error>;

    /// Reads all partitions of some topics from their present end, without a group.
    ///
    /// # Errors
    /// [`Error`] if the log cannot be reached.
    fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error>;

    /// Reads committed records from `from` on, at most `max` of them. Compacted or expired places are
    /// skipped; an empty answer means the end. Blocks.
    ///
    /// # Errors
    /// [`Error`] if the log cannot be reached.
    fn read(&self, of: TopicPartition, from: Offset, max: usize)
    -> Result<Vec<Arc<Record>>, Error>;

    /// First and next offset. Blocks.
    ///
    /// # Errors
    /// [`Error`] if the log cannot be reached.
    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error>;
}

/// Writes atomic steps. Blocks; belongs on a thread of its own or in `spawn_blocking`.
pub trait Writer: Send {
    /// Appends all records at once and returns when they are durable.
    ///
    /// # Errors
    /// [`StepError`]; after `Fenced` this writer is of no more use.
    fn commit(&mut self, records: Vec<NewRecord>) -> Result<(), StepError>;
}

/// One member of a group: reads, and commits atomic steps. Blocks; belongs on a thread of its own.
/// Dropping it leaves the group.
pub trait Worker: Send {
    /// Waits at most `timeout` for something to happen. Must be called often (within ten seconds) for
    /// the worker to keep its partitions.
    ///
    /// # Errors
    /// [`Error::Transient`]: call again later. Others: stop.
    fn poll(&mut self, timeout: Duration) -> Result<Event, Error>;

    /// Offers records of the next step, so that the log can write them while the caller decides the rest
    /// of it. What the log takes is gone from `records`: it comes before all else of the step that
    /// [`Worker::commit`] makes next, and happens with it or not at all. What is left is still the
    /// caller's. If the worker polls, restores or goes away before that, what was taken never happens.
    fn write_ahead(&mut self, records: &mut Vec<NewRecord>);

    /// Commits a step.
    ///
    /// # Errors
    /// [`StepError`] says what to do with the state in memory.
    fn commit(&mut self, step: Step) -> Result<(), StepError>;

    /// Reads a partition of a changelog from its beginning to its present end, which includes every step
    /// of earlier owners.
    ///
    /// # Errors
    /// [`Error`] if the log cannot be reached.
    fn restore(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error>;

    /// Stops bringing records of a partition until [`Worker::resume`].
    fn pause(&mut self, partition: TopicPartition);

    /// Brings records of a partition again, from where it was paused.
    fn resume(&mut self, partition: TopicPartition);
}

/// Follows topics from their end. Blocks; belongs on a thread of its own.
pub trait Tail: Send {
    /// Waits at most `timeout` for records.
    ///
    /// # Errors
    /// [`Error`] if the log cannot be reached.
    fn poll(&mut self, timeout: Duration) -> Result<Vec<Arc<Record>>, Error>;
}
