//! Stories: inputs in order, each with the whole list of effects that it must have.
//!
//! Every story is played on several machines at once, so that each row also proves: a step that is
//! undone leaves nothing behind and does the same when it is done again; a machine restored from the
//! changelog before the step does the same; the changelog adds up to the state.

use std::collections::BTreeMap;
use std::fmt::Debug;

use schemas::UnixMicros;
use schemas::record::Record;

/// What the two machines have in common.
pub(crate) trait Machine: Clone {
    type Input: Clone + Debug;
    type Effect: Clone + Debug + PartialEq;
    type Entry: Record + Clone + Debug + PartialEq;

    fn fresh() -> Self;
    fn decide(&mut self, input: &Self::Input, effects: &mut Vec<Self::Effect>);
    fn changes(&self) -> Vec<(String, Option<Self::Entry>)>;
    fn commit(&mut self);
    fn undo(&mut self);
    fn restore(&mut self, key: &str, entry: Option<&Self::Entry>) -> Result<(), String>;
    fn snapshot(&self) -> Vec<(String, Self::Entry)>;

    /// One effect in one line.
    fn line(effect: &Self::Effect) -> String;

    /// Whether saying this again is the right answer to a duplicate.
    fn may_repeat(duplicate: &Self::Input, effect: &Self::Effect) -> bool;

    /// What of the past may come again at any time, in its order, without any effect.
    fn old_news(told: &[Self::Input]) -> Vec<Self::Input>;

    /// The entity that an effect publishes, with its version clock.
    fn version(effect: &Self::Effect) -> Option<(String, UnixMicros)>;
}

/// A machine and all that was told to it so far.
pub(crate) struct Story<M: Machine> {
    machine: M,
    /// Lives through an aborted attempt before every step.
    aborted: M,
    /// The compacted changelog, as bytes.
    changelog: BTreeMap<String, Vec<u8>>,
    versions: BTreeMap<String, UnixMicros>,
    told: Vec<M::Input>,
}

impl<M: Machine> Story<M> {
    pub(crate) fn new() -> Self {
        let (machine, aborted) = (M::fresh(), M::fresh());
        Self {
            machine,
            aborted,
            changelog: BTreeMap::new(),
            versions: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    /// This input has exactly these effects: lines, or parts between semicolons. Given again at once, it
    /// has none.
    #[track_caller]
    pub(crate) fn then(&mut self, input: impl Into<M::Input>, effects: &str) -> &mut Self {
        let input = input.into();
        let expected: Vec<&str> =
            effects.split([';', '\n']).map(str::trim).filter(|line| !line.is_empty()).collect();
        let found = self.step(&input);
        let lines: Vec<String> = found.iter().map(M::line).collect();
        assert!(
            lines == expected,
            "step {}: {input:?}\nexpected:\n  {}\nfound:\n  {}",
            self.told.len(),
            expected.join("\n  "),
            lines.join("\n  "),
        );
        for (entity, version) in found.iter().filter_map(M::version) {
            let last = self.versions.insert(entity, version);
            assert!(last < Some(version), "every version of a row has its own, later time");
        }
        let mut machine = self.machine.clone();
        for input in M::old_news(&self.told) {
            assert_no_news(&mut machine, &input);
        }
        assert_eq!(machine.snapshot(), self.machine.snapshot(), "old news left a trace");
        self.all_in_one_step();
        assert_no_news(&mut self.machine.clone(), &input);
        self
    }

    /// The whole story so far as one big step: undone, done again, and written down at once.
    #[track_caller]
    fn all_in_one_step(&self) {
        let mut machine = M::fresh();
        let attempts: Vec<_> = self.told.iter().map(|input| decide(&mut machine, input)).collect();
        machine.undo();
        assert_eq!(machine.snapshot(), M::fresh().snapshot(), "undo goes back to the beginning");
        let again: Vec<_> = self.told.iter().map(|input| decide(&mut machine, input)).collect();
        assert_eq!(again, attempts, "a long step is done again");
        assert_eq!(machine.snapshot(), self.machine.snapshot(), "batching changes nothing");
        let mut restored = M::fresh();
        for (key, entry) in machine.changes() {
            assert_eq!(restored.restore(&key, entry.as_ref()), Ok(()), "{key} is restored");
        }
        assert_eq!(restored.snapshot(), machine.snapshot(), "the changes are the whole state");
    }

    /// This input has no effect at all, seen or unseen.
    #[track_caller]
    pub(crate) fn ignores(&mut self, input: impl Into<M::Input>) -> &mut Self {
        let before = self.machine.snapshot();
        self.then(input, "");
        assert_eq!(self.machine.snapshot(), before, "an input that should be ignored left a trace");
        self
    }

    /// The machine as it is now.
    pub(crate) fn machine(&self) -> &M {
        &self.machine
    }

    #[track_caller]
    fn step(&mut self, input: &M::Input) -> Vec<M::Effect> {
        let before = self.machine.snapshot();
        let mut restored = self.restored();
        assert_eq!(restored.snapshot(), before, "the changelog adds up to the state");

        let effects = decide(&mut self.machine, input);
        let after = self.machine.snapshot();

        let attempt = decide(&mut self.aborted, input);
        self.aborted.undo();
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
                Some(entry) => self.changelog.insert(key, encode(&entry)),
                None => self.changelog.remove(&key),
            };
        }
        self.machine.commit();
        self.aborted.commit();
        assert!(self.machine.changes().is_empty(), "a committed step has no more to write");
        self.told.push(input.clone());
        effects
    }

    fn restored(&self) -> M {
        let mut machine = M::fresh();
        for (key, value) in &self.changelog {
            let entry = schemas::decode::<M::Entry>(value).map_err(|error| error.to_string());
            let result = entry.and_then(|entry| machine.restore(key, Some(&entry)));
            assert_eq!(result, Ok(()), "{key} is restored");
        }
        machine
    }
}

#[track_caller]
fn assert_no_news<M: Machine>(machine: &mut M, duplicate: &M::Input) {
    let mut effects = decide(machine, duplicate);
    effects.retain(|effect| !M::may_repeat(duplicate, effect));
    let lines: Vec<String> = effects.iter().map(M::line).collect();
    assert!(lines.is_empty(), "a duplicate has effects: {duplicate:?}\n  {}", lines.join("\n  "));
}

pub(crate) fn decide<M: Machine>(machine: &mut M, input: &M::Input) -> Vec<M::Effect> {
    let mut effects = Vec::new();
    machine.decide(input, &mut effects);
    effects
}

fn encode<R: Record>(entry: &R) -> Vec<u8> {
    let encoded = schemas::encode(entry);
    assert!(encoded.is_ok(), "an entry of the changelog fits its schema");
    encoded.unwrap_or_default()
}
