//! `tidemark import`: loads an export into the configured back ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use log::{Committed, NewRecord, Offset, Record, TopicPartition};
use processor::machine::{matching, orders};
use processor::wire::Wire;
use processor::wire::relaid::{self, Entry};
use runtime::{Clock, SystemClock, telemetry};
use schemas::record::ChainProgress;
use schemas::{
    Blockchain, Cleanup, HEADER_EARLIER, Incarnation, Partition, Topic, UnixMicros, UnixSeconds,
};
use store::{Change, Origin, Position};

use super::dealing::{Dealing, Merged, records};
use super::files::{Files, ROWS};
use super::lanes::{self, Lane};
use super::line::{Row, put_time};
use super::manifest::{Manifest, Part};
use super::readings::{Continued, MACHINES, Reading, exact, of_topic, untaken_of};
use super::target::Target;
use super::{PROJECTOR, stays_behind};
use crate::settings::Settings;
use crate::setup::Outcome;

/// Number of rows written at once.
const ROWS_AT_ONCE: usize = 500;

/// Fills an empty log and empty tables from a folder. Blocks.
///
/// # Errors
/// The export is incomplete, or the target is not empty: nothing was changed. Or a write failed: a start is refused
/// until the import is run again.
pub(crate) fn import(settings: &Settings, from: &Path) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let files = Files::open(from)?;
    let dealing = Dealing { from: files.manifest.layout(), to: settings.log.layout };
    check_taken(&files.manifest, dealing)?;
    let origin = Origin {
        installation: files.manifest.installation.clone(),
        incarnation: next_incarnation(&files.manifest, SystemClock.now())?,
    };
    let target = Target::begin(settings, &files.digest, &origin)?;
    let mut work =
        Work { files: &files, dealing, target, continued: Continued::default(), records: 0 };
    for topic in Topic::ALL {
        work.topic(topic).with_context(|| format!("cannot import {topic}"))?;
    }
    work.states()?;
    let rows = work.rows()?;
    let positions = work.positions();
    let pruned_before = files.manifest.pruned_before.map(UnixSeconds);
    let Work { target, continued, records, .. } = work;
    let mut lines = vec![format!(
        "{records} records and {rows} rows of {}, as exported at {}, are here",
        origin.installation, files.manifest.exported_at
    )];
    lines.extend(target.finish(&origin, &continued, &positions, pruned_before)?);
    Ok(Outcome::success(lines, ""))
}

/// Returns the incarnation of this copy: offsets that receivers keep are valid for one copy alone.
fn next_incarnation(manifest: &Manifest, now: UnixMicros) -> anyhow::Result<Incarnation> {
    manifest.incarnation().next(now.seconds()).with_context(|| {
        format!(
            "this machine's clock says {}, and the installation was restored or imported after that: set the clock",
            now.to_rfc3339()
        )
    })
}

/// Checks that the processor has read all records that change partitions: unread ones of two partitions, merged into
/// one, would have no order.
fn check_taken(manifest: &Manifest, dealing: Dealing) -> anyhow::Result<()> {
    let (lanes, orders) = (dealing.from.lanes, dealing.from.orders);
    for (group, inputs) in MACHINES {
        for topic in inputs.iter().filter(|topic| !dealing.keeps(**topic)) {
            if let Some(of) = untaken_of(manifest, group, *topic) {
                bail!(
                    "records of {of} wait for the processor, and another layout gives them no order: start the \
                     exported installation again (on Kafka `tidemark run processor` alone), stop it when \
                     `tidemark status` shows no lag for the processor, and export again; or keep the layout ([log] \
                     lanes = {lanes}, order_partitions = {orders})"
                );
            }
        }
    }
    Ok(())
}

struct Work<'a> {
    files: &'a Files,
    dealing: Dealing,
    target: Target,
    continued: Continued,
    records: u64,
}

impl Work<'_> {
    fn topic(&mut self, topic: Topic) -> anyhow::Result<()> {
        let is_state = matches!(
            topic,
            Topic::MatchingChangelog | Topic::OrdersChangelog | Topic::WebhooksChangelog
        );
        if stays_behind(topic) || is_state {
            return Ok(());
        }
        let mut copy = Copy::new(topic, of_topic(&self.files.manifest, topic));
        if self.dealing.keeps(topic) {
            // Completed webhooks come first: the deliverer's new position is a single offset, without the list of
            // later offsets that are complete.
            let has_holes = topic.spec().schema == schemas::SchemaName::Delivery;
            for part in self.files.manifest.parts_of(topic) {
                self.partitions(&mut copy, &[part.of()?], has_holes)?;
            }
        } else if topic == Topic::TransfersRaw {
            self.raw(&mut copy)?;
        } else {
            let all = self.files.manifest.parts_of(topic).map(Part::of);
            self.partitions(&mut copy, &all.collect::<anyhow::Result<Vec<_>>>()?, true)?;
        }
        self.close(copy)
    }

    /// Copies partitions, merged by time. With `taken_first`, if a reader must not see a record twice, the records that
    /// it has processed come first.
    fn partitions(
        &mut self,
        copy: &mut Copy,
        all: &[TopicPartition],
        taken_first: bool,
    ) -> anyhow::Result<()> {
        let is_split = taken_first && exact(&copy.readings).is_some();
        let passes: &[Option<bool>] = if is_split { &[Some(true), Some(false)] } else { &[None] };
        for taken in passes {
            let merged = all.iter().map(|of| records(self.files, *of));
            for old in Merged::new(merged.collect::<anyhow::Result<Vec<_>>>()?) {
                let old = old?;
                if taken.is_some_and(|taken| copy.is_taken(&old) != taken)
                    || self.is_of_lane(&old)?
                {
                    continue;
                }
                let partition = self.dealing.partition(old.from, &old.key);
                self.put(copy, old, partition, *taken != Some(false))?;
            }
        }
        Ok(())
    }

    /// `true` for the progress of a lane, if the new layout has other lanes.
    fn is_of_lane(&self, old: &Record) -> anyhow::Result<bool> {
        if old.from.topic != Topic::Chains || self.dealing.keeps(Topic::TransfersRaw) {
            return Ok(false);
        }
        let Some(value) = &old.value else { return Ok(false) };
        let progress: ChainProgress = schemas::decode(value)?;
        Ok(progress.lane.is_some())
    }

    /// Deals chain records to the new lanes. The processor has read all of them.
    fn raw(&mut self, copy: &mut Copy) -> anyhow::Result<()> {
        for blockchain in Blockchain::ALL {
            let (mut of_chain, mut has_expired) = (Vec::new(), false);
            for lane in self.dealing.from.lanes_of(*blockchain) {
                let of = TopicPartition { topic: Topic::TransfersRaw, partition: lane };
                let part =
                    self.files.manifest.parts_of(of.topic).find(|part| part.partition == lane.0);
                let Some(part) = part else { continue };
                has_expired |= part.has_expired;
                of_chain.push(Lane::new(records(self.files, of)?, part.has_expired));
            }
            let to = self.dealing.to;
            lanes::deal(*blockchain, of_chain, &to, &mut |mut record| {
                copy.mark(&mut record, has_expired);
                self.records += 1;
                self.target.append(record)
            })?;
        }
        Ok(())
    }

    fn put(
        &mut self,
        copy: &mut Copy,
        old: Record,
        partition: Partition,
        keeps_time: bool,
    ) -> anyhow::Result<()> {
        let Record { from, offset, appended_at, key, value, mut headers } = old;
        let to = TopicPartition { topic: from.topic, partition };
        for (number, reading) in copy.readings.iter().enumerate() {
            let next = (number, to);
            if !reading.has(from.partition, offset) && !copy.ends.contains_key(&next) {
                copy.ends.insert(next, self.target.end(to)?);
            }
        }
        if keeps_time {
            put_time(&mut headers, appended_at);
        }
        let mut record = NewRecord { to, key, value, headers };
        copy.mark(&mut record, self.has_expired(from));
        self.records += 1;
        self.target.append(record)
    }

    fn has_expired(&self, of: TopicPartition) -> bool {
        let mut parts = self.files.manifest.parts_of(of.topic);
        parts.any(|part| part.partition == of.partition.0 && part.has_expired)
    }

    /// Sets the position of each reader of the topic.
    fn close(&mut self, copy: Copy) -> anyhow::Result<()> {
        let keeps = self.dealing.keeps(copy.topic);
        for partition in copy.topic.all_partitions(&self.dealing.to) {
            let of = TopicPartition { topic: copy.topic, partition };
            for (number, reading) in copy.readings.iter().enumerate() {
                let is_known = if keeps { reading.knows(partition) } else { reading.knows_any() };
                if !is_known {
                    continue;
                }
                let offset = match copy.ends.get(&(number, of)) {
                    Some(offset) => *offset,
                    None => self.target.end(of)?,
                };
                let is_deliverer = of.topic.spec().schema == schemas::SchemaName::Delivery;
                let metadata = if MACHINES.iter().any(|(group, _)| *group == reading.reader.group) {
                    processor::OWN_POSITION
                } else if keeps && !is_deliverer {
                    reading.metadata(partition)
                } else {
                    ""
                };
                let at = Committed { offset, metadata: metadata.to_owned() };
                self.continued.set(&reading.reader, of, at);
            }
        }
        Ok(())
    }

    /// Copies the newest entry of each changelog key. The last entry of a partition gets the input positions.
    fn states(&mut self) -> anyhow::Result<()> {
        let lanes = self.lanes()?;
        self.machine::<matching::State>(lanes)?;
        let orders = self.keyed(Topic::OrdersChangelog)?;
        self.machine::<orders::State>(orders)?;
        for record in self.keyed(Topic::WebhooksChangelog)? {
            self.records += 1;
            self.target.append(record)?;
        }
        self.target.flush()
    }

    fn machine<M: Wire>(&mut self, records: Vec<NewRecord>) -> anyhow::Result<()> {
        let mut of: BTreeMap<Partition, Vec<NewRecord>> = BTreeMap::new();
        for record in records {
            of.entry(record.to.partition).or_default().push(record);
        }
        for (partition, mut records) in of {
            let next = M::INPUTS.iter().filter_map(|topic| {
                let input = TopicPartition { topic: *topic, partition };
                Some((*topic, self.continued.of_group(M::GROUP, input)?.offset))
            });
            if let Some(last) = records.last_mut() {
                relaid::continue_at(last, &next.collect::<Vec<_>>());
            }
            for record in records {
                self.records += 1;
                self.target.append(record)?;
            }
        }
        Ok(())
    }

    /// The entries of the matching machine in their new lanes.
    fn lanes(&self) -> anyhow::Result<Vec<NewRecord>> {
        let topic = Topic::MatchingChangelog;
        let mut records = Vec::new();
        let mut chains: BTreeMap<Blockchain, Vec<Entry>> = BTreeMap::new();
        for part in self.files.manifest.parts_of(topic) {
            let of = part.of()?;
            let entries = newest(self.files, of)?;
            if self.dealing.keeps(topic) {
                let plain = |entry: &Entry| relaid::plain(topic, of.partition, entry);
                records.extend(entries.iter().map(plain));
                continue;
            }
            let blockchain = self.dealing.chain_of(of.partition);
            let blockchain = blockchain.with_context(|| format!("{of} is of no chain"))?;
            chains.entry(blockchain).or_default().extend(entries);
        }
        if self.dealing.keeps(topic) {
            return Ok(records);
        }
        let all = Blockchain::ALL.iter();
        let all: Vec<_> =
            all.map(|chain| (*chain, chains.remove(chain).unwrap_or_default())).collect();
        relaid::lanes(&all, &self.dealing.from, &self.dealing.to).map_err(anyhow::Error::msg)
    }

    /// The entries of a changelog whose keys give the partition.
    fn keyed(&self, topic: Topic) -> anyhow::Result<Vec<NewRecord>> {
        let mut records = Vec::new();
        for part in self.files.manifest.parts_of(topic) {
            let of = part.of()?;
            for entry in newest(self.files, of)? {
                let partition = self.dealing.partition(of, &entry.key);
                records.push(relaid::plain(topic, partition, &entry));
            }
        }
        Ok(records)
    }

    fn rows(&self) -> anyhow::Result<u64> {
        let (mut rows, mut count) = (Vec::new(), 0);
        for row in self.files.read::<Row>(ROWS)? {
            let change = row?.change()?;
            let is_of_lane = matches!(&change, Change::Chain(chain) if chain.lane.is_some());
            if is_of_lane && !self.dealing.keeps(Topic::TransfersRaw) {
                continue;
            }
            rows.push(change);
            count += 1;
            if rows.len() >= ROWS_AT_ONCE {
                self.target.apply(std::mem::take(&mut rows))?;
            }
        }
        self.target.apply(rows)?;
        Ok(count)
    }

    /// Returns the positions of the tables in the new log.
    fn positions(&self) -> Vec<Position> {
        let mut positions = Vec::new();
        for topic in projector::TOPICS {
            for partition in topic.all_partitions(&self.dealing.to) {
                let of = TopicPartition { topic, partition };
                let at = self.continued.of_group(PROJECTOR, of);
                positions.extend(at.map(|at| Position { topic, partition, next: at.offset.0 }));
            }
        }
        positions
    }
}

/// A topic that is being copied.
struct Copy {
    topic: Topic,
    readings: Vec<Reading>,
    /// New offset of the first record that a reader has not processed, by reading and new partition.
    ends: BTreeMap<(usize, TopicPartition), Offset>,
    /// Partitions that have records.
    begun: BTreeSet<TopicPartition>,
}

impl Copy {
    fn new(topic: Topic, readings: Vec<Reading>) -> Self {
        Self { topic, readings, ends: BTreeMap::new(), begun: BTreeSet::new() }
    }

    fn is_taken(&self, old: &Record) -> bool {
        let has = |reading: &Reading| reading.has(old.from.partition, old.offset);
        exact(&self.readings).is_none_or(has)
    }

    /// Marks the first record of a partition that had older ones, which have expired.
    fn mark(&mut self, record: &mut NewRecord, has_expired: bool) {
        if self.begun.insert(record.to)
            && has_expired
            && record.headers.get(HEADER_EARLIER).is_none()
        {
            record.headers.push(HEADER_EARLIER, b"");
        }
    }
}

/// The newest entry of each undeleted key of a changelog.
fn newest(files: &Files, of: TopicPartition) -> anyhow::Result<Vec<Entry>> {
    debug_assert!(of.topic.spec().cleanup == Cleanup::Compact);
    let mut newest: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for old in records(files, of)? {
        let Record { key, value, .. } = old?;
        match value {
            Some(value) => newest.insert(key, value),
            None => newest.remove(&key),
        };
    }
    Ok(newest.into_iter().map(|(key, value)| Entry { key, value }).collect())
}

#[cfg(test)]
mod tests {
    use schemas::Layout;

    use super::*;

    /// Files cannot be read by a process of one stage: `tidemark run processor` is refused there.
    #[test]
    fn what_waits_is_taken_where_it_was_exported() {
        let of = Origin { installation: "embedded/7".to_owned(), incarnation: Incarnation(0) };
        let from = Layout { lanes: 1, orders: 4, webhooks: 2 };
        let mut manifest = Manifest::new(of, from, String::new());
        let topic = Topic::TransfersRaw.name().to_owned();
        manifest.parts.push(Part { topic, partition: 0, records: 1, last: 0, has_expired: false });
        check_taken(&manifest, Dealing { from, to: from }).unwrap();
        let to = Layout { lanes: 4, ..from };
        let refused = check_taken(&manifest, Dealing { from, to }).unwrap_err().to_string();
        let advice =
            "start the exported installation again (on Kafka `tidemark run processor` alone)";
        assert!(refused.contains(advice), "{refused}");
        assert!(refused.contains("lanes = 1, order_partitions = 4"), "{refused}");
    }
}
