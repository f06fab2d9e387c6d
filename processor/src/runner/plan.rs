//! A step being built.

use std::collections::BTreeMap;

use log::{Committed, NewRecord, Offset, Record, Step, TopicPartition, Worker};
use schemas::Topic;

/// How many outputs are offered to the log at once: it writes them while the rest is decided.
const OFFER_RECORDS: usize = 256;
/// About how many records follow from an input: growing a long list copies it again and again.
const OUTPUTS_PER_INPUT: usize = 5;

/// Outputs so far, and how far the inputs are taken.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) outputs: Vec<NewRecord>,
    next: BTreeMap<TopicPartition, Offset>,
    /// How many outputs each topic has, of those that the log has taken already.
    counts: BTreeMap<Topic, u64>,
    /// How many outputs there must be before the log is offered some.
    offer_at: usize,
}

impl Plan {
    /// With room for what follows from `count` inputs.
    pub(super) fn for_inputs(count: usize) -> Self {
        let outputs = Vec::with_capacity(count.saturating_mul(OUTPUTS_PER_INPUT));
        Self { outputs, next: BTreeMap::new(), counts: BTreeMap::new(), offer_at: OFFER_RECORDS }
    }

    /// This input is part of the step.
    pub(super) fn taken(&mut self, input: &Record) {
        self.next.insert(input.from, input.offset.next());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.next.is_empty()
    }

    /// Offers the outputs so far to the log, if they are worth it.
    pub(super) fn write_ahead(&mut self, worker: &mut dyn Worker) {
        if self.outputs.len() < self.offer_at {
            return;
        }
        let mut counts = self.counts.clone();
        count(&mut counts, &self.outputs);
        worker.write_ahead(&mut self.outputs);
        if self.outputs.is_empty() {
            self.counts = counts;
        } else {
            // What it does not take now, it takes with the step.
            self.offer_at = usize::MAX;
        }
    }

    /// The step, and how many outputs each topic has.
    pub(super) fn into_step(self) -> (Step, BTreeMap<Topic, u64>) {
        let mut counts = self.counts;
        count(&mut counts, &self.outputs);
        let committed = |offset| Committed { offset, metadata: String::new() };
        let offsets = self.next.into_iter().map(|(tp, offset)| (tp, committed(offset))).collect();
        (Step { records: self.outputs, offsets }, counts)
    }
}

fn count(counts: &mut BTreeMap<Topic, u64>, records: &[NewRecord]) {
    for record in records {
        let count = counts.entry(record.to.topic).or_default();
        *count = count.saturating_add(1);
    }
}
