//! Replays the inputs of a machine in the order that its changelog claims.
//!
//! Each step writes the rows that it changed as entries in a row; the header of the first one lists the
//! inputs of the step ([`INPUTS_HEADER`]). A step that changes no row leaves no entry, so its inputs are in
//! no claim. Each of them is taken between two steps, as soon as it fits: its outputs are the next ones and
//! it changes no row. Sooner or later makes no difference then.

use std::sync::Arc;

use log::{Offset, Record, TopicPartition};
use processor::wire::{self, INPUTS_HEADER, Wire};
use schemas::{Layout, Partition};

use super::output::{Author, Fronts, Outputs, brief, changed, position};
use super::{Flaw, FlawKind, Taken, changes, fresh};

/// Inputs of one topic that a step took in a row: the index of the topic, and those of the inputs.
type Run = (usize, std::ops::Range<usize>);

/// All inputs of one machine and how far they are taken.
pub(super) struct Replay<'a, M: Wire> {
    partition: Partition,
    layout: Layout,
    machine: M,
    /// The committed inputs of each topic.
    inputs: &'a [&'a [Arc<Record>]],
    /// Whether a step claims an input, for each input of each topic.
    claimed: Vec<Vec<bool>>,
    /// How many inputs of each topic are taken.
    next: Vec<usize>,
    outputs: &'a Outputs,
    fronts: Fronts,
    taken: Vec<Taken<M>>,
}

impl<'a, M: Wire> Replay<'a, M> {
    /// Takes all `inputs`, one slice for each topic of [`Wire::INPUTS`], and compares what follows with
    /// the outputs and with the changelog.
    pub(super) fn run(
        partition: Partition,
        layout: Layout,
        inputs: &'a [&'a [Arc<Record>]],
        outputs: &'a Outputs,
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
        let begins = |record: &Record| record.header(INPUTS_HEADER).is_some();
        let steps: Vec<_> = changelog.chunk_by(|_, next| !begins(next)).collect();
        let claims: Result<Vec<_>, _> = steps.iter().map(|step| replay.claim(&step[0])).collect();
        for (step, claim) in steps.into_iter().zip(claims?) {
            replay.step(step, claim)?;
        }
        replay.take_unclaimed()?;
        for (topic, all) in inputs.iter().enumerate() {
            replay.take_up_to(topic, all.len())?;
        }
        replay.check_all_passed()?;
        replay.check_restored(changelog)?;
        Ok(replay.taken)
    }

    fn of(&self, topic: usize) -> TopicPartition {
        TopicPartition { topic: M::INPUTS[topic], partition: self.partition }
    }

    fn step(&mut self, entries: &[Arc<Record>], claim: Vec<Run>) -> Result<(), Flaw> {
        self.take_unclaimed()?;
        for (topic, run) in claim {
            self.take_up_to(topic, run.start)?;
            if self.next[topic] > run.start {
                let (at, of) = (position(&entries[0]), self.of(topic));
                let text = format!("the step at {at} claims inputs of {of} in another order");
                return Err(Flaw::new(FlawKind::Disordered, text));
            }
            for _ in run {
                self.take(topic)?;
            }
        }
        self.compare(entries)?;
        self.machine.commit();
        Ok(())
    }

    /// What the header of a step's first entry claims.
    fn claim(&mut self, entry: &Record) -> Result<Vec<Run>, Flaw> {
        let header = entry.header(INPUTS_HEADER);
        let claim = header.map(String::from_utf8_lossy).unwrap_or_default();
        let at = position(entry);
        let flaw =
            |kind, what| Flaw::new(kind, format!("the step at {at} claims {claim:?}: {what}"));
        let read = |text: &str| {
            let (name, run) = text.split_once('/')?;
            let (first, count) = run.split_once('+')?;
            let topic = M::INPUTS.iter().position(|topic| topic.name() == name)?;
            Some((topic, Offset(first.parse().ok()?), count.parse::<usize>().ok()?))
        };
        let mut runs = Vec::new();
        for run in claim.split(',') {
            let (topic, first, count) =
                read(run).ok_or_else(|| flaw(FlawKind::Foreign, "it names no inputs"))?;
            let start = self.inputs[topic].binary_search_by_key(&first, |record| record.offset);
            let start = start.map_err(|_| flaw(FlawKind::Foreign, "the first is not there"))?;
            let claimed = self.claimed[topic].get_mut(start..start + count);
            let claimed = claimed.ok_or_else(|| flaw(FlawKind::Uncommitted, "it goes too far"))?;
            if claimed.contains(&true) {
                return Err(flaw(FlawKind::Doubled, "a step before it has taken some of them"));
            }
            claimed.fill(true);
            runs.push((topic, start..start + count));
        }
        Ok(runs)
    }

    /// Takes the inputs that no step claims, as far as they fit now.
    fn take_unclaimed(&mut self) -> Result<(), Flaw> {
        let mut topic = 0;
        while topic < self.inputs.len() {
            let is_unclaimed = self.claimed[topic].get(self.next[topic]) == Some(&false);
            if is_unclaimed && self.take_up_to(topic, self.next[topic] + 1).is_ok() {
                topic = 0;
            } else {
                topic += 1;
            }
        }
        Ok(())
    }

    /// Takes inputs that no step claims. The machine is as before if one of them does not fit.
    fn take_up_to(&mut self, topic: usize, end: usize) -> Result<(), Flaw> {
        while self.next[topic] < end {
            let input = position(&self.inputs[topic][self.next[topic]]);
            let (fronts, taken) = (self.fronts.clone(), self.taken.len());
            let changed = self.take(topic).map(|()| changes(&self.machine, self.partition).pop());
            let flaw = match changed {
                Ok(None) => {
                    self.machine.commit();
                    continue;
                }
                Ok(Some((key, value))) => {
                    self.next[topic] -= 1;
                    let (of, what) = (M::CHANGELOG, brief(M::CHANGELOG, value.as_deref()));
                    let text = format!("{input} changes {key}, which is not on {of}: {what}");
                    Flaw::new(FlawKind::Lost, text)
                }
                Err(flaw) => flaw,
            };
            self.fronts = fronts;
            self.taken.truncate(taken);
            self.machine.undo()?;
            return Err(flaw);
        }
        Ok(())
    }

    /// Takes the next input of a topic.
    fn take(&mut self, topic: usize) -> Result<(), Flaw> {
        let record = &self.inputs[topic][self.next[topic]];
        let (mut effects, mut expected) = (Vec::new(), Vec::new());
        let input = match self.machine.parse(record) {
            Ok(input) => {
                self.machine.decide(&input, &mut effects)?;
                expected.extend(effects.iter().map(|effect| {
                    let output = M::encode(effect, self.partition, &self.layout);
                    output.expect("effects fit their schemas").traced(record.traceparent())
                }));
                Some(input)
            }
            Err(unreadable) => {
                let letter = log::dead_letter(record, M::GROUP, &unreadable.to_string());
                expected.push(letter.expect("dead letters fit their schema"));
                None
            }
        };
        let (from, author) = (position(record), Author::of::<M>(self.partition));
        let outputs = self.outputs.pass(author, &mut self.fronts, from, &expected)?;
        self.next[topic] += 1;
        self.taken.push(Taken { from, input, effects, outputs });
        Ok(())
    }

    /// Checks that nothing of this machine is there that follows from no input (invariant 7).
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

    /// Compares what a step changed with its entries.
    fn compare(&self, entries: &[Arc<Record>]) -> Result<(), Flaw> {
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
            let (at, what) = (position(&entries[0]), brief(M::CHANGELOG, value.as_deref()));
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
