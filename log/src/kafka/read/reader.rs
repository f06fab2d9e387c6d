//! Readers of single partitions, from a position to the end.

use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{Message, Offset as KafkaOffset};

use crate::kafka::client::context::PlainContext;
use crate::kafka::client::settings::{self, Appetite};
use crate::kafka::client::{PlainConsumer, fault, open, record, wake};
use crate::kafka::shared::Shared;
use crate::{Cause, Error, Offset, Record, TopicPartition};

const POLL_TIMEOUT: Duration = Duration::from_millis(50);
const RECORDS_BETWEEN_ALIVE: u64 = 1000;
/// Maximum time without a record from a partition before its end.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of idle readers kept: no command reads more partitions concurrently.
const IDLE_READERS_MAX: usize = 8;

/// Takes a record, and returns whether to continue.
pub(crate) type Take<'a> = dyn FnMut(Record) -> ControlFlow<()> + 'a;

/// End of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// At the known end or later.
    Whole,
    /// After the records of one fetch, or where [`Extent::Whole`] ends.
    Fetch,
}

/// Readers for pages, kept because creating one takes longer than reading a page.
#[derive(Default)]
pub(crate) struct Readers {
    idle: Mutex<Vec<Reader>>,
}

impl Readers {
    /// As [`Reader::scan`].
    pub(crate) fn scan(
        &self,
        shared: &Shared,
        of: TopicPartition,
        range: Range<Offset>,
        extent: Extent,
        take: &mut Take<'_>,
    ) -> Result<(), Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reader = idle.map_or_else(|| Reader::new(shared, Appetite::Page), Ok)?;
        let range = (KafkaOffset::Offset(range.start.0), range.end);
        reader.scan(shared, of, range, extent, take, &mut || {})?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_READERS_MAX {
            idle.push(reader);
        }
        Ok(())
    }
}

pub(crate) struct Reader {
    consumer: PlainConsumer,
}

impl Reader {
    pub(crate) fn new(shared: &Shared, appetite: Appetite) -> Result<Self, Error> {
        let settings = settings::reader(&shared.config, appetite);
        Ok(Self { consumer: open(&settings, PlainContext::default())? })
    }

    /// Passes every committed record from a position on to `take`, at least to the end that the caller
    /// knows to be stable, unless `take` or `extent` ends it earlier. `alive` is called periodically.
    ///
    /// The end that the broker reports does not suffice: a new leader may briefly report an older
    /// one. The scan ends once its position reaches the end or, since the end may follow a gap,
    /// does not advance between two reports of the end by the leader.
    pub(crate) fn scan(
        &self,
        shared: &Shared,
        of: TopicPartition,
        (mut from, end): (KafkaOffset, Offset),
        extent: Extent,
        take: &mut Take<'_>,
        alive: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let mut confirmed = false;
        loop {
            let list = shared.names.list([(of, from)])?;
            self.consumer.assign(&list).map_err(|error| self.transient(error))?;
            wake(&self.consumer);
            let followed = self.follow(shared, of, extent, take, alive);
            let reached = self.position();
            self.consumer.unassign().map_err(|error| self.transient(error))?;
            if followed?.is_break() || reached.is_some_and(|position| position >= end) {
                return Ok(());
            }
            let position = reached.map_or(from, |position| KafkaOffset::Offset(position.0));
            if shared.query.bounds(of)?.end < end {
                return Err(Error::transient(format!("{of} ends before {end} for now")));
            }
            if confirmed && position == from {
                return Ok(());
            }
            (from, confirmed) = (position, true);
        }
    }

    /// The next offset to read, once anything was read.
    fn position(&self) -> Option<Offset> {
        let positions = self.consumer.position().ok()?;
        let next = positions.elements().first().map(TopicPartitionListElem::offset);
        if let Some(KafkaOffset::Offset(next)) = next { Some(Offset(next)) } else { None }
    }

    fn follow(
        &self,
        shared: &Shared,
        of: TopicPartition,
        extent: Extent,
        take: &mut Take<'_>,
        alive: &mut dyn FnMut(),
    ) -> Result<ControlFlow<()>, Error> {
        let mut silent_since: Option<Instant> = None;
        let mut count: u64 = 0;
        loop {
            let is_begun = extent == Extent::Fetch && count > 0;
            match self.consumer.poll(if is_begun { Duration::ZERO } else { POLL_TIMEOUT }) {
                Some(Ok(message)) => {
                    silent_since = None;
                    debug_assert!(message.offset() >= 0);
                    let record = record::of_message(&shared.names, &message);
                    let Some(record) = record.filter(|record| record.from == of) else {
                        continue;
                    };
                    if take(record).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    count += 1;
                    if count.is_multiple_of(RECORDS_BETWEEN_ALIVE) {
                        alive();
                    }
                    continue;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(ControlFlow::Continue(())),
                Some(Err(error)) => {
                    tracing::debug!(%error, "a reader of {of} got an error");
                    if let Some(error @ Error::Fatal(_)) = fault::of_poll(error) {
                        return Err(error);
                    }
                }
                None if is_begun => return Ok(ControlFlow::Break(())),
                None => {
                    wake(&self.consumer);
                    alive();
                }
            }
            if silent_since.get_or_insert_with(Instant::now).elapsed() > SILENCE_TIMEOUT {
                return Err(self.transient(format!("{of} delivers no records")));
            }
        }
    }

    fn transient(&self, error: impl Into<Cause>) -> Error {
        Error::Transient(self.consumer.context().last.explain(error))
    }
}

#[cfg(test)]
mod tests {
    use schemas::{Partition, Topic};

    use super::*;
    use crate::kafka::client::request_ends;
    use crate::kafka::shared::tests::mock;

    /// `wake` only logs an error, since records come a second later without it; so the test makes
    /// the request itself.
    #[test]
    fn the_leader_of_an_assignment_answers_a_wake() {
        let (_cluster, shared) = mock(&[Topic::Orders]);
        let reader = Reader::new(&shared, Appetite::Page).unwrap();
        let of = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
        reader
            .consumer
            .assign(&shared.names.list([(of, KafkaOffset::Offset(0))]).unwrap())
            .unwrap();
        request_ends(&reader.consumer).unwrap();
    }
}
