//! Read-only access to the log of another process.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use super::fault::StorageError;
use super::rows;
use super::storage::{FILE, FORMAT, Readers};
use super::view::Slot;
use crate::{Bounds, Committed, Error, Offset, Records, TopicPartition};

/// Reads the committed transactions of the log in a folder, also while another process writes it.
#[derive(Debug)]
pub struct ReadOnlyLog {
    readers: Readers,
}

impl ReadOnlyLog {
    /// `true` if the folder has a log.
    #[must_use]
    pub fn is_in(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// Opens the log in a folder.
    ///
    /// # Errors
    /// [`Error`] if there is none, or it has another format or cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        if !Self::is_in(dir) {
            return Err(Error::fatal(format!("there is no log at {}", dir.join(FILE).display())));
        }
        let log = Self { readers: Readers::new(dir) };
        let format: i64 = log.readers.with(|connection| {
            let select = "SELECT value FROM meta WHERE key = 'format'";
            Ok(connection.query_row(select, [], |row| row.get(0))?)
        })?;
        if format != FORMAT {
            let text = format!("{} has log format {format}, not {FORMAT}", dir.display());
            return Err(Error::fatal(text));
        }
        Ok(log)
    }

    /// As [`Log::read`](crate::Log::read).
    pub fn read(&self, of: TopicPartition, from: Offset, max: usize) -> Result<Records, Error> {
        let read = |connection: &mut Connection| {
            let Some((slot, bounds)) = extent(connection, of)? else { return Ok(None) };
            let from = from.max(bounds.start);
            rows::page(connection, of, slot, from, bounds.end, max).map(|page| Some(page.records))
        };
        self.readers.with(read)?.ok_or_else(|| unknown(of))
    }

    /// As [`Log::bounds`](crate::Log::bounds).
    pub fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        let extent = self.readers.with(|connection| extent(connection, of))?;
        extent.map(|(_, bounds)| bounds).ok_or_else(|| unknown(of))
    }

    /// The positions of a group in some partitions; none for a partition without a position.
    ///
    /// # Errors
    /// [`Error`] if the file cannot be read.
    pub fn committed(
        &self,
        group: &str,
        of: &[TopicPartition],
    ) -> Result<Vec<(TopicPartition, Option<Committed>)>, Error> {
        self.readers.with(|connection| {
            let mut select = connection.prepare_cached(
                "SELECT next_offset, metadata FROM offsets WHERE grp = ?1 AND topic = ?2 AND partition = ?3",
            )?;
            let mut positions = Vec::with_capacity(of.len());
            for of in of {
                let keys = params![group, of.topic.name(), of.partition.0];
                let at = select.query_row(keys, |row| {
                    Ok(Committed { offset: Offset(row.get(0)?), metadata: row.get(1)? })
                });
                positions.push((*of, at.optional()?));
            }
            Ok(positions)
        })
    }
}

pub(super) fn extent(
    connection: &Connection,
    of: TopicPartition,
) -> Result<Option<(Slot, Bounds)>, StorageError> {
    let mut select = connection.prepare_cached(
        "SELECT slot, start_offset, next_offset FROM partitions WHERE topic = ?1 AND partition = ?2",
    )?;
    let found = select.query_row(params![of.topic.name(), of.partition.0], |row| {
        let bounds = Bounds { start: Offset(row.get(1)?), end: Offset(row.get(2)?) };
        Ok((Slot(row.get(0)?), bounds))
    });
    Ok(found.optional()?)
}

fn unknown(of: TopicPartition) -> Error {
    Error::fatal(format!("the log has no partition {of}"))
}
