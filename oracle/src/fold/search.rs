//! Looks for an order of a machine's inputs that explains its outputs.
//!
//! An input may come next if its outputs are the next ones in all their partitions, and exactly those
//! that the machine writes in its present state, and if the next entries of the changelog have what it
//! changes. Where inputs of two topics may both come next, one is taken, and if nothing fits later the
//! other. Where a step ends the changelog has said what the state is. But what looks like the end may not
//! be one: behind it, a head that was read twice may have come before the command that freed a deposit or
//! after it, and only what is forgotten then tells. So the choices of the last steps stay open.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use log::Envelope;
use log::{NewRecord, Record};
use processor::machine::Machine;
use processor::wire::Wire;
use schemas::{Layout, Partition};

use super::changelog::Steps;
use super::output::{Fronts, Output, Outputs, cause, difference, id, place};
use super::{Change, Flaw, FlawKind, Taken, changes, fresh};

/// How many steps with choices may be gone back to.
const STEPS_BACK: usize = 64;

/// An order in which `machine` takes all `inputs` (one slice for each topic) and writes exactly what is
/// there.
///
/// # Errors
/// What is wrong where the search came furthest.
pub(super) fn order<M: Wire>(
    partition: Partition,
    layout: Layout,
    inputs: &[&[Arc<Record>]],
    outputs: &Outputs,
    changelog: &[Arc<Record>],
) -> Result<Vec<Taken<M>>, Flaw> {
    let machine: M = fresh(partition, layout);
    let next = vec![0; inputs.len()];
    let step = Step {
        machine: machine.clone(),
        fronts: Fronts::default(),
        next: next.clone(),
        taken: 0,
        explained: 0,
    };
    let mut search = Search {
        step,
        partition,
        layout,
        machine,
        steps: Steps::new::<M>(partition, changelog),
        inputs,
        outputs,
        next,
        fronts: Fronts::default(),
        taken: Vec::new(),
        way: Vec::new(),
        choices: Vec::new(),
        past: VecDeque::new(),
        seen: HashSet::new(),
        furthest: None,
    };
    loop {
        if search.is_at_end() && search.steps.rest().is_none() {
            return Ok(search.taken);
        }
        if search.is_at_end() || !search.go_on() {
            search.note_dead_end();
            if !search.go_back() {
                let (_, flaw) = search.furthest.expect("a dead end was noted");
                return Err(flaw);
            }
        }
    }
}

/// An input as read, its effects, and the records that they are.
type Decision<M> = (Option<<M as Machine>::Input>, Vec<<M as Machine>::Effect>, Vec<NewRecord>);

/// What follows from an input, if that is what is there.
struct Fit<M: Wire> {
    input: Option<M::Input>,
    effects: Vec<M::Effect>,
    changes: Vec<Change>,
}

/// Where a step begins.
struct Step<M> {
    machine: M,
    fronts: Fronts,
    next: Vec<usize>,
    /// How many inputs are taken, and how many entries explained.
    taken: usize,
    explained: usize,
}

/// A step that seemed to end, and might have been another one.
struct Past<M> {
    step: Step<M>,
    way: Vec<usize>,
    choices: Vec<(usize, usize)>,
}

struct Search<'a, M: Wire> {
    partition: Partition,
    layout: Layout,
    machine: M,
    step: Step<M>,
    steps: Steps<'a>,
    inputs: &'a [&'a [Arc<Record>]],
    outputs: &'a Outputs,
    /// How many inputs of each topic are taken.
    next: Vec<usize>,
    fronts: Fronts,
    taken: Vec<Taken<M>>,
    /// Of which topic each input of the present step was.
    way: Vec<usize>,
    /// How many inputs of the step were taken when there was a choice, and a topic not chosen.
    choices: Vec<(usize, usize)>,
    /// Steps before it that had choices, the last one last.
    past: VecDeque<Past<M>>,
    /// Where there was a choice: what was taken, how many entries were explained, and what the step had
    /// changed. That is all the state there is.
    seen: HashSet<(Vec<usize>, usize, u64)>,
    furthest: Option<(usize, Flaw)>,
}

impl<'a, M: Wire> Search<'a, M> {
    fn is_at_end(&self) -> bool {
        self.next.iter().zip(self.inputs).all(|(next, all)| *next == all.len())
    }

    fn peek(&self, topic: usize) -> Option<&'a Arc<Record>> {
        self.inputs[topic].get(self.next[topic])
    }

    fn there(&self, record: &Record) -> &'a [Output] {
        self.outputs.of_input(place(record))
    }

    /// Takes the next input of some topic, if one fits.
    fn go_on(&mut self) -> bool {
        let mut fitting: Vec<usize> =
            (0..self.inputs.len()).filter(|topic| self.is_next_in_line(*topic)).collect();
        if let [only] = fitting[..] {
            return self.take(only);
        }
        fitting.retain(|topic| self.fits(*topic));
        let Some((first, others)) = fitting.split_first() else { return false };
        let here = || (self.next.clone(), self.steps.explained(), self.steps.fingerprint());
        if !others.is_empty() && !self.seen.insert(here()) {
            return false;
        }
        self.choices.extend(others.iter().map(|other| (self.way.len(), *other)));
        self.take(*first)
    }

    /// Whether the outputs of a topic's next input are the next ones of their lines.
    fn is_next_in_line(&self, topic: usize) -> bool {
        self.peek(topic).is_some_and(|record| self.fronts.not_next(self.there(record)).is_none())
    }

    fn fits(&mut self, topic: usize) -> bool {
        let Some(record) = self.peek(topic) else { return false };
        let fit = self.attempt(record);
        self.machine.undo().expect("a step that was only tried");
        fit.is_ok()
    }

    fn take(&mut self, topic: usize) -> bool {
        let Some(record) = self.peek(topic) else { return false };
        match self.attempt(record) {
            Ok(Fit { input, effects, changes }) => {
                self.machine.commit();
                self.fronts.pass(self.there(record));
                self.next[topic] += 1;
                self.way.push(topic);
                let cause = cause(record).map(|(cause, _)| cause);
                self.taken.push(Taken { from: place(record), cause, input, effects });
                if self.steps.take(&changes) {
                    self.begin_step();
                }
                true
            }
            Err(_) => {
                self.machine.undo().expect("a step that was only tried");
                false
            }
        }
    }

    /// What follows from an input now. The machine is left with the changes.
    fn attempt(&mut self, record: &Record) -> Result<Fit<M>, Flaw> {
        let there = self.there(record);
        if let Some(early) = self.fronts.not_next(there) {
            let (id, place) = (id(&early.record), place(&early.record));
            let text = format!("{id} at {place} stands after outputs of inputs not taken yet");
            return Err(Flaw::new(FlawKind::Disordered, text));
        }
        let (input, effects, expected) = self.decide(record)?;
        if let Some(flaw) = difference(place(record), &expected, there) {
            return Err(flaw);
        }
        let changes = changes(&self.machine, self.partition);
        self.steps.admit(&changes)?;
        Ok(Fit { input, effects, changes })
    }

    fn decide(&mut self, record: &Record) -> Result<Decision<M>, Flaw> {
        match self.machine.parse(record) {
            Ok(input) => {
                let mut effects = Vec::new();
                self.machine.decide(&input, &mut effects)?;
                let mut envelope = Envelope::of(record);
                let (partition, layout) = (self.partition, &self.layout);
                let wrap = |effect| M::wrap(effect, partition, layout, &mut envelope);
                let expected: Result<_, _> = effects.iter().map(wrap).collect();
                Ok((Some(input), effects, expected.expect("effects fit their schemas")))
            }
            Err(reason) => {
                let letter = log::dead_letter(record, M::GROUP, &reason);
                Ok((None, Vec::new(), vec![letter.expect("dead letters fit their schema")]))
            }
        }
    }

    fn note_dead_end(&mut self) {
        let mut flaws: Vec<_> =
            if self.is_at_end() { self.steps.rest().into_iter().collect() } else { Vec::new() };
        for topic in 0..self.inputs.len() {
            let Some(record) = self.peek(topic) else { continue };
            let fit = self.attempt(record);
            self.machine.undo().expect("a step that was only tried");
            flaws.extend(fit.err());
        }
        flaws.sort_by_key(|flaw| flaw.kind);
        let kind = flaws.first().map_or(FlawKind::Disordered, |flaw| flaw.kind);
        let last = self.taken.last().map(|taken| format!(" after {}", taken.from));
        let texts: Vec<_> = flaws.into_iter().map(|flaw| flaw.text).collect();
        let text = format!("{}{}", texts.join("\nor "), last.unwrap_or_default());
        let depth = self.taken.len();
        if self.furthest.as_ref().is_none_or(|(furthest, _)| *furthest < depth) {
            self.furthest = Some((depth, Flaw::new(kind, text)));
        }
    }

    /// A step has ended.
    fn begin_step(&mut self) {
        let way = std::mem::take(&mut self.way);
        // With one topic there is never a choice to come back to.
        if self.inputs.len() == 1 {
            return;
        }
        let next = Step {
            machine: self.machine.clone(),
            fronts: self.fronts.clone(),
            next: self.next.clone(),
            taken: self.taken.len(),
            explained: self.steps.explained(),
        };
        let step = std::mem::replace(&mut self.step, next);
        let choices = std::mem::take(&mut self.choices);
        if !choices.is_empty() {
            self.past.push_back(Past { step, way, choices });
            if self.past.len() > STEPS_BACK {
                self.past.pop_front();
            }
        }
    }

    /// Goes back to the last choice and takes the other input there.
    fn go_back(&mut self) -> bool {
        if self.choices.is_empty() {
            let Some(Past { step, way, choices }) = self.past.pop_back() else { return false };
            (self.step, self.way, self.choices) = (step, way, choices);
        }
        let Some((at, other)) = self.choices.pop() else { return false };
        self.taken.truncate(self.step.taken);
        self.machine = self.step.machine.clone();
        self.fronts = self.step.fronts.clone();
        self.next.clone_from(&self.step.next);
        self.steps.go_back_to(self.step.explained);
        let way = std::mem::take(&mut self.way);
        let again = way[..at].iter().chain([&other]).all(|topic| self.take(*topic));
        assert!(again, "what fitted once fits again");
        true
    }
}
