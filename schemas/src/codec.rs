//! Avro in the Confluent wire format: a zero byte, the schema id in four bytes, the Avro binary.

use std::sync::LazyLock;

use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::writer::datum::GenericDatumWriter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::record::Record;

/// First byte of every value.
const MAGIC: u8 = 0;
/// Bytes before the Avro binary.
const HEADER_BYTES: usize = 5;

/// The record types, one for each schema file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is documented in its schema file, which is its definition")]
pub enum SchemaName {
    ChainRecord,
    OrderCommand,
    DepositCommand,
    Order,
    Deposit,
    Transfer,
    MatchingEntry,
    OrdersEntry,
    Delivery,
    Attempt,
    ChainProgress,
    Alert,
    DeadLetter,
}

/// One schema, as published.
#[derive(Debug)]
pub struct Schema {
    /// Which record it describes.
    pub name: SchemaName,
    /// Id in the wire format: the first 31 bits of the SHA-256 of its text, so that the same text has
    /// the same id in every installation.
    pub id: u32,
    /// The text of the `.avsc` file, with its docs and defaults.
    pub text: &'static str,
    parsed: apache_avro::Schema,
}

/// Why bytes are not a record. Such a record is poison: reading it again gives the same.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Too short, or not the magic byte.
    #[error("not in the Confluent wire format")]
    Framing,
    /// Made with a schema that this version does not know, or for another topic.
    #[error("schema id {found} is not that of {expected:?}")]
    SchemaId {
        /// The id in the bytes.
        found: u32,
        /// The record wanted.
        expected: SchemaName,
    },
    /// The Avro binary does not fit the schema.
    #[error("not a valid {name:?}: {cause}")]
    Avro {
        /// The record wanted.
        name: SchemaName,
        /// What the Avro library says.
        cause: Box<apache_avro::Error>,
    },
    /// The fields are well-formed but contradict each other.
    #[error("not a valid {name:?}: {cause}")]
    Content {
        /// The record wanted.
        name: SchemaName,
        /// What is wrong.
        cause: &'static str,
    },
    /// Bytes after the record's end.
    #[error("{0} bytes follow the record")]
    Trailing(usize),
}

impl SchemaName {
    /// Every schema.
    pub const ALL: [Self; 13] = [
        Self::ChainRecord,
        Self::OrderCommand,
        Self::DepositCommand,
        Self::Order,
        Self::Deposit,
        Self::Transfer,
        Self::MatchingEntry,
        Self::OrdersEntry,
        Self::Delivery,
        Self::Attempt,
        Self::ChainProgress,
        Self::Alert,
        Self::DeadLetter,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::ChainRecord => include_str!("../avro/chain_record.avsc"),
            Self::OrderCommand => include_str!("../avro/order_command.avsc"),
            Self::DepositCommand => include_str!("../avro/deposit_command.avsc"),
            Self::Order => include_str!("../avro/order.avsc"),
            Self::Deposit => include_str!("../avro/deposit.avsc"),
            Self::Transfer => include_str!("../avro/transfer.avsc"),
            Self::MatchingEntry => include_str!("../avro/matching_entry.avsc"),
            Self::OrdersEntry => include_str!("../avro/orders_entry.avsc"),
            Self::Delivery => include_str!("../avro/delivery.avsc"),
            Self::Attempt => include_str!("../avro/attempt.avsc"),
            Self::ChainProgress => include_str!("../avro/chain_progress.avsc"),
            Self::Alert => include_str!("../avro/alert.avsc"),
            Self::DeadLetter => include_str!("../avro/dead_letter.avsc"),
        }
    }

    /// The schema of this record.
    #[must_use]
    pub fn schema(self) -> &'static Schema {
        CODECS[self as usize].schema
    }
}

struct Codec {
    schema: &'static Schema,
    writer: GenericDatumWriter<'static>,
    reader: GenericDatumReader<'static>,
}

/// Writers and readers resolve their schema once: doing it per record costs more than the encoding.
static CODECS: LazyLock<Vec<Codec>> =
    LazyLock::new(|| SchemaName::ALL.iter().map(|name| codec(*name)).collect());

#[expect(clippy::expect_used, reason = "the schema files are compiled in; a test parses each one")]
fn codec(name: SchemaName) -> Codec {
    let text = name.text();
    let parsed = apache_avro::Schema::parse_str(text).expect("a schema file parses");
    let digest = Sha256::digest(text.as_bytes());
    let [a, b, c, d, ..] = <[u8; 32]>::from(digest);
    let id = u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff;
    // One leak for each schema of the process: writers and readers borrow it for ever.
    let schema: &'static Schema = Box::leak(Box::new(Schema { name, id, text, parsed }));
    let writer = GenericDatumWriter::builder(&schema.parsed)
        .human_readable(false)
        .build()
        .expect("a schema resolves");
    let reader = GenericDatumReader::builder(&schema.parsed)
        .human_readable(false)
        .build()
        .expect("a schema resolves");
    Codec { schema, writer, reader }
}

/// The bytes of a record, ready to be a value.
///
/// # Errors
/// [`CodecError::Avro`] if the record does not fit its schema, which is a defect of this program.
pub fn encode<R: Record>(record: &R) -> Result<Vec<u8>, CodecError> {
    encode_wire(R::SCHEMA, &record.to_wire())
}

fn encode_wire<W: Serialize>(name: SchemaName, wire: &W) -> Result<Vec<u8>, CodecError> {
    let codec = &CODECS[name as usize];
    let mut bytes = Vec::with_capacity(256);
    bytes.push(MAGIC);
    bytes.extend_from_slice(&codec.schema.id.to_be_bytes());
    codec
        .writer
        .write_ser(&mut bytes, wire)
        .map_err(|cause| CodecError::Avro { name, cause: Box::new(cause) })?;
    Ok(bytes)
}

/// The record in a value.
///
/// # Errors
/// [`CodecError`] says why the bytes are not one.
pub fn decode<R: Record>(bytes: &[u8]) -> Result<R, CodecError> {
    R::from_wire(decode_wire(R::SCHEMA, bytes)?)
        .map_err(|cause| CodecError::Content { name: R::SCHEMA, cause })
}

fn decode_wire<W: DeserializeOwned>(name: SchemaName, bytes: &[u8]) -> Result<W, CodecError> {
    let codec = &CODECS[name as usize];
    let (header, mut body) = bytes.split_at_checked(HEADER_BYTES).ok_or(CodecError::Framing)?;
    let &[MAGIC, a, b, c, d] = header else { return Err(CodecError::Framing) };
    let found = u32::from_be_bytes([a, b, c, d]);
    if found != codec.schema.id {
        return Err(CodecError::SchemaId { found, expected: name });
    }
    let wire = codec
        .reader
        .read_deser(&mut body)
        .map_err(|cause| CodecError::Avro { name, cause: Box::new(cause) })?;
    if body.is_empty() { Ok(wire) } else { Err(CodecError::Trailing(body.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Alert, example};

    #[test]
    fn ids_differ_and_follow_from_the_text() {
        let mut ids: Vec<_> = SchemaName::ALL.iter().map(|n| n.schema().id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), SchemaName::ALL.len());
        for name in SchemaName::ALL {
            assert_eq!(name.schema().name, name);
        }
    }

    #[test]
    fn bytes_that_are_not_the_record_are_told_apart() {
        let good = encode(&example::alert()).unwrap();
        assert!(matches!(decode::<Alert>(&good[..4]), Err(CodecError::Framing)));
        let mut magic = good.clone();
        magic[0] = 1;
        assert!(matches!(decode::<Alert>(&magic), Err(CodecError::Framing)));
        let mut id = good.clone();
        id[1] ^= 1;
        assert!(matches!(decode::<Alert>(&id), Err(CodecError::SchemaId { .. })));
        assert!(matches!(decode::<Alert>(&good[..good.len() - 1]), Err(CodecError::Avro { .. })));
        let mut long = good.clone();
        long.push(0);
        assert!(matches!(decode::<Alert>(&long), Err(CodecError::Trailing(1))));
        assert_eq!(decode::<Alert>(&good).unwrap(), example::alert());
    }
}
