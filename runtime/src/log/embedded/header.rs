//! Headers as one length-prefixed blob: `u32` length and bytes, name and value in turn, little endian.

use crate::log::Header;

/// Writes headers one after another.
pub(super) fn encode(headers: &[Header]) -> Vec<u8> {
    let size = headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    let mut blob = Vec::with_capacity(size);
    for (name, value) in headers {
        put(&mut blob, name.as_bytes());
        put(&mut blob, value);
    }
    blob
}

fn put(blob: &mut Vec<u8>, bytes: &[u8]) {
    // A record is far smaller than 4 GiB: `committer` refuses larger ones.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    blob.extend_from_slice(&length.to_le_bytes());
    blob.extend_from_slice(bytes);
}

/// Reads what [`encode`] wrote; none if it is not that.
pub(super) fn decode(mut blob: &[u8]) -> Option<Vec<Header>> {
    let mut headers = Vec::new();
    while !blob.is_empty() {
        let name = String::from_utf8(take(&mut blob)?.to_vec()).ok()?;
        headers.push((name, take(&mut blob)?.to_vec()));
    }
    Some(headers)
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
        for headers in [
            vec![],
            vec![(String::new(), vec![])],
            vec![("ce_id".to_owned(), b"1".to_vec()), ("ä".to_owned(), vec![0, 255])],
        ] {
            assert_eq!(decode(&encode(&headers)), Some(headers));
        }
    }

    #[test]
    fn a_blob_cut_short_is_refused() {
        let blob = encode(&[("name".to_owned(), b"value".to_vec())]);
        for end in 1..blob.len() {
            assert_eq!(decode(&blob[..end]), None, "{end}");
        }
    }
}
