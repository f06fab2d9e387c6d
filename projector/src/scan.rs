//! Reads the newest version of each row on the log.
//!
//! All versions of a row are in one partition of its topics. So the log is read partition by partition: first for the
//! newest version of each row, then for the rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use log::{Bounds, Log, Offset, Record, TopicPartition};
use schemas::{Partition, Topic, UnixSeconds};
use store::{Change, Newest};

use super::Error;
use super::machine::plan_change;

/// Maximum number of records read at once, and minimum number of rows given at once, except in the last call.
pub(super) const BATCH_MAX: usize = 4096;
/// Number of records for each pass over a partition. A pass keeps the versions of a share of the rows: half a gigabyte
/// of memory if each record is another row, most often a fifth of that.
const PASS_RECORDS: u64 = 8_000_000;
/// Topics with the rows of one table: all versions of a row are in the same partition of each.
pub(super) const TABLES: [&[Topic]; 5] = [
    &[Topic::Orders],
    &[Topic::Deposits],
    &[
        Topic::TransfersDetected,
        Topic::TransfersConfirmed,
        Topic::TransfersMatched,
        Topic::TransfersUnknown,
        Topic::TransfersFailed,
    ],
    &[Topic::WebhooksAttempts],
    &[Topic::Chains],
];

/// Progress of a rebuild or a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Positions of the log read so far, counted each time they are read: most are read twice or more.
    pub read: u64,
    /// Total number of positions to read, counted in the same way.
    pub of: u64,
    /// Rows that were written, or compared.
    pub rows: u64,
}

/// Next position of each partition, up to which it was read.
pub type Positions = BTreeMap<TopicPartition, Offset>;

/// Periodic callback with the progress; a break ends the work.
pub type Report<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// A change and its log position.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) from: TopicPartition,
    pub(super) offset: Offset,
    pub(super) change: Change,
}

/// Takes the newest versions of rows.
pub(super) type Take<'a> = &'a mut dyn FnMut(Vec<Found>) -> Result<(), Error>;

/// A scan that is under way.
pub(super) struct Scan<'a> {
    log: &'a dyn Log,
    report: Report<'a>,
    progress: Progress,
    parts: Vec<Part>,
    /// Rows that were final before this time are left out: they were removed.
    pruned_before: Option<UnixSeconds>,
}

/// Reason for which a scan ends early.
enum Stop {
    Interrupted,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The topics of one table, in one partition, with their bounds.
#[derive(Clone)]
struct Part {
    has_versions: bool,
    bounds: Vec<(TopicPartition, Bounds)>,
}

impl Part {
    fn positions(&self) -> u64 {
        let count = |bounds: &Bounds| (bounds.end.0 - bounds.start.0).max(0).unsigned_abs();
        self.bounds.iter().map(|(_, bounds)| count(bounds)).sum()
    }

    fn passes(&self) -> u64 {
        if self.has_versions { self.positions().div_ceil(PASS_RECORDS).max(1) } else { 1 }
    }

    /// Number of times that each record is read.
    fn times(&self) -> u64 {
        if self.has_versions { 2 * self.passes() } else { 1 }
    }
}

impl<'a> Scan<'a> {
    /// Begins a scan of all partitions, as they are now.
    pub(super) fn begin(
        log: &'a dyn Log,
        report: Report<'a>,
        pruned_before: Option<UnixSeconds>,
    ) -> Result<Self, Error> {
        let parts = parts(log)?;
        let of = parts.iter().map(|part| part.positions() * part.times()).sum();
        let progress = Progress { of, ..Progress::default() };
        Ok(Self { log, report, progress, parts, pruned_before })
    }

    /// Ends of all partitions when the scan was begun.
    pub(super) fn ends(&self) -> Positions {
        let bounds = self.parts.iter().flat_map(|part| &part.bounds);
        bounds.map(|(of, bounds)| (*of, bounds.end)).collect()
    }

    /// Number of rows that were given.
    pub(super) const fn rows(&self) -> u64 {
        self.progress.rows
    }

    /// Gives the newest version of each row that was not pruned. Returns the number of records; none if interrupted.
    pub(super) fn run(&mut self, take: Take<'_>) -> Result<Option<u64>, Error> {
        let mut records = 0;
        for part in self.parts.clone() {
            match self.part(&part, take) {
                Ok(count) => records += count,
                Err(Stop::Interrupted) => return Ok(None),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        Ok(Some(records))
    }

    /// Gives a part's rows. Returns its number of records.
    fn part(&mut self, part: &Part, take: Take<'_>) -> Result<u64, Stop> {
        if !part.has_versions {
            return self.give(part, take, |_| true);
        }
        let mut records = 0;
        for pass in 0..part.passes() {
            let mut newest = Newest::new(pass, part.passes());
            self.read(part, |_, found| {
                found.iter().for_each(|found| newest.note(&found.change));
                Ok(())
            })?;
            records = self.give(part, take, |change| newest.take(change))?;
        }
        Ok(records)
    }

    /// Gives the wanted rows. Returns the number of all records.
    fn give(
        &mut self,
        part: &Part,
        take: Take<'_>,
        mut is_wanted: impl FnMut(&Change) -> bool,
    ) -> Result<u64, Stop> {
        let (mut records, mut rows) = (0, Vec::new());
        let mut give = |scan: &mut Self, rows: &mut Vec<Found>| {
            scan.progress.rows += rows.len() as u64;
            take(std::mem::take(rows))
        };
        self.read(part, |scan, found| {
            records += found.len() as u64;
            let was_removed = |change: &Change| {
                scan.pruned_before.is_some_and(|second| change.was_final_before(second))
            };
            let wanted = |found: &Found| is_wanted(&found.change) && !was_removed(&found.change);
            rows.extend(found.into_iter().filter(wanted));
            if rows.len() >= BATCH_MAX { give(scan, &mut rows) } else { Ok(()) }
        })?;
        give(self, &mut rows)?;
        Ok(records)
    }

    /// Gives all changes of a part, as they were on the log when the scan was begun.
    fn read(
        &mut self,
        part: &Part,
        mut take: impl FnMut(&mut Self, Vec<Found>) -> Result<(), Error>,
    ) -> Result<(), Stop> {
        for (of, Bounds { start, end }) in &part.bounds {
            let mut next = *start;
            while next < *end {
                let mut records = self.log.read(*of, next, BATCH_MAX)?;
                records.retain(|record| record.offset < *end);
                // The last offsets may have no record.
                let after = records.last().map_or(*end, |last| last.offset.next());
                take(self, changes(&records)?)?;
                self.progress.read += (after.0 - next.0).unsigned_abs();
                next = after;
                if (self.report)(self.progress).is_break() {
                    return Err(Stop::Interrupted);
                }
            }
        }
        Ok(())
    }
}

fn parts(log: &dyn Log) -> Result<Vec<Part>, Error> {
    let layout = log.layout();
    let mut parts = Vec::new();
    for topics in TABLES {
        let count = topics.iter().map(|topic| topic.partitions(&layout)).max().unwrap_or(0);
        for partition in (0..count).map(Partition) {
            let of = topics.iter().map(|topic| TopicPartition { topic: *topic, partition });
            let bounds = of.map(|of| Ok((of, log.bounds(of)?)));
            let bounds = bounds.collect::<Result<_, log::Error>>()?;
            parts.push(Part { has_versions: topics != [Topic::WebhooksAttempts], bounds });
        }
    }
    Ok(parts)
}

/// Changes by these records, without unreadable ones.
///
/// # Errors
/// A newer version wrote one of them.
pub(super) fn changes(records: &[Arc<Record>]) -> Result<Vec<Found>, Error> {
    let mut changes = Vec::with_capacity(records.len());
    for record in records {
        let found = |change| Found { from: record.from, offset: record.offset, change };
        match plan_change(record) {
            Ok(change) => changes.extend(change.map(found)),
            // The projector writes it to the dead letters.
            Err(unreadable) => drop(unreadable.garbage(record)?),
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::TOPICS;

    #[test]
    fn every_topic_is_read_once() {
        let mut topics: Vec<_> = TABLES.concat();
        let mut all = TOPICS.to_vec();
        topics.sort();
        all.sort();
        assert_eq!(topics, all);
    }
}
