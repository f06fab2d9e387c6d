//! Forgetting: retention and compaction, in small pieces between the commits of others.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use schemas::{Cleanup, UnixMicros};

use super::queue::Work;
use super::view::Standing;
use super::{Maintained, Shared, storage};
use crate::{Bounds, Error, TopicPartition};

/// How many records one request to the committer deletes.
const CHUNK_RECORDS: usize = 1000;
/// How often lag is measured, and whether there is enough to compact.
const INTERVAL: Duration = Duration::from_secs(10);
/// Appends to compacted topics that make a compaction worthwhile.
const COMPACT_APPENDS: i64 = 10_000;
/// How often expired records are looked for.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(3600);

/// Deletes records that are older than their topic keeps. Returns how many.
pub(super) fn expire(shared: &Shared) -> Result<u64, Error> {
    let now = shared.clock.now();
    let mut expired = 0;
    for (of, standing) in shared.view.standings() {
        if let Cleanup::Delete { hours } = of.topic.spec().cleanup {
            let kept = i64::from(hours).saturating_mul(3_600_000_000);
            let cutoff = UnixMicros(now.0.saturating_sub(kept));
            expired += expire_partition(shared, of, standing, cutoff)?;
        }
    }
    Ok(expired)
}

fn expire_partition(
    shared: &Shared,
    of: TopicPartition,
    standing: Standing,
    cutoff: UnixMicros,
) -> Result<u64, Error> {
    let Bounds { mut start, end } = standing.bounds;
    let mut expired = 0;
    while start < end {
        let front = shared.readers.with(|connection| {
            let bounds = Bounds { start, end };
            storage::front_before(connection, standing.slot, bounds, cutoff, CHUNK_RECORDS)
        })?;
        let Some((count, below)) = front else { break };
        shared.queue.submit_blocking(Work::Trim { of, below })?;
        expired += count;
        start = below;
    }
    Ok(expired)
}

/// Deletes all but the last record of each key in the compacted topics, and tombstones that hide
/// nothing any more. Returns how many records.
pub(super) fn compact(shared: &Shared) -> Result<u64, Error> {
    let mut compacted = 0;
    for (of, standing) in shared.view.standings() {
        let Bounds { start, end } = standing.bounds;
        if of.topic.spec().cleanup != Cleanup::Compact || start == end {
            continue;
        }
        let superseded = shared
            .readers
            .with(|connection| storage::superseded(connection, standing.slot, end))?;
        for chunk in superseded.chunks(CHUNK_RECORDS) {
            shared.queue.submit_blocking(Work::Remove { of, offsets: chunk.to_vec() })?;
            compacted += chunk.len() as u64;
        }
    }
    Ok(compacted)
}

/// How many records were ever appended to compacted topics.
fn compacted_appends(shared: &Shared) -> i64 {
    let standings = shared.view.standings();
    let compacted = standings.iter().filter(|(of, _)| of.topic.spec().cleanup == Cleanup::Compact);
    compacted.map(|(_, standing)| standing.bounds.end.0).fold(0, i64::saturating_add)
}

/// Tells the background thread to end.
#[derive(Debug, Default)]
pub(super) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Ends the thread as soon as it has finished what it is doing.
    pub(super) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits; true if it was told to end.
    fn wait(&self, timeout: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(stopped, timeout, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Runs in the background until it is told to end.
pub(super) fn run(shared: &Arc<Shared>, stop: &Stop) {
    // From nothing: a process that is often restarted must compact as well.
    let mut compacted_at = 0;
    let mut expired_at = Instant::now();
    while !stop.wait(INTERVAL) {
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

/// Forgets what is to be forgotten. One run at a time.
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
