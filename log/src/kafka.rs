//! The log on Apache Kafka: any number of processes, exactly once.
//!
//! A [`Worker`] is one consumer and one transactional producer on the caller's thread; a step is one
//! transaction of outputs, changelog and offsets. Topics, groups and transactions have the configured
//! prefix. Offsets have gaps: the markers that end transactions take one each.
//!
//! Modules: `client` (librdkafka), `shared` (of all handles), `read` (without a group), `observer` (of steps),
//! `claim` (owner of a name), `step` (one transaction), `group` (a member and its steps), `groups` (their positions
//! and members, from outside), then [`admin`], `produce` and `writer`.
//!
//! **Invariants:** a worker that is assigned a partition first fences its predecessors, then reads
//! stable offsets, then restores up to the end that the broker reports; the group checks every
//! step, also one without input; after any uncertain outcome a new producer is opened, and the
//! outcome is read from the log. Reasons: `docs/decisions/0010`.
//!
//! Deliberately not here: implicit creation of topics. `tidemark topics create` calls [`admin`].

pub mod admin;
mod claim;
mod client;
mod group;
mod groups;
mod observer;
mod produce;
mod read;
mod shared;
mod step;
mod writer;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use schemas::{Incarnation, Layout, Topic};

pub use self::observer::{StepObserver, StepPoint};

use self::group::worker::KafkaWorker;
use self::produce::Produce;
use self::read::KafkaTail;
use self::read::reader::{Extent, Readers};
use self::shared::Shared;
use self::writer::KafkaWriter;
use crate::config::KafkaConfig;
use crate::{
    Bounds, Error, Log, NewRecord, Offset, Records, Tail, TopicPartition, Worker, WorkerSpec,
    Writer,
};

/// Maximum number of records of one fetch that [`KafkaLog::fetch_before`] returns.
const FETCH_RECORDS_MAX: usize = 16_384;

/// A log on Kafka. Clones are the same log.
#[derive(Clone)]
pub struct KafkaLog {
    shared: Arc<Shared>,
    readers: Arc<Readers>,
    produce: Arc<Produce>,
}

impl std::fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaLog").finish_non_exhaustive()
    }
}

impl KafkaLog {
    /// Sends no request yet: brokers may be unavailable, and topics missing.
    ///
    /// # Errors
    /// [`Error::Fatal`] if the configuration cannot be used, such as a file of certificates that is
    /// missing.
    pub fn open(config: &KafkaConfig, layout: Layout) -> Result<Self, Error> {
        Ok(Self {
            shared: Arc::new(Shared::new(config, layout)?),
            readers: Arc::default(),
            produce: Arc::default(),
        })
    }

    /// Calls `observer` at every point that steps of this log's workers and writers pass. A second
    /// call has no effect.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn StepObserver>) -> Self {
        self.shared.observer.get_or_init(|| observer);
        self
    }

    /// Returns the end of a partition: every record committed before the call is before it. Waits
    /// for open transactions.
    ///
    /// # Errors
    /// [`Error::Transient`] if one stays open, or the broker cannot be reached.
    pub fn stable_end(&self, of: TopicPartition) -> Result<Offset, Error> {
        self.shared.verify([of])?;
        self.shared.query.stable_end(of, &mut || {})
    }

    /// Reads like [`Log::read`] up to a known stable end, so without waiting for a transaction. Records at the end
    /// or after it are not returned, even if they were committed meanwhile.
    ///
    /// # Errors
    /// [`Error::Transient`] if the log cannot be read now.
    pub fn read_before(
        &self,
        of: TopicPartition,
        range: Range<Offset>,
        max: usize,
    ) -> Result<Records, Error> {
        self.page(of, range, max, Extent::Whole)
    }

    /// As [`KafkaLog::read_before`], but only what one fetch brings: at least one record, if there is one.
    ///
    /// # Errors
    /// [`Error::Transient`] if the log cannot be read now.
    pub fn fetch_before(&self, of: TopicPartition, range: Range<Offset>) -> Result<Records, Error> {
        self.page(of, range, FETCH_RECORDS_MAX, Extent::Fetch)
    }

    fn page(
        &self,
        of: TopicPartition,
        range: Range<Offset>,
        max: usize,
        extent: Extent,
    ) -> Result<Records, Error> {
        let mut page = Vec::new();
        if max == 0 || range.is_empty() {
            return Ok(page);
        }
        self.shared.verify([of])?;
        let end = range.end;
        self.readers.scan(&self.shared, of, range, extent, &mut |record| {
            // The broker also delivers records that were committed after the end was read.
            if record.offset >= end {
                return ControlFlow::Break(());
            }
            page.push(Arc::new(record));
            if page.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(page)
    }

    /// Makes the next step, or the next call of [`Log::produce`], fail as transient. A step fails after
    /// all its records were written, so that there is something to abort.
    #[doc(hidden)]
    pub fn fail_next_commit(&self) {
        self.shared.fail_next.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl Log for KafkaLog {
    fn layout(&self) -> Layout {
        self.shared.layout
    }

    /// The brokers keep the id of their cluster for ever; installations on one cluster differ by prefix.
    fn installation(&self) -> Result<String, Error> {
        if let Some(continued) = &self.shared.config.continues {
            return Ok(continued.installation.clone());
        }
        let cluster = self.shared.query.cluster()?;
        Ok(format!("kafka/{cluster}/{}", self.shared.config.prefix))
    }

    fn incarnation(&self) -> Incarnation {
        let continued = self.shared.config.continues.as_ref();
        continued.map_or(Incarnation::default(), |continued| continued.incarnation)
    }

    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error> {
        if records.is_empty() {
            return Ok(());
        }
        self.produce.append(&self.shared, records).await
    }

    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error> {
        Ok(Box::new(KafkaWriter::open(self.shared.clone(), name)?))
    }

    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        Ok(Box::new(KafkaWorker::new(self.shared.clone(), spec)?))
    }

    fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        Ok(Box::new(KafkaTail::open(self.shared.clone(), topics)?))
    }

    fn read(&self, of: TopicPartition, from: Offset, max: usize) -> Result<Records, Error> {
        let end = self.stable_end(of)?;
        self.read_before(of, from..end, max)
    }

    fn read_ended(&self, of: TopicPartition, from: Offset, max: usize) -> Result<Records, Error> {
        let end = self.bounds(of)?.end;
        self.read_before(of, from..end, max)
    }

    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        self.shared.verify([of])?;
        self.shared.query.bounds(of)
    }
}
