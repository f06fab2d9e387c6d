//! Records that a stage cannot process: moved to the topic `dead-letters`, with reason and origin.

use schemas::record::DeadLetter;
use schemas::{CodecError, Partition, Topic};

use crate::metrics::DEAD_LETTERS_TOTAL;
use crate::{NewRecord, Record};

/// Maximum bytes of a value, and of a key, in a dead letter, which must itself fit into a record.
const LETTER_VALUE_BYTES_MAX: usize = 4 * 1024 * 1024;
const LETTER_KEY_BYTES_MAX: usize = 64 * 1024;

/// The dead letter for a record that `group` cannot process. A key or value above its maximum is
/// cut, so that the letter can be written, and the reason says so. The loop of a group reports it once
/// it is committed.
///
/// # Errors
/// [`CodecError`] if it cannot be encoded, which is a defect of this program.
pub fn dead_letter(poison: &Record, group: &str, reason: &str) -> Result<NewRecord, CodecError> {
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
    let key = poison.from.to_string();
    let letter = NewRecord::encode(Topic::DeadLetters, Partition(0), key, &letter)?;
    Ok(letter.traced(poison.traceparent()))
}

/// The dead letters among the records of a step.
pub(crate) fn letters(records: &[NewRecord]) -> impl Iterator<Item = DeadLetter> {
    let letters = records.iter().filter(|record| record.to.topic == Topic::DeadLetters);
    letters.filter_map(|letter| schemas::decode(letter.value.as_deref()?).ok())
}

/// Counts and logs a dead letter that is committed.
pub(crate) fn report(letter: DeadLetter) {
    let DeadLetter { topic, partition, offset, group, reason, .. } = letter;
    tracing::error!(
        kafka.topic = topic,
        kafka.partition = partition,
        kafka.offset = offset,
        reason,
        "{group} cannot process a record and moved it to dead-letters"
    );
    metrics::counter!(DEAD_LETTERS_TOTAL, "topic" => topic).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::HEADER_TRACEPARENT;

    use crate::TopicPartition;

    fn poison(key: usize, value: usize, traceparent: usize) -> Record {
        let traceparent = vec![b'0'; traceparent];
        Record {
            key: vec![b'k'; key],
            value: Some(vec![1; value]),
            headers: [(HEADER_TRACEPARENT, traceparent.as_slice())].into_iter().collect(),
            ..Record::of(TopicPartition { topic: Topic::Orders, partition: Partition(0) }, 7)
        }
    }

    fn letter(poison: &Record) -> (DeadLetter, NewRecord) {
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

    #[test]
    fn a_key_and_a_value_are_whole_up_to_a_limit() {
        let (key, value) = (LETTER_KEY_BYTES_MAX, LETTER_VALUE_BYTES_MAX);
        for (longer, is_cut) in [((0, 0), false), ((1, 0), true), ((0, 1), true)] {
            let (letter, _) = letter(&poison(key + longer.0, value + longer.1, 0));
            assert_eq!((letter.key.len(), letter.value.len()), (key, value));
            assert_eq!(letter.reason.contains("are cut"), is_cut, "{}", letter.reason);
        }
    }

    /// A letter that the log refuses would be retried for ever.
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
