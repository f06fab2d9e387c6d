//! Final checks of a log, and a test that they find planted flaws.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use log::{Offset, Record, TopicPartition};
use processor::replay::is_output;
use processor::wire::NEXT_HEADER;
use schemas::record::{InputRun, Order, ProcessorStep, Transfer};
use schemas::{OrderCause, Stage, Topic, UnknownReason};

use crate::fold::{
    Explanation, FlawKind, Positions, Reading, explain, flaws, is_altered, is_before_similar,
    is_changelog, is_steps,
};
use crate::load::Shop;
use crate::machine_model::ledger::Ledger;

/// Checks that every output follows from the inputs and that the invariants hold on the log; panics otherwise.
pub fn judge(shop: &Shop, reading: &Reading, committed: &Positions) -> Explanation {
    let untaken = reading.untaken(committed);
    assert!(untaken.is_empty(), "inputs that were not taken: {untaken:?}");
    let explanation = explain(reading, committed).unwrap_or_else(|flaw| panic!("{flaw}"));
    for (lane, chain) in shop.chains() {
        let delivered = explanation.delivered(lane);
        let ledger = Ledger::of(std::slice::from_ref(chain), &delivered)
            .unwrap_or_else(|violation| panic!("lane {lane}: {violation}"));
        ledger.check_end().unwrap_or_else(|violation| panic!("lane {lane}: {violation}"));
    }
    explanation
}

/// Number of records of each topic, to check the coverage of a test.
pub fn counts(reading: &Reading) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for of in reading.partitions() {
        *counts.entry(of.topic.name()).or_default() += reading.records(of).len();
    }
    counts
}

/// Counts of the rare cases of the load.
#[derive(Debug, Default)]
pub struct Seldom {
    /// Transfers of the merchant's own money.
    pub own_money: usize,
    /// Choices that were refused because the lane was behind its chain.
    pub unavailable: usize,
    /// Orders that were forgotten, and returned with a command.
    pub revived: usize,
    /// Orders paid by a late payment, after they had ended.
    pub late: usize,
    /// Orders paid by a transfer that an operator attached.
    pub attached: usize,
}

impl Seldom {
    /// Counts the cases on a log.
    pub fn of(reading: &Reading) -> Self {
        let mut seldom = Self::default();
        for of in reading.partitions() {
            let mut forgotten = HashSet::new();
            for record in reading.records(of) {
                match (of.topic, record.value.as_ref()) {
                    (Topic::TransfersUnknown, Some(value)) => {
                        let transfer: Transfer = schemas::decode(value).unwrap();
                        let is_own = transfer.reason == Some(UnknownReason::OwnWallet);
                        seldom.own_money += usize::from(is_own);
                    }
                    (Topic::Orders, Some(value)) => {
                        let order: Order = schemas::decode(value).unwrap();
                        let is_unavailable = order.cause == OrderCause::PaymentUnavailable;
                        seldom.unavailable += usize::from(is_unavailable);
                        seldom.late += usize::from(order.cause == OrderCause::PaidLate);
                        seldom.attached += usize::from(order.cause == OrderCause::Attached);
                    }
                    (Topic::OrdersChangelog, None) => drop(forgotten.insert(&record.key)),
                    (Topic::OrdersChangelog, Some(_)) => {
                        seldom.revived += usize::from(forgotten.remove(&record.key));
                    }
                    _ => {}
                }
            }
        }
        seldom
    }
}

/// Plants flaws in each topic of the processor, and checks that each is found as a kind that fits it.
pub fn flaws_are_found(reading: &Reading, committed: &Positions) {
    // Skipped, as they are rare: there may be no alert and no dead letter.
    let is_rare = |topic: &Topic| [Topic::Alerts, Topic::DeadLetters].contains(topic);
    for topic in Topic::written_by(Stage::Processor).filter(|topic| !is_rare(topic)) {
        let written = |record: &Record| is_changelog(topic) || is_output(record);
        let count = |of: &TopicPartition| {
            reading.records(*of).iter().filter(|record| written(record)).count()
        };
        let partitions = reading.partitions().filter(|of| of.topic == topic);
        let of = partitions.max_by_key(count);
        let of = of.unwrap_or_else(|| panic!("{topic} has no partitions"));
        let planting = Planting { reading, committed, of };
        if is_steps(topic) {
            planting.check_claims();
        } else {
            planting.check_records(&written);
        }
    }
}

/// The partition in which flaws are planted, each in a fresh copy of the log.
struct Planting<'a> {
    reading: &'a Reading,
    committed: &'a Positions,
    of: TopicPartition,
}

impl Planting<'_> {
    fn records(&self) -> &[Arc<Record>] {
        self.reading.records(self.of)
    }

    /// Index of a record that fits: the first in the last third, otherwise the first of all.
    fn choose(&self, fits: impl Fn(usize) -> bool) -> usize {
        let count = self.records().len();
        let mut places = (count * 2 / 3..count).chain(0..count * 2 / 3);
        places.find(|at| fits(*at)).unwrap_or_else(|| panic!("no record of {} fits", self.of))
    }

    /// Checks that the planted flaw is found as one of these kinds: the order of reading may decide which. It may cause
    /// other flaws, as outputs are inputs of the other machine.
    fn check(
        &self,
        what: &str,
        at: usize,
        kinds: &[FlawKind],
        change: impl FnOnce(&mut Vec<Arc<Record>>),
    ) {
        let what = format!("{what} at {}/{}", self.of, self.records()[at].offset);
        let mut altered = self.reading.clone();
        change(altered.records_mut(self.of));
        let found = flaws(&altered, self.committed);
        let shown = found.iter().map(|flaw| {
            let text = flaw.to_string();
            text.lines().next().unwrap_or_default().to_owned()
        });
        let shown = shown.collect::<Vec<_>>().join("; ");
        println!("{what}: {shown}");
        assert!(
            found.iter().any(|flaw| kinds.contains(&flaw.kind)),
            "{what} is no {kinds:?}: {shown}"
        );
    }

    fn check_records(&self, written: &impl Fn(&Record) -> bool) {
        // Not the first entry of a step: without it, the other entries would belong to the step before.
        // Not a record before a similar one: without it, the similar one would be reported as changed, not as lost.
        let records = self.records();
        let at = self.choose(|at| {
            let record = &records[at];
            written(record)
                && record.header(NEXT_HEADER).is_none()
                && !is_before_similar(self.reading, records, at)
        });
        let record = &records[at];
        // If the record is an input of the other machine, its outputs may be found first, as foreign.
        let kinds = [FlawKind::Lost, FlawKind::Foreign];
        self.check("lost", at, &kinds, |all| drop(all.remove(at)));
        // In a changelog the copy is an entry of the last step, which did not change this row.
        let kind = if is_changelog(self.of.topic) { FlawKind::Foreign } else { FlawKind::Doubled };
        self.check("doubled", at, &[kind], |all| {
            let last = all.last().map_or(Offset(0), |last| last.offset);
            all.push(Arc::new(Record { offset: last.next(), ..(**record).clone() }));
        });
        self.check("renamed", at, &[FlawKind::Lost], |all| all[at] = Arc::new(renamed(record)));
        // A tombstone has no value to alter.
        let at = self.choose(|at| written(&records[at]) && records[at].value.is_some());
        let altered = altered(self.reading, &records[at]);
        self.check("altered", at, &[FlawKind::Changed], |all| all[at] = Arc::new(altered));
    }

    fn check_claims(&self) {
        let at = self.records().len() * 2 / 3;
        for (what, kinds, change) in CLAIM_FLAWS {
            let record = &self.records()[at];
            let mut step: ProcessorStep = record.read().expect("a step");
            change(&mut step);
            let value = Some(schemas::encode(&step).expect("it fits its schema"));
            let changed = Record { value, ..(**record).clone() };
            self.check(what, at, kinds, |all| all[at] = Arc::new(changed));
        }
        // An effect of the lost step may be found instead: changed outputs, or outputs out of order.
        let kinds = [FlawKind::Lost, FlawKind::Changed, FlawKind::Disordered];
        self.check("a lost step", at, &kinds, |all| drop(all.remove(at)));
    }
}

/// The same record with one byte of its value lowered, such that [`is_altered`] holds.
fn altered(reading: &Reading, record: &Record) -> Record {
    let value = record.value.as_ref().expect("it has one");
    let cut = |at: usize| {
        let mut value = value.clone();
        value[at] -= 1;
        Record { value: Some(value), ..record.clone() }
    };
    let places = (0..value.len()).rev().filter(|at| value[*at] > 1);
    let mut altered = places.map(cut).filter(|altered| is_altered(reading, record, altered));
    altered.next().expect("it says something")
}

/// Alteration of a step's record.
type Altered = fn(&mut ProcessorStep);

/// Alterations after which a step's record claims other inputs than the step took.
const CLAIM_FLAWS: [(&str, &[FlawKind], Altered); 3] = [
    ("a claim without its first input", &[FlawKind::Lost, FlawKind::Foreign], |step| {
        let first = &mut step.inputs[0];
        first.count -= 1;
        first.first += 1;
    }),
    // A command taken twice may first be found by an output that is missing the second time.
    ("a claim of what was taken before", &[FlawKind::Doubled, FlawKind::Lost], |step| {
        let topic = step.inputs[0].topic.clone();
        step.inputs.insert(0, InputRun { topic, first: 0, count: 1 });
    }),
    ("a claim of nothing", &[FlawKind::Foreign], |step| step.inputs.clear()),
];

/// The same record with another key.
fn renamed(record: &Record) -> Record {
    Record { key: [&record.key[..], b"1"].concat(), ..record.clone() }
}
