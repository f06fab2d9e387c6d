//! Avro in the Confluent wire format: a zero byte, the schema id in four bytes, the Avro binary.
//!
//! Records are written with one version of their schema and read in every known one. A field that a version
//! lacks gets the default of its Rust type, which is the schema's default (`tests/compatibility.rs`).
//!
//! The written version is encoded and decoded by position. Other versions are decoded by field name with
//! `apache-avro`, but without its schema resolution, which refuses every decimal that is shorter than its
//! precision allows (decision 14).

mod reader;
mod writer;

use std::fmt::Display;
use std::sync::LazyLock;

use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::reader::Reader;
use self::writer::Writer;
use crate::record::Record;
use crate::schema::Versions;
use crate::{Schema, SchemaName, words};

const MAGIC: u8 = 0;
const HEADER_BYTES: usize = 5;

/// Initial capacity in bytes, enough for most records: to grow the buffer costs more than the
/// encoding.
const BYTES_USUAL: usize = 512;

/// Reason why bytes are not a record, or why one cannot be encoded. A retry cannot succeed.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Too short, or not the magic byte.
    #[error("not in the Confluent wire format")]
    Framing,
    /// The schema is unknown to this version, or that of another type of record.
    #[error("schema id {found} is not one of {expected:?}'s")]
    SchemaId { found: u32, expected: SchemaName },
    /// A word of a closed vocabulary that this version does not have.
    #[error("{name:?} has the {field} {word:?}, which this version does not know")]
    Word { name: SchemaName, field: &'static str, word: String },
    /// The record or its Avro binary does not fit the schema, or its fields contradict each other.
    #[error("not a valid {name:?}: {cause}")]
    Avro { name: SchemaName, cause: String },
    /// Bytes after the record's end.
    #[error("{0} bytes follow the record")]
    Trailing(usize),
}

impl CodecError {
    /// `true` if a newer version of this program may read the bytes: their schema id or a word is
    /// unknown to this version. After any other error, no version reads them as this record.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        match self {
            Self::SchemaId { found, .. } => {
                let mut known = SchemaName::ALL.iter().flat_map(|name| name.schemas());
                !known.any(|schema| schema.id == *found)
            }
            Self::Word { .. } => true,
            Self::Framing | Self::Avro { .. } | Self::Trailing(_) => false,
        }
    }
}

/// A type that no schema of this crate has, or bytes that do not fit the type.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unfit(String);

impl serde::ser::Error for Unfit {
    fn custom<T: Display>(what: T) -> Self {
        Self(what.to_string())
    }
}

impl serde::de::Error for Unfit {
    fn custom<T: Display>(what: T) -> Self {
        Self(what.to_string())
    }
}

/// Writes one version of a record and reads all of them.
pub(crate) struct Codec {
    written: &'static Schema,
    forms: Vec<Form>,
}

/// One version, ready for use: resolving a schema for each record costs more than the encoding.
struct Form {
    schema: &'static Schema,
    generic: GenericDatumReader<'static>,
}

static CODECS: LazyLock<Vec<Codec>> =
    LazyLock::new(|| SchemaName::ALL.iter().map(|name| Codec::new(name.versions())).collect());

pub(crate) fn codec(name: SchemaName) -> &'static Codec {
    &CODECS[name as usize]
}

/// Encodes a record as the value of a log record.
///
/// # Errors
/// [`CodecError::Avro`] if the record does not fit its schema, which is a defect of this program.
pub fn encode<R: Record>(record: &R) -> Result<Vec<u8>, CodecError> {
    codec(R::SCHEMA).encode(record)
}

/// Decodes the record in a value, written with any known version of its schema.
pub fn decode<R: Record>(bytes: &[u8]) -> Result<R, CodecError> {
    codec(R::SCHEMA).decode(bytes)
}

/// Checks schema, binary form and words of a value, but builds no record: invalid fields pass.
///
/// # Errors
/// Reason why this version cannot read it.
pub fn check(name: SchemaName, bytes: &[u8]) -> Result<(), CodecError> {
    let value = codec(name).value(bytes)?;
    match words::unknown(name, &value) {
        None => Ok(()),
        Some((field, word)) => Err(CodecError::Word { name, field, word }),
    }
}

/// `true` if a value begins like a known version of a record, whatever its schema id. A value of a
/// newer version does if that version adds its fields at the end.
#[must_use]
pub fn resembles(name: SchemaName, bytes: &[u8]) -> bool {
    let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
    codec(name).forms.iter().any(|form| form.generic.read_value(&mut &*body).is_ok())
}

impl Form {
    #[expect(
        clippy::expect_used,
        reason = "schema files are compiled in; a test resolves each one"
    )]
    fn new(schema: &'static Schema) -> Self {
        let generic = GenericDatumReader::builder(&schema.parsed).build();
        Self { schema, generic: generic.expect("a schema resolves") }
    }
}

impl Codec {
    fn new(versions: &'static Versions) -> Self {
        Self { written: versions.written(), forms: versions.all().iter().map(Form::new).collect() }
    }

    fn encode<R: Serialize>(&self, record: &R) -> Result<Vec<u8>, CodecError> {
        let mut bytes = Vec::with_capacity(BYTES_USUAL);
        bytes.push(MAGIC);
        bytes.extend_from_slice(&self.written.id.to_be_bytes());
        record.serialize(Writer(&mut bytes)).map_err(|cause| self.misfit(cause))?;
        Ok(bytes)
    }

    fn decode<R: DeserializeOwned>(&self, bytes: &[u8]) -> Result<R, CodecError> {
        let (form, body) = self.split(bytes)?;
        let newer = |cause: String| self.newer(bytes).unwrap_or_else(|| self.misfit(cause));
        if form.schema.id != self.written.id {
            let value = self.value(bytes)?;
            return apache_avro::from_value(&value).map_err(|cause| newer(cause.to_string()));
        }
        let mut reader = Reader(body);
        let record = R::deserialize(&mut reader).map_err(|cause| newer(cause.to_string()))?;
        end(record, reader.0)
    }

    /// The fields of a value, as the version it was written with has them.
    pub(crate) fn value(&self, bytes: &[u8]) -> Result<Value, CodecError> {
        let (form, mut body) = self.split(bytes)?;
        let value = form.generic.read_value(&mut body).map_err(|cause| self.misfit(cause))?;
        end(value, body)
    }

    /// The version of a value, and its Avro binary.
    fn split<'a>(&self, bytes: &'a [u8]) -> Result<(&Form, &'a [u8]), CodecError> {
        let (found, body) = split(bytes)?;
        let form = self.forms.iter().find(|form| form.schema.id == found);
        let expected = self.written.name;
        Ok((form.ok_or(CodecError::SchemaId { found, expected })?, body))
    }

    /// The error of a value that is well formed and has a word of a newer version.
    fn newer(&self, bytes: &[u8]) -> Option<CodecError> {
        let name = self.written.name;
        let (field, word) = words::unknown(name, &self.value(bytes).ok()?)?;
        Some(CodecError::Word { name, field, word })
    }

    pub(crate) fn misfit(&self, cause: impl ToString) -> CodecError {
        CodecError::Avro { name: self.written.name, cause: cause.to_string() }
    }
}

/// Returns the value read, if no bytes remain.
fn end<T>(read: T, rest: &[u8]) -> Result<T, CodecError> {
    if rest.is_empty() { Ok(read) } else { Err(CodecError::Trailing(rest.len())) }
}

/// The schema id of a value and its Avro binary.
fn split(bytes: &[u8]) -> Result<(u32, &[u8]), CodecError> {
    let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(CodecError::Framing)?;
    let &[MAGIC, a, b, c, d] = header else { return Err(CodecError::Framing) };
    Ok((u32::from_be_bytes([a, b, c, d]), body))
}

#[cfg(test)]
mod tests;
