//! Reads the records of a topic from the period on, up to the topic's end.

use std::ops::Range;
use std::sync::Arc;

use anyhow::bail;
use log::{Offset, Record, TopicPartition};
use reconcile::{Period, rfc3339};
use runtime::{Clock, SystemClock};
use schemas::{Cleanup, Layout, Partition, Topic, UnixMicros};

use crate::output::progress;
use crate::tail::{From, Source};

/// Seconds that blocks may be ahead of the clock that stamps records: as far as the processor accepts.
const AHEAD_OF_CLOCK: i64 = 2 * 3600;

/// The newest version of an object, and the position of its record.
#[derive(Debug, Clone)]
pub(super) struct Newest<T> {
    pub(super) value: T,
    pub(super) at: TopicPartition,
    pub(super) offset: Offset,
    /// Time of its record. The value's own times are older if a stage was behind.
    pub(super) appended_at: UnixMicros,
}

/// Reader of the records of a period.
pub(super) struct Reader<'a> {
    source: &'a Source,
    layout: Layout,
    pub(super) period: Period,
    read: u64,
    /// Places of foreign records: neither their schema id nor their content is of any version.
    foreign: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a Source, layout: Layout, period: Period) -> Self {
        Self { source, layout, period, read: 0, foreign: Vec::new() }
    }

    /// Returns the places of foreign records. A stage passes over such a record after `tidemark dead-letters skip`.
    pub(super) fn into_foreign(self) -> Vec<String> {
        self.foreign
    }

    pub(super) fn lanes_of(
        &self,
        chain: schemas::Blockchain,
    ) -> impl Iterator<Item = Partition> + use<> {
        self.layout.lanes_of(chain)
    }

    /// Reads all partitions of a topic.
    pub(super) fn topic<T: schemas::record::Record>(
        &mut self,
        topic: Topic,
        mut take: impl FnMut(&Record, T),
    ) -> anyhow::Result<()> {
        for partition in topic.all_partitions(&self.layout) {
            self.partition(TopicPartition { topic, partition }, &mut take)?;
        }
        Ok(())
    }

    /// Reads a partition from the period on, and a compacted one from its start. Skips garbage, which stages move to
    /// the dead letters, and keeps the places of foreign records.
    ///
    /// # Errors
    /// The log cannot be read, has a record of a newer version, or no longer has the whole period.
    pub(super) fn partition<T: schemas::record::Record>(
        &mut self,
        of: TopicPartition,
        take: impl FnMut(&Record, T),
    ) -> anyhow::Result<()> {
        let range = self.start(of)?..self.source.bounds(of)?.end;
        self.range(of, range, take)
    }

    /// As [`Reader::partition`], for the records before the ones that it reads.
    pub(super) fn before<T: schemas::record::Record>(
        &mut self,
        of: TopicPartition,
        take: impl FnMut(&Record, T),
    ) -> anyhow::Result<()> {
        let range = self.source.bounds(of)?.start..self.start(of)?;
        self.range(of, range, take)
    }

    fn range<T: schemas::record::Record>(
        &mut self,
        of: TopicPartition,
        range: Range<Offset>,
        mut take: impl FnMut(&Record, T),
    ) -> anyhow::Result<()> {
        let Range { start: mut from, end } = range;
        while from < end {
            let records = self.source.page_before(of, from..end)?;
            let Some(last) = records.last() else { return Ok(()) };
            from = last.offset.next();
            for record in &records {
                match record.unless_garbage::<T>() {
                    Ok(Some(value)) => take(record, value),
                    Ok(None) => {}
                    Err(newer) if record.is_foreign() => self.foreign.push(newer.at),
                    Err(newer) => return Err(newer.into()),
                }
            }
            self.read = self.read.saturating_add(records.len() as u64);
            progress(&format!("read {} records, now of {of}", self.read));
        }
        Ok(())
    }

    fn start(&self, of: TopicPartition) -> anyhow::Result<Offset> {
        let first = self.source.bounds(of)?.start;
        if of.topic.spec().cleanup == Cleanup::Compact {
            return Ok(first);
        }
        let begin = self.period.from.plus(-AHEAD_OF_CLOCK).micros();
        let from = From::Time(begin).find(self.source, of)?;
        if first > Offset(0) && from <= first && !is_in_flight(of.topic) {
            let record: Option<Arc<Record>> = self.source.read(of, from, 1)?.into_iter().next();
            // If no record is left, the expired ones may all have been older than the period.
            let Some(appended) = record.map(|record| record.appended_at) else { return Ok(from) };
            let Cleanup::Delete { hours } = of.topic.spec().cleanup else { return Ok(from) };
            let kept_from = SystemClock.now().seconds().plus(-3600 * i64::from(hours));
            if appended > self.period.from.micros() && self.period.from < kept_from {
                bail!(
                    "the log has {of} from {} on, and no longer the whole period: choose a later --from",
                    rfc3339(appended.seconds())
                );
            }
        }
        Ok(from)
    }
}

/// `true` for a topic that keeps only webhooks in flight.
pub(super) fn is_in_flight(topic: Topic) -> bool {
    matches!(topic, Topic::WebhooksDispatch | Topic::WebhooksRetry(_) | Topic::WebhooksDefer(_))
}
