//! Encodes records for the log: value, key, CloudEvents headers.

use schemas::record::Record;
use schemas::{CloudEvent, CodecError, HEADER_TRACEPARENT, Partition, Topic, UnixMicros};

use crate::{NewRecord, TopicPartition};

/// Longer than any traceparent is.
const TRACEPARENT_BYTES_MAX: usize = 256;

/// What the outputs of one input have in common. Their ids are the input's position and a count, so a
/// replay gives the same ids.
#[derive(Debug)]
pub struct Envelope<'a> {
    origin: String,
    time: UnixMicros,
    traceparent: Option<&'a [u8]>,
    /// Formatted once.
    time_text: Option<String>,
    count: u32,
}

impl<'a> Envelope<'a> {
    /// For outputs caused by a record of the log.
    #[must_use]
    pub fn of(input: &'a crate::Record) -> Self {
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
