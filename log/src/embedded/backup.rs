//! Copies of the file, and their restoration as an installation's log.

use std::path::Path;

use rusqlite::Connection;
use schemas::{Incarnation, UnixMicros};

use super::fault::StorageError;
use super::storage::{
    FILE, FORMAT, INCARNATION, Readers, continue_as, installation, meta, set_meta,
};
use super::{read_only, rows};
use crate::{Cause, Committed, Error, Offset, TopicPartition};

/// Key of the time of a copy, in its table `meta`.
const TAKEN_AT: &str = "backed_up_at";

/// Identity and times stored in the file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name that [`Log::installation`](crate::Log::installation) returns.
    pub installation: String,
    pub incarnation: Incarnation,
    /// Time of the copy; none for a file that is not a copy.
    pub taken_at: Option<UnixMicros>,
    /// Append time of the newest record.
    pub newest_at: UnixMicros,
}

impl Identity {
    /// Reads the identity of the log in a folder; none if there is no file.
    ///
    /// # Errors
    /// The log cannot be read, or has another format.
    pub fn read(dir: &Path) -> Result<Option<Self>, Error> {
        if !dir.join(FILE).exists() {
            return Ok(None);
        }
        let readers = Readers::new(dir);
        let (format, found) = readers.with(|connection| {
            let newest = "SELECT coalesce(max(appended_at), 0) FROM partitions";
            let found = Self {
                installation: installation(connection)?,
                incarnation: Incarnation(meta(connection, INCARNATION)?.unwrap_or_default()),
                taken_at: meta(connection, TAKEN_AT)?.map(UnixMicros),
                newest_at: connection.query_row(newest, [], |row| row.get(0).map(UnixMicros))?,
            };
            Ok((meta(connection, "format")?, found))
        })?;
        if format != Some(FORMAT) {
            return Err(Error::fatal(format!(
                "{} has another log format than {FORMAT}, which this program writes",
                dir.display()
            )));
        }
        Ok(Some(found))
    }
}

/// Copies the log of a folder, which a process may have open, to another folder, and checks the copy. Blocks.
///
/// # Errors
/// [`Error::Fatal`]: there is no log, or its copy could not be written or is damaged.
pub fn copy(dir: &Path, into: &Path, now: UnixMicros) -> Result<(), Error> {
    let (from, to) = (dir.join(FILE), into.join(FILE));
    sqlite::copy(&from, &to).map_err(|error| fatal(&from, error))?;
    write(&to, |copy| set_meta(copy, TAKEN_AT, now.0))
}

/// Checks the whole log of a folder for damage. Blocks.
///
/// # Errors
/// [`Error::Fatal`]: it is damaged, or cannot be read.
pub fn check(dir: &Path) -> Result<(), Error> {
    let path = dir.join(FILE);
    sqlite::check(&path).map_err(|error| fatal(&path, error))
}

/// Makes the copy in a folder the log of its installation again: sets the incarnation, and a
/// group's positions to those of the tables beside it. Partitions without a position are read from
/// the start. Blocks.
///
/// # Errors
/// [`Error`]: a position is after the end of the log, or the file cannot be read or written.
pub fn begin(
    dir: &Path,
    incarnation: Incarnation,
    group: &str,
    positions: &[(TopicPartition, Offset)],
) -> Result<(), Error> {
    let path = dir.join(FILE);
    let readers = Readers::new(dir);
    for (of, next) in positions {
        let extent = readers.with(|connection| read_only::extent(connection, *of))?;
        let end = extent.map_or(Offset(0), |(_, bounds)| bounds.end);
        if *next > end {
            return Err(Error::fatal(format!(
                "the tables have {of} up to {next}, and the log beside them ends at {end}: they are not of one backup"
            )));
        }
    }
    readers.close();
    write(&path, |copy| {
        set_meta(copy, INCARNATION, incarnation.0)?;
        copy.execute("DELETE FROM meta WHERE key = ?1", [TAKEN_AT])?;
        copy.execute("DELETE FROM offsets WHERE grp = ?1", [group])?;
        positions.iter().try_for_each(|(of, next)| {
            let at = Committed { offset: *next, metadata: String::new() };
            rows::save_committed(copy, group, *of, &at)
        })
    })
}

/// Makes a new log in a folder continue an installation, with groups at these positions. Blocks.
///
/// # Errors
/// [`Error::Fatal`]: the file cannot be written.
pub fn continue_installation(
    dir: &Path,
    (name, incarnation): (&str, Incarnation),
    positions: &[(&str, TopicPartition, Committed)],
) -> Result<(), Error> {
    write(&dir.join(FILE), |file| {
        continue_as(file, name, incarnation)?;
        let save = |(group, of, at): &(&str, TopicPartition, Committed)| {
            rows::save_committed(file, group, *of, at)
        };
        positions.iter().try_for_each(save)
    })
}

/// Changes a file that no process has open, atomically.
fn write(
    path: &Path,
    change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), Error> {
    let write = || {
        let mut connection = Connection::open(path)?;
        let transaction = connection.transaction()?;
        change(&transaction)?;
        Ok(transaction.commit()?)
    };
    write().map_err(|error: StorageError| fatal(path, error))
}

fn fatal(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Fatal(Cause::new(format!("{}: {error}", path.display()), error))
}
