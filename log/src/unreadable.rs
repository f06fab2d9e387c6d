//! Unreadable records: garbage goes to the dead letters or is skipped, a record of a newer version stops the reader.

use schemas::CodecError;
use schemas::record::Record as Schema;

use crate::{Cause, Error, Record};

/// Reason why a record cannot be taken as an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No version can read it, or it is misplaced: it belongs to the dead letters.
    #[error("{0}")]
    Garbage(String),
    /// A newer version of this program wrote it and can read it. To skip it could lose a payment.
    #[error("{0}")]
    Newer(String),
}

/// A record that no reader may skip.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read {at}: {cause}. A newer version wrote it, and to skip it could lose a payment: \
     nothing is done without it. Start the newer version; it continues from here. If none wrote it, `tidemark \
     dead-letters skip {at}` moves it to dead-letters"
)]
pub struct NewerRecord {
    /// `<topic>/<partition>@<offset>`.
    pub at: String,
    pub cause: String,
}

impl Record {
    /// Decodes the record's value.
    pub fn read<R: Schema>(&self) -> Result<R, Unreadable> {
        let empty = || Unreadable::Garbage("the record has no value".to_owned());
        Ok(schemas::decode(self.value.as_deref().ok_or_else(empty)?)?)
    }

    /// Decodes the record's value, for readers without dead letters; none if absent or garbage
    /// (logged).
    ///
    /// # Errors
    /// [`NewerRecord`] if only a newer version can read it.
    pub fn unless_garbage<R: Schema>(&self) -> Result<Option<R>, NewerRecord> {
        if self.value.is_none() {
            return Ok(None);
        }
        let reason = match self.read() {
            Ok(read) => return Ok(Some(read)),
            Err(unreadable) => unreadable.garbage(self)?,
        };
        tracing::warn!(
            kafka.topic = self.from.topic.name(),
            kafka.partition = self.from.partition.0,
            kafka.offset = self.offset.0,
            reason,
            "a record was skipped: no version can read it"
        );
        Ok(None)
    }

    /// Returns `true` if neither the schema id nor the content is that of any version of the record.
    /// Later versions extend earlier ones, so a newer one has content that begins like a known one.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        let (schema, value) =
            (self.from.topic.spec().schema, self.value.as_deref().unwrap_or_default());
        let is_unknown = matches!(
            schemas::check(schema, value),
            Err(error @ CodecError::SchemaId { .. }) if error.is_newer()
        );
        is_unknown && !schemas::resembles(schema, value)
    }
}

impl Unreadable {
    /// Returns the reason why the record is garbage.
    ///
    /// # Errors
    /// [`NewerRecord`] if it is not garbage: a newer version can read it.
    pub fn garbage(self, record: &Record) -> Result<String, NewerRecord> {
        match self {
            Self::Garbage(reason) => Ok(reason),
            Self::Newer(cause) => {
                Err(NewerRecord { at: format!("{}@{}", record.from, record.offset), cause })
            }
        }
    }
}

/// The record can be read by a newer version alone: the process must stop.
impl From<NewerRecord> for Error {
    fn from(newer: NewerRecord) -> Self {
        Self::Fatal(Cause::new(newer.to_string(), newer))
    }
}

impl From<CodecError> for Unreadable {
    fn from(error: CodecError) -> Self {
        let reason = error.to_string();
        if error.is_newer() { Self::Newer(reason) } else { Self::Garbage(reason) }
    }
}

#[cfg(test)]
mod tests {
    use schemas::record::{Alert, ChainProgress, example};
    use schemas::{Partition, Topic};

    use super::*;
    use crate::TopicPartition;

    fn record(value: Option<Vec<u8>>) -> Record {
        let of = TopicPartition { topic: Topic::Chains, partition: Partition(3) };
        Record { value, ..Record::of(of, 7) }
    }

    #[test]
    fn garbage_is_skipped_and_a_newer_record_is_not() {
        let good = schemas::encode(&example::chain_progress()).unwrap();
        let read = |value| record(value).unless_garbage::<ChainProgress>();
        assert_eq!(read(Some(good.clone())), Ok(Some(example::chain_progress())));
        assert_eq!(read(None), Ok(None));
        let cut = good[..good.len() - 1].to_vec();
        for garbage in [Vec::new(), vec![9; 9], cut, schemas::encode(&example::alert()).unwrap()] {
            assert_eq!(read(Some(garbage)), Ok(None));
        }
        let mut newer = good;
        newer[1] ^= 1;
        let refused = read(Some(newer)).unwrap_err();
        assert_eq!(refused.at, "chains/3@7");
        assert!(refused.to_string().contains("Start the newer version"), "{refused}");
        assert!(record(None).read::<Alert>().is_err(), "a stage expects a value");
    }

    #[test]
    fn foreign_bytes_are_of_no_newer_version() {
        let good = schemas::encode(&example::chain_progress()).unwrap();
        let is_foreign = |value| record(Some(value)).is_foreign();
        let foreign = vec![0, 1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff];
        assert!(is_foreign(foreign.clone()) && !is_foreign(good.clone()));
        assert!(record(Some(foreign)).unless_garbage::<ChainProgress>().is_err());
        let mut newer = good;
        newer[1] ^= 1;
        assert!(!is_foreign(newer));
    }
}
