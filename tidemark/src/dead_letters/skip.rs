//! `tidemark dead-letters skip`: a record that no version can read is moved to `dead-letters`, and its stage continues.

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api::audit::{self, Asker};
use clap::Args;
use log::{Assigned, Committed, Event, Log, Offset, Record, Step, TopicPartition, WorkerSpec};
use processor::machine::{matching, orders};
use processor::wire::Wire;
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::record::AuditEntry;
use schemas::{AuditAction, CodecError, Partition, Topic, UnixMicros};

use crate::back_end::open_existing_log;
use crate::settings::Settings;
use crate::setup::Outcome;

/// Maximum wait for the group to give the partition to this command.
const JOIN_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// Name of this command as a member of a group.
const MEMBER: &str = "skip";
/// Number of records read at once.
const PAGE: usize = 500;

/// Position of a record, as a stage's error prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    of: TopicPartition,
    offset: Offset,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "must be TOPIC/PARTITION@OFFSET, as the stage's error has it";
        let parts = || {
            let (of, offset) = text.split_once('@')?;
            let (topic, partition) = of.rsplit_once('/')?;
            Some((topic, partition.parse().ok()?, offset.parse().ok()?))
        };
        let (topic, partition, offset) = parts().ok_or(form)?;
        let topic = Topic::named(topic).ok_or("this version has no such topic")?;
        let of = TopicPartition { topic, partition: Partition(partition) };
        Ok(Self { of, offset: Offset(offset) })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.of, self.offset)
    }
}

/// The record to skip.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Place of the record, as the stage's error has it, such as webhooks.dispatch/0@204.
    #[arg(value_name = "TOPIC/PARTITION@OFFSET")]
    place: Place,
    /// Also on `transfers.raw`, where it may be a payment.
    #[arg(long)]
    yes: bool,
}

/// Moves the record, with an `audit` entry. Its stage must be stopped.
///
/// # Errors
/// The record may not be moved, or the log cannot be read or written. Nothing was done.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let log = open_existing_log(&settings, &Readiness::default()).await?;
    let now = SystemClock.now();
    let line = tokio::task::spawn_blocking(move || skip(&*log, &options, now)).await??;
    Ok(Outcome::success(vec![line], ""))
}

/// Does the work of [`run`] and returns the line to print. Blocks.
fn skip(log: &dyn Log, options: &Options, now: UnixMicros) -> anyhow::Result<String> {
    let Options { place, yes } = *options;
    let group = Group::of(place.of.topic)?;
    let has_partition = place.of.partition.0 < place.of.topic.partitions(&log.layout());
    ensure!(has_partition, "this installation has no partition {}", place.of);
    let found = log.read(place.of, place.offset, 1)?;
    let found = found.first().filter(|record| record.offset == place.offset);
    let record = found.with_context(|| format!("there is no record at {place}"))?;
    let reason = unreadable(record)?;
    ensure!(
        yes || place.of.topic != Topic::TransfersRaw,
        "{place} may be a payment, which would never be seen: `tidemark rescan` publishes what the chain has \
         there. Add --yes to skip it"
    );
    let mut worker = log.worker(WorkerSpec {
        group: group.name,
        member: MEMBER.to_owned(),
        topics: group.topics.clone(),
        batch_max: 1,
    })?;
    let committed = assigned(&mut *worker, place.of, group.name)?.committed;
    let after = group.after(log, committed, place)?;
    let reason = format!("skipped by an operator: {reason}");
    let audit = AuditEntry {
        subject: Some(place.to_string()),
        ..Asker::command_line().entry(AuditAction::SkipRecord, now)
    };
    let records = vec![audit::record(&audit)?, log::dead_letter(record, group.name, &reason)?];
    worker.commit(Step { records, offsets: vec![(place.of, after)] })?;
    Ok(format!(
        "{place} is in dead-letters, and {} continues behind it: start its processes",
        group.name
    ))
}

/// Returns the decoding error of a record that no version can read.
///
/// # Errors
/// This version or a newer one can read it, or the stage moves it to the dead letters by itself.
fn unreadable(record: &Record) -> anyhow::Result<String> {
    let schema = record.from.topic.spec().schema;
    let newer = "a newer version wrote it: start that version, it continues from there";
    let value = record.value.as_deref().unwrap_or_default();
    match schemas::check(schema, value) {
        Ok(()) => bail!("this version can read the record: start the stage"),
        Err(cause) if record.is_foreign() => {
            Ok(format!("{cause}, and its content is none of any version"))
        }
        Err(cause @ CodecError::SchemaId { .. }) if cause.is_newer() => {
            bail!("{cause}, and its content begins as one: {newer}")
        }
        Err(cause) if cause.is_newer() => bail!("{cause}: {newer}"),
        Err(cause) => bail!("{cause}: the stage moves it to dead-letters by itself: start it"),
    }
}

/// The consumer group that stopped at the record, and the only one that reads its topic: any other group would stop at
/// the record too.
struct Group {
    name: &'static str,
    topics: Vec<Topic>,
    is_of_webhooks: bool,
}

impl Group {
    fn of(topic: Topic) -> anyhow::Result<Self> {
        let is_of = |topics: &[Topic]| topics.contains(&topic);
        let of =
            |name, topics: &[Topic]| Self { name, topics: topics.to_vec(), is_of_webhooks: false };
        if is_of(matching::State::INPUTS) {
            return Ok(of(matching::State::GROUP, matching::State::INPUTS));
        }
        if is_of(orders::State::INPUTS) {
            return Ok(of(orders::State::GROUP, orders::State::INPUTS));
        }
        let (name, topics) = webhooks::deliverer_inputs();
        ensure!(
            is_of(&topics),
            "others read {topic} too, and would stop at the record again: only what the processor and the deliverer of \
             webhooks read can be skipped"
        );
        Ok(Self { name, topics, is_of_webhooks: true })
    }

    /// Returns the position at which the group continues without the record.
    fn after(
        &self,
        log: &dyn Log,
        committed: Option<Committed>,
        place: Place,
    ) -> anyhow::Result<Committed> {
        let next = committed.as_ref().map_or(Offset(0), |committed| committed.offset);
        ensure!(next <= place.offset, "{} is past {place} already: it is at {next}", self.name);
        let before = before(log, next, place)?;
        if self.is_of_webhooks {
            let after = webhooks::without(committed.as_ref(), &before, place.offset);
            return after.with_context(|| {
                format!("{} has sent {place}, or too many events before it wait", self.name)
            });
        }
        if let Some(first) = before.first() {
            bail!(
                "{} is at {}@{first}, before {place}: start the stage, which ends at the record that stops it",
                self.name,
                place.of
            );
        }
        let metadata = processor::OWN_POSITION.to_owned();
        Ok(Committed { offset: place.offset.next(), metadata })
    }
}

/// Offsets of the records from `next` up to a place, without the record at the place.
fn before(log: &dyn Log, mut next: Offset, place: Place) -> anyhow::Result<Vec<Offset>> {
    let mut offsets = Vec::new();
    while next < place.offset {
        let page = log.read(place.of, next, PAGE)?;
        let Some(last) = page.last() else { break };
        next = last.offset.next();
        offsets.extend(page.iter().map(|record| record.offset).filter(|at| *at < place.offset));
    }
    Ok(offsets)
}

/// Waits, for [`JOIN_MAX`] at most, until the group has given the partition to this command.
fn assigned(
    worker: &mut dyn log::Worker,
    of: TopicPartition,
    group: &str,
) -> anyhow::Result<Assigned> {
    let begun = Instant::now();
    while begun.elapsed() < JOIN_MAX {
        match worker.poll(POLL) {
            Ok(Event::Assigned(assigned)) => {
                let found = assigned.into_iter().find(|assigned| assigned.partition == of);
                if let Some(found) = found {
                    return Ok(found);
                }
            }
            Ok(Event::Revoked(_) | Event::Records(_) | Event::Idle) => {}
            Err(log::Error::Transient(cause)) => {
                tracing::warn!(%cause, "the group cannot be joined now; will retry");
            }
            Err(error) => return Err(error.into()),
        }
    }
    bail!("the group {group} gives {of} to another process: stop the processes of its stage")
}
