//! `tidemark export`: writes a stopped installation to a folder.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use log::config::BackEnd;
use log::embedded::Lock;
use log::embedded::backup::Identity;
use log::kafka::KafkaLog;
use log::{Committed, Log, Offset, TopicPartition};
use processor::machine::{matching, orders};
use processor::wire::{NEXT_HEADER, Wire};
use runtime::{Clock, SystemClock, telemetry};
use schemas::Topic;
use store::cql::CqlStore;
use store::embedded::ReadOnlyTables;
use store::{Change, Origin, Position, Store};
use tokio::runtime::Handle;

use super::files::{Lines, NewFiles, ROWS, name_of};
use super::line::{Line, Row};
use super::manifest::{Manifest, Part, Positions};
use super::{groups, stays_behind};
use crate::back_end::{data_folder, fit, topic_differences};
use crate::settings::Settings;
use crate::setup::backup::{origin_of, with_ending};
use crate::setup::{Outcome, misuse};
use crate::tail::Source;

/// Interval of checks for members that groups still have.
const MEMBERS_INTERVAL: Duration = Duration::from_millis(500);

/// Writes the installation to a new folder. Blocks.
///
/// # Errors
/// A process runs, log and tables do not belong together, or something cannot be read or written. The folder `into` is
/// not made; the next export to it removes the incomplete `.part` folder beside it.
pub(crate) fn export(settings: &Settings, into: &Path) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    if into.exists() {
        return Err(misuse(format!("{} is there already: name a new folder", into.display())));
    }
    let stopped = Stopped::open(settings)?;
    let part = &with_ending(into, ".part");
    if part.exists() {
        std::fs::remove_dir_all(part).with_context(|| part.display().to_string())?;
    }
    data_folder::prepare(part).with_context(|| format!("cannot make {}", part.display()))?;
    let manifest = stopped.write(settings, part)?;
    std::fs::rename(part, into).with_context(|| format!("cannot make {}", into.display()))?;
    let records: u64 = manifest.parts.iter().map(|part| part.records).sum();
    let mut lines = vec![format!(
        "{records} records and {} rows of {} are in {}: import them, and do not start this installation again",
        manifest.rows,
        manifest.installation,
        into.display()
    )];
    if let Some(of) = super::readings::untaken(&manifest) {
        lines.push(format!(
            "records of {of} wait for the processor: they can be imported into the same layout only"
        ));
    }
    Ok(Outcome::success(lines, ""))
}

struct Stopped {
    source: Source,
    origin: Origin,
    /// Held until the export is complete.
    _lock: Option<Lock>,
}

impl Stopped {
    fn open(settings: &Settings) -> anyhow::Result<Self> {
        let dir = &settings.process.data_dir;
        match &settings.log.back_end {
            BackEnd::Embedded => {
                let lock = Lock::take(dir)?;
                data_folder::check_complete(dir)?;
                let source = Source::open(settings)?;
                let identity = Identity::read(dir)?.context("there is no log")?;
                Ok(Self { source, origin: origin_of(&identity), _lock: Some(lock) })
            }
            BackEnd::Kafka(config) => {
                let layout = settings.log.layout;
                let differences = topic_differences(config, &layout)?
                    .context("an import into these topics is under way")?;
                if let Some(difference) = differences.first() {
                    tracing::warn!(
                        "a topic is not as `tidemark topics create` makes it: {difference}"
                    );
                }
                let log = KafkaLog::open(config, layout)?;
                await_silence(&log, config.session_timeout)?;
                let (installation, incarnation) = (log.installation()?, log.incarnation());
                let source = Source::Kafka(log);
                Ok(Self { source, origin: Origin { installation, incarnation }, _lock: None })
            }
        }
    }

    fn write(&self, settings: &Settings, dir: &Path) -> anyhow::Result<Manifest> {
        let layout = settings.log.layout;
        let mut files = NewFiles::new(dir);
        let mut manifest =
            Manifest::new(self.origin.clone(), layout, SystemClock.now().to_rfc3339());
        let (mut ends, mut states) = (BTreeMap::new(), BTreeMap::new());
        for topic in Topic::ALL {
            for partition in topic.all_partitions(&layout) {
                let of = TopicPartition { topic, partition };
                let end = self.source.stable_end(of)?;
                ends.insert(of, end);
                if stays_behind(topic) {
                    continue;
                }
                let (part, next) = self.write_partition(&mut files, of, end)?;
                manifest.parts.extend(part);
                states.extend(next.map(|next| (of, next)));
            }
        }
        for (group, topics) in groups() {
            let of = topics.iter().flat_map(|topic| {
                let partitions = topic.all_partitions(&layout);
                partitions.map(|partition| TopicPartition { topic: *topic, partition })
            });
            let committed = self.source.committed(group, &of.collect::<Vec<_>>())?;
            let known = committed.into_iter().filter_map(|(of, at)| Some((of, at?)));
            manifest.set_group(group, &known.collect());
        }
        check_states::<matching::State>(&manifest, &states)?;
        check_states::<orders::State>(&manifest, &states)?;
        self.write_tables(settings, &mut files, &mut manifest)?;
        for (of, end) in ends {
            let is_still = self.source.stable_end(of)? == end;
            ensure!(is_still, "something was written to {of} meanwhile: stop every process first");
        }
        files.finish(&manifest)?;
        Ok(manifest)
    }

    /// Writes the file of a partition. For a changelog, also returns the newest input positions in its entries.
    fn write_partition(
        &self,
        files: &mut NewFiles,
        of: TopicPartition,
        end: Offset,
    ) -> anyhow::Result<(Option<Part>, Option<Vec<u8>>)> {
        let start = self.source.bounds(of)?.start;
        let (mut from, mut file, mut part, mut state) = (start, None, None, None);
        loop {
            let page = self.source.page_before(of, from..end)?;
            let (Some(first), Some(last)) = (page.first(), page.last()) else { break };
            from = last.offset.next();
            let part = part.get_or_insert_with(|| Part {
                topic: of.topic.name().to_owned(),
                partition: of.partition.0,
                records: 0,
                last: 0,
                has_expired: start > Offset(0) || first.header(schemas::HEADER_EARLIER).is_some(),
            });
            part.records += page.len() as u64;
            part.last = last.offset.0;
            if file.is_none() {
                file = Some(files.lines(&name_of(of))?);
            }
            let Some(lines) = &mut file else { break };
            for record in &page {
                lines.put(&Line::of(record))?;
                state = record.header(NEXT_HEADER).map(<[u8]>::to_vec).or(state);
            }
        }
        if let Some(lines) = file {
            files.close(lines)?;
        }
        Ok((part, state))
    }

    fn write_tables(
        &self,
        settings: &Settings,
        files: &mut NewFiles,
        manifest: &mut Manifest,
    ) -> anyhow::Result<()> {
        let mut rows = files.lines(ROWS)?;
        let mut count = 0;
        let (origin, positions, pruned) = match &settings.store {
            store::config::BackEnd::Embedded => {
                let tables = ReadOnlyTables::open(&settings.process.data_dir)?;
                tables.walk_rows(|row| put(&mut rows, &mut count, &row))?;
                (tables.origin()?, tables.positions()?, tables.pruned_before()?)
            }
            store::config::BackEnd::Cql(config) => Handle::current().block_on(async {
                let tables = CqlStore::open(config).await?;
                let mut failed = None;
                tables
                    .walk_rows(async |page| {
                        let put = page.iter().try_for_each(|row| put(&mut rows, &mut count, row));
                        failed = put.err();
                        Ok(match failed {
                            None => ControlFlow::Continue(()),
                            Some(_) => ControlFlow::Break(()),
                        })
                    })
                    .await?;
                if let Some(error) = failed {
                    return Err(error);
                }
                let origin = tables.origin().await?;
                anyhow::Ok((origin, tables.positions().await?, tables.pruned_before().await?))
            })?,
        };
        files.close(rows)?;
        self.check_tables(origin, &positions)?;
        manifest.rows = count;
        manifest.pruned_before = pruned.map(|second| second.0);
        manifest.set_tables(&positions);
        Ok(())
    }

    /// Refuses tables of another log, and a log that is older than the tables.
    fn check_tables(&self, origin: Option<Origin>, positions: &[Position]) -> anyhow::Result<()> {
        if let Some(problem) = origin.and_then(|tables| fit::misfit(&self.origin, &tables)) {
            bail!(problem);
        }
        for Position { topic, partition, next } in positions {
            let of = TopicPartition { topic: *topic, partition: *partition };
            let end = self.source.bounds(of)?.end;
            ensure!(
                *next <= end.0,
                "the log is older than the tables: they have {of} up to {next}, and it ends at {end}"
            );
        }
        Ok(())
    }
}

fn put(rows: &mut Lines, count: &mut u64, row: &Change) -> anyhow::Result<()> {
    *count += 1;
    rows.put(&Row::of(row)?)
}

/// Waits until no group has a member, as a killed process is one until its session expires: for two sessions at most.
fn await_silence(log: &KafkaLog, session: Duration) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let mut running = Vec::new();
        for (group, _) in groups() {
            running.extend(log.members(group)?.into_iter().map(|member| member.name));
        }
        running.sort();
        running.dedup();
        if running.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > session.saturating_mul(2) {
            bail!("processes run: {}. Stop them first", running.join(", "));
        }
        std::thread::park_timeout(MEMBERS_INTERVAL);
    }
}

/// Refuses a committed position of the processor that was changed manually: it differs from that in its state.
fn check_states<M: Wire>(
    manifest: &Manifest,
    states: &BTreeMap<TopicPartition, Vec<u8>>,
) -> anyhow::Result<()> {
    let positions: Positions = manifest.group(M::GROUP);
    for (of, Committed { offset, metadata }) in positions {
        if metadata == processor::OWN_POSITION {
            continue;
        }
        let changelog = TopicPartition { topic: M::CHANGELOG, partition: of.partition };
        let next = states.get(&changelog).and_then(|text| processor::next_inputs(text));
        let known = next.into_iter().flatten().find(|(topic, _)| *topic == of.topic);
        if let Some((_, known)) = known.filter(|(_, known)| *known != offset) {
            bail!(
                "the group {} was set to {offset} in {of}, and its state is that of {known}: set it to {known} first",
                M::GROUP
            );
        }
    }
    Ok(())
}
