//! Compaction: keeps only the last record of each key, and no tombstones.
//!
//! A compacted partition has each key once: the next run remembers only keys appended since, reads
//! the partition page by page, and rewrites batches with older records of these keys.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::batch::{Batch, Entry};
use super::queue::{Rewrite, Work};
use super::view::Extent;
use super::{Shared, rows};
use crate::{Error, Offset, TopicPartition};

/// A compaction is worthwhile only after more appends than this.
const APPENDS_MIN: i64 = 10_000;
/// Approximate bytes of batches read at once, and rewritten by one request to the committer.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// `true` if the appends since the last compaction justify a read of the whole partition.
pub(super) fn is_worthwhile(extent: &Extent) -> bool {
    let appends = extent.bounds.end.0.saturating_sub(extent.compacted_to.0);
    appends > APPENDS_MIN.max(extent.compacted_records / 2)
}

/// Compacts a partition. Returns the number of removed records.
pub(super) fn compact(shared: &Shared, of: TopicPartition, extent: Extent) -> Result<u64, Error> {
    if extent.bounds.end == extent.compacted_to {
        return Ok(0);
    }
    let mut run = Run { shared, of, extent, kept: 0, removed: 0 };
    let mut last: HashMap<Vec<u8>, Offset> = HashMap::new();
    run.each_page(extent.compacted_to, |_, page| {
        for batch in page {
            for entry in entries(of, batch)? {
                last.insert(entry.key.to_vec(), entry.offset);
            }
        }
        Ok(())
    })?;
    let is_last = |entry: &Entry<'_>| last.get(entry.key).is_none_or(|at| *at <= entry.offset);
    run.each_page(Offset(0), |run, page| run.keep(page, is_last))?;
    // No older record of any key is left, so the tombstones may be removed.
    let kept = run.kept;
    run.kept = 0;
    let before = run.removed;
    run.each_page(extent.compacted_to, |run, page| run.keep(page, |entry| entry.value.is_some()))?;
    let left = kept.saturating_sub(run.removed - before);
    let left = i64::try_from(left).unwrap_or(i64::MAX);
    run.submit(Rewrite { compacted: Some((extent.bounds.end, left)), ..Rewrite::nothing(of) })?;
    Ok(run.removed)
}

struct Run<'a> {
    shared: &'a Shared,
    of: TopicPartition,
    extent: Extent,
    kept: u64,
    removed: u64,
}

impl Run<'_> {
    /// Calls `visit` with the batches that begin at `from` or after it, page by page. No snapshot
    /// spans two pages, which is safe: no other thread rewrites the partition's batches.
    fn each_page(
        &mut self,
        mut from: Offset,
        mut visit: impl FnMut(&mut Self, &[Batch]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (of, Extent { slot, bounds, .. }) = (self.of, self.extent);
        loop {
            let (mut page, mut bytes) = (Vec::new(), 0);
            self.shared.readers.with(|connection| {
                rows::batches(connection, of, slot, from, bounds.end, &mut |batch| {
                    // The first batch may begin before `from`: it belongs to the preceding page, or
                    // to the range that is compacted already.
                    if batch.first >= from {
                        bytes += batch.blob.len();
                        page.push(batch.clone());
                    }
                    let is_full = bytes >= PAGE_BYTES;
                    Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })
            })?;
            let Some(last) = page.last() else { return Ok(()) };
            from = last.first.next();
            visit(self, &page)?;
        }
    }

    /// Removes the records of a page for which `keep` returns `false`.
    fn keep(&mut self, page: &[Batch], keep: impl Fn(&Entry<'_>) -> bool) -> Result<(), Error> {
        let mut rewrite = Rewrite::nothing(self.of);
        for batch in page {
            let before = rewrite.removed.len();
            let mut left = Batch::new(batch.first, batch.appended_at);
            for entry in entries(self.of, batch)? {
                if keep(&entry) {
                    left.push(&entry);
                    self.kept += 1;
                } else {
                    rewrite.removed.push(entry.offset);
                }
            }
            if rewrite.removed.len() > before {
                rewrite.batches.push(left);
            }
        }
        self.removed += rewrite.removed.len() as u64;
        if rewrite.removed.is_empty() { Ok(()) } else { self.submit(rewrite) }
    }

    fn submit(&self, rewrite: Rewrite) -> Result<(), Error> {
        Ok(self.shared.queue.submit_blocking(Work::Rewrite(Arc::new(rewrite)))?)
    }
}

fn entries(of: TopicPartition, batch: &Batch) -> Result<Vec<Entry<'_>>, Error> {
    Ok(batch.entries().ok_or_else(|| rows::damaged(of, batch.first))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::view::Slot;

    #[test]
    fn a_large_partition_is_not_compacted_for_few_appends() {
        let mut extent = Extent::empty(Slot(1));
        (extent.compacted_to, extent.compacted_records) = (Offset(5_000_000), 1_000_000);
        for (appends, expected) in [(10_001, false), (500_000, false), (500_001, true)] {
            extent.bounds.end = Offset(extent.compacted_to.0 + appends);
            assert_eq!(is_worthwhile(&extent), expected, "{appends}");
        }
        extent.compacted_records = 3;
        extent.bounds.end = Offset(extent.compacted_to.0 + 10_000);
        assert!(!is_worthwhile(&extent));
    }
}
