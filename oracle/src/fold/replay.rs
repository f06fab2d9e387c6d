//! Replays the inputs of a machine in the order that the records of its steps claim.
//!
//! Each step writes an entry for each row that it changed. The entries of a step are consecutive, and the first has the
//! header [`NEXT_HEADER`]. A step that changes no row writes no entry.

use std::sync::Arc;

use log::{Offset, Record, TopicPartition};
use processor::wire::{self, NEXT_HEADER, Wire};
use schemas::record::ProcessorStep;
use schemas::{Layout, Partition};

use super::output::{Author, Fronts, Outputs, brief, changed, position};
use super::{Flaw, FlawKind, Taken, changes, fresh};

/// Consecutive inputs of one topic in a step: index of the topic, and range of the inputs.
type Run = (usize, std::ops::Range<usize>);

/// All inputs of one machine, and its progress in them.
pub(super) struct Replay<'a, M: Wire> {
    partition: Partition,
    layout: Layout,
    machine: M,
    /// The committed inputs of each topic.
    inputs: &'a [&'a [Arc<Record>]],
    /// `true` if a step claims the input, for each input of each topic.
    claimed: Vec<Vec<bool>>,
    /// Number of inputs taken, by topic.
    next: Vec<usize>,
    outputs: &'a Outputs,
    fronts: Fronts,
    taken: Vec<Taken<M>>,
}

impl<'a, M: Wire> Replay<'a, M> {
    /// Replays all `inputs`, one slice for each topic of [`Wire::INPUTS`], and compares the results with the outputs
    /// and the changelog.
    pub(super) fn run(
        (partition, layout): (Partition, Layout),
        inputs: &'a [&'a [Arc<Record>]],
        outputs: &'a Outputs,
        steps: &[Arc<Record>],
        changelog: &[Arc<Record>],
    ) -> Result<Vec<Taken<M>>, Flaw> {
        let mut replay = Self {
            partition,
            layout,
            machine: fresh(partition, layout),
            inputs,
            claimed: inputs.iter().map(|all| vec![false; all.len()]).collect(),
            next: vec![0; inputs.len()],
            outputs,
            fronts: Fronts::default(),
            taken: Vec::new(),
        };
        let begins = |record: &Record| record.header(NEXT_HEADER).is_some();
        let mut entries = changelog.chunk_by(|_, next| !begins(next)).peekable();
        let claims: Result<Vec<_>, _> = steps.iter().map(|step| replay.claim(step)).collect();
        for (step, claim) in steps.iter().zip(claims?) {
            replay.step(step, claim, &mut entries)?;
        }
        if let Some(left) = entries.next() {
            replay.compare(&left[0], left)?;
        }
        for (topic, all) in inputs.iter().enumerate() {
            if let Some(input) = all.get(replay.next[topic]) {
                return Err(untaken(input));
            }
        }
        replay.check_all_passed()?;
        replay.check_restored(changelog)?;
        Ok(replay.taken)
    }

    fn of(&self, topic: usize) -> TopicPartition {
        TopicPartition { topic: M::INPUTS[topic], partition: self.partition }
    }

    fn step<'e>(
        &mut self,
        step: &Record,
        claim: Vec<Run>,
        entries: &mut impl Iterator<Item = &'e [Arc<Record>]>,
    ) -> Result<(), Flaw> {
        for (topic, run) in claim {
            if let Some(input) = self.inputs[topic][..run.start].get(self.next[topic]) {
                return Err(untaken(input));
            }
            if self.next[topic] > run.start {
                let (at, of) = (position(step), self.of(topic));
                let text = format!("the step at {at} claims inputs of {of} in another order");
                return Err(Flaw::new(FlawKind::Disordered, text));
            }
            for _ in run {
                self.take(topic)?;
            }
        }
        if !changes(&self.machine, self.partition).is_empty() {
            self.compare(step, entries.next().unwrap_or_default())?;
        }
        self.machine.commit();
        Ok(())
    }

    /// The inputs that a step claims.
    fn claim(&mut self, record: &Record) -> Result<Vec<Run>, Flaw> {
        let at = position(record);
        let flaw = |kind, what| Flaw::new(kind, format!("the step at {at}: {what}"));
        let step: ProcessorStep =
            record.read().map_err(|_| flaw(FlawKind::Foreign, "it is no step"))?;
        if step.inputs.is_empty() {
            return Err(flaw(FlawKind::Foreign, "it names no inputs"));
        }
        let mut runs = Vec::new();
        for run in step.inputs {
            let topic = M::INPUTS.iter().position(|topic| topic.name() == run.topic);
            let topic = topic.ok_or_else(|| flaw(FlawKind::Foreign, "it names no inputs"))?;
            let first = Offset(run.first);
            let start = self.inputs[topic].binary_search_by_key(&first, |record| record.offset);
            let start = start.map_err(|_| flaw(FlawKind::Foreign, "the first is not there"))?;
            let end = start + usize::try_from(run.count).unwrap_or_default();
            let claimed = self.claimed[topic].get_mut(start..end);
            let claimed = claimed.ok_or_else(|| flaw(FlawKind::Uncommitted, "it goes too far"))?;
            if claimed.contains(&true) {
                return Err(flaw(FlawKind::Doubled, "a step before it has taken some of them"));
            }
            claimed.fill(true);
            runs.push((topic, start..end));
        }
        Ok(runs)
    }

    /// Takes the next input of a topic.
    fn take(&mut self, topic: usize) -> Result<(), Flaw> {
        let record = &self.inputs[topic][self.next[topic]];
        let at = (self.partition, &self.layout);
        let (mut effects, mut expected) = (Vec::new(), Vec::new());
        let input = wire::take(&mut self.machine, at, record, &mut effects, &mut expected);
        let input = input.map_err(|error| Flaw::new(FlawKind::Broken, error.to_string()))?;
        let (from, author) = (position(record), Author::of::<M>(self.partition));
        let outputs = self.outputs.pass(author, &mut self.fronts, from, &expected)?;
        self.next[topic] += 1;
        self.taken.push(Taken { from, input, effects, outputs });
        Ok(())
    }

    /// Checks that each record of this machine follows from an input (invariant 7).
    fn check_all_passed(&self) -> Result<(), Flaw> {
        let author = Author::of::<M>(self.partition);
        let Some((left, same)) = self.outputs.left(author, &self.fronts) else { return Ok(()) };
        let (at, what) = (position(left), brief(left.from.topic, left.value.as_deref()));
        if let Some(same) = same {
            let text = format!("{what} is written twice, at {} and at {at}", position(same));
            return Err(Flaw::new(FlawKind::Doubled, text));
        }
        let text = format!("{at} follows from no committed input: {what}");
        Err(Flaw::new(FlawKind::Foreign, text))
    }

    /// Compares the changes of a step with its entries.
    fn compare(&self, step: &Record, entries: &[Arc<Record>]) -> Result<(), Flaw> {
        let mut expected = changes(&self.machine, self.partition).into_iter();
        for entry in entries {
            let (at, key) = (position(entry), String::from_utf8_lossy(&entry.key));
            let found = entry.value.as_deref();
            match expected.next() {
                Some((wanted, value)) if wanted == key => {
                    if value.as_deref() != found {
                        let made = changed(M::CHANGELOG, value.as_deref(), found);
                        let text = format!("entry {key} at {at}: {made}");
                        return Err(Flaw::new(FlawKind::Changed, text));
                    }
                }
                Some((wanted, value)) => {
                    let what = brief(M::CHANGELOG, value.as_deref());
                    let text = format!("entry {wanted} is not before {key} at {at}: {what}");
                    return Err(Flaw::new(FlawKind::Lost, text));
                }
                None => {
                    let what = brief(M::CHANGELOG, found);
                    let text = format!("entry {key} at {at} follows from no input: {what}");
                    return Err(Flaw::new(FlawKind::Foreign, text));
                }
            }
        }
        expected.next().map_or(Ok(()), |(wanted, value)| {
            let (at, what) = (position(step), brief(M::CHANGELOG, value.as_deref()));
            let text = format!("the step at {at} has no entry {wanted}: {what}");
            Err(Flaw::new(FlawKind::Lost, text))
        })
    }

    /// Checks that a state restored from the changelog is the state after all inputs (invariant 6).
    fn check_restored(&self, changelog: &[Arc<Record>]) -> Result<(), Flaw> {
        let flaw = |text: String| Flaw::new(FlawKind::Changed, text);
        let mut restored: M = fresh(self.partition, self.layout);
        for entry in changelog {
            wire::restore(&mut restored, &entry.key, entry.value.as_deref())
                .map_err(|cause| flaw(format!("entry at {}: {cause}", position(entry))))?;
        }
        let (restored, replayed) = (restored.snapshot(), self.machine.snapshot());
        if restored == replayed {
            return Ok(());
        }
        let differs = restored.iter().zip(&replayed).find(|(found, wanted)| found != wanted);
        let of = format!("{}/{}", M::CHANGELOG, self.partition);
        Err(flaw(match differs {
            Some((found, wanted)) => format!("{of} restores {found:?}, not {wanted:?}"),
            None => format!("{of} restores {} rows, not {}", restored.len(), replayed.len()),
        }))
    }
}

fn untaken(input: &Record) -> Flaw {
    let text = format!("no step took {}, and what follows from it is lost", position(input));
    Flaw::new(FlawKind::Lost, text)
}
