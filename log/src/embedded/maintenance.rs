//! Retention and compaction, in small pieces between other commits.

use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use schemas::{Cleanup, UnixMicros};

use super::queue::Work;
use super::view::Extent;
use super::{Maintained, Shared, storage};
use crate::{Bounds, Error, TopicPartition};

/// How many records one request to the committer deletes.
const CHUNK_RECORDS: usize = 1000;
/// How often lag is measured, and whether to compact is checked.
const INTERVAL: Duration = Duration::from_secs(10);
/// Appends to compacted topics that make a compaction worthwhile.
const COMPACT_APPENDS: i64 = 10_000;
const EXPIRE_INTERVAL: Duration = Duration::from_secs(3600);

/// Deletes expired records. Returns how many.
pub(super) fn expire(shared: &Shared) -> Result<u64, Error> {
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
    let mut expired = 0;
    while start < end {
        let front = shared.readers.with(|connection| {
            let bounds = Bounds { start, end };
            storage::front_before(connection, extent.slot, bounds, cutoff, CHUNK_RECORDS)
        })?;
        let Some((count, below)) = front else { break };
        shared.queue.submit_blocking(Work::Trim { of, below })?;
        expired += count;
        start = below;
    }
    Ok(expired)
}

/// Deletes all but the last record of each key in the compacted topics, and tombstones without an older
/// record. Returns how many records.
pub(super) fn compact(shared: &Shared) -> Result<u64, Error> {
    let mut compacted = 0;
    for (of, extent) in shared.view.extents() {
        let Bounds { start, end } = extent.bounds;
        if of.topic.spec().cleanup != Cleanup::Compact || start == end {
            continue;
        }
        let superseded =
            shared.readers.with(|connection| storage::superseded(connection, extent.slot, end))?;
        for chunk in superseded.chunks(CHUNK_RECORDS) {
            shared.queue.submit_blocking(Work::Remove { of, offsets: chunk.to_vec() })?;
            compacted += chunk.len() as u64;
        }
    }
    Ok(compacted)
}

/// All appends ever to compacted topics.
fn compacted_appends(shared: &Shared) -> i64 {
    let extents = shared.view.extents();
    let compacted = extents.iter().filter(|(of, _)| of.topic.spec().cleanup == Cleanup::Compact);
    compacted.map(|(_, extent)| extent.bounds.end.0).fold(0, i64::saturating_add)
}

/// Runs until the other end of `stopped` is dropped.
pub(super) fn run(shared: &Shared, stopped: &Receiver<()>) {
    // From zero: a process that is restarted often must compact too.
    let mut compacted_at = 0;
    let mut expired_at = Instant::now();
    while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        shared.view.measure_lag();
        let appends = compacted_appends(shared);
        let compact = appends.saturating_sub(compacted_at) > COMPACT_APPENDS;
        let expire = expired_at.elapsed() >= EXPIRE_INTERVAL;
        if compact {
            compacted_at = appends;
        }
        if expire {
            expired_at = Instant::now();
        }
        match maintain(shared, expire, compact) {
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

/// One run at a time.
pub(super) fn maintain(
    shared: &Shared,
    do_expire: bool,
    do_compact: bool,
) -> Result<Maintained, Error> {
    let _one = shared.maintaining.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Maintained {
        expired: if do_expire { expire(shared)? } else { 0 },
        compacted: if do_compact { compact(shared)? } else { 0 },
    })
}
