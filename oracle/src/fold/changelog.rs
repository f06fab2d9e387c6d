//! The changelog against the fold: the inputs divide into steps whose changes are exactly its entries.
//!
//! A step writes the rows that it changed, once each, in the order of their keys. So a run of entries in
//! that order is one step or several; where one ends shows when the changes so far are the entries.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use log::{Record, TopicPartition};
use processor::wire::{self, Wire};
use schemas::{Layout, Partition};

use super::output::{brief, changed, place};
use super::version::Version;
use super::{Change, Flaw, FlawKind, Taken, fresh};

/// Where an entry stands within its step.
type Rank = (u8, i64, String);

fn rank(key: &str) -> Rank {
    let number = |text: &str| text.parse().unwrap_or(i64::MAX);
    match key.split_once('/') {
        Some(("d", id)) => (1, number(id), String::new()),
        Some(("t", id)) => (2, number(id), String::new()),
        _ => (0, 0, key.to_owned()),
    }
}

fn key(record: &Record) -> &str {
    std::str::from_utf8(&record.key).unwrap_or_default()
}

#[derive(Debug)]
struct Entry<'a> {
    record: &'a Record,
    rank: Rank,
    version: Version,
}

/// The entries of a partition, as far as they are explained.
#[derive(Debug)]
pub(super) struct Steps<'a> {
    of: TopicPartition,
    entries: Vec<Entry<'a>>,
    /// How many entries are explained.
    explained: usize,
    /// What the inputs of the present step changed so far.
    changed: BTreeMap<Rank, Change>,
}

impl<'a> Steps<'a> {
    pub(super) fn new<M: Wire>(partition: Partition, records: &'a [Arc<Record>]) -> Self {
        let entry = |record: &'a Arc<Record>| Entry {
            record,
            rank: rank(key(record)),
            version: Version::of(M::CHANGELOG, record.value.as_deref()),
        };
        let of = TopicPartition { topic: M::CHANGELOG, partition };
        let entries = records.iter().map(entry).collect();
        Self { of, entries, explained: 0, changed: BTreeMap::new() }
    }

    /// How many entries are explained.
    pub(super) fn explained(&self) -> usize {
        self.explained
    }

    /// So many entries are explained, and nothing of the step after them is taken.
    pub(super) fn go_back_to(&mut self, explained: usize) {
        self.explained = explained;
        self.changed.clear();
    }

    /// A number for what the present step changed so far.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.changed.hash(&mut hasher);
        hasher.finish()
    }

    /// The entries that may be of the present step, by their order.
    fn run(&self) -> &[Entry<'a>] {
        let rest = &self.entries[self.explained..];
        let in_order = rest.windows(2).take_while(|pair| pair[0].rank < pair[1].rank).count();
        &rest[..rest.len().min(in_order + 1)]
    }

    /// Whether an input with these changes may be of the present step.
    pub(super) fn admit(&self, changes: &[Change]) -> Result<(), Flaw> {
        let run = self.run();
        for (key, value) in changes {
            let rank = rank(key);
            let Ok(at) = run.binary_search_by(|entry| entry.rank.cmp(&rank)) else {
                if self.is_known(&rank, value.as_ref()) {
                    continue;
                }
                let what = brief(self.of.topic, value.as_deref());
                let next = run.first().map_or_else(
                    || "ends before it".to_owned(),
                    |entry| format!("goes on at {}", place(entry.record)),
                );
                let text = format!("{} has no entry {key}, it {next}: {what}", self.of);
                return Err(Flaw::new(FlawKind::Lost, text));
            };
            let entry = &run[at];
            let version = Version::of(self.of.topic, value.as_deref());
            let other = version == entry.version && *value != entry.record.value;
            if !version.is_up_to(&entry.version) || (other && version.is_whole()) {
                let made = changed(self.of.topic, value.as_deref(), entry.record.value.as_deref());
                let text = format!("entry {key} at {}: {made}", place(entry.record));
                return Err(Flaw::new(FlawKind::Changed, text));
            }
        }
        Ok(())
    }

    /// Whether the last entry of this key says the same: then a step that is over may have had it.
    fn is_known(&self, rank: &Rank, value: Option<&Vec<u8>>) -> bool {
        let mut before = self.entries[..self.explained].iter().rev();
        let last = before.find(|entry| entry.rank == *rank);
        self.changed.is_empty() && last.is_some_and(|entry| entry.record.value.as_ref() == value)
    }

    /// An input with these changes was taken. True: with it ends the step.
    pub(super) fn take(&mut self, changes: &[Change]) -> bool {
        let run = self.run();
        let in_run = |key: &str| run.binary_search_by(|e| e.rank.cmp(&rank(key))).is_ok();
        let new: Vec<_> = changes.iter().filter(|(key, _)| in_run(key)).cloned().collect();
        self.changed.extend(new.into_iter().map(|change| (rank(&change.0), change)));
        let next = &self.entries[self.explained..];
        let is_step = !self.changed.is_empty()
            && self.changed.len() <= next.len()
            && self.changed.iter().zip(next).all(|((rank, (_, value)), entry)| {
                *rank == entry.rank && *value == entry.record.value
            });
        if is_step {
            self.explained += self.changed.len();
            self.changed.clear();
        }
        is_step
    }

    /// What is not explained now that all inputs are taken.
    pub(super) fn rest(&self) -> Option<Flaw> {
        let Some(entry) = self.entries.get(self.explained) else {
            // Changes are admitted only where there are entries.
            return None;
        };
        let (key, place) = (key(entry.record), place(entry.record));
        let found = entry.record.value.as_deref();
        let (kind, text) = match self.changed.get(&entry.rank) {
            Some((_, made)) => (FlawKind::Changed, changed(self.of.topic, made.as_deref(), found)),
            None => {
                let what = brief(self.of.topic, found);
                (FlawKind::Foreign, format!("it follows from no input: {what}"))
            }
        };
        Some(Flaw::new(kind, format!("entry {key} at {place}: {text}")))
    }
}

/// Checks that a state restored from the changelog is the state after all inputs (invariant 6).
///
/// # Errors
/// A row that differs.
pub(super) fn check_restored<M: Wire>(
    partition: Partition,
    layout: Layout,
    entries: &[Arc<Record>],
    taken: &[Taken<M>],
) -> Result<(), Flaw> {
    let flaw = |text: String| Flaw::new(FlawKind::Changed, text);
    let mut restored: M = fresh(partition, layout);
    for entry in entries {
        wire::restore(&mut restored, &entry.key, entry.value.as_deref())
            .map_err(|cause| flaw(format!("{} at {}: {cause}", key(entry), place(entry))))?;
    }
    let mut folded: M = fresh(partition, layout);
    for input in taken.iter().filter_map(|taken| taken.input.as_ref()) {
        folded.decide(input, &mut Vec::new())?;
        folded.commit();
    }
    let (restored, folded) = (restored.snapshot(), folded.snapshot());
    let differs = restored.iter().zip(&folded).find(|(restored, folded)| restored != folded);
    if let Some((found, wanted)) = differs {
        let topic = M::CHANGELOG;
        return Err(flaw(format!("{topic}/{partition} restores {found:?}, not {wanted:?}")));
    }
    if restored.len() != folded.len() {
        let (found, wanted) = (restored.len(), folded.len());
        let text = format!("{}/{partition} restores {found} rows, not {wanted}", M::CHANGELOG);
        return Err(flaw(text));
    }
    Ok(())
}
