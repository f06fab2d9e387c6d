//! Puts records into the log's form: encoded value, key, CloudEvents headers.

use schemas::record::{DeadLetter, Record};
use schemas::{CloudEvent, CodecError, HEADER_TRACEPARENT, Partition, Topic, UnixMicros};

use crate::log::{self, NewRecord, TopicPartition};
use crate::metrics::DEAD_LETTERS_TOTAL;

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
            traceparent: input.header(HEADER_TRACEPARENT),
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

/// The dead letter for a record that `group` cannot process: whole, with reason and origin.
///
/// # Errors
/// [`CodecError`] if it cannot be encoded, which is a defect of this program.
pub fn dead_letter(
    poison: &log::Record,
    group: &str,
    reason: &str,
) -> Result<NewRecord, CodecError> {
    let letter = DeadLetter {
        topic: poison.from.topic.name().to_owned(),
        partition: poison.from.partition.0.cast_signed(),
        offset: poison.offset.0,
        group: group.to_owned(),
        reason: reason.to_owned(),
        key: poison.key.clone(),
        value: poison.value.clone().unwrap_or_default(),
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
