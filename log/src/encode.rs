//! Encodes records for the log.

use schemas::record;
use schemas::{CodecError, HEADER_TRACEPARENT, Headers, Partition, Topic};

use crate::{NewRecord, Record, TopicPartition};

/// Maximum bytes of a traceparent; valid ones are shorter.
const TRACEPARENT_BYTES_MAX: usize = 256;

impl NewRecord {
    /// Encodes a record with the schema of its topic.
    ///
    /// # Errors
    /// [`CodecError`] if the record does not fit its schema, which is a defect of this program.
    pub fn encode<R: record::Record>(
        topic: Topic,
        partition: Partition,
        key: impl Into<Vec<u8>>,
        record: &R,
    ) -> Result<Self, CodecError> {
        debug_assert_eq!(topic.spec().schema, R::SCHEMA, "{topic} carries another record");
        let (to, value) = (TopicPartition { topic, partition }, Some(schemas::encode(record)?));
        Ok(Self { to, key: key.into(), value, headers: Headers::default() })
    }

    /// Adds the W3C trace context of the record's cause, if any.
    #[must_use]
    pub fn traced(mut self, traceparent: Option<&[u8]>) -> Self {
        if let Some(parent) = traceparent {
            self.headers.push(HEADER_TRACEPARENT, parent);
        }
        self
    }
}

impl Record {
    /// The W3C trace context; none if it is too long to be one.
    #[must_use]
    pub fn traceparent(&self) -> Option<&[u8]> {
        self.header(HEADER_TRACEPARENT).filter(|text| text.len() <= TRACEPARENT_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_for_a_trace_is_not_handed_on() {
        for (bytes, is_kept) in [(TRACEPARENT_BYTES_MAX, true), (TRACEPARENT_BYTES_MAX + 1, false)]
        {
            let text = vec![b'0'; bytes];
            let headers = [(HEADER_TRACEPARENT, text.as_slice())].into_iter().collect();
            let of = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
            let record = Record { headers, ..Record::of(of, 7) };
            assert_eq!(record.traceparent(), is_kept.then_some(&*text));
        }
    }
}
