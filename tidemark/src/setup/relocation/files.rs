//! The folder of an export: a file of lines per partition, a file of rows, the manifest, and checksums as of
//! `sha256sum`.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use log::TopicPartition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::manifest::Manifest;

/// Files that every export has.
const MANIFEST: &str = "manifest.json";
const SUMS: &str = "SHA256SUMS";
pub(super) const ROWS: &str = "tables.jsonl";
/// Mode of the files, for the owner alone: they contain orders and transfers.
const MODE: u32 = 0o600;
const PIECE_BYTES: usize = 1 << 20;

/// The name of the file of a partition.
pub(super) fn name_of(of: TopicPartition) -> String {
    format!("{}-{}.jsonl", of.topic, of.partition)
}

/// A folder that is being filled.
pub(super) struct NewFiles {
    dir: PathBuf,
    sums: Vec<(String, String)>,
}

/// A file that is being written.
pub(super) struct Lines {
    name: String,
    file: BufWriter<File>,
    digest: Sha256,
}

impl NewFiles {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), sums: Vec::new() }
    }

    pub(super) fn lines(&self, name: &str) -> anyhow::Result<Lines> {
        let path = self.dir.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path);
        let file = file.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Lines { name: name.to_owned(), file: BufWriter::new(file), digest: Sha256::new() })
    }

    /// Syncs a file and closes it.
    pub(super) fn close(&mut self, lines: Lines) -> anyhow::Result<()> {
        let Lines { name, file, digest } = lines;
        let file = file.into_inner().map_err(std::io::IntoInnerError::into_error);
        let synced = file.and_then(|file| file.sync_all());
        synced.with_context(|| format!("cannot write {name}"))?;
        self.sums.push((name, hex(digest)));
        Ok(())
    }

    /// Writes the manifest and the checksums, the last two files: with them the export is complete.
    pub(super) fn finish(mut self, manifest: &Manifest) -> anyhow::Result<()> {
        let mut lines = self.lines(MANIFEST)?;
        lines.put(manifest)?;
        self.close(lines)?;
        let mut sums = self.lines(SUMS)?;
        for (name, sum) in std::mem::take(&mut self.sums) {
            sums.write(format!("{sum}  {name}\n").as_bytes())?;
        }
        self.close(sums)?;
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.with_context(|| self.dir.display().to_string())
    }
}

impl Lines {
    pub(super) fn put(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.write(&text)
    }

    fn write(&mut self, text: &[u8]) -> anyhow::Result<()> {
        self.digest.update(text);
        self.file.write_all(text).with_context(|| format!("cannot write {}", self.name))
    }
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    pub(super) manifest: Manifest,
    /// Digest that identifies the export.
    pub(super) digest: String,
}

impl Files {
    /// Opens an export, and verifies the checksum of every file.
    ///
    /// # Errors
    /// The folder is not an export, of another version, or a file is not as it was written.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let text = std::fs::read_to_string(dir.join(name));
            text.with_context(|| format!("{} is no whole export: {name}", dir.display()))
        };
        let sums = read(SUMS)?;
        let manifest = Manifest::parse(&read(MANIFEST)?);
        let manifest = manifest.with_context(|| format!("{}", dir.join(MANIFEST).display()))?;
        let mut names = Vec::new();
        for line in sums.lines() {
            let Some((sum, name)) = line.split_once("  ") else {
                bail!(
                    "{} is damaged: it was written as lines of `sha256sum`",
                    dir.join(SUMS).display()
                )
            };
            let path = dir.join(name);
            let found = digest_of(&path).with_context(|| path.display().to_string())?;
            ensure!(found == sum, "{} is damaged: it is not as it was exported", path.display());
            names.push(name);
        }
        for part in &manifest.parts {
            let name = name_of(part.of()?);
            let is_there = names.contains(&name.as_str());
            ensure!(is_there, "{} is damaged: {name} is missing in it", dir.join(SUMS).display());
        }
        let is_whole = [MANIFEST, ROWS].iter().all(|name| names.contains(name));
        ensure!(is_whole, "{} is damaged: it lacks a file", dir.join(SUMS).display());
        let mut digest = Sha256::new();
        digest.update(sums.as_bytes());
        Ok(Self { dir: dir.to_owned(), manifest, digest: hex(digest) })
    }

    /// The lines of a file, one after the other.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> anyhow::Result<impl Iterator<Item = anyhow::Result<T>> + use<T>> {
        let path = self.dir.join(name);
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        let parse = move |(number, line): (usize, std::io::Result<String>)| {
            let at = || format!("{}, line {}", path.display(), number + 1);
            serde_json::from_str(&line.with_context(at)?).with_context(at)
        };
        Ok(BufReader::with_capacity(PIECE_BYTES, file).lines().enumerate().map(parse))
    }
}

fn digest_of(path: &Path) -> std::io::Result<String> {
    let (mut file, mut digest) = (File::open(path)?, Sha256::new());
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex(digest)),
            count => digest.update(piece.get(..count).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::{Incarnation, Layout};
    use store::Origin;

    use super::*;

    fn export(dir: &Path) -> Manifest {
        let of = Origin { installation: "embedded/7".to_owned(), incarnation: Incarnation(0) };
        let layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
        let manifest = Manifest::new(of, layout, String::new());
        let mut files = NewFiles::new(dir);
        let mut rows = files.lines(ROWS).unwrap();
        rows.put(&"one").unwrap();
        rows.put(&"two").unwrap();
        files.close(rows).unwrap();
        files.finish(&manifest).unwrap();
        manifest
    }

    #[test]
    fn a_whole_export_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = export(dir.path());
        let files = Files::open(dir.path()).unwrap();
        assert_eq!((&files.manifest, files.digest.len()), (&manifest, 64));
        let rows: Vec<String> = files.read(ROWS).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, ["one", "two"]);
    }

    #[test]
    fn a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |dir: &Path| format!("{:#}", Files::open(dir).unwrap_err());
        assert!(refused(dir.path()).contains("is no whole export"));
        export(dir.path());
        for name in [ROWS, MANIFEST, SUMS] {
            let path = dir.path().join(name);
            let whole = std::fs::read(&path).unwrap();
            for end in [whole.len() - 2, whole.len() / 2] {
                std::fs::write(&path, &whole[..end]).unwrap();
                let problem = refused(dir.path());
                assert!(!problem.is_empty(), "{name} of {end} bytes");
            }
            std::fs::remove_file(&path).unwrap();
            assert!(!refused(dir.path()).is_empty(), "{name} is gone");
            std::fs::write(&path, whole).unwrap();
            Files::open(dir.path()).unwrap();
        }
    }
}
