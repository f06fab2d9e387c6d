//! A batch: records of one partition that one transaction appended, stored as one row.
//!
//! The row's id contains the first offset; all records share one append time. The checksum covers
//! id and time too, so that a batch in the wrong row counts as damaged. For each record the blob
//! has its offset relative to the first one, then key, value and headers, each with a length
//! prefix.

use schemas::{Headers, UnixMicros};

use crate::{Offset, Record, TopicPartition};

/// Value length that marks a tombstone.
const NO_VALUE: u32 = u32::MAX;

/// Approximate maximum bytes of a row: a reader that needs one of its records reads the whole row.
pub(super) const BATCH_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) first: Offset,
    pub(super) appended_at: UnixMicros,
    pub(super) blob: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) offset: Offset,
    pub(super) key: &'a [u8],
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: &'a [u8],
}

impl Batch {
    pub(super) fn new(first: Offset, appended_at: UnixMicros) -> Self {
        Self { first, appended_at, blob: Vec::new() }
    }

    pub(super) fn push(&mut self, entry: &Entry<'_>) {
        let distance = entry.offset.0.saturating_sub(self.first.0);
        self.put(u32::try_from(distance).unwrap_or(u32::MAX));
        self.put_bytes(entry.key);
        match entry.value {
            Some(value) => self.put_bytes(value),
            None => self.put(NO_VALUE),
        }
        self.put_bytes(entry.headers);
    }

    fn put(&mut self, number: u32) {
        self.blob.extend_from_slice(&number.to_le_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        // No length comes near `u32::MAX`: the committer refuses records above `RECORD_BYTES_MAX`.
        self.put(u32::try_from(bytes.len()).unwrap_or(NO_VALUE - 1));
        self.blob.extend_from_slice(bytes);
    }

    /// Records of the batch; none if the blob is malformed.
    pub(super) fn entries(&self) -> Option<Vec<Entry<'_>>> {
        let mut rest = self.blob.as_slice();
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let offset = Offset(self.first.0.checked_add(take_number(&mut rest)?.into())?);
            let key = take_bytes(&mut rest)?;
            let value = if rest.starts_with(&NO_VALUE.to_le_bytes()) {
                take_number(&mut rest)?;
                None
            } else {
                Some(take_bytes(&mut rest)?)
            };
            let headers = take_bytes(&mut rest)?;
            entries.push(Entry { offset, key, value, headers });
        }
        Some(entries)
    }
}

impl<'a> Entry<'a> {
    pub(super) fn of(record: &'a Record) -> Self {
        let Record { offset, key, value, headers, .. } = record;
        Self { offset: *offset, key, value: value.as_deref(), headers: headers.as_bytes() }
    }

    /// None for invalid headers.
    pub(super) fn to_record(self, from: TopicPartition, appended_at: UnixMicros) -> Option<Record> {
        let headers = Headers::from_bytes(self.headers.to_vec())?;
        Some(Record {
            from,
            offset: self.offset,
            appended_at: Record::first_appended_at(&headers, appended_at),
            key: self.key.to_vec(),
            value: self.value.map(<[u8]>::to_vec),
            headers,
        })
    }
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_le_bytes(*number))
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

/// Checksum of parts and of their lengths.
pub(super) fn checksum<const N: usize>(parts: [&[u8]; N]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(&part.len().to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Content = (u8, Vec<u8>, Option<Vec<u8>>, Vec<u8>);

    fn contents() -> impl Strategy<Value = Vec<Content>> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..20);
        prop::collection::vec((1..9_u8, bytes(), prop::option::of(bytes()), bytes()), 0..20)
    }

    proptest! {
        #[test]
        fn a_batch_reads_back(contents in contents(), first in 0..1_i64 << 40) {
            let mut batch = Batch::new(Offset(first), UnixMicros(7));
            let mut entries = Vec::new();
            let mut offset = first;
            for (gap, key, value, headers) in &contents {
                let value = value.as_deref();
                entries.push(Entry { offset: Offset(offset), key, value, headers });
                offset += i64::from(*gap);
            }
            entries.iter().for_each(|entry| batch.push(entry));
            prop_assert_eq!(batch.entries(), Some(entries));
        }

        #[test]
        fn what_is_cut_is_no_batch_or_a_shorter_one(contents in contents(), cut in any::<prop::sample::Index>()) {
            let mut batch = Batch::new(Offset(0), UnixMicros(7));
            for (_, key, value, headers) in &contents {
                batch.push(&Entry { offset: Offset(0), key, value: value.as_deref(), headers });
            }
            let whole = batch.blob.len();
            batch.blob.truncate(cut.index(whole + 1));
            let count = batch.entries().map(|entries| entries.len());
            prop_assert!(count.is_none_or(|n| n < contents.len() || batch.blob.len() == whole));
        }
    }

    #[test]
    fn a_checksum_depends_on_where_parts_end() {
        assert_ne!(checksum([b"ab", b"c"]), checksum([b"a", b"bc"]));
        assert_ne!(checksum([b"ab"]), checksum([b"aB"]));
    }
}
