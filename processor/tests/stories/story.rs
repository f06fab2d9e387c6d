//! Stories: inputs in order, each with the whole list of effects that it must have.
//!
//! Every story is played on several machines at once. So each input also proves that a step leaves no trace when it is
//! undone and has the same effects when it is repeated; that a machine restored from the changelog before the step has
//! the same effects; and that the changelog restores the state.

use std::collections::BTreeMap;

use schemas::{DepositId, FulfillmentId, TransferId, UnixMicros};
use tidemark_processor::machine::Machine;

/// Methods that a story needs of a machine.
pub(crate) trait Described: Machine {
    fn fresh() -> Self;

    /// Gives the ids in an effect their numbers.
    fn number(_effect: &Self::Effect, _numbers: &mut Numbers) {}

    /// The input with ids in the place of its numbers.
    fn translated(input: Self::Input, _numbers: &Numbers) -> Self::Input {
        input
    }

    /// One effect in one line; empty for effects outside stories.
    fn line(effect: &Self::Effect, numbers: &Numbers) -> String;

    /// `true` if this effect is a correct reply to a duplicate.
    fn may_repeat(duplicate: &Self::Input, effect: &Self::Effect) -> bool;

    /// Earlier inputs that may be repeated at any time, in their order, without effects.
    fn repeatable(inputs: &[Self::Input]) -> Vec<Self::Input>;

    /// The state without the parts that such a repetition may change.
    fn essence(&self) -> Vec<(String, Self::Entry)> {
        self.snapshot()
    }

    /// The entity that an effect publishes, with the time of its version.
    fn version(effect: &Self::Effect) -> Option<(String, UnixMicros)>;
}

/// Ids in the order in which they were given. Stories use their numbers, counted from 1 over all kinds.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Vec<Id>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Id {
    Deposit(DepositId),
    Transfer(TransferId),
    Fulfillment(FulfillmentId),
}

impl Numbers {
    pub(crate) fn give(&mut self, id: Id) {
        if !self.0.contains(&id) {
            self.0.push(id);
        }
    }

    /// Number of an id; an unknown id is its own number.
    pub(crate) fn of(&self, id: Id) -> i64 {
        let place = self.0.iter().position(|given| *given == id);
        place.map_or_else(
            || match id {
                Id::Deposit(DepositId(id))
                | Id::Transfer(TransferId(id))
                | Id::Fulfillment(FulfillmentId(id)) => id,
            },
            |place| i64::try_from(place).unwrap() + 1,
        )
    }

    /// Transfer of a number; an unknown number is the id itself.
    pub(crate) fn transfer(&self, number: i64) -> TransferId {
        let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        match place.and_then(|place| self.0.get(place)) {
            Some(Id::Transfer(id)) => *id,
            _ => TransferId(number),
        }
    }
}

/// A machine with all its inputs and effects.
pub(crate) struct Story<M: Described> {
    machine: M,
    /// A copy that takes every step twice, the first time aborted.
    aborted: M,
    /// The compacted changelog, as bytes.
    changelog: BTreeMap<String, Vec<u8>>,
    versions: BTreeMap<String, UnixMicros>,
    inputs: Vec<M::Input>,
    published: Vec<M::Effect>,
    numbers: Numbers,
}

impl<M: Described> Story<M> {
    pub(crate) fn new() -> Self {
        let (machine, aborted) = (M::fresh(), M::fresh());
        Self {
            machine,
            aborted,
            changelog: BTreeMap::new(),
            versions: BTreeMap::new(),
            inputs: Vec::new(),
            published: Vec::new(),
            numbers: Numbers::default(),
        }
    }

    /// Checks that this input has exactly these effects, as lines or parts between semicolons, and that its duplicate
    /// has none except those that may repeat.
    #[track_caller]
    pub(crate) fn then(mut self, input: impl Into<M::Input>, effects: &str) -> Self {
        let input = M::translated(input.into(), &self.numbers);
        let expected: Vec<&str> =
            effects.split([';', '\n']).map(str::trim).filter(|line| !line.is_empty()).collect();
        let found = self.step(&input);
        found.iter().for_each(|effect| M::number(effect, &mut self.numbers));
        let lines = found.iter().map(|effect| M::line(effect, &self.numbers));
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        assert!(
            lines == expected,
            "step {}: {input:?}\nexpected:\n  {}\nfound:\n  {}",
            self.inputs.len(),
            expected.join("\n  "),
            lines.join("\n  "),
        );
        for (entity, version) in found.iter().filter_map(M::version) {
            let last = self.versions.insert(entity, version);
            assert!(last < Some(version), "every version of a row has its own, later time");
        }
        let mut machine = self.machine.clone();
        for input in M::repeatable(&self.inputs) {
            self.assert_no_effect(&mut machine, &input);
        }
        assert_eq!(machine.essence(), self.machine.essence(), "repeated inputs left a trace");
        self.all_in_one_step();
        self.assert_no_effect(&mut self.machine.clone(), &input);
        self.published.extend(found);
        self
    }

    /// Takes all inputs in one step, undoes it, repeats it, and restores another machine from its changes.
    #[track_caller]
    fn all_in_one_step(&self) {
        let mut machine = M::fresh();
        let attempts: Vec<_> =
            self.inputs.iter().map(|input| decide(&mut machine, input)).collect();
        machine.undo().unwrap();
        assert_eq!(machine.snapshot(), M::fresh().snapshot(), "undo goes back to the beginning");
        let again: Vec<_> = self.inputs.iter().map(|input| decide(&mut machine, input)).collect();
        assert_eq!(again, attempts, "a long step is done again");
        assert_eq!(machine.snapshot(), self.machine.snapshot(), "batching changes nothing");
        let mut restored = M::fresh();
        for (key, entry) in machine.changes() {
            restored.restore(&key, entry.as_ref()).unwrap();
        }
        assert_eq!(restored.snapshot(), machine.snapshot(), "the changes are the whole state");
    }

    /// Checks that this input has no effects and changes no state.
    #[track_caller]
    pub(crate) fn ignores(self, input: impl Into<M::Input>) -> Self {
        let before = self.machine.snapshot();
        let story = self.then(input, "");
        assert_eq!(story.machine.snapshot(), before, "an ignored input left a trace");
        story
    }

    pub(crate) fn machine(&self) -> &M {
        &self.machine
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub(crate) fn published(&self) -> &[M::Effect] {
        &self.published
    }

    #[track_caller]
    fn step(&mut self, input: &M::Input) -> Vec<M::Effect> {
        let before = self.machine.snapshot();
        let mut restored = self.restored();
        assert_eq!(restored.snapshot(), before, "the changelog adds up to the state");

        let effects = decide(&mut self.machine, input);
        let after = self.machine.snapshot();

        let attempt = decide(&mut self.aborted, input);
        self.aborted.undo().unwrap();
        assert_eq!(self.aborted.snapshot(), before, "undo leaves nothing behind");
        assert!(self.aborted.changes().is_empty(), "undo leaves no change to write");
        let again = decide(&mut self.aborted, input);
        assert_eq!((&attempt, &again), (&effects, &effects), "an aborted step is done again");
        assert_eq!(self.aborted.snapshot(), after);

        assert_eq!(decide(&mut restored, input), effects, "a restored machine does the same");
        assert_eq!(restored.snapshot(), after);

        let changes = self.machine.changes();
        assert_eq!(self.aborted.changes(), changes);
        for (key, entry) in changes {
            match entry {
                Some(entry) => self.changelog.insert(key, schemas::encode(&entry).unwrap()),
                None => self.changelog.remove(&key),
            };
        }
        self.machine.commit();
        self.aborted.commit();
        assert!(self.machine.changes().is_empty(), "a committed step has no more to write");
        self.inputs.push(input.clone());
        effects
    }

    #[track_caller]
    fn assert_no_effect(&self, machine: &mut M, duplicate: &M::Input) {
        let mut effects = decide(machine, duplicate);
        effects.retain(|effect| !M::may_repeat(duplicate, effect));
        let lines = effects.iter().map(|effect| M::line(effect, &self.numbers));
        let lines: Vec<String> = lines.collect();
        assert!(
            lines.is_empty(),
            "a duplicate has effects: {duplicate:?}\n  {}",
            lines.join("\n  ")
        );
    }

    fn restored(&self) -> M {
        let mut machine = M::fresh();
        for (key, value) in &self.changelog {
            let entry: M::Entry = schemas::decode(value).unwrap();
            machine.restore(key, Some(&entry)).unwrap();
        }
        machine
    }
}

#[track_caller]
pub(crate) fn decide<M: Machine>(machine: &mut M, input: &M::Input) -> Vec<M::Effect> {
    let mut effects = Vec::new();
    machine.decide(input, &mut effects).unwrap();
    effects
}
