//! Compares the rows of the tables with the newest versions on the log.
//!
//! Both may change during the comparison. Differing rows are compared again in an order that rules out races: first the
//! tables' position, then the row, then newer records of the log.

use std::collections::HashMap;
use std::time::Duration;

use log::{Log, Offset, TopicPartition};
use schemas::UnixSeconds;
use store::{Change, Defect, Store, has_subject, retry, stored};
use tokio::runtime::Handle;

use super::Error;
use super::scan::{BATCH_MAX, Found, Positions, Report, Scan, TABLES, changes};

/// Maximum number of threads that read rows.
const READERS: usize = 16;
/// Maximum time, in all, for which a comparison waits for a projector that has not read everything.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A row that differs from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The row's newest version on the log.
    pub newest: Change,
    /// Partition in which the log has that version.
    pub from: TopicPartition,
    pub offset: Offset,
    pub defect: Defect,
    /// False if no projector has read that version yet.
    pub is_read: bool,
}

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Records of the log that make rows.
    pub records: u64,
    /// Rows that were compared.
    pub rows: u64,
    /// Rows that differ.
    pub differences: u64,
}

/// Takes each difference.
pub type Differs<'a> = &'a mut dyn FnMut(Difference);

struct Verify<'a> {
    log: &'a dyn Log,
    store: &'a dyn Store,
    handle: &'a Handle,
    /// Ends of the partitions in the scan.
    ends: Positions,
    /// Final rows that were created before this time may have been removed.
    pruned_before: Option<UnixSeconds>,
    /// Time spent waiting for a projector.
    waited: Duration,
    differs: Differs<'a>,
    differences: u64,
}

/// Compares each row with its newest version on the log, and calls `differs` with each difference. Returns none if
/// `report` ended it. Changes nothing; tables may be in use: it waits up to ten seconds for a projector to read the
/// rest. Blocks.
///
/// # Errors
/// As [`rebuild()`](crate::rebuild()).
pub fn verify(
    log: &dyn Log,
    store: &dyn Store,
    handle: &Handle,
    report: Report<'_>,
    differs: Differs<'_>,
) -> Result<Option<Verified>, Error> {
    let pruned_before = handle.block_on(retry(|| store.pruned_before()))?;
    let mut scan = Scan::begin(log, report, pruned_before)?;
    let ends = scan.ends();
    let (waited, differences) = (Duration::ZERO, 0);
    let mut verify =
        Verify { log, store, handle, ends, pruned_before, waited, differs, differences };
    let records = scan.run(&mut |rows| verify.compare(rows))?;
    let (rows, differences) = (scan.rows(), verify.differences);
    Ok(records.map(|records| Verified { records, rows, differences }))
}

impl Verify<'_> {
    /// Compares rows of one part.
    fn compare(&mut self, found: Vec<Found>) -> Result<(), Error> {
        let rows = self.rows(&found)?;
        let both = found.into_iter().zip(rows);
        let differing =
            both.filter(|(found, row)| Defect::of(&found.change, row.as_ref()).is_some());
        let mut suspects: Vec<Found> = differing.map(|(found, _)| found).collect();
        while !suspects.is_empty() {
            let positions = self.positions()?;
            let rows = self.rows(&suspects)?;
            self.update(&mut suspects)?;
            let differences: Vec<_> = suspects
                .iter()
                .zip(&rows)
                .filter_map(|(found, row)| difference(found, row.as_ref(), &positions))
                .collect();
            if differences.iter().all(|one| one.is_read) || !self.waits() {
                return differences.into_iter().try_for_each(|difference| self.report(difference));
            }
            let differs = |found: &Found| differences.iter().any(|one| is_of(one, found));
            suspects.retain(differs);
        }
        Ok(())
    }

    /// Reports a difference, unless the row was pruned, or is an attempt whose order or transfer has no row.
    fn report(&mut self, difference: Difference) -> Result<(), Error> {
        let row = &difference.newest;
        if difference.defect == Defect::Missing {
            // Rows may be removed meanwhile.
            self.pruned_before = self.handle.block_on(retry(|| self.store.pruned_before()))?;
            let was_removed = self.pruned_before.is_some_and(|second| row.may_be_removed(second));
            let is_part = || self.handle.block_on(retry(|| has_subject(self.store, row)));
            if was_removed || !is_part()? {
                return Ok(());
            }
        }
        self.differences += 1;
        (self.differs)(difference);
        Ok(())
    }

    /// Waits for a projector; false after [`PATIENCE`].
    fn waits(&mut self) -> bool {
        if self.waited >= PATIENCE {
            return false;
        }
        self.waited += POLL_INTERVAL;
        self.handle.block_on(async { tokio::time::sleep(POLL_INTERVAL).await });
        true
    }

    fn positions(&self) -> Result<Positions, Error> {
        let positions = self.handle.block_on(retry(|| self.store.positions()))?;
        let position = |at: store::Position| {
            (TopicPartition { topic: at.topic, partition: at.partition }, Offset(at.next))
        };
        Ok(positions.into_iter().map(position).collect())
    }

    /// The rows of the tables for these changes.
    fn rows(&self, found: &[Found]) -> Result<Vec<Option<Change>>, Error> {
        let (store, handle) = (self.store, self.handle);
        let read = |found: &[Found]| {
            let row = |found: &Found| handle.block_on(retry(|| stored(store, &found.change)));
            found.iter().map(row).collect::<Result<Vec<_>, _>>()
        };
        std::thread::scope(|scope| {
            let size = found.len().div_ceil(READERS).max(1);
            let readers: Vec<_> =
                found.chunks(size).map(|part| scope.spawn(move || read(part))).collect();
            let mut rows = Vec::with_capacity(found.len());
            for reader in readers {
                let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                rows.extend(read?);
            }
            Ok(rows)
        })
    }

    /// Replaces suspects by newer versions written since the scan began.
    fn update(&self, suspects: &mut [Found]) -> Result<(), Error> {
        let Some(TopicPartition { topic, partition }) = suspects.first().map(|found| found.from)
        else {
            return Ok(());
        };
        let mut known: HashMap<String, &mut Found> =
            suspects.iter_mut().map(|found| (found.change.id(), found)).collect();
        let topics = TABLES.into_iter().find(|topics| topics.contains(&topic)).unwrap_or_default();
        for topic in topics {
            let of = TopicPartition { topic: *topic, partition };
            let Some(mut next) = self.ends.get(&of).copied() else { continue };
            loop {
                let records = self.log.read(of, next, BATCH_MAX)?;
                let Some(last) = records.last() else { break };
                next = last.offset.next();
                for newer in changes(&records)? {
                    if let Some(found) = known.get_mut(&newer.change.id())
                        && newer.change.written_at() > found.change.written_at()
                    {
                        **found = newer;
                    }
                }
            }
        }
        Ok(())
    }
}

fn difference(found: &Found, row: Option<&Change>, positions: &Positions) -> Option<Difference> {
    let defect = Defect::of(&found.change, row)?;
    let Found { from, offset, change: newest } = found.clone();
    let is_read = positions.get(&from).is_some_and(|next| offset < *next);
    Some(Difference { newest, from, offset, defect, is_read })
}

fn is_of(difference: &Difference, found: &Found) -> bool {
    (difference.from, difference.offset) == (found.from, found.offset)
}
