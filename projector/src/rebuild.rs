//! Rebuilds the tables from the log.
//!
//! Only the newest version of each row is written: an older one could restore an entry that a later one deleted, once
//! the servers have dropped the tombstone.

use std::ops::ControlFlow;
use std::time::Duration;

use log::{Log, Offset, TopicPartition};
use store::{Change, Origin, Position, Store, coalesce, retry};
use tokio::runtime::Handle;

use super::Error;
use super::machine::{forward, position};
use super::scan::{BATCH_MAX, Positions, Report, Scan, changes};

/// Interval at which [`follow`] polls a log without new records.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Progress of tables that follow the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followed {
    /// Rows that were written.
    pub rows: u64,
    /// `true` if the tables are complete.
    pub has_everything: bool,
}

/// Periodic callback; a break ends the work.
pub type FollowReport<'a> = &'a mut dyn FnMut(Followed) -> ControlFlow<()>;

/// Result of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// Records of the log that make rows.
    pub records: u64,
    /// Rows that were written.
    pub rows: u64,
    /// Positions up to which the tables have the log; later records are missing.
    pub ends: Positions,
}

/// Rebuilds the tables from the log: only the newest version of each row, so that no row is wrong meanwhile, and no
/// pruned row. The group's position stays. Tables may be in use: existing rows stay, and newer versions win. Returns
/// none if `report` ended it. Blocks.
///
/// # Errors
/// [`Error`]: the log or the tables failed; writes to unavailable tables are first retried for a minute. Run it again:
/// it starts from the beginning.
pub fn rebuild(
    log: &dyn Log,
    store: &dyn Store,
    handle: &Handle,
    report: Report<'_>,
) -> Result<Option<Rebuilt>, Error> {
    let pruned_before = handle.block_on(store.pruned_before())?;
    let mut scan = Scan::begin(log, report, pruned_before)?;
    let records = scan.run(&mut |found| {
        let rows: Vec<Change> = found.into_iter().map(|found| found.change).collect();
        Ok(handle.block_on(retry(|| store.apply(rows.clone())))?)
    })?;
    let Some(records) = records else { return Ok(None) };
    let (rows, ends) = (scan.rows(), scan.ends());
    note(log, store, handle, &ends)?;
    handle.block_on(retry(|| store.flush()))?;
    Ok(Some(Rebuilt { records, rows, ends }))
}

/// Records this log as the origin of the tables, up to `ends`.
fn note(log: &dyn Log, store: &dyn Store, handle: &Handle, ends: &Positions) -> Result<(), Error> {
    let installation = log.installation()?;
    let origin = Origin { installation, incarnation: log.incarnation() };
    let before = handle.block_on(retry(|| store.origin()))?;
    let known = handle.block_on(retry(|| store.positions()))?;
    let known = if before.as_ref() == Some(&origin) { known } else { Vec::new() };
    let ends = &newest(log, ends.clone(), &known)?;
    handle.block_on(retry(|| store.set_origin(&origin)))?;
    let positions = positions(ends);
    Ok(handle.block_on(retry(|| store.set_positions(&positions)))?)
}

/// Positions that were read, or later ones of a concurrent projector.
fn newest(log: &dyn Log, mut ends: Positions, known: &[Position]) -> Result<Positions, Error> {
    for position in known {
        let Position { topic, partition, next } = *position;
        let of = TopicPartition { topic, partition };
        // Tables ahead of the log have records that the log lost: their position is ignored.
        let is_in_log = next <= log.bounds(of)?.end.0;
        if let Some(end) = ends.get_mut(&of).filter(|end| is_in_log && end.0 < next) {
            *end = Offset(next);
        }
    }
    Ok(ends)
}

fn positions(ends: &Positions) -> Vec<Position> {
    ends.iter().map(|(of, next)| position(*of, *next)).collect()
}

/// Continues as [`run`](crate::run) does from given positions, but without group and dead letters, until `report` ends
/// it. The tables are complete once they have each partition up to the end that it had at the start. Blocks.
///
/// # Errors
/// As [`rebuild`].
pub fn follow(
    log: &dyn Log,
    store: &dyn Store,
    handle: &Handle,
    mut from: Positions,
    report: FollowReport<'_>,
) -> Result<(), Error> {
    let mut behind: Positions = from.clone();
    for (of, end) in &mut behind {
        *end = log.bounds(*of)?.end;
    }
    let mut count = 0;
    loop {
        let mut is_idle = true;
        for (of, next) in &mut from {
            let records = log.read(*of, *next, BATCH_MAX)?;
            let Some(last) = records.last() else {
                behind.remove(of);
                continue;
            };
            let rows = changes(&records)?.into_iter().map(|found| found.change).collect();
            let rows = coalesce(rows);
            handle.block_on(retry(|| store.apply(rows.clone())))?;
            is_idle = false;
            count += rows.len() as u64;
            *next = last.offset.next();
            if behind.get(of).is_some_and(|end| *next >= *end) {
                behind.remove(of);
            }
        }
        if !is_idle {
            let known = handle.block_on(retry(|| store.positions()))?;
            let positions = forward(positions(&from), &known);
            handle.block_on(retry(|| store.set_positions(&positions)))?;
            handle.block_on(retry(|| store.flush()))?;
        }
        if report(Followed { rows: count, has_everything: behind.is_empty() }).is_break() {
            return Ok(());
        }
        if is_idle {
            handle.block_on(tokio::time::sleep(POLL_INTERVAL));
        }
    }
}
