//! Records that a stage cannot read: garbage is put aside, what a newer version wrote stops the stage.

use schemas::CodecError;
use schemas::record::Record as Schema;

use crate::Record;

/// Why a record is no input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Nobody can read it, or it is in the wrong place: it belongs to the dead letters.
    #[error("{0}")]
    Garbage(String),
    /// A newer version of this program wrote it and can read it. To skip it could lose a payment.
    #[error("{0}")]
    Newer(String),
}

/// What no stage may skip.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read {at}: {cause}. A newer version wrote it, and to skip it could lose a payment: \
     nothing of this step is committed. Start the newer version; it continues from here"
)]
pub struct NewerRecord {
    /// `<topic>/<partition>@<offset>`.
    pub at: String,
    pub cause: String,
}

impl Record {
    /// What the record holds.
    ///
    /// # Errors
    /// Why that cannot be read.
    pub fn read<R: Schema>(&self) -> Result<R, Unreadable> {
        let empty = || Unreadable::Garbage("the record has no value".to_owned());
        Ok(schemas::decode(self.value.as_deref().ok_or_else(empty)?)?)
    }
}

impl Unreadable {
    /// Why the record is garbage.
    ///
    /// # Errors
    /// It is not: a newer version can read it.
    pub fn garbage(self, record: &Record) -> Result<String, NewerRecord> {
        match self {
            Self::Garbage(reason) => Ok(reason),
            Self::Newer(cause) => {
                Err(NewerRecord { at: format!("{}@{}", record.from, record.offset), cause })
            }
        }
    }
}

impl From<CodecError> for Unreadable {
    fn from(error: CodecError) -> Self {
        let reason = error.to_string();
        if error.is_newer() { Self::Newer(reason) } else { Self::Garbage(reason) }
    }
}
