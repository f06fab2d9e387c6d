//! Reads some partitions side by side, the oldest record first.

use std::collections::VecDeque;
use std::sync::Arc;

use log::{Error, Offset, Record, TopicPartition};
use schemas::{Partition, Topic};

use super::place::From;
use super::{PAGE_RECORDS, Source};

struct PartitionReader {
    of: TopicPartition,
    next: Offset,
    /// Offset at which reading stops.
    until: Option<Offset>,
    read: VecDeque<Arc<Record>>,
    /// `true` if the last read returned nothing.
    at_end: bool,
}

/// Reader of all partitions, merged by append time.
pub(super) struct Follower<'a> {
    source: &'a Source,
    readers: Vec<PartitionReader>,
}

impl<'a> Follower<'a> {
    /// Starts at `from`; an offset past the ends of all partitions is an error. With `until_end`, stops at their
    /// present ends.
    pub(super) fn open(
        source: &'a Source,
        topic: Topic,
        partitions: &[Partition],
        from: From,
        until_end: bool,
    ) -> Result<Self, Error> {
        if let From::Offset(offset) = from {
            let ends = partitions.iter().map(|partition| {
                Ok(source.bounds(TopicPartition { topic, partition: *partition })?.end)
            });
            let newest = ends.collect::<Result<Vec<_>, Error>>()?.into_iter().max();
            if let Some(end) = newest.filter(|end| *end < offset) {
                let problem = format!("{topic} ends at offset {end}: was it restored?");
                return Err(Error::Fatal(problem.into()));
            }
        }
        let reader = |partition: &Partition| {
            let of = TopicPartition { topic, partition: *partition };
            let until = if until_end { Some(source.bounds(of)?.end) } else { None };
            let next = from.find(source, of)?;
            Ok(PartitionReader { of, next, until, read: VecDeque::new(), at_end: false })
        };
        let readers = partitions.iter().map(reader).collect::<Result<_, Error>>()?;
        Ok(Self { source, readers })
    }

    /// The next record, or `None` at the end. Records come in append order, as far as they are readable now.
    pub(super) fn next(&mut self) -> Result<Option<Arc<Record>>, Error> {
        for reader in
            self.readers.iter_mut().filter(|reader| reader.read.is_empty() && !reader.at_end)
        {
            reader.refill(self.source)?;
        }
        let time =
            |reader: &&mut PartitionReader| reader.read.front().map(|record| record.appended_at);
        let ready = self.readers.iter_mut().filter(|reader| !reader.read.is_empty());
        let oldest = ready.min_by_key(time).and_then(|reader| reader.read.pop_front());
        if oldest.is_none() {
            self.readers.iter_mut().for_each(|reader| reader.at_end = false);
        }
        Ok(oldest)
    }
}

impl PartitionReader {
    fn refill(&mut self, source: &Source) -> Result<(), Error> {
        if self.until.is_none_or(|until| self.next < until) {
            let page = source.read(self.of, self.next, PAGE_RECORDS)?;
            if let Some(last) = page.last() {
                self.next = last.offset.next();
            }
            let is_wanted = |record: &Arc<Record>| self.until.is_none_or(|end| record.offset < end);
            self.read = page.into_iter().filter(is_wanted).collect();
        }
        self.at_end = self.read.is_empty();
        Ok(())
    }
}
