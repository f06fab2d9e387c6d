//! Servers that tests share, and the folder of a run.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use xtask::{Server, cassandra, kafka};

use crate::fetch::{self, CASSANDRA_LIB, KAFKA_LIB, Variables};
use crate::need::Need;
use crate::shell::{print, say};
use crate::tools::{self, Kit};

/// The variable with the CQL servers, `host:port` each, with commas between them.
pub(crate) const CQL: &str = "TIDEMARK_TEST_CQL";
const PREFIX: &str = "tidemark-test-";
const LOCK: &str = "lock";

/// A folder in the system's temporary one, which is removed when the run ends. The next run removes the folder of a
/// killed run.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Held by the process that uses the folder.
    _lock: File,
}

impl Folder {
    /// Removes the folders of killed runs, and creates a new one.
    pub(crate) fn create() -> Result<Self> {
        let temporary = std::env::temp_dir();
        for entry in std::fs::read_dir(&temporary)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                remove_unused(&entry.path());
            }
        }
        // Gets its final name only once it is locked: a concurrent run would remove an unlocked folder of that name.
        let hidden = temporary.join(format!(".{PREFIX}{}", std::process::id()));
        let path = temporary.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir_all(&hidden)?;
        let lock = File::create(hidden.join(LOCK))?;
        lock.try_lock().with_context(|| format!("{} is in use", hidden.display()))?;
        std::fs::rename(&hidden, &path)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next run removes what cannot be removed now.
        drop(std::fs::remove_dir_all(&self.path));
    }
}

/// Removes a folder whose lock is free. One that belongs to another user stays.
fn remove_unused(folder: &Path) {
    if let Ok(lock) = File::open(folder.join(LOCK))
        && lock.try_lock().is_ok()
    {
        drop(std::fs::remove_dir_all(folder));
    }
}

/// Servers that tests share. They end with this value.
#[derive(Debug)]
pub(crate) struct Running {
    kafka: Server,
    cassandra: Server,
}

impl Running {
    /// Starts both at once and waits until they listen.
    pub(crate) fn start(fetched: &Variables, folder: &Folder) -> Result<Self> {
        let lib = |name: &str| {
            let found = fetched.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, path)| PathBuf::from(path)).context("it was fetched")
        };
        let (of_kafka, of_cassandra) = (lib(KAFKA_LIB)?, lib(CASSANDRA_LIB)?);
        say("$ starting Kafka and Cassandra");
        std::thread::scope(|threads| {
            let path = folder.path();
            let starting = threads.spawn(|| kafka::start(&of_kafka, &path.join("kafka"), ""));
            let cassandra = cassandra::start(&of_cassandra, &path.join("cassandra"))?;
            let kafka = starting.join().map_err(|_| anyhow!("the start of Kafka panicked"))??;
            Ok(Self { kafka, cassandra })
        })
    }

    /// Variables with the addresses of the services.
    pub(crate) fn variables(&self) -> Variables {
        vec![("TIDEMARK_TEST_KAFKA", self.kafka.address()), (CQL, self.cassandra.address())]
    }
}

/// Fetches everything and prints the variables; with `run` starts the servers too, until standard input
/// ends.
pub(crate) fn show(run: bool) -> Result<()> {
    tools::check(Kit::Services)?;
    let mut variables = fetch::fetch(&Need::ALL.into())?;
    let folder = Folder::create()?;
    let running = run.then(|| Running::start(&variables, &folder)).transpose()?;
    variables.extend(running.iter().flat_map(Running::variables));
    for (name, value) in variables {
        print(&format!("export {name}={value}"));
    }
    if running.is_some() {
        say("running until the end of standard input");
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_that_no_process_uses_is_removed() {
        let used = Folder::create().unwrap();
        let left = used.path().join("left");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        remove_unused(used.path());
        assert!(used.path().is_dir());
        remove_unused(&left);
        assert!(!left.exists());
    }
}
