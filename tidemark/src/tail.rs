//! `tidemark tail TOPIC`: the records of a topic as a person or a script can read them, from either back
//! end.
//!
//! It only reads: it joins no group, commits nothing, and sees what `read_committed` readers see. The
//! embedded log is read beside the process that has it open.

mod filter;
mod follower;
mod place;

use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use log::embedded::ReadOnlyLog;
use log::kafka::KafkaLog;
use log::{Bounds, Error, Log, Offset, Record, TopicPartition};
use runtime::task;
use schemas::{Layout, Partition, Topic, decode_json};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::process;
use crate::settings::Settings;
use filter::{Condition, Filter};
use follower::Follower;
use place::From;
pub(crate) use place::parse_time;

/// How often the end is polled for new records.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How many records one read returns at most.
const PAGE_RECORDS: usize = 500;

/// What to show, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The topic, without the prefix of the installation.
    #[arg(value_parser = topic)]
    topic: Topic,
    /// Where to begin: beginning, end, offset:N, a time such as 2026-09-21T14:00:00Z, or Unix seconds.
    /// Default: end, or with --until-end the beginning.
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

/// A log that is only read.
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
            Self::Embedded(log) => Ok(log.read(of, from, max)?.into_iter().map(Arc::new).collect()),
        }
    }

    pub(crate) fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        match self {
            Self::Kafka(log) => log.bounds(of),
            Self::Embedded(log) => log.bounds(of),
        }
    }
}

/// Decodes all that a partition has from `from` on. `page` reads from an offset on, at most the given number of records.
///
/// # Errors
/// The log cannot be read, or holds what this version cannot.
pub(crate) fn read_all<T: schemas::record::Record>(
    of: TopicPartition,
    mut from: Offset,
    page: impl Fn(TopicPartition, Offset, usize) -> Result<Vec<Arc<Record>>, Error>,
    mut take: impl FnMut(Arc<Record>, T),
) -> anyhow::Result<()> {
    loop {
        let records = page(of, from, PAGE_RECORDS)?;
        let Some(last) = records.last() else { return Ok(()) };
        from = last.offset.next();
        for record in records {
            let value = record.value.as_deref().unwrap_or_default();
            let value =
                schemas::decode(value).with_context(|| format!("{of}@{}", record.offset))?;
            take(record, value);
        }
    }
}

/// Prints until it is stopped, or has printed all that was asked for.
///
/// # Errors
/// The log cannot be read, or the options do not fit the topic.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let mut printing = tokio::task::spawn_blocking(move || print(&settings, &options, &stopped));
    tokio::select! {
        ended = &mut printing => ended?,
        () = process::stop_signal() => {
            stop.cancel();
            printing.await?
        }
    }
}

fn print(settings: &Settings, options: &Options, stop: &CancellationToken) -> anyhow::Result<()> {
    let source = Source::open(settings)?;
    let filter = Filter::new(options.topic, options.key.clone(), options.conditions.clone())?;
    let partitions = partitions(settings.log.layout, options)?;
    let from = options.from.unwrap_or(if options.until_end { From::Beginning } else { From::End });
    let mut follower =
        Follower::open(&source, options.topic, &partitions, from, options.until_end)?;
    let mut left = options.limit.unwrap_or(u64::MAX);
    let mut output = std::io::stdout().lock();
    while left > 0 && !stop.is_cancelled() {
        let Some(record) = follower.next()? else {
            if options.until_end || quiet(output.flush())?.is_none() {
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
        if quiet(writeln!(output, "{line}"))?.is_none() {
            return Ok(());
        }
        left -= 1;
    }
    quiet(output.flush())?;
    Ok(())
}

/// None once nobody reads any more what is printed.
fn quiet<T>(result: std::io::Result<T>) -> anyhow::Result<Option<T>> {
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
        bail!("{} has partitions 0 to {}", options.topic, all.len().saturating_sub(1));
    }
    Ok(vec![wanted])
}

/// The decoded value, null for a tombstone; or why it is not a record of its topic.
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

/// Text where it is text, otherwise hexadecimal digits.
fn readable(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| readable_hex(bytes).into(), Value::from)
}

fn readable_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
