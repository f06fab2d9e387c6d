//! Avro in the Confluent wire format: a zero byte, the schema id in four bytes, the Avro binary.
//!
//! Records are written with one version of their schema and read in every known one. What a version lacks
//! gets the default of its Rust type, which is the schema's default (`tests/compatibility.rs` sees to
//! that): so all versions are read at the same speed. The resolution of `apache-avro` cannot be used: it
//! refuses every decimal that is shorter than its precision allows.
//!
//! `apache-avro` parses the schemas and reads values without a type; `serde_avro_fast` reads them as Rust
//! types, in a third of the time (decision 14). They are written by position (decision 14).

mod positional;

use std::io::BufRead as _;
use std::sync::LazyLock;

use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_avro_fast::de::DeserializerState;
use serde_avro_fast::ser::SerializerConfig;

use self::positional::Positional;
use crate::record::Record;
use crate::schema::Versions;
use crate::{Schema, SchemaName, words};

const MAGIC: u8 = 0;
const HEADER_BYTES: usize = 5;

/// Room for most records: growing costs more than the encoding.
const BYTES_USUAL: usize = 512;

/// Reason why bytes are not a record. Reading them again gives the same.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Too short, or not the magic byte.
    #[error("not in the Confluent wire format")]
    Framing,
    /// Made with a schema that this version does not know, or for another topic.
    #[error("schema id {found} is not one of {expected:?}'s")]
    SchemaId { found: u32, expected: SchemaName },
    /// A word of a closed vocabulary that this version does not have.
    #[error("{name:?} has the {field} {word:?}, which this version does not know")]
    Word { name: SchemaName, field: &'static str, word: String },
    /// The Avro binary does not fit the schema.
    #[error("not a valid {name:?}: {cause}")]
    Avro { name: SchemaName, cause: String },
    /// The fields are well-formed but contradict each other.
    #[error("not a valid {name:?}: {cause}")]
    Content { name: SchemaName, cause: &'static str },
    /// Bytes after the record's end.
    #[error("{0} bytes follow the record")]
    Trailing(usize),
}

impl CodecError {
    /// `true` if a newer version of this program can read it: this version lacks its schema, or a
    /// word of it. Anything else is not a record at all.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        match self {
            Self::SchemaId { found, .. } => {
                let mut known = SchemaName::ALL.iter().flat_map(|name| name.schemas());
                !known.any(|schema| schema.id == *found)
            }
            Self::Word { .. } => true,
            Self::Framing | Self::Avro { .. } | Self::Content { .. } | Self::Trailing(_) => false,
        }
    }
}

/// Writes one version of a record and reads all of them.
pub(crate) struct Codec {
    written: Form,
    others: Vec<Form>,
}

/// One version, ready for use: resolving a schema for each record costs more than the encoding.
struct Form {
    schema: &'static Schema,
    /// For Rust types. In canonical form: logical types are the business of the types.
    typed: serde_avro_fast::Schema,
    /// For readers without a type, such as `tail`.
    generic: GenericDatumReader<'static>,
}

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
pub fn decode<R: Record>(bytes: &[u8]) -> Result<R, CodecError> {
    R::from_wire(codec(R::SCHEMA).decode(bytes)?)
        .map_err(|cause| CodecError::Content { name: R::SCHEMA, cause })
}

/// Checks that this version can read a value of some record.
///
/// # Errors
/// Reason why it cannot.
pub fn check(name: SchemaName, bytes: &[u8]) -> Result<(), CodecError> {
    let value = codec(name).value(bytes)?;
    match words::unknown(name, &value) {
        None => Ok(()),
        Some((field, word)) => Err(CodecError::Word { name, field, word }),
    }
}

/// `true` if a value begins as some version of a record does, whatever its schema id is: later
/// versions have what the earlier ones have, and more.
#[must_use]
pub fn resembles(name: SchemaName, bytes: &[u8]) -> bool {
    let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let Codec { written, others } = codec(name);
    let mut forms = std::iter::once(written).chain(others);
    forms.any(|form| form.generic.read_value(&mut &*body).is_ok())
}

impl Form {
    #[expect(
        clippy::expect_used,
        reason = "schema files are compiled in; a test resolves each one"
    )]
    fn new(schema: &'static Schema) -> Self {
        let canonical = schema.parsed.canonical_form();
        let generic = GenericDatumReader::builder(&schema.parsed).build();
        Self {
            schema,
            typed: canonical.parse().expect("a schema has a canonical form"),
            generic: generic.expect("a schema resolves"),
        }
    }
}

impl Codec {
    fn new(versions: &'static Versions) -> Self {
        let others = versions.others().map(Form::new).collect();
        Self { written: Form::new(versions.written()), others }
    }

    fn encode<W: Serialize>(&self, wire: &W) -> Result<Vec<u8>, CodecError> {
        let Form { schema, .. } = &self.written;
        let mut bytes = Vec::with_capacity(BYTES_USUAL);
        bytes.push(MAGIC);
        bytes.extend_from_slice(&schema.id.to_be_bytes());
        wire.serialize(Positional(&mut bytes)).map_err(|cause| self.misfit(cause))?;
        debug_assert_eq!(self.by_name(wire)?, bytes.get(HEADER_BYTES..).unwrap_or_default());
        Ok(bytes)
    }

    /// The Avro binary of a record, by the names of its fields: slower, and right in whatever order they are.
    fn by_name<W: Serialize>(&self, wire: &W) -> Result<Vec<u8>, CodecError> {
        serde_avro_fast::to_datum(wire, Vec::new(), &mut SerializerConfig::new(&self.written.typed))
            .map_err(|cause| self.misfit(cause))
    }

    fn decode<W: DeserializeOwned>(&self, bytes: &[u8]) -> Result<W, CodecError> {
        let (form, body) = self.split(bytes)?;
        let mut state = DeserializerState::from_slice(body, &form.typed);
        let record = W::deserialize(state.deserializer())
            .map_err(|cause| self.newer(bytes).unwrap_or_else(|| self.misfit(cause)))?;
        end(record, state.into_reader().fill_buf().unwrap_or_default())
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
        let mut forms = std::iter::once(&self.written).chain(&self.others);
        let form = forms.find(|form| form.schema.id == found);
        let expected = self.written.schema.name;
        Ok((form.ok_or(CodecError::SchemaId { found, expected })?, body))
    }

    /// The error of a value that is well formed and has a word of a newer version.
    fn newer(&self, bytes: &[u8]) -> Option<CodecError> {
        let name = self.written.schema.name;
        let (field, word) = words::unknown(name, &self.value(bytes).ok()?)?;
        Some(CodecError::Word { name, field, word })
    }

    fn misfit(&self, cause: impl ToString) -> CodecError {
        CodecError::Avro { name: self.written.schema.name, cause: cause.to_string() }
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
