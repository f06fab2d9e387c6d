//! Conversion between the client library's messages and records.

use std::panic::AssertUnwindSafe;

use rdkafka::Message;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Header, Headers as _, OwnedHeaders};
use schemas::{Headers, UnixMicros};

use super::name::Names;
use crate::{Offset, Record};

/// Initial capacity for headers: most records have at most this number.
const HEADERS_USUAL: usize = 7;

/// None if the message is of a topic that this installation does not have.
pub(crate) fn of_message(names: &Names, message: &BorrowedMessage<'_>) -> Option<Record> {
    let headers = message.headers().map(of_headers).unwrap_or_default();
    Some(Record {
        from: names.parse(message.topic(), message.partition())?,
        offset: Offset(message.offset()),
        appended_at: Record::first_appended_at(&headers, appended_at(message)),
        key: message.key().map(<[u8]>::to_vec).unwrap_or_default(),
        value: message.payload().map(<[u8]>::to_vec),
        headers,
    })
}

fn appended_at(message: &BorrowedMessage<'_>) -> UnixMicros {
    let millis = message.timestamp().to_millis().unwrap_or_default();
    UnixMicros(millis.saturating_mul(1000))
}

fn of_headers(native: &BorrowedHeaders) -> Headers {
    // The binding panics on a name that is not UTF-8, and any client with write access may send one.
    let copied = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut headers = Headers::with_capacity(256);
        for header in native.iter() {
            headers.push(header.key, header.value.unwrap_or_default());
        }
        headers
    }));
    copied.unwrap_or_else(|_| {
        tracing::warn!("a record has a header whose name is not UTF-8; it is read without headers");
        Headers::default()
    })
}

pub(crate) fn native_headers(headers: &Headers) -> Option<OwnedHeaders> {
    if headers.as_bytes().is_empty() {
        return None;
    }
    let add = |native: OwnedHeaders, (key, value): (&str, &[u8])| {
        native.insert(Header { key, value: Some(value) })
    };
    Some(headers.iter().fold(OwnedHeaders::new_with_capacity(HEADERS_USUAL), add))
}
