//! Output of a replay: each difference when found, its progress, and the totals at the end.

use log::{NewRecord, Offset, Record, TopicPartition};
use serde_json::{Value, json};

use super::identity::{Field, decoded, fields, identity};
use crate::output;
use crate::tail::quiet;

/// A difference between the emitted and the replayed records.
#[derive(Debug)]
pub(super) enum Difference<'a> {
    /// A replayed record that was not emitted.
    Missing { input: (TopicPartition, Offset), made: &'a NewRecord },
    /// An emitted record that no replayed step made.
    Extra(&'a Record),
    /// An emitted record that differs from the replayed one.
    Different { input: (TopicPartition, Offset), made: &'a NewRecord, emitted: &'a Record },
    /// An input that no step took.
    Untaken(&'a Record),
}

impl Difference<'_> {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::Extra(_) => "extra",
            Self::Different { .. } => "different",
            Self::Untaken(_) => "not_taken",
        }
    }

    /// Returns the place of the record; of a missing one only the partition.
    fn place(&self) -> String {
        match self {
            Self::Missing { made, .. } => made.to.to_string(),
            Self::Extra(record) | Self::Untaken(record) => place((record.from, record.offset)),
            Self::Different { emitted, .. } => place((emitted.from, emitted.offset)),
        }
    }

    fn about(&self) -> String {
        match self {
            Self::Missing { made, .. } | Self::Different { made, .. } => {
                identity(made.to.topic, made.value.as_deref())
            }
            Self::Extra(record) => identity(record.from.topic, record.value.as_deref()),
            Self::Untaken(record) => String::from_utf8_lossy(&record.key).into_owned(),
        }
    }

    fn input(&self) -> Option<String> {
        match self {
            Self::Missing { input, .. } | Self::Different { input, .. } => Some(place(*input)),
            Self::Extra(_) | Self::Untaken(_) => None,
        }
    }

    fn fields(&self) -> Vec<Field> {
        match self {
            Self::Different { made, emitted, .. } => {
                let found = fields(made.to.topic, emitted.value.as_deref(), made.value.as_deref());
                if found.is_empty() { vec![key(made, emitted)] } else { found }
            }
            Self::Missing { .. } | Self::Extra(_) | Self::Untaken(_) => Vec::new(),
        }
    }

    /// Returns the content of the record, or of the missing one.
    fn record(&self) -> Option<Value> {
        let (topic, value) = match self {
            Self::Missing { made, .. } => (made.to.topic, made.value.as_deref()),
            Self::Extra(record) | Self::Untaken(record) => {
                (record.from.topic, record.value.as_deref())
            }
            Self::Different { .. } => return None,
        };
        decoded(topic, value)
    }

    fn text(&self) -> String {
        let (kind, place, about) = (self.kind().replace('_', " "), self.place(), self.about());
        // The text is untrusted: it must not begin a new line.
        let about = about.replace(['\n', '\t'], " ");
        let mut text = format!("{kind:<9}  {place}  {about}");
        if let Some(input) = self.input() {
            text.push_str(&format!("  (follows from {input})"));
        }
        for Field { name, emitted, replayed } in self.fields() {
            text.push_str(&format!("\n           {name}: {emitted} -> {replayed}"));
        }
        text
    }

    fn json(&self) -> String {
        let field = |Field { name, emitted, replayed }| json!({ "field": name, "emitted": emitted, "replayed": replayed });
        let fields: Vec<_> = self.fields().into_iter().map(field).collect();
        json!({
            "kind": self.kind(), "place": self.place(), "about": self.about(),
            "input": self.input(), "fields": fields, "record": self.record(),
        })
        .to_string()
    }
}

fn place((of, offset): (TopicPartition, Offset)) -> String {
    format!("{of}@{offset}")
}

/// The difference of two records with equal fields.
fn key(made: &NewRecord, emitted: &Record) -> Field {
    let [replayed, emitted] =
        [&made.key, &emitted.key].map(|key| String::from_utf8_lossy(key).into_owned().into());
    Field { name: "the key, or the version of the schema".to_owned(), emitted, replayed }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) inputs: u64,
    pub(super) steps: u64,
    pub(super) same: u64,
    pub(super) missing: u64,
    pub(super) extra: u64,
    pub(super) different: u64,
    pub(super) untaken: u64,
}

impl Totals {
    pub(super) fn is_equal(&self) -> bool {
        self.missing + self.extra + self.different + self.untaken == 0
    }

    fn text(&self) -> String {
        let Self { inputs, steps, same, missing, extra, different, untaken } = self;
        let verdict = if self.is_equal() { "equal" } else { "NOT EQUAL" };
        format!(
            "{verdict}: {inputs} inputs of {steps} steps; outputs: {same} same, {different} different, \
             {missing} missing, {extra} extra; {untaken} inputs not taken"
        )
    }

    fn json(&self) -> String {
        let Self { inputs, steps, same, missing, extra, different, untaken } = self;
        json!({
            "kind": "totals", "equal": self.is_equal(), "inputs": inputs, "steps": steps, "same": same,
            "different": different, "missing": missing, "extra": extra, "not_taken": untaken,
        })
        .to_string()
    }
}

#[derive(Debug)]
pub(super) struct Report {
    is_json: bool,
    pub(super) totals: Totals,
    /// `true` once the reader has closed the output.
    pub(super) is_closed: bool,
}

impl Report {
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_json, totals: Totals::default(), is_closed: false }
    }

    pub(super) fn add(&mut self, difference: &Difference<'_>) -> anyhow::Result<()> {
        let count = match difference {
            Difference::Missing { .. } => &mut self.totals.missing,
            Difference::Extra(_) => &mut self.totals.extra,
            Difference::Different { .. } => &mut self.totals.different,
            Difference::Untaken(_) => &mut self.totals.untaken,
        };
        *count = count.saturating_add(1);
        let line = if self.is_json { difference.json() } else { difference.text() };
        self.print(&line)
    }

    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        let line = if self.is_json { self.totals.json() } else { self.totals.text() };
        self.print(&line)
    }

    fn print(&mut self, line: &str) -> anyhow::Result<()> {
        if quiet(output::stdout().line(line))?.is_none() {
            self.is_closed = true;
        }
        Ok(())
    }
}

/// The line of progress after `millis`, when the steps of `totals`, of `all` steps, are done.
pub(super) fn progress_line(totals: &Totals, all: u64, millis: u64) -> String {
    let (millis, passed) = (millis.max(1), totals.steps);
    let rate = totals.inputs.saturating_mul(1000) / millis;
    let left = millis.saturating_mul(all.saturating_sub(passed)) / passed.max(1) / 1000;
    format!(
        "replayed {} inputs, {rate} a second, {} % of the steps, {left} s left",
        totals.inputs,
        passed.saturating_mul(100) / all.max(1)
    )
}
