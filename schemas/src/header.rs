//! The headers of a record, in their stored form. Most records have none.

/// W3C trace context, propagated from a record to the records that it causes.
pub const HEADER_TRACEPARENT: &str = "traceparent";
/// Append time of an imported record in the log that it was exported from, in microseconds.
pub const HEADER_APPENDED_AT: &str = "appended-at";
/// Mark of the first record that `tidemark import` wrote to a partition whose older records had expired.
pub const HEADER_EARLIER: &str = "earlier";

/// Names and values in order, as one length-prefixed blob: `u32` little endian and bytes, name and value
/// in turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<u8>);

impl Headers {
    /// Makes an empty list with this capacity in bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Adds a header after the others.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        put(&mut self.0, name.as_bytes());
        put(&mut self.0, value);
    }

    /// The value of the first one with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut blob = self.0.as_slice();
        std::iter::from_fn(move || next(&mut blob))
    }

    /// The blob.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Headers from a blob; none if it is malformed.
    #[must_use]
    pub fn from_bytes(blob: Vec<u8>) -> Option<Self> {
        let mut rest = blob.as_slice();
        while !rest.is_empty() {
            next(&mut rest)?;
        }
        Some(Self(blob))
    }
}

impl<'a> FromIterator<(&'a str, &'a [u8])> for Headers {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(all: I) -> Self {
        let mut headers = Self::default();
        all.into_iter().for_each(|(name, value)| headers.push(name, value));
        headers
    }
}

fn put(blob: &mut Vec<u8>, bytes: &[u8]) {
    // A record is far smaller than 4 GiB: every log refuses larger ones.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    blob.extend_from_slice(&length.to_le_bytes());
    blob.extend_from_slice(bytes);
}

fn next<'a>(blob: &mut &'a [u8]) -> Option<(&'a str, &'a [u8])> {
    let name = std::str::from_utf8(take(blob)?).ok()?;
    Some((name, take(blob)?))
}

fn take<'a>(blob: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (bytes, rest) = rest.split_at_checked(length)?;
    *blob = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were() {
        let all: [(&str, &[u8]); 3] = [("traceparent", b"1"), ("ä", &[0, 255]), ("", b"")];
        let headers: Headers = all.into_iter().collect();
        assert_eq!(headers.iter().collect::<Vec<_>>(), all);
        assert_eq!(headers.get("ä"), Some([0, 255].as_slice()));
        assert_eq!(headers.get("b"), None);
        assert_eq!(Headers::from_bytes(headers.as_bytes().to_vec()), Some(headers));
    }

    #[test]
    fn a_blob_cut_short_is_refused() {
        let headers: Headers = [("name", b"value".as_slice())].into_iter().collect();
        for end in 1..headers.as_bytes().len() {
            assert_eq!(Headers::from_bytes(headers.as_bytes()[..end].to_vec()), None, "{end}");
        }
    }
}
