//! Failures of the tables.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Failure to read or write the tables. Clones share the driver's error.
#[derive(Debug, Clone)]
pub enum Error {
    /// The failure may pass. Some changes may be applied: repeat the call, and commit no offsets
    /// before it succeeds.
    Transient(Cause),
    /// A repeated call fails again: a defect, a damaged file, or a server that refuses this program.
    Fatal(Cause),
    /// The tables were never created.
    SchemaMissing { keyspace: String },
    /// An older program made the tables.
    SchemaOutdated { keyspace: String, found: usize, needed: usize },
    /// CQL tables were dropped since they were made.
    TablesMissing { keyspace: String, tables: Vec<String> },
    /// Embedded tables were dropped since they were made.
    Dropped { file: String, tables: Vec<String> },
    /// A newer program made the tables; this one would lose its additions.
    SchemaNewer { tables: String, found: usize, known: usize },
    /// The keyspace keeps another number of copies of each row in a data centre than
    /// `store.replication` says.
    Replication { keyspace: String, datacenter: String, found: u16, configured: u16 },
}

/// Cause of a failure: a text of this crate, the driver's error, or both.
#[derive(Debug, Clone)]
pub struct Cause {
    what: String,
    driver: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Cause {
    /// An error of SQLite or of the CQL driver.
    pub(crate) fn of(driver: impl StdError + Send + Sync + 'static) -> Self {
        Self { what: String::new(), driver: Some(Arc::new(driver)) }
    }

    pub(crate) fn context(mut self, what: impl fmt::Display) -> Self {
        self.what = if self.what.is_empty() { what.to_string() } else { format!("{what}: {self}") };
        self
    }

    /// The driver's error, to be downcast.
    pub fn driver(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.driver.as_deref()
    }
}

impl<T: Into<String>> From<T> for Cause {
    fn from(what: T) -> Self {
        Self { what: what.into(), driver: None }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Some(driver) if self.what.is_empty() => driver.fmt(f),
            Some(driver) => write!(f, "{}: {driver}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Error {
    /// Adds the operation that failed.
    pub(crate) fn context(self, what: impl fmt::Display) -> Self {
        match self {
            Self::Transient(cause) => Self::Transient(cause.context(what)),
            Self::Fatal(cause) => Self::Fatal(cause.context(what)),
            other @ (Self::SchemaMissing { .. }
            | Self::SchemaOutdated { .. }
            | Self::TablesMissing { .. }
            | Self::Dropped { .. }
            | Self::SchemaNewer { .. }
            | Self::Replication { .. }) => other,
        }
    }
}

/// Includes the driver's text, so that no log line loses it.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIGRATE: &str = "run `tidemark schema migrate`";
        match self {
            Self::Transient(cause) => {
                write!(f, "the tables are not available now, a retry may succeed: {cause}")
            }
            Self::Fatal(cause) => write!(f, "the tables failed, a retry would too: {cause}"),
            Self::SchemaMissing { keyspace } => {
                write!(f, "keyspace {keyspace} has no tables of this program: {MIGRATE}")
            }
            Self::SchemaOutdated { keyspace, found, needed } => write!(
                f,
                "the tables in {keyspace} have version {found}, this program needs version \
                 {needed}: {MIGRATE}"
            ),
            Self::TablesMissing { keyspace, tables } => write!(
                f,
                "keyspace {keyspace} lacks {}, which somebody dropped: {MIGRATE}, which makes them again without rows, \
                 and then `tidemark tables rebuild`",
                tables.join(", ")
            ),
            Self::Dropped { file, tables } => write!(
                f,
                "{file} lacks {}, which somebody dropped: stop every process, and run `tidemark tables rebuild`",
                tables.join(", ")
            ),
            Self::SchemaNewer { tables, found, known } => write!(
                f,
                "the tables in {tables} have version {found}, this program knows versions up to \
                 {known}: run the newer program that made them"
            ),
            Self::Replication { keyspace, datacenter, found, configured } => write!(
                f,
                "keyspace {keyspace} keeps {found} copies of each row in {datacenter}, store.replication says \
                 {configured}. It was made with {found}, and no row has more. To have {configured}, run `ALTER KEYSPACE \
                 {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', '{datacenter}': {configured}}}` and \
                 then `nodetool repair --full {keyspace}` on every node, which copies the rows that are there; to stay \
                 with {found}, set store.replication = {found}"
            ),
        }
    }
}

impl StdError for Error {
    /// Returns the source of the driver's error: `Display` already has the driver's own text.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let (Self::Transient(cause) | Self::Fatal(cause)) = self else { return None };
        cause.driver.as_deref()?.source()
    }
}

/// Returns the row; none, with a line in the log, if this program cannot read its record. For
/// lists, which show the other rows.
///
/// # Errors
/// Every other failure.
pub(crate) fn unless_unreadable<T>(row: Result<T, Error>) -> Result<Option<T>, Error> {
    match row {
        Err(Error::Fatal(cause))
            if cause.driver().is_some_and(|cause| cause.is::<schemas::CodecError>()) =>
        {
            tracing::error!(%cause, "a row is left out of a list: its record cannot be read");
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// A record does not fit its schema, or a row holds no record.
impl From<schemas::CodecError> for Error {
    fn from(cause: schemas::CodecError) -> Self {
        Self::Fatal(Cause::of(cause))
    }
}
