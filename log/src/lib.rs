//! The log: partitioned topics with consumer groups and one atomic step.
//!
//! Stages use only these traits, which are shaped so that Kafka transactions implement them unchanged:
//! a [`Worker`] is one consumer with one transactional producer on one thread; its step is outputs,
//! changelog and input offsets in one transaction; partitions are assigned and revoked by
//! [`Event::Assigned`] and [`Event::Revoked`]; an aborted step is undone by the stage and read again.
//!
//! A call that returns [`Error`] may return [`Error::Transient`] while the log cannot be reached.
//!
//! **Invariants** (`testkit/src/log_suite.rs` checks each one on every back end): readers see a
//! record only after its step is committed; records of a partition have increasing offsets and, unless a Kafka
//! broker's clock steps back, non-decreasing append times; a worker that lost a partition cannot commit for it.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runtime::Clock;
use schemas::{HEADER_APPENDED_AT, Headers, Incarnation, Layout, Partition, Topic, UnixMicros};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

mod alerts;
pub mod config;
pub mod consumer;
mod dead_letter;
pub mod embedded;
mod encode;
mod error;
pub mod kafka;
mod layer;
pub mod metrics;
mod retry;
mod unreadable;
mod watched;

pub use alerts::{ALERTS, OpenAlerts};
pub use config::Config;
pub use dead_letter::dead_letter;
pub use error::{Cause, Error, StepError};
pub use layer::{LayeredLog, LogLayer, WorkerLayer, layered};
pub use retry::retry;
pub use unreadable::{NewerRecord, Unreadable};
pub use watched::WatchedLog;

/// Maximum bytes of the text that a group keeps with an offset.
const METADATA_BYTES_MAX: usize = 4000;

/// A position in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub i64);

impl Offset {
    /// The position after this one.
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

/// A partition of a topic: the scope of an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: Topic,
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
    pub to: TopicPartition,
    /// Compaction keeps the last record of each key.
    pub key: Vec<u8>,
    /// None is a tombstone, for compacted topics.
    pub value: Option<Vec<u8>>,
    pub headers: Headers,
}

/// A record as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub from: TopicPartition,
    pub offset: Offset,
    /// Set by the log, so the same for every reader. Does not decrease within a partition unless a
    /// Kafka broker's clock steps back. An imported record keeps its first append time.
    pub appended_at: UnixMicros,
    pub key: Vec<u8>,
    /// None is a tombstone.
    pub value: Option<Vec<u8>>,
    pub headers: Headers,
}

/// Records as read, shared by their readers.
pub type Records = Vec<Arc<Record>>;

impl Record {
    /// The value of the first header with this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name)
    }

    /// Append time of a record: from the header if it was imported, else `appended_at`.
    fn first_appended_at(headers: &Headers, appended_at: UnixMicros) -> UnixMicros {
        let text = headers.get(HEADER_APPENDED_AT).and_then(|text| std::str::from_utf8(text).ok());
        text.and_then(|text| text.parse().ok()).map_or(appended_at, UnixMicros)
    }
}

#[cfg(test)]
impl Record {
    /// A tombstone without a key.
    fn of(from: TopicPartition, offset: i64) -> Self {
        Self {
            from,
            offset: Offset(offset),
            appended_at: UnixMicros(offset),
            key: vec![],
            value: None,
            headers: Headers::default(),
        }
    }
}

/// Committed position of a group in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Committed {
    /// The next record to read.
    pub offset: Offset,
    /// At most 4,000 bytes that the group keeps with the offset.
    pub metadata: String,
}

/// A member of a group, as an observer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// As in [`WorkerSpec::member`].
    pub name: String,
    /// Its assigned partitions.
    pub partitions: Vec<TopicPartition>,
}

/// A partition that a worker now owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    pub partition: TopicPartition,
    /// None if the group never committed here: reading starts at the beginning.
    pub committed: Option<Committed>,
}

/// Result of a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The worker owns more partitions. Predecessors are fenced and their steps are final: state can be
    /// restored now.
    Assigned(Vec<Assigned>),
    /// The worker lost partitions: their state is to be dropped, nothing can be committed for them.
    Revoked(Vec<TopicPartition>),
    /// Records, in order within each partition.
    Records(Records),
    /// Nothing until the time-out.
    Idle,
}

/// One atomic step: all of it becomes visible and durable, or none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Outputs and changelog.
    pub records: Vec<NewRecord>,
    /// The group's next position in each input partition.
    pub offsets: Vec<(TopicPartition, Committed)>,
}

impl Step {
    /// `true` if there is nothing to write and nothing to commit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.offsets.is_empty()
    }

    /// Rejects metadata longer than [`METADATA_BYTES_MAX`].
    fn check_metadata(&self) -> Result<(), StepError> {
        let is_long = |(_, at): &&(_, Committed)| at.metadata.len() > METADATA_BYTES_MAX;
        let Some((of, _)) = self.offsets.iter().find(is_long) else { return Ok(()) };
        let text = format!("the metadata for {of} is longer than {METADATA_BYTES_MAX} bytes");
        Err(StepError::Fatal(text.into()))
    }

    /// Adds an input: the group's position after the commit is the record after it.
    pub fn take(&mut self, input: &Record) {
        let next = Committed { offset: input.offset.next(), metadata: String::new() };
        match self.offsets.iter_mut().rev().find(|(of, _)| *of == input.from) {
            Some((_, committed)) => *committed = next,
            None => self.offsets.push((input.from, next)),
        }
    }
}

/// The identity of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    pub group: &'static str,
    /// Stable over restarts; also names its transactions.
    pub member: String,
    /// Partition i of those with equal partition counts is assigned to the same member.
    pub topics: Vec<Topic>,
    /// Maximum number of records that one poll returns.
    pub batch_max: usize,
}

/// Range of the offsets of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Offset before which no record is kept.
    pub start: Offset,
    /// Offset of the next record to be written. Offsets before it may have no record, such as those
    /// of Kafka's transaction markers. So a reader that has read everything may have a lower
    /// position; an empty page of [`Log::read`] shows that nothing follows.
    pub end: Offset,
}

/// The log: topics with partitions, records in order, groups with committed positions.
#[async_trait]
pub trait Log: Send + Sync + 'static {
    /// Partition counts of the topics in this installation.
    fn layout(&self) -> Layout;

    /// Returns the installation's name: assigned when the log is created, the same in every
    /// process. Blocks.
    ///
    /// # Errors
    /// [`Error::Transient`] if the log is unavailable.
    fn installation(&self) -> Result<String, Error>;

    /// Incarnation of this copy of the installation. Each restore of an embedded log begins a new one,
    /// so that no id is assigned twice. A log on Kafka has the first, or the one of its import.
    fn incarnation(&self) -> Incarnation {
        Incarnation::default()
    }

    /// Appends records and returns when they are durable. Records of one call keep their order within a
    /// partition; they are not one atomic step.
    ///
    /// # Errors
    /// [`Error::Transient`]: some may have been written.
    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error>;

    /// Opens a writer of atomic steps without input. It fences an earlier writer of the same name.
    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error>;

    /// Joins a group.
    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error>;

    /// Reads all partitions of some topics from their present end, without a group.
    fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error>;

    /// Reads committed records from `from` on, at most `max` of them. Compacted or expired records are
    /// skipped; an empty page means the end. Blocks.
    fn read(&self, of: TopicPartition, from: Offset, max: usize) -> Result<Records, Error>;

    /// Reads like [`Log::read`], but only up to the first record of an open transaction, without
    /// waiting for it. Blocks.
    fn read_ended(&self, of: TopicPartition, from: Offset, max: usize) -> Result<Records, Error> {
        self.read(of, from, max)
    }

    /// Range of a partition's offsets. Blocks.
    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error>;
}

/// Writes atomic steps. Blocks; belongs on a thread of its own or in `spawn_blocking`.
pub trait Writer: Send {
    /// Appends all records as one step and returns when they are durable. After [`StepError::Fenced`] this
    /// writer is unusable.
    fn commit(&mut self, records: Vec<NewRecord>) -> Result<(), StepError>;
}

/// One member of a group: reads, and commits atomic steps. Blocks; belongs on a thread of its own.
/// Dropping it leaves the group.
pub trait Worker: Send {
    /// Waits at most `timeout` for an event. The worker loses its partitions unless it polls within
    /// the session time-out. [`Error::Transient`]: poll again later; any other error: stop.
    fn poll(&mut self, timeout: Duration) -> Result<Event, Error>;

    /// Offers the first records of the next step, so that the log can write them while the caller
    /// decides the rest. Records that the log accepts are removed from `records`: the next
    /// [`Worker::commit`] commits them before its own, or none of all. They are aborted if the
    /// worker polls, restores or is dropped before. The caller keeps the others.
    fn write_ahead(&mut self, records: &mut Vec<NewRecord>);

    /// Commits a step. [`StepError`] says what to do with the state in memory.
    ///
    /// A step without records may return before it is durable. A crash soon after loses it, and its
    /// inputs are read again, unless a step with records was committed since. So the effects of an
    /// input must be in the step that has its offset, or be idempotent.
    fn commit(&mut self, step: Step) -> Result<(), StepError>;

    /// Reads a partition of a changelog from its beginning to its present end, which includes every step
    /// of earlier owners.
    fn restore(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error>;

    /// Pauses a partition: none of its records are returned until [`Worker::resume`], which continues
    /// at the same position.
    fn pause(&mut self, partition: TopicPartition);

    /// Ends [`Worker::pause`].
    fn resume(&mut self, partition: TopicPartition);
}

/// Follows topics from their end. Blocks; belongs on a thread of its own.
pub trait Tail: Send {
    /// Waits at most `timeout` for records.
    fn poll(&mut self, timeout: Duration) -> Result<Records, Error>;
}

/// Parts of the process that one thread of a stage needs.
#[derive(Clone)]
pub struct StageContext {
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    /// Name of the thread's member in its groups, stable over restarts.
    pub member: String,
    /// Runs futures of a thread that blocks.
    pub handle: Handle,
    pub stop: CancellationToken,
}
