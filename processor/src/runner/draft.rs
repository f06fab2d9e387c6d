//! A step being built.

use std::collections::BTreeMap;

use log::consumer::Member;
use log::{NewRecord, Step};
use schemas::Topic;

use super::positions::OWN;

/// Number of outputs offered to the log at once, to write them while the rest is decided. Large,
/// since the log writes the records of a partition together.
const OFFER_RECORDS: usize = 4096;
/// Estimated number of outputs of an input, to allocate the list once.
const OUTPUTS_PER_INPUT: usize = 5;

/// Outputs so far, and the input positions.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) step: Step,
    /// Number of outputs of each topic that the log has written ahead.
    counts: BTreeMap<Topic, u64>,
    /// Minimum number of outputs before the log is offered some.
    offer_at: usize,
}

impl Draft {
    /// An empty draft, with room for about as much as `count` inputs usually yield.
    pub(super) fn for_inputs(count: usize) -> Self {
        let outputs = count.saturating_mul(OUTPUTS_PER_INPUT);
        let records = Vec::with_capacity(outputs.min(2 * OFFER_RECORDS));
        let step = Step { records, offsets: Vec::new() };
        Self { step, counts: BTreeMap::new(), offer_at: OFFER_RECORDS }
    }

    /// Offers the outputs so far to the log, if there are enough.
    pub(super) fn write_ahead(&mut self, member: &mut Member<'_>) {
        let records = &mut self.step.records;
        if records.len() < self.offer_at {
            return;
        }
        let mut counts = self.counts.clone();
        count(&mut counts, records);
        member.write_ahead(records);
        if records.is_empty() {
            self.counts = counts;
        } else {
            // Records that the log does not take now are written with the step.
            self.offer_at = usize::MAX;
        }
    }

    /// The step, and its number of outputs by topic.
    pub(super) fn finish(self) -> (Step, BTreeMap<Topic, u64>) {
        let Self { mut step, mut counts, .. } = self;
        for (_, at) in &mut step.offsets {
            at.metadata = OWN.to_owned();
        }
        count(&mut counts, &step.records);
        (step, counts)
    }
}

fn count(counts: &mut BTreeMap<Topic, u64>, records: &[NewRecord]) {
    for record in records {
        let count = counts.entry(record.to.topic).or_default();
        *count = count.saturating_add(1);
    }
}
