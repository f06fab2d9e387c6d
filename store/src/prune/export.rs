//! Rows as JSON lines, in a file that has them on the disk before they are removed.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use schemas::record::Record;
use schemas::{decode_json, encode};

use super::Export;
use crate::error::Cause;
use crate::{Change, Error};

/// Mode of the file. Rows are confidential: other users of the machine cannot open the data folder
/// either.
const OWNER_ONLY: u32 = 0o600;

/// A file with a line for each row: `{"table":"orders","record":{…}}`, the record as `tidemark
/// tail` shows it. Created with the first row; an existing one is refused.
#[derive(Debug, Clone)]
pub struct FileExport {
    path: Arc<Path>,
    file: Arc<Mutex<Option<File>>>,
}

impl FileExport {
    /// An export to a new file in an existing folder.
    #[must_use]
    pub fn to(path: PathBuf) -> Self {
        Self { path: path.into(), file: Arc::default() }
    }

    /// Path of the file, if it was created.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.is_some().then_some(&*self.path)
    }

    /// Appends lines, and waits for the disk. Partial writes are truncated.
    fn append(&self, lines: &str) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *file {
            Some(file) => file,
            none => {
                let mut new = File::options();
                let made = new.write(true).create_new(true).mode(OWNER_ONLY).open(&self.path)?;
                // Syncs its directory entry, too.
                let parent = self.path.parent().filter(|parent| *parent != Path::new(""));
                File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
                none.insert(made)
            }
        };
        let before = file.metadata()?.len();
        let written = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
        if written.is_err() {
            // If this fails too, the last line may be cut off: its row was not removed.
            file.set_len(before).ok();
        }
        written
    }
}

#[async_trait]
impl Export for FileExport {
    async fn keep(&self, rows: &[Change]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut lines = String::new();
        for row in rows {
            lines.push_str(&line(row)?);
            lines.push('\n');
        }
        let export = self.clone();
        let written = tokio::task::spawn_blocking(move || export.append(&lines)).await;
        let written = written.map_err(|cause| Error::Fatal(Cause::of(cause)))?;
        written.map_err(|cause| {
            let what = format!("cannot export to {}", self.path.display());
            Error::Fatal(Cause::of(cause).context(what))
        })
    }
}

/// A row as JSON.
fn line(row: &Change) -> Result<String, Error> {
    let record = match row {
        Change::Order(record) => json(record)?,
        Change::Deposit(record) => json(record)?,
        Change::Transfer(record) => json(record)?,
        Change::Attempt(record) => json(record)?,
        Change::Chain(record) => json(record)?,
    };
    Ok(format!(r#"{{"table":"{}","record":{record}}}"#, row.table()))
}

fn json<R: Record>(record: &R) -> Result<String, Error> {
    Ok(decode_json(R::SCHEMA, &encode(record)?)?.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use schemas::record::example;

    use super::*;

    #[tokio::test]
    async fn each_row_is_a_line_of_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.jsonl");
        let export = FileExport::to(path.clone());
        export.keep(&[]).await.unwrap();
        assert_eq!(export.path(), None, "no file without rows");
        export.keep(&[Change::Order(example::order())]).await.unwrap();
        export.keep(&[Change::Transfer(example::transfer())]).await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let [order, transfer] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(order.starts_with(r#"{"table":"orders","record":{"#), "{order}");
        assert!(order.contains(r#""amount":"10.50""#), "{order}");
        assert!(transfer.contains(r#""transfer_id":7"#), "{transfer}");
        assert_eq!(export.path(), Some(&*path));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "customers are in it");
    }

    #[tokio::test]
    async fn a_file_that_is_there_is_left_as_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let export = FileExport::to(file.path().to_owned());
        let refused = export.keep(&[Change::Order(example::order())]).await.unwrap_err();
        assert!(matches!(&refused, Error::Fatal(_)), "{refused:?}");
        assert!(refused.to_string().contains("cannot export to "), "{refused}");
        assert_eq!(std::fs::read(file.path()).unwrap(), [0; 0]);
    }
}
