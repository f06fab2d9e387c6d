//! `tidemark tail TOPIC`: the records of a topic as a person or a script can read them, from either back
//! end.
//!
//! Read-only: it joins no group, commits nothing, and reads with `read_committed`. The embedded log is read beside the
//! process that has it open.

mod filter;
mod follower;
mod place;

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use api::inspect::reader::Pages;
use clap::Args;
use log::embedded::ReadOnlyLog;
use log::kafka::KafkaLog;
use log::{Bounds, Committed, Error, GroupMember, Log, Offset, Record, TopicPartition};
use runtime::task;
use schemas::{Layout, Partition, Topic, decode_json};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;
use crate::setup::misuse;
use crate::{output, process};
use filter::{Condition, Filter};
use follower::Follower;
pub(crate) use place::{From, time};

/// Interval of polls for new records at the end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of records in one read.
const PAGE_RECORDS: usize = 500;
/// Maximum number of records in one read of a whole partition.
const LARGE_PAGE_RECORDS: usize = 4096;

/// The records to show, and their format.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The topic, without the prefix of the installation.
    #[arg(value_parser = topic)]
    topic: Topic,
    /// Starting point: beginning, end, offset:N, a time such as 2026-09-21T14:00:00Z, or Unix
    /// seconds. Default: end, or with --until-end the beginning.
    #[arg(long)]
    from: Option<From>,
    /// Only this partition.
    #[arg(long)]
    partition: Option<u32>,
    /// Only records with this key.
    #[arg(long)]
    key: Option<String>,
    /// Only records with this value in a field, such as blockchain=eth or block.number=21000000; given
    /// more than once, all must hold.
    #[arg(long = "where", value_name = "FIELD=VALUE")]
    conditions: Vec<Condition>,
    /// Stop after this number of records.
    #[arg(long)]
    limit: Option<u64>,
    /// One JSON object a line: the default.
    #[arg(long, conflicts_with = "text")]
    json: bool,
    /// One line for people: time, place, key and value.
    #[arg(long)]
    text: bool,
    /// Stop where the topic ends now, instead of waiting for more.
    #[arg(long)]
    until_end: bool,
}

fn topic(name: &str) -> Result<Topic, String> {
    Topic::named(name).ok_or_else(|| {
        let names: Vec<_> = Topic::ALL.iter().map(|topic| topic.name()).collect();
        format!("there is no such topic; there are {}", names.join(", "))
    })
}

/// A read-only log.
pub(crate) enum Source {
    Kafka(KafkaLog),
    Embedded(ReadOnlyLog),
}

impl Source {
    pub(crate) fn open(settings: &Settings) -> anyhow::Result<Self> {
        Ok(match &settings.log.back_end {
            log::config::BackEnd::Embedded => {
                Self::Embedded(ReadOnlyLog::open(&settings.process.data_dir)?)
            }
            log::config::BackEnd::Kafka(config) => {
                Self::Kafka(KafkaLog::open(config, settings.log.layout)?)
            }
        })
    }

    pub(crate) fn read(
        &self,
        of: TopicPartition,
        from: Offset,
        max: usize,
    ) -> Result<Vec<Arc<Record>>, Error> {
        match self {
            Self::Kafka(log) => log.read(of, from, max),
            Self::Embedded(log) => log.read(of, from, max),
        }
    }

    /// As [`ReadOnlyLog::committed`].
    pub(crate) fn committed(
        &self,
        group: &str,
        of: &[TopicPartition],
    ) -> Result<Vec<(TopicPartition, Option<Committed>)>, Error> {
        match self {
            Self::Kafka(log) => log.committed(group, of),
            Self::Embedded(log) => log.committed(group, of),
        }
    }

    /// The members of a group; `None` on the embedded log.
    pub(crate) fn members(&self, group: &str) -> Result<Option<Vec<GroupMember>>, Error> {
        match self {
            Self::Kafka(log) => log.members(group).map(Some),
            Self::Embedded(_) => Ok(None),
        }
    }

    /// As [`Source::read`], up to a stable end.
    pub(crate) fn read_before(
        &self,
        of: TopicPartition,
        range: Range<Offset>,
        max: usize,
    ) -> Result<Vec<Arc<Record>>, Error> {
        if let Self::Kafka(log) = self {
            return log.read_before(of, range, max);
        }
        let mut page = self.read(of, range.start, max)?;
        page.truncate(page.partition_point(|record| record.offset < range.end));
        Ok(page)
    }

    /// A page of whatever size is cheapest, up to a stable end; empty only at the end.
    pub(crate) fn page_before(
        &self,
        of: TopicPartition,
        range: Range<Offset>,
    ) -> Result<Vec<Arc<Record>>, Error> {
        match self {
            Self::Kafka(log) => log.fetch_before(of, range),
            Self::Embedded(_) => self.read_before(of, range, LARGE_PAGE_RECORDS),
        }
    }

    /// Returns the offset after every record committed before the call.
    pub(crate) fn stable_end(&self, of: TopicPartition) -> Result<Offset, Error> {
        match self {
            Self::Kafka(log) => log.stable_end(of),
            Self::Embedded(log) => Ok(log.bounds(of)?.end),
        }
    }

    pub(crate) fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        match self {
            Self::Kafka(log) => log.bounds(of),
            Self::Embedded(log) => log.bounds(of),
        }
    }
}

impl Pages for Source {
    type Error = anyhow::Error;

    fn bounds(&self, of: TopicPartition) -> anyhow::Result<Bounds> {
        Ok(self.bounds(of)?)
    }

    fn page(
        &self,
        of: TopicPartition,
        from: Offset,
        max: usize,
    ) -> anyhow::Result<Vec<Arc<Record>>> {
        Ok(self.read(of, from, max)?)
    }
}

/// Decodes the records of a partition from `from` on. Skips unreadable records, and adds position and error to
/// `unreadable`.
pub(crate) fn read_readable<T: schemas::record::Record>(
    of: TopicPartition,
    mut from: Offset,
    page: impl Fn(TopicPartition, Offset, usize) -> Result<Vec<Arc<Record>>, Error>,
    mut take: impl FnMut(Arc<Record>, T),
    unreadable: &mut Vec<String>,
) -> Result<(), Error> {
    loop {
        let records = page(of, from, PAGE_RECORDS)?;
        let Some(last) = records.last() else { return Ok(()) };
        from = last.offset.next();
        for record in records {
            match schemas::decode(record.value.as_deref().unwrap_or_default()) {
                Ok(value) => take(record, value),
                Err(cause) => unreadable.push(format!("{of}@{}: {cause}", record.offset)),
            }
        }
    }
}

/// Prints until a stop, or until all requested records are printed.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<()> {
    process::until_stopped(move |stop| print(&settings, &options, stop)).await
}

fn print(settings: &Settings, options: &Options, stop: &CancellationToken) -> anyhow::Result<()> {
    let filter = Filter::new(options.topic, options.key.clone(), options.conditions.clone())?;
    let partitions = partitions(settings.log.layout, options)?;
    let source = Source::open(settings)?;
    let from = options.from.unwrap_or(if options.until_end { From::Beginning } else { From::End });
    let mut follower =
        Follower::open(&source, options.topic, &partitions, from, options.until_end)?;
    let mut left = options.limit.unwrap_or(u64::MAX);
    let mut output = output::stdout();
    while left > 0 && !stop.is_cancelled() {
        let Some(record) = follower.next()? else {
            if options.until_end {
                break;
            }
            task::wait(stop, POLL_INTERVAL);
            continue;
        };
        let value = value(&record);
        if !filter.fits(&record, value.as_ref().ok()) {
            continue;
        }
        let line = if options.text { text(&record, value) } else { line(&record, value) };
        if quiet(output.line(&line))?.is_none() {
            return Ok(());
        }
        left -= 1;
    }
    Ok(())
}

/// Returns `None` once the reader of the output has closed it.
pub(crate) fn quiet<T>(result: std::io::Result<T>) -> anyhow::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(None),
        Err(error) => Err(error).context("cannot print"),
    }
}

fn partitions(layout: Layout, options: &Options) -> anyhow::Result<Vec<Partition>> {
    let all: Vec<_> = options.topic.all_partitions(&layout).collect();
    let Some(wanted) = options.partition.map(Partition) else { return Ok(all) };
    if !all.contains(&wanted) {
        let last = all.len().saturating_sub(1);
        return Err(misuse(format!("tail: {} has partitions 0 to {last}", options.topic)));
    }
    Ok(vec![wanted])
}

/// The decoded value, null for a tombstone; or the decoding error.
fn value(record: &Record) -> Result<Value, String> {
    let decode = |bytes| decode_json(record.from.topic.spec().schema, bytes);
    let decoded = record.value.as_deref().map(decode).transpose();
    decoded.map(Option::unwrap_or_default).map_err(|error| error.to_string())
}

fn line(record: &Record, value: Result<Value, String>) -> String {
    let header = |(name, value): (&str, &[u8])| (name.to_owned(), readable(value));
    let headers: Map<String, Value> = record.headers.iter().map(header).collect();
    let mut line = json!({
        "topic": record.from.topic.name(),
        "partition": record.from.partition.0,
        "offset": record.offset.0,
        "time": record.appended_at.to_rfc3339(),
        "key": readable(&record.key),
        "headers": headers,
    });
    match value {
        Ok(value) => line["value"] = value,
        Err(error) => {
            line["error"] = error.into();
            line["bytes"] = readable_hex(record.value.as_deref().unwrap_or_default()).into();
        }
    }
    line.to_string()
}

fn text(record: &Record, value: Result<Value, String>) -> String {
    let value = value.map_or_else(|error| error, |value| value.to_string());
    let (time, key) = (record.appended_at.to_rfc3339(), String::from_utf8_lossy(&record.key));
    format!("{time} {}@{} {key} {value}", record.from, record.offset)
}

/// Text if it is UTF-8, otherwise hexadecimal digits.
fn readable(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| readable_hex(bytes).into(), Value::from)
}

fn readable_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use schemas::record::example;
    use schemas::{Headers, UnixMicros};

    use super::*;

    fn record(value: Option<Vec<u8>>) -> Record {
        let from = TopicPartition { topic: Topic::Alerts, partition: Partition(0) };
        let headers: Headers =
            [("traceparent", b"1".as_slice()), ("odd", &[255])].into_iter().collect();
        let appended_at = UnixMicros(1_000_000);
        Record { from, offset: Offset(3), appended_at, key: b"eth".to_vec(), value, headers }
    }

    fn printed(record: &Record) -> Value {
        serde_json::from_str(&line(record, value(record))).unwrap()
    }

    #[test]
    fn a_record_is_one_line_with_its_place() {
        let record = record(Some(schemas::encode(&example::alert()).unwrap()));
        let printed = printed(&record);
        assert_eq!(printed["topic"], "alerts");
        assert_eq!((&printed["partition"], &printed["offset"]), (&json!(0), &json!(3)));
        assert_eq!(printed["time"], "1970-01-01T00:00:01.000000Z");
        assert_eq!(printed["key"], "eth");
        assert_eq!(printed["headers"], json!({ "traceparent": "1", "odd": "ff" }));
        assert_eq!(printed["value"]["transfer_id"], 7);
        let text = text(&record, value(&record));
        assert!(text.starts_with("1970-01-01T00:00:01.000000Z alerts/0@3 eth {"), "{text}");
        assert!(!text.contains('\n'));
    }

    #[test]
    fn tombstones_and_garbage_are_shown_as_what_they_are() {
        assert_eq!(printed(&record(None))["value"], Value::Null);
        let garbage = printed(&record(Some(vec![1, 2])));
        assert_eq!(garbage["error"], "not in the Confluent wire format");
        assert_eq!(garbage["bytes"], "0102");
        assert_eq!(garbage.get("value"), None);
    }

    #[test]
    fn topics_are_known_by_name() {
        assert_eq!(topic("transfers.raw"), Ok(Topic::TransfersRaw));
        assert!(
            topic("transfer").unwrap_err().contains("there are transfers.raw, orders.commands")
        );
    }
}
