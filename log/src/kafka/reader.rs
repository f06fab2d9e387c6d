//! Readers of single partitions, from a place to the end.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::Offset as Place;

use super::context::PlainContext;
use super::settings::Appetite;
use super::{Site, fault, record, settings};
use crate::{Error, Offset, Record, TopicPartition};

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
    /// Reads from a place on, at least to the end of `range` unless `take` stops it. The caller has
    /// waited until everything before that end was settled.
    ///
    /// # Errors
    /// [`Error::Transient`] if the broker cannot be reached.
    pub(super) fn scan(
        &self,
        site: &Arc<Site>,
        of: TopicPartition,
        range: Range<Offset>,
        take: &mut Take<'_>,
    ) -> Result<(), Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reader = idle.map_or_else(|| Reader::new(site, Appetite::Page), Ok)?;
        let range = (Place::Offset(range.start.0), range.end);
        reader.scan(site, of, range, take, &mut || {})?;
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

    /// Brings every committed record from a place on to `take`, at least to the end that the caller saw
    /// settled, and to wherever the reader meets the end. `alive` is called now and then.
    ///
    /// That the reader met the end is not enough: a broker that has just become the leader may show an
    /// older end for a moment. So the place it came to counts, or, since holes may come before the end,
    /// that it comes no further after the leader has shown the end.
    ///
    /// # Errors
    /// [`Error::Transient`] if the broker cannot be reached.
    pub(super) fn scan(
        &self,
        site: &Site,
        of: TopicPartition,
        (mut from, end): (Place, Offset),
        take: &mut Take<'_>,
        alive: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let mut confirmed = false;
        loop {
            let list = site.names.list([(of, from)])?;
            self.consumer.assign(&list).map_err(|error| self.transient(error))?;
            let followed = self.follow(site, of, take, alive);
            let came_to = self.position();
            self.consumer.unassign().map_err(|error| self.transient(error))?;
            if followed?.is_break() || came_to.is_some_and(|place| place >= end) {
                return Ok(());
            }
            let place = came_to.map_or(from, |place| Place::Offset(place.0));
            if confirmed && place == from {
                return Ok(());
            }
            if site.query.bounds(of)?.end < end {
                return Err(Error::Transient(format!("{of} ends before {end} for now")));
            }
            (from, confirmed) = (place, true);
        }
    }

    /// The next place to read, once anything was read.
    fn position(&self) -> Option<Offset> {
        let places = self.consumer.position().ok()?;
        places.elements().first().and_then(|place| match place.offset() {
            Place::Offset(next) => Some(Offset(next)),
            _ => None,
        })
    }

    fn follow(
        &self,
        site: &Site,
        of: TopicPartition,
        take: &mut Take<'_>,
        alive: &mut dyn FnMut(),
    ) -> Result<ControlFlow<()>, Error> {
        // Since when nothing came.
        let mut silent_since: Option<Instant> = None;
        let mut count: u64 = 0;
        loop {
            match self.consumer.poll(LOOK) {
                Some(Ok(message)) => {
                    silent_since = None;
                    let Some(record) = record::of_message(&site.names, &message) else {
                        continue;
                    };
                    if record.from != of {
                        continue;
                    }
                    debug_assert!(message.offset() >= 0);
                    if take(record).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    count += 1;
                    if count.is_multiple_of(RECORDS_BETWEEN) {
                        alive();
                    }
                    continue;
                }
                // The broker had nothing more when it was asked.
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(ControlFlow::Continue(())),
                Some(Err(error)) => {
                    if let Some(error @ Error::Fatal(_)) = fault::of_poll(&error) {
                        return Err(error);
                    }
                    tracing::debug!(%error, "a reader of {of} goes on");
                }
                None => alive(),
            }
            if silent_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(self.transient(format!("nothing comes from {of}")));
            }
        }
    }

    fn transient(&self, error: impl std::fmt::Display) -> Error {
        Error::Transient(self.consumer.context().last.explain(error))
    }
}
