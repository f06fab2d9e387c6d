//! `tidemark backup` and `tidemark restore`: both embedded files as they were at one moment.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use log::embedded::backup::{self as log_file, Identity};
use log::embedded::{EmbeddedLog, Lock, ReadOnlyLog};
use log::{Log, NewRecord, Offset, TopicPartition};
use processor::wire::anew;
use runtime::{Clock, SystemClock, telemetry};
use schemas::record::Alert;
use schemas::{AlertKind, Incarnation, Layout, Partition, Topic, UnixMicros};
use store::embedded::{self as tables_file, EmbeddedStore};
use store::{Origin, Position, Store};
use tokio::runtime::Handle;

use super::{Outcome, misuse};
use crate::back_end::{data_folder, fit};
use crate::settings::Settings;

/// The files of both back ends, and suffixes of SQLite's files.
const FILES: [&str; 2] = [log::embedded::FILE, tables_file::FILE];
pub(super) const BESIDE: [&str; 4] = ["", "-wal", "-shm", "-journal"];
/// Number of changelog entries read at once.
const PAGE: usize = 4096;

/// Copies both files of an installation, which may run, to a new folder. Blocks.
pub(crate) fn back_up(settings: &Settings, into: &Path) -> anyhow::Result<Outcome> {
    let data = data_dir(settings)?;
    if into.exists() {
        return Err(misuse(format!("{} is there already: name a new folder", into.display())));
    }
    let part = with_ending(into, ".part");
    remove_files(&part)?;
    data_folder::prepare(&part).with_context(|| format!("cannot make {}", part.display()))?;
    let now = SystemClock.now();
    // The tables first: the copied log then has the record of every row.
    tables_file::copy(data, &part)?;
    log_file::copy(data, &part, now)?;
    let copy = Backup::read(&part)?;
    let ahead = |of| ReadOnlyLog::open(&part)?.bounds(of);
    for (of, next) in copy.positions() {
        let end = ahead(of)?.end;
        if next > end {
            bail!(
                "the copy is not of one moment: its tables have {of} up to {next}, its log ends at {end}"
            );
        }
    }
    std::fs::rename(&part, into).with_context(|| format!("cannot make {}", into.display()))?;
    sync(into.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    let line = format!("log and tables as of {} are in {}", now.to_rfc3339(), into.display());
    Ok(Outcome::success(vec![line], ""))
}

/// Replaces a stopped installation by a backup. Blocks.
///
/// # Errors
/// The backup is not whole or not of this installation, or a process runs: the files are unchanged. Or a file cannot be
/// moved: a start is refused until the restore is run again.
pub(crate) fn restore(settings: &Settings, from: &Path) -> anyhow::Result<Outcome> {
    let data = data_dir(settings)?;
    telemetry::init_log(&settings.telemetry)?;
    data_folder::prepare(data).with_context(|| format!("cannot make {}", data.display()))?;
    let _lock = Lock::take(data)?;
    let copy = Backup::read(from)?;
    log_file::check(from)?;
    tables_file::check_whole(from)?;
    let gap = Gap::of(&copy, data, SystemClock.now())?;
    let staging = data.join(data_folder::RESTORE_STAGING);
    // An interrupted restore may have set the old files aside: without the folder a start would make empty ones.
    let is_left = staging.exists();
    if let Err(error) = stage(from, &staging, settings.log.layout, &copy, &gap) {
        if !is_left {
            std::fs::remove_dir_all(&staging).with_context(|| staging.display().to_string())?;
        }
        return Err(error);
    }
    let aside = data.join(format!("replaced-{}", gap.incarnation.0));
    let has_replaced = replace(data, &staging, &aside)?;
    let mut lines = vec![gap.message()];
    if has_replaced {
        lines.push(format!("the files that were there are in {}", aside.display()));
    }
    Ok(Outcome::success(lines, ""))
}

/// The folder of both files.
fn data_dir(settings: &Settings) -> anyhow::Result<&Path> {
    match (&settings.log.back_end, &settings.store) {
        (log::config::BackEnd::Embedded, store::config::BackEnd::Embedded) => {
            Ok(&settings.process.data_dir)
        }
        _ => Err(misuse(
            "this is for log.backend = \"embedded\" with store.backend = \"embedded\": servers have means of their own",
        )),
    }
}

/// Identity and positions of the two files of a backup.
struct Backup {
    log: Identity,
    tables: Vec<Position>,
    taken_at: UnixMicros,
}

impl Backup {
    fn read(dir: &Path) -> anyhow::Result<Self> {
        let missing = || format!("{} is no backup", dir.display());
        let log = Identity::read(dir)?.with_context(missing)?;
        let taken_at = log.taken_at.with_context(missing)?;
        let (origin, tables) = tables_file::made_from(dir)?;
        if let Some(problem) = origin.and_then(|tables| fit::misfit(&origin_of(&log), &tables)) {
            bail!("{}: {problem}", dir.display());
        }
        Ok(Self { log, tables, taken_at })
    }

    fn positions(&self) -> Vec<(TopicPartition, Offset)> {
        let position = |at: &Position| {
            (TopicPartition { topic: at.topic, partition: at.partition }, Offset(at.next))
        };
        self.tables.iter().map(position).collect()
    }
}

/// The origin of tables that are made from a log.
pub(super) fn origin_of(log: &Identity) -> Origin {
    Origin { installation: log.installation.clone(), incarnation: log.incarnation }
}

/// The period that a restore leaves out.
struct Gap {
    incarnation: Incarnation,
    from: UnixMicros,
    to: UnixMicros,
}

impl Gap {
    /// Finds the period: from the backup to the newest record of the replaced files, or to now if they are unreadable.
    fn of(copy: &Backup, data: &Path, now: UnixMicros) -> anyhow::Result<Self> {
        // Damaged files have no readable identity: they are replaced without this comparison.
        let present = Identity::read(data).ok().flatten();
        let (log, taken_at) = (&copy.log, copy.taken_at);
        if let Some(present) =
            present.as_ref().filter(|present| present.installation != log.installation)
        {
            bail!(
                "{} has another installation ({}, and the backup is of {}): move its files away first",
                data.display(),
                present.installation,
                log.installation
            );
        }
        let last = present.as_ref().map_or(log.incarnation, |log| log.incarnation);
        let last = last.max(log.incarnation);
        let Some(incarnation) = last.next(now.seconds()).filter(|_| now >= taken_at) else {
            bail!(
                "this machine's clock says {}, and the backup was made, or restored, after that: set the clock",
                now.to_rfc3339()
            );
        };
        let to = present.map_or(now, |log| log.newest_at.max(taken_at));
        Ok(Self { incarnation, from: taken_at, to })
    }

    fn message(&self) -> String {
        format!(
            "restored from the backup of {}: what came from then until {} is not known any more. The chains are read \
             again from there, and transfers keep their ids; payments of orders that were created in that time show as \
             unknown, and commands of that time have to be given again",
            self.from.to_rfc3339(),
            self.to.to_rfc3339()
        )
    }

    fn alert(&self) -> Alert {
        let Incarnation(second) = self.incarnation;
        let raised_at = schemas::UnixSeconds(second).micros();
        Alert::raise(AlertKind::Restored, None, &second, self.message(), raised_at)
    }
}

/// Makes the new files in a folder.
fn stage(
    from: &Path,
    staging: &Path,
    layout: Layout,
    copy: &Backup,
    gap: &Gap,
) -> anyhow::Result<()> {
    remove_files(staging)?;
    data_folder::prepare(staging).with_context(|| format!("cannot make {}", staging.display()))?;
    for name in FILES {
        let (from, to) = (from.join(name), staging.join(name));
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        // The copy of a read-only backup would be read-only.
        std::fs::set_permissions(&to, Permissions::from_mode(0o600))?;
    }
    begin_anew(staging, layout, copy, gap)
}

/// Starts the new incarnation in the copied files.
fn begin_anew(dir: &Path, layout: Layout, copy: &Backup, gap: &Gap) -> anyhow::Result<()> {
    let incarnation = gap.incarnation;
    log_file::begin(dir, incarnation, projector::GROUP, &copy.positions())?;
    let tables = EmbeddedStore::open(dir)?;
    let origin = Origin { incarnation, ..origin_of(&copy.log) };
    Handle::current().block_on(tables.set_origin(&origin))?;
    drop(tables);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let log = EmbeddedLog::open(dir, layout, clock)?;
    let written = write_anew(&log, gap);
    log.close();
    written?;
    for name in FILES {
        let wal = dir.join(format!("{name}-wal"));
        if wal.metadata().is_ok_and(|wal| wal.len() > 0) {
            bail!("{} was not taken into its file", wal.display());
        }
        sync(&dir.join(name))?;
    }
    Ok(())
}

/// Makes every lane and every order assign new ids in this incarnation, and alerts operators.
fn write_anew(log: &EmbeddedLog, gap: &Gap) -> anyhow::Result<()> {
    let (layout, incarnation) = (log.layout(), gap.incarnation);
    let mut records = Vec::new();
    for partition in Topic::MatchingChangelog.all_partitions(&layout) {
        let of = TopicPartition { topic: Topic::MatchingChangelog, partition };
        let lane = newest(log, of, anew::is_lane)?.into_values().next();
        records.push(anew::lane(partition, lane.as_deref(), incarnation)?);
    }
    for partition in Topic::OrdersChangelog.all_partitions(&layout) {
        let of = TopicPartition { topic: Topic::OrdersChangelog, partition };
        for (key, entry) in newest(log, of, |_| true)? {
            records.push(anew::order(partition, &key, &entry, incarnation)?);
        }
    }
    let key = AlertKind::Restored.as_str();
    records.push(NewRecord::encode(Topic::Alerts, Partition(0), key, &gap.alert())?);
    Ok(log.writer("restore")?.commit(records)?)
}

/// The newest entry of each wanted, undeleted key of a changelog.
fn newest(
    log: &EmbeddedLog,
    of: TopicPartition,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> anyhow::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let (mut next, mut newest) = (Offset(0), BTreeMap::new());
    loop {
        let page = log.read(of, next, PAGE)?;
        let Some(last) = page.last() else { return Ok(newest) };
        next = last.offset.next();
        for entry in page.iter().filter(|entry| is_wanted(&entry.key)) {
            match &entry.value {
                Some(value) => newest.insert(entry.key.clone(), value.clone()),
                None => newest.remove(&entry.key),
            };
        }
    }
}

/// Replaces the old files, which are kept, with the new ones. `false` if there were none.
fn replace(data: &Path, staging: &Path, aside: &Path) -> anyhow::Result<bool> {
    let mut has_replaced = false;
    for name in FILES.iter().flat_map(|file| BESIDE.map(|end| format!("{file}{end}"))) {
        let old = data.join(&name);
        if old.exists() {
            std::fs::create_dir_all(aside).with_context(|| aside.display().to_string())?;
            std::fs::rename(&old, aside.join(&name)).with_context(|| old.display().to_string())?;
            has_replaced = true;
        }
    }
    for name in FILES {
        let new = staging.join(name);
        std::fs::rename(&new, data.join(name)).with_context(|| new.display().to_string())?;
        sync(data)?;
    }
    data_folder::hand_over(data, &FILES).with_context(|| data.display().to_string())?;
    std::fs::remove_dir_all(staging).with_context(|| staging.display().to_string())?;
    Ok(has_replaced)
}

/// Removes files of an interrupted copy.
fn remove_files(dir: &Path) -> anyhow::Result<()> {
    for name in FILES.iter().flat_map(|file| BESIDE.map(|end| format!("{file}{end}"))) {
        match std::fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| dir.display().to_string());
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn sync(path: &Path) -> anyhow::Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.with_context(|| path.display().to_string())
}

/// Appends to the last name of a path, which may end in a slash.
pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.components().collect::<PathBuf>().into_os_string();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the slash the copy would be made inside of the folder that it is renamed to.
    #[test]
    fn a_slash_at_the_end_is_no_part_of_a_name() {
        for path in ["/mnt/a", "/mnt/a/", "/mnt/a//"] {
            assert_eq!(with_ending(Path::new(path), ".part"), Path::new("/mnt/a.part"), "{path}");
        }
        assert_eq!(with_ending(Path::new("a/"), ".part"), Path::new("a.part"));
    }
}
