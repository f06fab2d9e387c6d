//! The rows of the file: written by the committer in its transactions, read by all readers.

use std::ops::ControlFlow;
use std::sync::Arc;

use rusqlite::{Connection, Params, params};
use schemas::UnixMicros;

use super::batch::{Batch, checksum};
use super::fault::StorageError;
use super::view::{Extent, PAGE_BYTES_MAX, Page, Slot, size};
use crate::{Committed, Offset, Record, TopicPartition};

/// Number of bits of a row id that hold the offset.
const OFFSET_BITS: u32 = 40;

/// `true` if a row id can hold this offset.
pub(super) fn fits(offset: Offset) -> bool {
    (0..1 << OFFSET_BITS).contains(&offset.0)
}

fn row_id(slot: Slot, offset: Offset) -> i64 {
    (slot.0 << OFFSET_BITS) | offset.0.clamp(0, (1 << OFFSET_BITS) - 1)
}

fn offset_of(row_id: i64) -> Offset {
    Offset(row_id & ((1 << OFFSET_BITS) - 1))
}

fn execute(connection: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(params).map(drop)
}

fn batch_checksum(row_id: i64, batch: &Batch) -> u32 {
    checksum([&row_id.to_le_bytes(), &batch.appended_at.0.to_le_bytes(), &batch.blob])
}

pub(super) fn extent_checksum(of: TopicPartition, extent: &Extent) -> u32 {
    let Extent { slot, bounds, appended_at, compacted_to, compacted_records } = extent;
    let numbers =
        [slot.0, bounds.start.0, bounds.end.0, appended_at.0, compacted_to.0, *compacted_records];
    let numbers = numbers.map(i64::to_le_bytes);
    let partition = of.partition.0.to_le_bytes();
    checksum([of.topic.name().as_bytes(), &partition, numbers.as_flattened()])
}

pub(super) fn committed_checksum(group: &str, of: TopicPartition, at: &Committed) -> u32 {
    checksum([
        group.as_bytes(),
        of.topic.name().as_bytes(),
        &of.partition.0.to_le_bytes(),
        &at.offset.0.to_le_bytes(),
        at.metadata.as_bytes(),
    ])
}

/// Writes a batch, or replaces its row with what compaction left of it.
pub(super) fn save_batch(
    connection: &Connection,
    slot: Slot,
    batch: &Batch,
) -> rusqlite::Result<()> {
    let id = row_id(slot, batch.first);
    execute(
        connection,
        "INSERT OR REPLACE INTO records (id, appended_at, checksum, batch) VALUES (?1, ?2, ?3, ?4)",
        params![id, batch.appended_at.0, batch_checksum(id, batch), batch.blob],
    )
}

pub(super) fn delete_batch(
    connection: &Connection,
    slot: Slot,
    first: Offset,
) -> rusqlite::Result<()> {
    execute(connection, "DELETE FROM records WHERE id = ?1", [row_id(slot, first)])
}

/// Deletes a partition's rows before its start.
pub(super) fn trim(connection: &Connection, extent: &Extent) -> rusqlite::Result<()> {
    let delete = "DELETE FROM records WHERE id >= ?1 AND id < ?2";
    let Extent { slot, bounds, .. } = *extent;
    execute(connection, delete, [row_id(slot, Offset(0)), row_id(slot, bounds.start)])
}

pub(super) fn save_extent(
    connection: &Connection,
    of: TopicPartition,
    extent: &Extent,
) -> rusqlite::Result<()> {
    let Extent { slot, bounds, appended_at, compacted_to, compacted_records } = extent;
    execute(
        connection,
        "UPDATE partitions SET start_offset = ?2, next_offset = ?3, appended_at = ?4, \
         compacted_offset = ?5, compacted_records = ?6, checksum = ?7 WHERE slot = ?1",
        params![
            slot.0,
            bounds.start.0,
            bounds.end.0,
            appended_at.0,
            compacted_to.0,
            compacted_records,
            extent_checksum(of, extent)
        ],
    )
}

pub(super) fn save_committed(
    connection: &Connection,
    group: &str,
    of: TopicPartition,
    at: &Committed,
) -> rusqlite::Result<()> {
    let checksum = committed_checksum(group, of, at);
    execute(
        connection,
        "INSERT OR REPLACE INTO offsets (grp, topic, partition, next_offset, metadata, checksum) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![group, of.topic.name(), of.partition.0, at.offset.0, at.metadata, checksum],
    )
}

/// Calls `visit` with a partition's batches that may have records in `from..end`, until it breaks.
pub(super) fn batches(
    connection: &Connection,
    of: TopicPartition,
    slot: Slot,
    from: Offset,
    end: Offset,
    visit: &mut dyn FnMut(&Batch) -> Result<ControlFlow<()>, StorageError>,
) -> Result<(), StorageError> {
    // The first batch may begin before `from`.
    let mut select = connection.prepare_cached(
        "SELECT id, appended_at, checksum, batch FROM records WHERE id < ?3 AND id >= coalesce( \
           (SELECT id FROM records WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC LIMIT 1), ?2) \
         ORDER BY id",
    )?;
    let ids = [Offset(0), from, end].map(|offset| row_id(slot, offset));
    let mut rows = select.query(ids)?;
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        let appended_at = UnixMicros(row.get(1)?);
        let batch = Batch { first: offset_of(id), appended_at, blob: row.get(3)? };
        if row.get::<_, u32>(2)? != batch_checksum(id, &batch) {
            return Err(damaged(of, batch.first));
        }
        if visit(&batch)?.is_break() {
            break;
        }
    }
    Ok(())
}

pub(super) fn damaged(of: TopicPartition, first: Offset) -> StorageError {
    StorageError::Damaged(format!("the batch of {of} at offset {first}"))
}

/// Calls `visit` with a partition's records in `from..end`, until it breaks.
fn records(
    connection: &Connection,
    of: TopicPartition,
    slot: Slot,
    from: Offset,
    end: Offset,
    visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
) -> Result<(), StorageError> {
    batches(connection, of, slot, from, end, &mut |batch| {
        let damaged = || damaged(of, batch.first);
        for entry in batch.entries().ok_or_else(damaged)? {
            if entry.offset < from {
                continue;
            }
            let record = entry.to_record(of, batch.appended_at).ok_or_else(damaged)?;
            if visit(record).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Reads a partition's records in `from..end`, at most `max` and about [`PAGE_BYTES_MAX`].
pub(super) fn page(
    connection: &Connection,
    of: TopicPartition,
    slot: Slot,
    from: Offset,
    end: Offset,
    max: usize,
) -> Result<Page, StorageError> {
    let mut page = Page { records: Vec::new(), next: end };
    let mut bytes = 0_usize;
    records(connection, of, slot, from, end, &mut |record| {
        bytes = bytes.saturating_add(size(&record));
        let next = record.offset.next();
        page.records.push(Arc::new(record));
        if page.records.len() < max && bytes < PAGE_BYTES_MAX {
            return ControlFlow::Continue(());
        }
        page.next = next;
        ControlFlow::Break(())
    })?;
    Ok(page)
}

/// Calls `apply` with every record of a partition, in one snapshot: between two snapshots
/// compaction could drop a tombstone whose older record `apply` already got.
pub(super) fn scan(
    connection: &mut Connection,
    of: TopicPartition,
    slot: Slot,
    apply: &mut dyn FnMut(Record),
) -> Result<(), StorageError> {
    let snapshot = connection.transaction()?;
    let end = snapshot
        .prepare_cached("SELECT next_offset FROM partitions WHERE slot = ?1")?
        .query_row([slot.0], |row| row.get(0).map(Offset))?;
    records(&snapshot, of, slot, Offset(0), end, &mut |record| {
        apply(record);
        ControlFlow::Continue(())
    })?;
    snapshot.finish()?;
    Ok(())
}

/// The offset after a partition's first batches that were appended before `time` and end at `until` or before, at most
/// `max` of them; none if there is no such batch.
pub(super) fn front_before(
    connection: &Connection,
    extent: &Extent,
    time: UnixMicros,
    until: Offset,
    max: usize,
) -> Result<Option<Offset>, StorageError> {
    let mut select = connection.prepare_cached(
        "SELECT id, appended_at FROM records WHERE id >= ?1 AND id < ?2 ORDER BY id",
    )?;
    let Extent { slot, bounds, .. } = *extent;
    let mut rows = select.query([row_id(slot, bounds.start), row_id(slot, bounds.end)])?;
    let (mut below, mut passed) = (None, 0);
    while let Some(row) = rows.next()? {
        // The preceding batch ends here.
        let first = offset_of(row.get(0)?);
        if passed > 0 && first > until {
            return Ok(below);
        }
        below = (passed > 0).then_some(first);
        if passed == max || row.get::<_, i64>(1)? >= time.0 {
            return Ok(below);
        }
        passed += 1;
    }
    Ok(if passed > 0 && bounds.end <= until { Some(bounds.end) } else { below })
}
