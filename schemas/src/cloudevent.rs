//! CloudEvents headers in the Kafka binding's binary mode: what a reader knows before decoding.

use crate::{Headers, Topic};

/// W3C trace context, handed on from a record to the records it causes.
pub const HEADER_TRACEPARENT: &str = "traceparent";

/// Room for the headers of most records.
const HEADERS_BYTES: usize = 320;

/// The attributes of one record that are not functions of its topic.
#[derive(Debug, Clone, Copy)]
pub struct CloudEvent<'a> {
    /// Unique within the source. Effects of one input repeat it on replay.
    pub id: &'a str,
    /// When it happened, in RFC 3339.
    pub time: &'a str,
    /// Trace context, where the cause had one.
    pub traceparent: Option<&'a [u8]>,
}

impl CloudEvent<'_> {
    #[must_use]
    pub fn headers(&self, topic: Topic) -> Headers {
        let mut headers = Headers::with_capacity(HEADERS_BYTES);
        headers.push("ce_specversion", b"1.0");
        headers.push("ce_id", self.id.as_bytes());
        headers.push("ce_source", b"tidemark");
        headers.push("ce_type", topic.spec().event_type.as_bytes());
        headers.push("ce_time", self.time.as_bytes());
        headers.push("content-type", b"application/avro");
        if let Some(parent) = self.traceparent {
            headers.push(HEADER_TRACEPARENT, parent);
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_mode_names_the_type_of_the_topic() {
        let event =
            CloudEvent { id: "x/1", time: "1970-01-01T00:00:00Z", traceparent: Some(b"00-1-2-01") };
        let headers = event.headers(Topic::Orders);
        assert_eq!(headers.get("ce_type"), Some(b"tidemark.order".as_slice()));
        assert_eq!(headers.get("traceparent"), Some(b"00-1-2-01".as_slice()));
    }
}
