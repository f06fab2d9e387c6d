//! Puts records into the log's form: encoded value, key, CloudEvents headers.

use schemas::record::{DeadLetter, Record};
use schemas::{CloudEvent, CodecError, HEADER_TRACEPARENT, Partition, Topic, UnixMicros};

use crate::log::{self, NewRecord, TopicPartition};
use crate::metrics::DEAD_LETTERS_TOTAL;

/// What a dead letter holds of a value, and of a key, at most: it must fit into the log with all else.
const LETTER_VALUE_BYTES_MAX: usize = 4 * 1024 * 1024;
const LETTER_KEY_BYTES_MAX: usize = 64 * 1024;
/// Longer than any traceparent is.
const TRACEPARENT_BYTES_MAX: usize = 256;

/// What the outputs of one input have in common. Their ids are the input's place and a count, so a
/// replay gives the same ids.
#[derive(Debug)]
pub struct Envelope<'a> {
    origin: String,
    time: UnixMicros,
    traceparent: Option<&'a [u8]>,
    /// The time as text, once it is needed.
    time_text: Option<String>,
    count: u32,
}

impl<'a> Envelope<'a> {
    /// For outputs caused by a record of the log.
    #[must_use]
    pub fn of(input: &'a log::Record) -> Self {
        Self {
            origin: format!("{}/{}", input.from, input.offset),
            time: input.appended_at,
            traceparent: input
                .header(HEADER_TRACEPARENT)
                .filter(|text| text.len() <= TRACEPARENT_BYTES_MAX),
            time_text: None,
            count: 0,
        }
    }

    /// For records with a cause outside the log, named by `origin`.
    #[must_use]
    pub fn from_outside(origin: String, time: UnixMicros, traceparent: Option<&'a [u8]>) -> Self {
        Self { origin, time, traceparent, time_text: None, count: 0 }
    }

    /// A record of `topic`.
    ///
    /// # Errors
    /// [`CodecError`] if the record does not fit its schema, which is a defect of this program.
    pub fn wrap<R: Record>(
        &mut self,
        topic: Topic,
        partition: Partition,
        key: impl Into<Vec<u8>>,
        record: &R,
    ) -> Result<NewRecord, CodecError> {
        debug_assert_eq!(topic.spec().schema, R::SCHEMA, "{topic} carries another record");
        let id = format!("{}/{}", self.origin, self.count);
        self.count = self.count.saturating_add(1);
        let time = self.time_text.get_or_insert_with(|| self.time.to_rfc3339());
        let event = CloudEvent { id: &id, time, traceparent: self.traceparent };
        Ok(NewRecord {
            to: TopicPartition { topic, partition },
            key: key.into(),
            value: Some(schemas::encode(record)?),
            headers: event.headers(topic),
        })
    }
}

/// The dead letter for a record that `group` cannot process: with reason and origin, and whole unless
/// it is so large that the letter could not be written; then it is cut, and the reason says so.
///
/// # Errors
/// [`CodecError`] if it cannot be encoded, which is a defect of this program.
pub fn dead_letter(
    poison: &log::Record,
    group: &str,
    reason: &str,
) -> Result<NewRecord, CodecError> {
    let value = poison.value.as_deref().unwrap_or_default();
    let cut = |bytes: &[u8], max: usize| bytes.get(..max).unwrap_or(bytes).to_vec();
    let is_cut = value.len() > LETTER_VALUE_BYTES_MAX || poison.key.len() > LETTER_KEY_BYTES_MAX;
    let note = if is_cut { " (key and value are cut: they are too large)" } else { "" };
    let letter = DeadLetter {
        topic: poison.from.topic.name().to_owned(),
        partition: poison.from.partition.0.cast_signed(),
        offset: poison.offset.0,
        group: group.to_owned(),
        reason: format!("{reason}{note}"),
        key: cut(&poison.key, LETTER_KEY_BYTES_MAX),
        value: cut(value, LETTER_VALUE_BYTES_MAX),
        failed_at: poison.appended_at,
    };
    metrics::counter!(DEAD_LETTERS_TOTAL, "topic" => poison.from.topic.name()).increment(1);
    tracing::error!(
        kafka.topic = poison.from.topic.name(),
        kafka.partition = poison.from.partition.0,
        kafka.offset = poison.offset.0,
        reason,
        "{group} cannot process a record and moved it to dead-letters"
    );
    Envelope::of(poison).wrap(Topic::DeadLetters, Partition(0), poison.from.to_string(), &letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Offset;

    fn poison(key: usize, value: usize, traceparent: usize) -> log::Record {
        log::Record {
            from: TopicPartition { topic: Topic::Orders, partition: Partition(0) },
            offset: Offset(7),
            appended_at: UnixMicros(1),
            key: vec![b'k'; key],
            value: Some(vec![1; value]),
            headers: [(HEADER_TRACEPARENT, vec![b'0'; traceparent].as_slice())]
                .into_iter()
                .collect(),
        }
    }

    fn letter(poison: &log::Record) -> (DeadLetter, NewRecord) {
        let record = dead_letter(poison, "group", "bad").unwrap();
        (schemas::decode(record.value.as_deref().unwrap()).unwrap(), record)
    }

    #[test]
    fn a_dead_letter_is_whole() {
        let (letter, record) = letter(&poison(3, 5000, 55));
        assert_eq!((letter.key.len(), letter.value.len()), (3, 5000));
        assert_eq!(letter.reason, "bad");
        assert_eq!(record.headers.get(HEADER_TRACEPARENT).unwrap().len(), 55);
    }

    /// A letter that could not be written would be tried again for ever.
    #[test]
    fn the_dead_letter_of_a_huge_record_fits_into_the_log() {
        let mib = 1024 * 1024;
        for huge in [poison(1, 9 * mib, 0), poison(9 * mib, 1, 0), poison(1, 1, 9 * mib)] {
            let (letter, record) = letter(&huge);
            let is_cut = huge.key.len() + huge.value.as_ref().unwrap().len() > 9 * mib;
            assert_eq!(letter.reason.contains("are cut"), is_cut, "{}", letter.reason);
            let bytes = record.key.len()
                + record.value.as_ref().unwrap().len()
                + record.headers.as_bytes().len();
            assert!(bytes < 5 * mib, "{bytes}");
        }
    }
}
