//! Replay of one machine of a partition, step by step.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use log::{NewRecord, Offset, Record, TopicPartition};
use processor::wire::{self, Wire};
use schemas::record::ProcessorStep;
use schemas::{Layout, Partition, Topic, UnixMicros};

use super::pages::{Pages, Readahead};

/// A record that follows from an input.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) input: (TopicPartition, Offset),
    pub(super) record: NewRecord,
}

#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) inputs: u64,
    pub(super) outputs: Vec<Output>,
    /// Inputs that no step took, though a later one was taken.
    pub(super) untaken: Vec<Arc<Record>>,
}

/// The state of a machine as it is saved: its rows, encoded, in a fixed order.
pub(super) type Rows = Vec<(String, Vec<u8>)>;

pub(super) fn rows_of<M: Wire>(machine: &M) -> anyhow::Result<Rows> {
    let row = |(key, entry)| anyhow::Ok((key, schemas::encode(&entry)?));
    machine.snapshot().into_iter().map(row).collect()
}

/// Position of a machine: the next step, and the next input of each topic where that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) steps: Offset,
    pub(super) inputs: BTreeMap<Topic, Offset>,
}

impl Position {
    /// Returns the position of a machine that has read nothing.
    pub(super) fn beginning<M: Wire>() -> Self {
        let inputs = M::INPUTS.iter().map(|topic| (*topic, Offset(0))).collect();
        Self { steps: Offset(0), inputs }
    }
}

/// A replayed machine, of matching or of orders.
pub(super) trait Play {
    /// Returns the append time of its next step; `None` after its last.
    fn due(&mut self) -> anyhow::Result<Option<UnixMicros>>;
    /// Replays its next step.
    fn play(&mut self) -> anyhow::Result<Played>;
    /// Its group, partition, position and rows.
    fn saved(&self) -> anyhow::Result<(&'static str, Partition, Position, Rows)>;
}

/// A machine with the logged steps and inputs that it repeats.
pub(super) struct Driver<M: Wire> {
    machine: M,
    partition: Partition,
    layout: Layout,
    steps: Pages,
    inputs: Vec<Input>,
    effects: Vec<M::Effect>,
}

/// One of the topics that a machine reads.
struct Input {
    pages: Pages,
    end: Offset,
    /// `true` if `pages` starts at a known position; otherwise the first step sets it.
    is_placed: bool,
    /// `true` until a machine that starts empty takes from the topic: it must begin with the first record there.
    begins: bool,
}

impl<M: Wire> Driver<M> {
    /// A machine with these rows; without rows it has read nothing. `end` is the end of its steps.
    pub(super) fn new(
        (partition, layout): (Partition, Layout),
        (position, rows): (&Position, &[(String, Vec<u8>)]),
        (readahead, end): (&Readahead, Offset),
    ) -> anyhow::Result<Self> {
        let mut machine = M::fresh(partition, &layout)
            .with_context(|| format!("the layout has no partition {partition}"))?;
        for (key, value) in rows {
            wire::restore(&mut machine, key.as_bytes(), Some(value))?;
        }
        let at = |topic| TopicPartition { topic, partition };
        let input = |topic: &Topic| {
            let from = position.inputs.get(topic).copied();
            // This end is read after the end of the steps, so it includes every input that a step took.
            let end = readahead.source().bounds(at(*topic))?.end;
            let pages = Pages::new(readahead, at(*topic), from.unwrap_or_default(), end);
            let begins = rows.is_empty() && from == Some(Offset(0));
            anyhow::Ok(Input { pages, end, is_placed: from.is_some(), begins })
        };
        let inputs = M::INPUTS.iter().map(input).collect::<Result<_, _>>()?;
        let steps = Pages::new(readahead, at(M::STEPS), position.steps, end);
        Ok(Self { machine, partition, layout, steps, inputs, effects: Vec::new() })
    }

    /// Skips the inputs before `first`, which no step took.
    fn skip_to(
        &mut self,
        (topic, first): (usize, Offset),
        untaken: &mut Vec<Arc<Record>>,
    ) -> anyhow::Result<()> {
        let Some(input) = self.inputs.get_mut(topic) else { return Ok(()) };
        if !input.is_placed {
            input.pages.restart(first, input.end);
            input.is_placed = true;
        }
        let is_before = |record: Option<&Arc<Record>>| record.is_some_and(|at| at.offset < first);
        if std::mem::take(&mut input.begins) && is_before(input.pages.peek()?) {
            bail!(
                "{}: the steps of inputs before {} are not on the log. Begin with a --state; `tidemark replay --now \
                 --save-state DIR` takes one",
                input.pages.of,
                first
            );
        }
        while is_before(input.pages.peek()?) {
            untaken.extend(input.pages.take()?);
        }
        Ok(())
    }
}

impl<M: Wire> Play for Driver<M> {
    fn due(&mut self) -> anyhow::Result<Option<UnixMicros>> {
        Ok(self.steps.peek()?.map(|step| step.appended_at))
    }

    fn play(&mut self) -> anyhow::Result<Played> {
        let mut played = Played::default();
        let Some(record) = self.steps.take()? else { return Ok(played) };
        let at = format!("{}@{}", record.from, record.offset);
        let step: ProcessorStep = record.read().with_context(|| format!("{at} is no step"))?;
        for run in step.inputs {
            let topic = M::INPUTS.iter().position(|topic| topic.name() == run.topic);
            let topic = topic.with_context(|| format!("{at} names {:?}", run.topic))?;
            self.skip_to((topic, Offset(run.first)), &mut played.untaken)?;
            for number in 0..run.count {
                let next = self.inputs.get_mut(topic).map(|input| input.pages.take());
                let next = next.transpose()?.flatten();
                let Some(input) = next.filter(|next| number > 0 || next.offset.0 == run.first)
                else {
                    bail!(
                        "{at} took {}/{}@{}, which the log no longer has: begin with a younger --state",
                        run.topic,
                        self.partition,
                        run.first
                    );
                };
                let (place, mut records) = ((self.partition, &self.layout), Vec::new());
                wire::take(&mut self.machine, place, &input, &mut self.effects, &mut records)?;
                let input = (input.from, input.offset);
                let outputs = records.into_iter().map(|record| Output { input, record });
                played.outputs.extend(outputs);
                played.inputs = played.inputs.saturating_add(1);
            }
        }
        self.machine.commit();
        Ok(played)
    }

    fn saved(&self) -> anyhow::Result<(&'static str, Partition, Position, Rows)> {
        let placed = self.inputs.iter().zip(M::INPUTS).filter(|(input, _)| input.is_placed);
        let inputs = placed.map(|(input, topic)| (*topic, input.pages.position())).collect();
        let position = Position { steps: self.steps.position(), inputs };
        Ok((M::GROUP, self.partition, position, rows_of(&self.machine)?))
    }
}
