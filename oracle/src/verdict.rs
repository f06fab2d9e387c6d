//! What must be true of a log in the end, and proof that a log of which it is not true is found.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use log::{Offset, Record};
use processor::wire::INPUTS_HEADER;
use schemas::record::{Order, Transfer};
use schemas::{Headers, OrderCause, Stage, Topic, UnknownReason};

use crate::fold::{
    Explanation, FlawKind, Positions, Reading, explain, is_changelog, is_output_of_machine,
};
use crate::load::Shop;
use crate::machine_model::ledger::Ledger;

/// Every output is explained, and the invariants hold on it.
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

/// How many records each topic has: a case is worth its time if everything happened in it.
pub fn counts(reading: &Reading) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for of in reading.partitions() {
        *counts.entry(of.topic.name()).or_default() += reading.records(of).len();
    }
    counts
}

/// How often a rule was reached that little of the load plays.
#[derive(Debug, Default)]
pub struct Seldom {
    /// Transfers of the merchant's own money.
    pub own_money: usize,
    /// Choices that were refused because the lane was behind its chain.
    pub unavailable: usize,
    /// Orders that were forgotten, and came back with a command.
    pub revived: usize,
    /// Orders that were paid after they had expired.
    pub late: usize,
    /// Orders that a transfer paid which an operator attached.
    pub attached: usize,
}

impl Seldom {
    /// Counts them.
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

/// Every kind of flaw, put into every topic of a log that has none, is found.
pub fn flaws_are_found(reading: &Reading, committed: &Positions) {
    // An alert or a dead letter is not the rule: there may be none.
    let is_rare = |topic: &Topic| [Topic::Alerts, Topic::DeadLetters].contains(topic);
    for topic in Topic::written_by(Stage::Processor).filter(|topic| !is_rare(topic)) {
        let written = |record: &Arc<Record>| is_changelog(topic) || is_output_of_machine(record);
        let longest = reading
            .partitions()
            .filter(|of| of.topic == topic)
            .max_by_key(|of| reading.records(*of).iter().filter(|r| written(r)).count())
            .unwrap_or_else(|| panic!("{topic} has no partitions"));
        let places: Vec<usize> = (0..reading.records(longest).len())
            .filter(|at| written(&reading.records(longest)[*at]))
            .collect();
        assert!(!places.is_empty(), "nothing is on {topic}");
        let at = places[places.len() * 2 / 3];
        let record = reading.records(longest)[at].clone();
        type Change<'a> = &'a dyn Fn(&mut Vec<Arc<Record>>);
        let check = |what: &str, at: usize, change: Change<'_>, kinds: &[FlawKind]| {
            let what = format!("{what} at {longest}/{}", reading.records(longest)[at].offset);
            let mut altered = reading.clone();
            change(altered.records_mut(longest));
            let Err(flaw) = explain(&altered, committed) else { panic!("{what}: not found") };
            println!("{what}: {}", flaw.to_string().lines().next().unwrap_or_default());
            assert!(kinds.contains(&flaw.kind), "{what} is found as {flaw}");
        };
        use FlawKind::{Changed, Disordered, Doubled, Foreign, Lost, Uncommitted};
        // A lost command is an input, too: its step's claim then reaches into the next one's, or too far, and what
        // follows from an input of the next step is written before it.
        let kinds = [Lost, Foreign, Changed, Doubled, Disordered, Uncommitted];
        check("lost", at, &|all| drop(all.remove(at)), &kinds);
        let again = |all: &mut Vec<Arc<Record>>| {
            let last = all.last().map_or(Offset(0), |last| last.offset);
            all.push(Arc::new(Record { offset: last.next(), ..(*record).clone() }));
        };
        check("doubled", at, &again, &[Doubled, Foreign]);
        // An equal record further on may be taken for it.
        let kinds = [Lost, Foreign, Changed, Disordered];
        let renamed = |all: &mut Vec<Arc<Record>>| all[at] = Arc::new(renamed(&record));
        check("renamed", at, &renamed, &kinds);
        // A tombstone has nothing to alter.
        let full: Vec<_> = places
            .iter()
            .filter(|at| reading.records(longest)[**at].value.is_some())
            .copied()
            .collect();
        let full = full[full.len() * 2 / 3];
        let cut = |all: &mut Vec<Arc<Record>>| {
            let mut value = all[full].value.clone().expect("it has one");
            let mut bytes = value.iter_mut().rev();
            *bytes.find(|byte| **byte > 1).expect("it says something") -= 1;
            all[full] = Arc::new(Record { value: Some(value), ..(*all[full]).clone() });
        };
        check("altered", full, &cut, &kinds);
        if is_changelog(topic) {
            let claims =
                |at: &&usize| reading.records(longest)[**at].header(INPUTS_HEADER).is_some();
            let claims: Vec<_> = places.iter().filter(claims).copied().collect();
            let at = claims[claims.len() * 2 / 3];
            for (what, change) in CLAIM_FLAWS {
                let changed = |all: &mut Vec<Arc<Record>>| {
                    all[at] = Arc::new(with_headers(&all[at], INPUTS_HEADER, change));
                };
                check(what, at, &changed, &[Lost, Doubled, Foreign, Disordered, Changed]);
            }
        }
    }
}

/// Makes another claim of a claim.
type Altered = fn(&str) -> String;

/// Claims that are not the order of a step's inputs.
const CLAIM_FLAWS: [(&str, Altered); 3] = [
    ("a claim without its first inputs", |claim| {
        let (first, rest) = claim.split_once('+').expect("a run");
        let (topic, offset) = first.split_once('/').expect("a topic");
        format!("{topic}/{}+{rest}", offset.parse::<i64>().expect("an offset") + 1)
    }),
    ("a claim of what was taken before", |claim| {
        let (topic, _) = claim.split_once('/').expect("a topic");
        format!("{topic}/0+1,{claim}")
    }),
    ("a claim of nothing", |_| String::new()),
];

/// The same record with another key.
fn renamed(record: &Record) -> Record {
    Record { key: [&record.key[..], b"1"].concat(), ..record.clone() }
}

/// The same record with another value of one header.
fn with_headers(record: &Record, header: &str, change: Altered) -> Record {
    let mut headers = Headers::default();
    for (name, value) in record.headers.iter() {
        let text = String::from_utf8_lossy(value);
        let value = if name == header { change(&text) } else { text.into_owned() };
        headers.push(name, value.as_bytes());
    }
    Record { headers, ..record.clone() }
}
