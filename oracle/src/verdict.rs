//! What must be true of a log in the end, and proof that a log of which it is not true is found.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fold::{Explanation, FlawKind, Positions, Reading, explain};
use crate::machine_model::check::Ledger;
use log::{Offset, Record};
use schemas::{Headers, Stage, Topic};

use crate::load::Shop;

/// Every output is explained, and the invariants hold on it.
pub fn judge(shop: &Shop, reading: &Reading, committed: &Positions) -> Explanation {
    let untaken = reading.untaken(committed);
    assert!(untaken.is_empty(), "inputs that were not taken: {untaken:?}");
    let explanation = explain(reading, committed).unwrap_or_else(|flaw| panic!("{flaw}"));
    for (lane, chain) in shop.chains() {
        let delivered = explanation.delivered(lane);
        let ledger = Ledger::of(chain, &delivered)
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

/// Every kind of flaw, put into every topic of a log that has none, is found.
pub fn flaws_are_found(reading: &Reading, committed: &Positions) {
    // An alert or a dead letter is not the rule: there may be none.
    let is_rare = |topic: &Topic| [Topic::Alerts, Topic::DeadLetters].contains(topic);
    for topic in Topic::written_by(Stage::Processor).filter(|topic| !is_rare(topic)) {
        let written = |record: &Arc<Record>| is_caused(record) || is_entry(record);
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
        // A lost command is an input, too: what followed from it names nothing then. An entry that is
        // followed by another of its key may be missing: then the two were one step.
        let all = reading.records(longest);
        let counts = |place: &&usize| {
            let mut later = all[**place + 1..].iter();
            !is_entry(&record) || later.all(|other| other.key != all[**place].key)
        };
        let counting: Vec<_> = places.iter().filter(counts).copied().collect();
        let gone = counting[counting.len() * 2 / 3];
        check("lost", gone, &|all| drop(all.remove(gone)), &[Lost, Foreign, Changed]);
        let again = |all: &mut Vec<Arc<Record>>| {
            let last = all.last().map_or(Offset(0), |last| last.offset);
            all.push(Arc::new(Record { offset: last.next(), ..(*record).clone() }));
        };
        check("doubled", at, &again, &[Doubled, Foreign]);
        let renamed = |all: &mut Vec<Arc<Record>>| {
            all[at] = Arc::new(renamed(&record));
        };
        check("renamed", at, &renamed, &[Lost, Foreign, Changed, Doubled, Disordered, Uncommitted]);
        // A tombstone has nothing to alter.
        let full: Vec<_> = places.iter().filter(|at| all[**at].value.is_some()).copied().collect();
        let full = full[full.len() * 2 / 3];
        let cut = |all: &mut Vec<Arc<Record>>| {
            let mut value = all[full].value.clone().expect("it has one");
            let mut bytes = value.iter_mut().rev();
            *bytes.find(|byte| **byte > 1).expect("it says something") -= 1;
            all[full] = Arc::new(Record { value: Some(value), ..(*all[full]).clone() });
        };
        check("altered", full, &cut, &[Changed, Lost, Foreign]);
    }
}

fn is_entry(record: &Record) -> bool {
    [Topic::MatchingChangelog, Topic::OrdersChangelog].contains(&record.from.topic)
}

fn is_caused(record: &Record) -> bool {
    let id = record.header("ce_id").unwrap_or_default();
    [Topic::TransfersRaw, Topic::DepositsCommands, Topic::OrdersCommands]
        .iter()
        .any(|topic| id.starts_with(format!("{topic}/").as_bytes()))
}

/// The same record under the next number: another id, or for an entry another key.
fn renamed(record: &Record) -> Record {
    let mut renamed = record.clone();
    if is_entry(record) {
        renamed.key.push(b'1');
        return renamed;
    }
    let next = |id: &[u8]| {
        let id = String::from_utf8(id.to_vec()).unwrap();
        let (cause, count) = id.rsplit_once('/').unwrap();
        format!("{cause}/{}", count.parse::<u32>().unwrap() + 1).into_bytes()
    };
    let mut headers = Headers::default();
    for (name, value) in record.headers.iter() {
        headers.push(name, &if name == "ce_id" { next(value) } else { value.to_vec() });
    }
    renamed.headers = headers;
    renamed
}
