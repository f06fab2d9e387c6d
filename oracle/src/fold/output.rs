//! The outputs on the log, by the input that each one names as its cause.

use std::collections::HashMap;
use std::sync::Arc;

use log::{NewRecord, Offset, Record, TopicPartition};
use schemas::record::{
    Alert, DeadLetter, Deposit, DepositCommand, MatchingEntry, Order, OrderCommand, OrdersEntry,
    Transfer,
};
use schemas::{Partition, SchemaName, Topic};

use super::reading::{Positions, Reading, is_changelog};
use super::{Flaw, FlawKind, Position};

/// What a machine writes into one partition: one line of records, whichever process wrote them.
type Line = (TopicPartition, Author);

/// Which machine wrote: matching or orders, and its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Author {
    is_orders: bool,
    partition: Partition,
}

#[derive(Debug)]
pub(super) struct Output {
    pub(super) record: Arc<Record>,
    /// Its number among the outputs of its input.
    number: u32,
    /// Its index in its line.
    rank: usize,
}

#[derive(Debug, Default)]
pub(super) struct Outputs {
    by_cause: HashMap<Position, Vec<Output>>,
    count: usize,
}

/// How far a machine's lines are explained.
#[derive(Debug, Clone, Default)]
pub(super) struct Fronts(HashMap<TopicPartition, usize>);

impl Fronts {
    /// These outputs are explained.
    pub(super) fn pass(&mut self, outputs: &[Output]) {
        for output in outputs {
            *self.0.entry(output.record.from).or_default() += 1;
        }
    }

    /// The first of these outputs that is not the next of its line.
    pub(super) fn not_next<'a>(&self, outputs: &'a [Output]) -> Option<&'a Output> {
        let mut passed: HashMap<TopicPartition, usize> = HashMap::new();
        outputs.iter().find(|output| {
            let line = output.record.from;
            let front = self.0.get(&line).copied().unwrap_or_default();
            let more = passed.entry(line).or_default();
            *more += 1;
            output.rank != front + *more - 1
        })
    }
}

impl Outputs {
    /// Finds the cause of every output.
    ///
    /// # Errors
    /// An output without an input, of an input that is not committed, or there twice.
    pub(super) fn of(reading: &Reading, committed: &Positions) -> Result<Self, Flaw> {
        let mut outputs = Self::default();
        let mut lines: HashMap<Line, usize> = HashMap::new();
        let mut counts: HashMap<(Position, u32), Position> = HashMap::new();
        let is_output =
            |of: &TopicPartition| of.topic != Topic::TransfersRaw && !is_changelog(of.topic);
        for of in reading.partitions().filter(is_output) {
            for record in reading.records(of) {
                let at = position(record);
                let Some((cause, count)) = cause(record) else {
                    // Others may command orders: the api, and timers that were due.
                    if of.topic == Topic::OrdersCommands {
                        continue;
                    }
                    let text = format!("{at} ({}) names no input as its cause", id(record));
                    return Err(Flaw::new(FlawKind::Foreign, text));
                };
                check_cause(reading, committed, record, cause)?;
                if let Some(first) = counts.insert((cause, count), at) {
                    let text = format!("{} is written twice, at {first} and at {at}", id(record));
                    return Err(Flaw::new(FlawKind::Doubled, text));
                }
                let is_orders = cause.of.topic == Topic::OrdersCommands;
                let author = Author { is_orders, partition: cause.of.partition };
                let rank = lines.entry((of, author)).or_default();
                let output = Output { record: record.clone(), number: count, rank: *rank };
                *rank += 1;
                outputs.by_cause.entry(cause).or_default().push(output);
                outputs.count += 1;
            }
        }
        for caused in outputs.by_cause.values_mut() {
            caused.sort_by_key(|output| output.number);
        }
        Ok(outputs)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The outputs of an input, in the order of their counts.
    pub(super) fn of_input(&self, input: Position) -> &[Output] {
        self.by_cause.get(&input).map_or(&[], Vec::as_slice)
    }
}

fn check_cause(
    reading: &Reading,
    committed: &Positions,
    record: &Record,
    cause: Position,
) -> Result<(), Flaw> {
    let inputs = reading.records(cause.of);
    if inputs.binary_search_by_key(&cause.offset, |input| input.offset).is_err() {
        let text = format!("{} names {cause}, which is not there", position(record));
        return Err(Flaw::new(FlawKind::Foreign, text));
    }
    let end = committed.get(&cause.of).copied().unwrap_or_default();
    if cause.offset >= end {
        let text =
            format!("{} is there, and its input {cause} is committed to {end}", position(record));
        return Err(Flaw::new(FlawKind::Uncommitted, text));
    }
    Ok(())
}

pub(super) fn position(record: &Record) -> Position {
    Position { of: record.from, offset: record.offset }
}

pub(super) fn id(record: &Record) -> String {
    String::from_utf8_lossy(record.header("ce_id").unwrap_or(b"no id")).into_owned()
}

/// The input that a record names as its cause, and its number among that input's outputs.
pub(super) fn cause(record: &Record) -> Option<(Position, u32)> {
    let id = std::str::from_utf8(record.header("ce_id")?).ok()?;
    let mut parts = id.split('/');
    let topic = parts.next()?;
    let topic = [Topic::TransfersRaw, Topic::DepositsCommands, Topic::OrdersCommands]
        .into_iter()
        .find(|input| input.name() == topic)?;
    let partition = Partition(parts.next()?.parse().ok()?);
    let offset = Offset(parts.next()?.parse().ok()?);
    let count = parts.next()?.parse().ok()?;
    parts
        .next()
        .is_none()
        .then_some((Position { of: TopicPartition { topic, partition }, offset }, count))
}

/// How the outputs that follow from an input differ from those that are there.
pub(super) fn difference(
    input: Position,
    expected: &[NewRecord],
    there: &[Output],
) -> Option<Flaw> {
    for (number, expected) in (0..).zip(expected) {
        let Some(there) = there.iter().find(|output| output.number == number) else {
            let what = brief(expected.to.topic, expected.value.as_deref());
            let text = format!("{input}/{number} is not on {}: {what}", expected.to);
            return Some(Flaw::new(FlawKind::Lost, text));
        };
        if let Some(text) = change(expected, &there.record) {
            let text = format!("{input}/{number} at {}: {text}", position(&there.record));
            return Some(Flaw::new(FlawKind::Changed, text));
        }
    }
    let last = there.last().filter(|last| expected.len() <= last.number as usize)?;
    let what = brief(last.record.from.topic, last.record.value.as_deref());
    let (id, at) = (id(&last.record), position(&last.record));
    Some(Flaw::new(FlawKind::Foreign, format!("{id} at {at} follows from nothing: {what}")))
}

fn change(expected: &NewRecord, there: &Record) -> Option<String> {
    if expected.to != there.from {
        return Some(format!("it belongs on {}", expected.to));
    }
    if expected.key != there.key {
        let [wanted, found] = [&expected.key, &there.key].map(|key| String::from_utf8_lossy(key));
        return Some(format!("its key is {found:?}, not {wanted:?}"));
    }
    if expected.value != there.value {
        let topic = expected.to.topic;
        return Some(changed(topic, expected.value.as_deref(), there.value.as_deref()));
    }
    let named = |headers: &schemas::Headers| {
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
            .collect::<Vec<_>>()
    };
    let (wanted, found) = (named(&expected.headers), named(&there.headers));
    (wanted != found).then(|| format!("its headers are {found:?}, not {wanted:?}"))
}

/// The lines in which two values of a topic differ.
pub(super) fn changed(topic: Topic, wanted: Option<&[u8]>, found: Option<&[u8]>) -> String {
    let [wanted, found] = [wanted, found].map(|value| describe(topic, value));
    let lines = wanted.lines().zip(found.lines()).filter(|(wanted, found)| wanted != found);
    let lines: Vec<_> = lines
        .take(3)
        .map(|(wanted, found)| format!("{} where {} follows", found.trim(), wanted.trim()))
        .collect();
    format!("it says {}", lines.join(" "))
}

/// A value in one line that is not too long.
pub(super) fn brief(topic: Topic, value: Option<&[u8]>) -> String {
    let words: Vec<_> =
        describe(topic, value).split_whitespace().take(24).map(str::to_owned).collect();
    words.join(" ")
}

/// A value as its record, one field a line.
fn describe(topic: Topic, value: Option<&[u8]>) -> String {
    fn show<R: schemas::record::Record + std::fmt::Debug>(value: &[u8]) -> String {
        schemas::decode::<R>(value)
            .map_or_else(|error| format!("unreadable: {error}"), |record| format!("{record:#?}"))
    }
    let Some(value) = value else { return "nothing".to_owned() };
    match topic.spec().schema {
        SchemaName::Order => show::<Order>(value),
        SchemaName::Deposit => show::<Deposit>(value),
        SchemaName::Transfer => show::<Transfer>(value),
        SchemaName::OrderCommand => show::<OrderCommand>(value),
        SchemaName::DepositCommand => show::<DepositCommand>(value),
        SchemaName::Alert => show::<Alert>(value),
        SchemaName::DeadLetter => show::<DeadLetter>(value),
        SchemaName::MatchingEntry => show::<MatchingEntry>(value),
        SchemaName::OrdersEntry => show::<OrdersEntry>(value),
        _ => format!("{} bytes", value.len()),
    }
}
