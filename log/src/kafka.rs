//! The log on Apache Kafka: any number of processes, exactly once.
//!
//! A [`Worker`] is one consumer and one transactional producer on the caller's thread; a step is one
//! transaction of outputs, changelog and offsets. Topics are on the broker as their name with the
//! configured prefix; groups and transactions have it too. Offsets have gaps: transactions end in marks
//! that take a place.
//!
//! **Invariants:** who gets a partition has fenced its own past first, then read stable offsets, and
//! restores up to what was on the broker after that; every step is checked by the group, also one
//! without input; after anything that is not known for certain comes a new producer, and the log itself
//! is asked what happened. `docs/decisions/0010` says why.
//!
//! Deliberately not here: creating topics without being asked ([`admin`] does when told to).

pub mod admin;
mod assignment;
mod context;
mod cursor;
mod fault;
mod mark;
mod member;
mod name;
mod observer;
mod produce;
mod query;
mod reader;
mod record;
mod settings;
mod tail;
mod transaction;
mod watchdog;
mod worker;
mod writer;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use schemas::{Layout, Topic};

pub use self::observer::{StepObserver, StepPoint};

use self::name::Names;
use self::produce::Produce;
use self::query::Query;
use self::reader::Readers;
use self::tail::KafkaTail;
use self::watchdog::Watchdog;
use self::worker::KafkaWorker;
use self::writer::KafkaWriter;
use super::{
    Bounds, Error, Log, NewRecord, Offset, Record, Tail, TopicPartition, Worker, WorkerSpec, Writer,
};
use crate::config::KafkaConfig;

/// What a call of a transaction may take beyond twice its time-out before the process ends.
const STUCK_MARGIN: Duration = Duration::from_secs(30);

/// A log on Kafka. Clones are the same log.
#[derive(Clone)]
pub struct KafkaLog {
    site: Arc<Site>,
    observer: Option<Arc<dyn StepObserver>>,
}

/// What all handles of a log share.
struct Site {
    config: KafkaConfig,
    layout: Layout,
    names: Arc<Names>,
    query: Query,
    readers: Readers,
    produce: Produce,
    watchdog: Watchdog,
    fail_next: AtomicBool,
}

impl std::fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaLog").finish_non_exhaustive()
    }
}

impl KafkaLog {
    /// A log on the brokers of `config`. Asks nothing of them yet: they may be away, and topics missing.
    ///
    /// # Errors
    /// [`Error::Fatal`] if the configuration cannot be used, such as a file of certificates that is
    /// missing.
    pub fn open(config: &KafkaConfig, layout: Layout) -> Result<Self, Error> {
        let names = Arc::new(Names::new(&config.prefix, &layout));
        let query = Query::new(config, names.clone())?;
        let limit = config.transaction_timeout.saturating_mul(2).saturating_add(STUCK_MARGIN);
        let site = Site {
            config: config.clone(),
            layout,
            names,
            query,
            readers: Readers::default(),
            produce: Produce::default(),
            watchdog: Watchdog::new(limit),
            fail_next: AtomicBool::new(false),
        };
        Ok(Self { site: Arc::new(site), observer: None })
    }

    /// Tells `observer` of every point that steps of this handle's workers and writers pass.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn StepObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Makes the next step, or call of [`Log::produce`], fail for a passing reason: a step after all its
    /// records were written, so that there is something to abort.
    #[doc(hidden)]
    pub fn fail_next_commit(&self) {
        self.site.fail_next.store(true, Ordering::SeqCst);
    }
}

impl Site {
    /// Whether the next step was to fail.
    fn take_failure(&self) -> bool {
        self.fail_next.swap(false, Ordering::SeqCst)
    }

    /// Checks that these partitions exist, and that the broker has their topics as the layout wants them.
    fn check(&self, places: impl IntoIterator<Item = TopicPartition>) -> Result<(), Error> {
        for of in places {
            if !self.names.partition(of)?.is_verified() {
                self.query.verify(of.topic)?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Log for KafkaLog {
    fn layout(&self) -> Layout {
        self.site.layout
    }

    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error> {
        if records.is_empty() {
            return Ok(());
        }
        produce::produce(&self.site, records).await
    }

    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error> {
        let writer = KafkaWriter::open(self.site.clone(), self.observer.clone(), name)?;
        Ok(Box::new(writer))
    }

    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        let worker = KafkaWorker::new(self.site.clone(), self.observer.clone(), spec)?;
        Ok(Box::new(worker))
    }

    fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        Ok(Box::new(KafkaTail::open(self.site.clone(), topics)?))
    }

    fn read(
        &self,
        of: TopicPartition,
        from: Offset,
        max: usize,
    ) -> Result<Vec<Arc<Record>>, Error> {
        self.site.check([of])?;
        let mut page = Vec::new();
        if max == 0 {
            return Ok(page);
        }
        let end = self.site.query.settled_end(&self.site.config, of, &mut || {})?;
        if from >= end {
            return Ok(page);
        }
        self.site.readers.scan(&self.site, of, from..end, &mut |record| {
            page.push(Arc::new(record));
            if page.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(page)
    }

    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        self.site.check([of])?;
        self.site.query.bounds(of)
    }
}
