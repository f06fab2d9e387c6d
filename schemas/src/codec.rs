//! Avro in the Confluent wire format: a zero byte, the schema id in four bytes, the Avro binary.
//!
//! Records are written with one version of their schema and read in every known one. What a version lacks
//! gets the default of its Rust type, which is the schema's default (`tests/compatibility.rs` sees to
//! that): so all versions are read at the same speed. The Avro library's own resolution cannot be used:
//! it refuses every decimal that is shorter than its precision allows.

use std::sync::LazyLock;

use apache_avro::AvroResult;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::record::Record;
use crate::schema::Versions;
use crate::{Schema, SchemaName};

/// First byte of every value.
const MAGIC: u8 = 0;
/// Bytes before the Avro binary.
const HEADER_BYTES: usize = 5;

/// Why bytes are not a record. Such a record is poison: reading it again gives the same.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Too short, or not the magic byte.
    #[error("not in the Confluent wire format")]
    Framing,
    /// Made with a schema that this version does not know, or for another topic.
    #[error("schema id {found} is not one of {expected:?}'s")]
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

/// Writes one version of a record and reads all of them.
pub(crate) struct Codec {
    schema: &'static Schema,
    writer: GenericDatumWriter<'static>,
    reader: GenericDatumReader<'static>,
    /// For each other version: its id and reader.
    others: Vec<(u32, GenericDatumReader<'static>)>,
}

/// Writers and readers resolve their schema once: doing it per record costs more than the encoding.
static CODECS: LazyLock<Vec<Codec>> =
    LazyLock::new(|| SchemaName::ALL.iter().map(|name| Codec::new(name.versions())).collect());

pub(crate) fn codec(name: SchemaName) -> &'static Codec {
    &CODECS[name as usize]
}

/// The bytes of a record, ready to be a value.
///
/// # Errors
/// [`CodecError::Avro`] if the record does not fit its schema, which is a defect of this program.
pub fn encode<R: Record>(record: &R) -> Result<Vec<u8>, CodecError> {
    codec(R::SCHEMA).encode(&record.to_wire())
}

/// The record in a value, whichever known version of its schema it was written with.
///
/// # Errors
/// [`CodecError`] says why the bytes are not one.
pub fn decode<R: Record>(bytes: &[u8]) -> Result<R, CodecError> {
    R::from_wire(codec(R::SCHEMA).decode(bytes)?)
        .map_err(|cause| CodecError::Content { name: R::SCHEMA, cause })
}

impl Codec {
    #[expect(
        clippy::expect_used,
        reason = "schema files are compiled in; a test resolves each one"
    )]
    fn new(versions: &'static Versions) -> Self {
        let schema = versions.written();
        let writer = GenericDatumWriter::builder(&schema.parsed)
            .human_readable(false)
            .build()
            .expect("a schema resolves");
        let reader = |schema: &'static Schema| {
            GenericDatumReader::builder(&schema.parsed)
                .human_readable(false)
                .build()
                .expect("a schema resolves")
        };
        let others = versions.others().map(|other| (other.id, reader(other))).collect();
        Self { schema, writer, reader: reader(schema), others }
    }

    fn encode<W: Serialize>(&self, wire: &W) -> Result<Vec<u8>, CodecError> {
        let mut bytes = Vec::with_capacity(256);
        bytes.push(MAGIC);
        bytes.extend_from_slice(&self.schema.id.to_be_bytes());
        self.writer.write_ser(&mut bytes, wire).map_err(|cause| self.misfit(cause))?;
        Ok(bytes)
    }

    fn decode<W: DeserializeOwned>(&self, bytes: &[u8]) -> Result<W, CodecError> {
        self.read(bytes, |reader, body| reader.read_deser(body))
    }

    /// The fields of a value, as the version it was written with has them.
    pub(crate) fn value(&self, bytes: &[u8]) -> Result<Value, CodecError> {
        self.read(bytes, |reader, body| reader.read_value(body))
    }

    fn read<T>(
        &self,
        bytes: &[u8],
        read: impl FnOnce(&GenericDatumReader<'static>, &mut &[u8]) -> AvroResult<T>,
    ) -> Result<T, CodecError> {
        let (found, mut body) = split(bytes)?;
        let reader = if found == self.schema.id { &self.reader } else { self.other(found)? };
        let record = read(reader, &mut body).map_err(|cause| self.misfit(cause))?;
        if body.is_empty() { Ok(record) } else { Err(CodecError::Trailing(body.len())) }
    }

    fn other(&self, found: u32) -> Result<&GenericDatumReader<'static>, CodecError> {
        let other = self.others.iter().find(|(id, _)| *id == found).map(|(_, reader)| reader);
        other.ok_or(CodecError::SchemaId { found, expected: self.schema.name })
    }

    fn misfit(&self, cause: apache_avro::Error) -> CodecError {
        CodecError::Avro { name: self.schema.name, cause: Box::new(cause) }
    }
}

/// The schema id of a value and its Avro binary.
fn split(bytes: &[u8]) -> Result<(u32, &[u8]), CodecError> {
    let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(CodecError::Framing)?;
    let &[MAGIC, a, b, c, d] = header else { return Err(CodecError::Framing) };
    Ok((u32::from_be_bytes([a, b, c, d]), body))
}

#[cfg(test)]
mod tests;
