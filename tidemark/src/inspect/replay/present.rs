//! Current state, from the changelogs.
//!
//! The changelogs are read to the end twice: during the first pass compaction may replace an entry by a later one. The
//! state then includes every step before the first one that took an input beyond the positions in the entries.

use std::collections::BTreeMap;

use anyhow::Context;
use log::{Offset, TopicPartition};
use processor::next_inputs;
use processor::wire::{self, NEXT_HEADER, Wire};
use schemas::record::ProcessorStep;
use schemas::{Layout, Partition, Topic};

use super::driver::{Position, Rows, rows_of};
use super::pages::{Pages, Readahead};

/// Returns the present position of a machine, and its rows.
pub(super) fn of<M: Wire>(
    readahead: &Readahead,
    partition: Partition,
    layout: &Layout,
) -> anyhow::Result<(Position, Rows)> {
    let source = readahead.source();
    let at = |topic| TopicPartition { topic, partition };
    // Steps before this were committed before the changelog is read.
    let committed = source.stable_end(at(M::STEPS))?;
    let mut machine =
        M::fresh(partition, layout).with_context(|| format!("no partition {partition}"))?;
    let mut next = BTreeMap::new();
    let start = source.bounds(at(M::CHANGELOG))?.start;
    let mut entries = Pages::new(readahead, at(M::CHANGELOG), start, start);
    // Entries that are written during the second pass are too young to be compacted.
    for _ in 0..2 {
        entries.extend(source.stable_end(at(M::CHANGELOG))?);
        while let Some(entry) = entries.take()? {
            wire::restore(&mut machine, &entry.key, entry.value.as_deref())?;
            if let Some(inputs) = entry.header(NEXT_HEADER).and_then(next_inputs) {
                next = inputs.into_iter().collect();
            }
        }
    }
    let steps = first_after(readahead, at(M::STEPS), committed, &next)?;
    // The first replayed step sets the input positions: steps that took inputs between the positions in the changelog
    // and that step changed no state.
    Ok((Position { steps, inputs: BTreeMap::new() }, rows_of(&machine)?))
}

/// The first step from `from` on with an input that the state lacks.
fn first_after(
    readahead: &Readahead,
    of: TopicPartition,
    from: Offset,
    next: &BTreeMap<Topic, Offset>,
) -> anyhow::Result<Offset> {
    let mut steps = Pages::new(readahead, of, from, readahead.source().stable_end(of)?);
    while let Some(record) = steps.peek()? {
        let place = || format!("{of}@{} is no step", record.offset);
        let step: ProcessorStep = record.read().with_context(place)?;
        let is_later = step.inputs.iter().any(|run| {
            let next = Topic::named(&run.topic).and_then(|topic| next.get(&topic));
            next.is_none_or(|next| run.first >= next.0)
        });
        if is_later {
            break;
        }
        steps.take()?;
    }
    Ok(steps.position())
}
