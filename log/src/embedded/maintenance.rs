//! Retention, in small pieces between other commits, and the schedule of compaction.

use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use schemas::{Cleanup, UnixMicros};

use super::queue::Work;
use super::view::Extent;
use super::{Maintained, Shared, compaction, rows};
use crate::{Bounds, Error, TopicPartition};

/// Maximum number of batches deleted by one request to the committer.
const CHUNK_BATCHES: usize = 250;
/// Interval between lag measurements, and between checks for due compactions.
const INTERVAL: Duration = Duration::from_secs(10);
const EXPIRE_INTERVAL: Duration = Duration::from_secs(3600);

/// Deletes expired records that every group of their topic has read: a jump of the clock deletes no event that is
/// still to be processed or delivered. Returns the number of deleted records.
fn expire(shared: &Shared) -> Result<u64, Error> {
    let now = shared.clock.now();
    let mut expired = 0;
    for (of, extent) in shared.view.extents() {
        if let Cleanup::Delete { hours } = of.topic.spec().cleanup {
            let kept = i64::from(hours).saturating_mul(3_600_000_000);
            let cutoff = UnixMicros(now.0.saturating_sub(kept));
            expired += expire_partition(shared, of, extent, cutoff)?;
        }
    }
    Ok(expired)
}

fn expire_partition(
    shared: &Shared,
    of: TopicPartition,
    extent: Extent,
    cutoff: UnixMicros,
) -> Result<u64, Error> {
    let Bounds { mut start, end } = extent.bounds;
    let until = shared.view.unread_from(of).unwrap_or(end);
    let mut expired = 0;
    while start < end {
        let left = Extent { bounds: Bounds { start, end }, ..extent };
        let front = shared.readers.with(|connection| {
            rows::front_before(connection, &left, cutoff, until, CHUNK_BATCHES)
        })?;
        let Some(below) = front else { break };
        shared.queue.submit_blocking(Work::Trim { of, below })?;
        expired += below.0.abs_diff(start.0);
        start = below;
    }
    Ok(expired)
}

/// Compacts the partitions of compacted topics for which `is_due`. Returns the number of removed
/// records.
fn compact(shared: &Shared, is_due: impl Fn(&Extent) -> bool) -> Result<u64, Error> {
    let mut compacted = 0;
    for (of, extent) in shared.view.extents() {
        if of.topic.spec().cleanup == Cleanup::Compact && is_due(&extent) {
            compacted += compaction::compact(shared, of, extent)?;
        }
    }
    Ok(compacted)
}

/// Runs until the other end of `stopped` is dropped.
pub(super) fn run(shared: &Shared, stopped: &Receiver<()>) {
    let mut expired_at = Instant::now();
    while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        shared.view.measure_lag();
        let expire = expired_at.elapsed() >= EXPIRE_INTERVAL;
        if expire {
            expired_at = Instant::now();
        }
        match maintain(shared, expire, compaction::is_worthwhile) {
            Ok(Maintained { expired: 0, compacted: 0 }) => {}
            Ok(Maintained { expired, compacted }) => {
                tracing::info!(
                    expired,
                    compacted,
                    "the log deleted expired and superseded records"
                );
            }
            Err(error) => tracing::warn!(%error, "retention run of the log failed; will retry"),
        }
    }
}

/// Runs expiry, if requested, and compaction. One run at a time.
pub(super) fn maintain(
    shared: &Shared,
    do_expire: bool,
    is_due: impl Fn(&Extent) -> bool,
) -> Result<Maintained, Error> {
    let _one = shared.maintaining.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Maintained {
        expired: if do_expire { expire(shared)? } else { 0 },
        compacted: compact(shared, is_due)?,
    })
}
