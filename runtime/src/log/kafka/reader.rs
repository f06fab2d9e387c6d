//! Readers of single partitions, from a place to the end.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::Offset as Place;
use schemas::UnixMicros;

use super::context::PlainContext;
use super::settings::Appetite;
use super::{Site, fault, record, settings};
use crate::log::{Error, Offset, Record, TopicPartition};

/// How long one look for records waits.
const LOOK: Duration = Duration::from_millis(50);
/// How many records come between two signs of life.
const RECORDS_BETWEEN: u64 = 1000;
/// For how long nothing may come before the end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many idle readers are kept.
const IDLE_MAX: usize = 4;

/// Takes a record, and says whether to go on.
pub(super) type Take<'a> = dyn FnMut(Record) -> ControlFlow<()> + 'a;

/// Readers for pages. Making one takes longer than reading a page.
#[derive(Default)]
pub(super) struct Readers {
    idle: Mutex<Vec<Reader>>,
}

impl Readers {
    /// Reads from a place on. The caller has waited for the end that it wants to reach.
    ///
    /// # Errors
    /// [`Error::Transient`] if the broker cannot be reached.
    pub(super) fn scan(
        &self,
        site: &Arc<Site>,
        of: TopicPartition,
        from: Offset,
        take: &mut Take<'_>,
    ) -> Result<(), Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reader = idle.map_or_else(|| Reader::new(site, Appetite::Page), Ok)?;
        reader.scan(site, of, Place::Offset(from.0), take, &mut || {})?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(reader);
        }
        Ok(())
    }
}

/// One reader.
pub(super) struct Reader {
    consumer: BaseConsumer<PlainContext>,
}

impl Reader {
    /// # Errors
    /// [`Error::Fatal`] if the configuration cannot be used.
    pub(super) fn new(site: &Site, appetite: Appetite) -> Result<Self, Error> {
        let settings = settings::reader(&site.config, appetite);
        let consumer = BaseConsumer::from_config_and_context(&settings, PlainContext::default());
        Ok(Self { consumer: consumer.map_err(|error| fault::of_client(&error))? })
    }

    /// Brings every committed record from a place to the end to `take`. The end is where the reader
    /// meets it: at or after whatever the caller saw as the committed end before. `alive` is called now
    /// and then.
    ///
    /// # Errors
    /// [`Error::Transient`] if the broker cannot be reached.
    pub(super) fn scan(
        &self,
        site: &Site,
        of: TopicPartition,
        from: Place,
        take: &mut Take<'_>,
        alive: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let list = site.names.list([(of, from)])?;
        self.consumer.assign(&list).map_err(|error| self.transient(error))?;
        let scanned = self.follow(site, of, take, alive);
        self.consumer.unassign().map_err(|error| self.transient(error))?;
        scanned
    }

    fn follow(
        &self,
        site: &Site,
        of: TopicPartition,
        take: &mut Take<'_>,
        alive: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let mut progressed_at = Instant::now();
        let mut latest = UnixMicros(i64::MIN);
        let mut count: u64 = 0;
        loop {
            match self.consumer.poll(LOOK) {
                Some(Ok(message)) => {
                    let Some(mut record) = record::of_message(&site.names, &message) else {
                        continue;
                    };
                    if record.from != of {
                        continue;
                    }
                    debug_assert!(message.offset() >= 0);
                    latest = latest.max(record.appended_at);
                    record.appended_at = latest;
                    if take(record).is_break() {
                        return Ok(());
                    }
                    count += 1;
                    if count.is_multiple_of(RECORDS_BETWEEN) {
                        progressed_at = Instant::now();
                        alive();
                    }
                }
                // The broker had nothing more when it was asked.
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(()),
                Some(Err(error)) => {
                    if let Some(error @ Error::Fatal(_)) = fault::of_poll(&error) {
                        return Err(error);
                    }
                    tracing::debug!(%error, "a reader of {of} goes on");
                }
                None => alive(),
            }
            if progressed_at.elapsed() > PATIENCE {
                return Err(self.transient(format!("nothing comes from {of}")));
            }
        }
    }

    fn transient(&self, error: impl std::fmt::Display) -> Error {
        Error::Transient(self.consumer.context().last.explain(error))
    }
}
