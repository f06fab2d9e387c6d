//! Makes the tables again from what the log still has.
//!
//! Only the newest version of each row is written: an older one could show again what a later one took away, long after
//! the servers have forgotten the deletion. So the records of a row are read twice, partition by partition: all versions
//! of a row are in one partition of its topics.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use log::{Bounds, Log, Offset, Record, TopicPartition};
use schemas::{Partition, Topic, UnixSeconds};
use store::{Change, Newest, Origin, Position, Store, coalesce, retry};
use tokio::runtime::Handle;

use super::Error;
use super::machine::plan_change;
use super::machine::position::position;

/// How many records are read at once, and rows written at once.
const BATCH_MAX: usize = 4096;
/// How long [`follow`] waits for records.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Records of which the newest versions are found in one pass: half a gigabyte if each has a row of its own, most often
/// a fifth of that.
const PASS_RECORDS: u64 = 8_000_000;
/// Topics with the rows of one table: all versions of a row are in the same partition of each.
const TABLES: [&[Topic]; 5] = [
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

/// How far a rebuild is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Positions of the log that were read; each is read more than once.
    pub read: u64,
    /// How many will have been read at the end.
    pub of: u64,
    /// Rows that were written.
    pub rows: u64,
}

/// Where each partition was read up to: the next position.
pub type Positions = BTreeMap<TopicPartition, Offset>;

/// Is given the progress from time to time; a break ends the work.
pub type Report<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// What a rebuild came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// Records of the log that make rows.
    pub records: u64,
    /// Rows that were written.
    pub rows: u64,
    /// What came later is not in the tables.
    pub ends: Positions,
}

/// One that is under way.
struct Rebuild<'a> {
    log: &'a dyn Log,
    store: &'a dyn Store,
    handle: &'a Handle,
    report: Report<'a>,
    progress: Progress,
    /// What was final before it is not written: it was removed.
    pruned_before: Option<UnixSeconds>,
}

/// Why it ends early.
enum Stop {
    Interrupted,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// None: it was interrupted.
pub(super) fn rebuild(
    log: &dyn Log,
    store: &dyn Store,
    handle: &Handle,
    report: Report<'_>,
) -> Result<Option<Rebuilt>, Error> {
    let pruned_before = handle.block_on(store.pruned_before())?;
    let progress = Progress::default();
    let mut rebuild = Rebuild { log, store, handle, report, progress, pruned_before };
    match rebuild.run() {
        Ok(rebuilt) => Ok(Some(rebuilt)),
        Err(Stop::Interrupted) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// The topics that make the rows of one table, in one partition, with what they have.
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

    /// How often each record is read.
    fn times(&self) -> u64 {
        if self.has_versions { 2 * self.passes() } else { 1 }
    }
}

impl Rebuild<'_> {
    fn run(&mut self) -> Result<Rebuilt, Stop> {
        let parts = self.parts()?;
        self.progress.of = parts.iter().map(|part| part.positions() * part.times()).sum();
        let mut records = 0;
        for part in &parts {
            records += self.part(part)?;
        }
        let bounds = parts.iter().flat_map(|part| &part.bounds);
        let ends: Positions = bounds.map(|(of, bounds)| (*of, bounds.end)).collect();
        self.note(&ends)?;
        self.handle.block_on(self.store.flush())?;
        Ok(Rebuilt { records, rows: self.progress.rows, ends })
    }

    /// From now on the tables are this log's, up to there.
    fn note(&self, ends: &Positions) -> Result<(), Error> {
        let installation = self.log.installation()?;
        let origin = Origin { installation, incarnation: self.log.incarnation() };
        let before = self.handle.block_on(retry(|| self.store.origin()))?;
        let ends = &self.newest(ends.clone(), before.as_ref() == Some(&origin))?;
        self.handle.block_on(retry(|| self.store.set_origin(&origin)))?;
        let positions = positions(ends);
        Ok(self.handle.block_on(retry(|| self.store.set_positions(&positions)))?)
    }

    /// What was read, or what a projector beside this has read since.
    fn newest(&self, mut ends: Positions, is_same: bool) -> Result<Positions, Error> {
        let known = self.handle.block_on(retry(|| self.store.positions()))?;
        for position in known.iter().filter(|_| is_same) {
            let Position { topic, partition, next } = *position;
            let of = TopicPartition { topic, partition };
            // Tables that are ahead of a log have what that has lost.
            let is_in_log = next <= self.log.bounds(of)?.end.0;
            if let Some(end) = ends.get_mut(&of).filter(|end| is_in_log && end.0 < next) {
                *end = Offset(next);
            }
        }
        Ok(ends)
    }

    /// All of them, as they are now.
    fn parts(&self) -> Result<Vec<Part>, Error> {
        let layout = self.log.layout();
        let mut parts = Vec::new();
        for topics in TABLES {
            let count = topics.iter().map(|topic| topic.partitions(&layout)).max().unwrap_or(0);
            for partition in (0..count).map(Partition) {
                let of = topics.iter().map(|topic| TopicPartition { topic: *topic, partition });
                let bounds = of.map(|of| Ok((of, self.log.bounds(of)?)));
                let bounds = bounds.collect::<Result<_, log::Error>>()?;
                parts.push(Part { has_versions: topics != [Topic::WebhooksAttempts], bounds });
            }
        }
        Ok(parts)
    }

    /// Writes the rows of one part; the number of its records.
    fn part(&mut self, part: &Part) -> Result<u64, Stop> {
        if !part.has_versions {
            return self.write(part, |_| true);
        }
        let mut records = 0;
        for pass in 0..part.passes() {
            let mut newest = Newest::new(pass, part.passes());
            self.read(part, |_, changes| {
                changes.iter().for_each(|change| newest.note(change));
                Ok(())
            })?;
            records = self.write(part, |change| newest.take(change))?;
        }
        Ok(records)
    }

    /// Writes the rows that are wanted; the number of all records.
    fn write(
        &mut self,
        part: &Part,
        mut is_wanted: impl FnMut(&Change) -> bool,
    ) -> Result<u64, Stop> {
        let (mut records, mut rows) = (0, Vec::new());
        self.read(part, |rebuild, changes| {
            records += changes.len() as u64;
            let was_removed = |change: &Change| {
                rebuild.pruned_before.is_some_and(|second| change.was_final_before(second))
            };
            let wanted = |change: &Change| is_wanted(change) && !was_removed(change);
            rows.extend(changes.into_iter().filter(wanted));
            if rows.len() >= BATCH_MAX { rebuild.apply(&mut rows) } else { Ok(()) }
        })?;
        self.apply(&mut rows)?;
        Ok(records)
    }

    fn apply(&mut self, rows: &mut Vec<Change>) -> Result<(), Error> {
        self.handle.block_on(retry(|| self.store.apply(rows.clone())))?;
        self.progress.rows += rows.len() as u64;
        rows.clear();
        Ok(())
    }

    /// Gives all changes of a part, as they were on the log when it was begun.
    fn read(
        &mut self,
        part: &Part,
        mut take: impl FnMut(&mut Self, Vec<Change>) -> Result<(), Error>,
    ) -> Result<(), Stop> {
        for (of, Bounds { start, end }) in &part.bounds {
            let mut next = *start;
            while next < *end {
                let mut records = self.log.read(*of, next, BATCH_MAX)?;
                records.retain(|record| record.offset < *end);
                // Behind the last record there may be positions without one.
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

fn positions(ends: &Positions) -> Vec<Position> {
    ends.iter().map(|(of, next)| position(*of, *next)).collect()
}

/// The changes that records are.
fn changes(records: &[Arc<Record>]) -> Result<Vec<Change>, Error> {
    let mut changes = Vec::with_capacity(records.len());
    for record in records {
        match plan_change(record) {
            Ok(change) => changes.extend(change),
            // It is in dead-letters since the projector first read it.
            Err(unreadable) => drop(unreadable.garbage(record)?),
        }
    }
    Ok(changes)
}

pub(super) fn follow(
    log: &dyn Log,
    store: &dyn Store,
    handle: &Handle,
    mut from: Positions,
    report: Report<'_>,
) -> Result<(), Error> {
    let mut progress = Progress::default();
    loop {
        let mut count = 0;
        for (of, next) in &mut from {
            let records = log.read(*of, *next, BATCH_MAX)?;
            let Some(last) = records.last() else { continue };
            let rows = coalesce(changes(&records)?);
            handle.block_on(retry(|| store.apply(rows.clone())))?;
            count += records.len() as u64;
            progress.rows += rows.len() as u64;
            *next = last.offset.next();
        }
        if count > 0 {
            let positions = positions(&from);
            handle.block_on(retry(|| store.set_positions(&positions)))?;
            handle.block_on(store.flush())?;
        }
        progress.read += count;
        progress.of = progress.read;
        for (of, next) in &from {
            progress.of += (log.bounds(*of)?.end.0 - next.0).max(0).unsigned_abs();
        }
        if report(progress).is_break() {
            return Ok(());
        }
        if count == 0 {
            handle.block_on(tokio::time::sleep(POLL_INTERVAL));
        }
    }
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
