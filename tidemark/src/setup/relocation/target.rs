//! The empty log and the empty tables that an import fills.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use log::config::{BackEnd, Continued as Continues, KafkaConfig};
use log::embedded::{self as log_file, EmbeddedLog, Lock};
use log::kafka::KafkaLog;
use log::kafka::admin;
use log::{Log, NewRecord, Offset, TopicPartition};
use runtime::SystemClock;
use schemas::{Incarnation, Layout};
use store::config::BackEnd as Tables;
use store::cql::CqlStore;
use store::embedded::{self as tables_file, EmbeddedStore};
use store::{Change, OrderFilter, Origin, Page, Position, Store};
use tokio::runtime::Handle;

use super::readings::Continued;
use super::{UNDER_WAY, groups};
use crate::back_end::data_folder;
use crate::settings::Settings;
use crate::setup::backup::BESIDE;

/// Number of waiting records, and of their bytes, from which on they are appended.
const RECORDS_AT_ONCE: usize = 4096;
const BYTES_AT_ONCE: usize = 4 * 1024 * 1024;
const PAGE: Page = Page { limit: 1, offset: 0 };

pub(super) struct Target {
    layout: Layout,
    log: TargetLog,
    tables: Arc<dyn Store>,
    /// Files that are made in the data folder.
    files: Vec<&'static str>,
    data: PathBuf,
    staging: PathBuf,
    handle: Handle,
    waiting: Vec<NewRecord>,
    bytes: usize,
    /// Lock of the data folder, if files are made.
    lock: Option<Lock>,
}

enum TargetLog {
    Embedded(EmbeddedLog),
    Kafka(KafkaLog, Box<KafkaConfig>),
}

impl TargetLog {
    fn log(&self) -> &dyn Log {
        match self {
            Self::Embedded(log) => log,
            Self::Kafka(log, _) => log,
        }
    }
}

impl Target {
    /// Makes an empty log, and makes or opens empty tables. Files and topics of an interrupted import are removed
    /// first. Rows on CQL remain if they are of an interrupted import of the same `export`, which overwrites them.
    pub(super) fn begin(
        settings: &Settings,
        export: &str,
        origin: &Origin,
    ) -> anyhow::Result<Self> {
        let (layout, handle) = (settings.log.layout, Handle::current());
        let data = settings.process.data_dir.clone();
        let staging = data.join(data_folder::IMPORT_STAGING);
        let files = files(settings);
        let lock = make_room(&files, &data, &staging)?;
        let under_way = format!("{UNDER_WAY}{export}");
        let cql = match &settings.store {
            Tables::Embedded => None,
            Tables::Cql(config) => Some(handle.block_on(CqlStore::open(config))?),
        };
        if let Some(tables) = &cql {
            handle.block_on(check_empty(tables, &under_way, origin))?;
        }
        if lock.is_some() {
            data_folder::prepare(&staging)?;
        }
        let log = match &settings.log.back_end {
            BackEnd::Embedded => {
                TargetLog::Embedded(EmbeddedLog::open(&staging, layout, Arc::new(SystemClock))?)
            }
            BackEnd::Kafka(config) => {
                admin::begin_import(config, &layout)?;
                TargetLog::Kafka(KafkaLog::open(config, layout)?, Box::new(config.clone()))
            }
        };
        let tables: Arc<dyn Store> = match cql {
            Some(tables) => Arc::new(tables),
            None => Arc::new(EmbeddedStore::open(&staging)?),
        };
        let staged = Origin { installation: under_way, incarnation: Incarnation::default() };
        handle.block_on(store::retry(|| tables.set_origin(&staged)))?;
        Ok(Self {
            layout,
            log,
            tables,
            files,
            data,
            staging,
            handle,
            waiting: Vec::new(),
            bytes: 0,
            lock,
        })
    }

    /// Queues a record, which is appended together with others.
    pub(super) fn append(&mut self, record: NewRecord) -> anyhow::Result<()> {
        self.bytes += record.key.len() + record.value.as_ref().map_or(0, Vec::len);
        self.waiting.push(record);
        if self.waiting.len() >= RECORDS_AT_ONCE || self.bytes >= BYTES_AT_ONCE {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Returns when everything that was appended is durable.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        let records = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        Ok(self.handle.block_on(self.log.log().produce(records))?)
    }

    /// Returns the offset of the next record of a partition.
    pub(super) fn end(&mut self, of: TopicPartition) -> anyhow::Result<Offset> {
        self.flush()?;
        Ok(self.log.log().bounds(of)?.end)
    }

    pub(super) fn apply(&self, rows: Vec<Change>) -> anyhow::Result<()> {
        let tables = &self.tables;
        Ok(self.handle.block_on(store::retry(|| tables.apply(rows.clone())))?)
    }

    /// Completes the import: writes the positions of groups and tables, after which processes may start.
    ///
    /// # Errors
    /// Something cannot be written: a start is refused, and the import can be run again, into another keyspace if the
    /// tables on CQL were complete.
    pub(super) fn finish(
        self,
        origin: &Origin,
        continued: &Continued,
        positions: &[Position],
        pruned_before: Option<schemas::UnixSeconds>,
    ) -> anyhow::Result<Vec<String>> {
        let (tables, handle) = (&self.tables, &self.handle);
        handle.block_on(async {
            store::retry(|| tables.set_positions(positions)).await?;
            if let Some(second) = pruned_before {
                store::retry(|| tables.set_pruned_before(second)).await?;
            }
            store::retry(|| tables.set_origin(origin)).await?;
            store::retry(|| tables.flush()).await
        })?;
        drop(self.tables);
        if let TargetLog::Embedded(log) = &self.log {
            log.close();
            let all = groups().into_iter().flat_map(|(group, topics)| {
                let of_group = continued.group(group, partitions(&topics, &self.layout));
                of_group.into_iter().filter_map(move |(of, at)| Some((group, of, at?)))
            });
            let all: Vec<_> = all.collect();
            let as_copy = (origin.installation.as_str(), origin.incarnation);
            log_file::backup::continue_installation(&self.staging, as_copy, &all)?;
        }
        for file in &self.files {
            put_in_place(&self.staging, &self.data, file)?;
        }
        let mut lines = Vec::new();
        if let TargetLog::Kafka(log, config) = &self.log {
            for (group, topics) in groups() {
                let positions = continued.group(group, partitions(&topics, &self.layout));
                log.set_committed(group, &positions)?;
            }
            admin::end_import(config, &self.layout)?;
            let Origin { installation, incarnation } = origin.clone();
            let continues = Continues { installation, incarnation };
            lines.push(format!(
                "set in section [log] of every process, before it starts: continues = \"{continues}\""
            ));
        }
        // A start is refused while the staging folder exists.
        if self.lock.is_some() {
            let handed_over = data_folder::hand_over(&self.data, &self.files);
            handed_over.with_context(|| self.data.display().to_string())?;
            let removed = std::fs::remove_dir_all(&self.staging);
            removed.with_context(|| self.staging.display().to_string())?;
        }
        Ok(lines)
    }
}

/// Locks the folder if files are made in it, and removes the files of an interrupted import.
fn make_room(files: &[&str], data: &Path, staging: &Path) -> anyhow::Result<Option<Lock>> {
    if files.is_empty() {
        return Ok(None);
    }
    data_folder::prepare(data).with_context(|| format!("cannot make {}", data.display()))?;
    let lock = Lock::take(data)?;
    // SQLite would read the log of a file that was moved away into the new one.
    for (file, end) in files.iter().flat_map(|file| BESIDE.map(|end| (file, end))) {
        let path = data.join(format!("{file}{end}"));
        if !path.exists() {
            continue;
        }
        // The file was moved from staging by an interrupted import, and no process has used it.
        let is_left = staging.exists() && !staging.join(file).exists();
        ensure!(
            is_left,
            "{} is there already: an import makes the files, so name another data.dir, or move them away",
            path.display()
        );
        std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    if staging.exists() {
        std::fs::remove_dir_all(staging).with_context(|| staging.display().to_string())?;
    }
    Ok(Some(lock))
}

/// Files of the embedded back ends.
fn files(settings: &Settings) -> Vec<&'static str> {
    let mut files = Vec::new();
    if let BackEnd::Embedded = settings.log.back_end {
        files.push(log::embedded::FILE);
    }
    if let Tables::Embedded = settings.store {
        files.push(tables_file::FILE);
    }
    files
}

fn partitions<'a>(
    topics: &'a [schemas::Topic],
    layout: &'a Layout,
) -> impl Iterator<Item = TopicPartition> + use<'a> {
    topics.iter().flat_map(|topic| {
        let partitions = topic.all_partitions(layout);
        partitions.map(|partition| TopicPartition { topic: *topic, partition })
    })
}

/// Checks that an import may fill the tables.
///
/// # Errors
/// The tables have rows, or are those of an installation.
async fn check_empty(tables: &dyn Store, under_way: &str, origin: &Origin) -> anyhow::Result<()> {
    match tables.origin().await? {
        // This import overwrites the rows of an interrupted import of the same export.
        Some(found) if found.installation == under_way => return Ok(()),
        Some(found) if found.installation == origin.installation => bail!(
            "the tables have this installation already: name an empty keyspace in store.keyspace"
        ),
        Some(found) => bail!(
            "the tables are those of another installation ({}): name an empty keyspace in store.keyspace",
            found.installation
        ),
        None => {}
    }
    let has_rows = !tables.orders(OrderFilter::default(), PAGE).await?.is_empty()
        || !tables.chains().await?.is_empty();
    ensure!(!has_rows, "the tables have rows: name an empty keyspace in store.keyspace");
    Ok(())
}

/// Moves a database file whose WAL is empty, durably.
fn put_in_place(staging: &Path, data: &Path, file: &str) -> anyhow::Result<()> {
    let wal = staging.join(format!("{file}-wal"));
    if wal.metadata().is_ok_and(|wal| wal.len() > 0) {
        bail!("{} was not taken into its file", wal.display());
    }
    let from = staging.join(file);
    let moved = std::fs::File::open(&from).and_then(|file| file.sync_all());
    let moved = moved.and_then(|()| std::fs::rename(&from, data.join(file)));
    let moved = moved.and_then(|()| std::fs::File::open(data)?.sync_all());
    moved.with_context(|| from.display().to_string())
}
