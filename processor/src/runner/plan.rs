//! A step being built.

use std::collections::BTreeMap;

use runtime::log::{Committed, NewRecord, Offset, Record, Step, TopicPartition};
use schemas::{Headers, Partition, Topic};

use super::Change;

/// Outputs so far, and how far the inputs are taken.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) outputs: Vec<NewRecord>,
    next: BTreeMap<TopicPartition, Offset>,
}

/// As many records follow from an input, give or take: growing a long list copies it again and again.
const OUTPUTS_PER_INPUT: usize = 5;

impl Plan {
    /// With room for what follows from so many inputs.
    pub(super) fn for_inputs(count: usize) -> Self {
        let outputs = Vec::with_capacity(count.saturating_mul(OUTPUTS_PER_INPUT));
        Self { outputs, next: BTreeMap::new() }
    }

    /// This input is part of the step.
    pub(super) fn taken(&mut self, input: &Record) {
        self.next.insert(input.from, input.offset.next());
    }

    /// Adds changelog entries of a partition.
    pub(super) fn changelog(&mut self, topic: Topic, partition: Partition, changes: Vec<Change>) {
        self.outputs.extend(changes.into_iter().map(|(key, value)| NewRecord {
            to: TopicPartition { topic, partition },
            key: key.into_bytes(),
            value,
            headers: Headers::default(),
        }));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.next.is_empty()
    }

    pub(super) fn into_step(self) -> Step {
        let committed = |offset| Committed { offset, metadata: String::new() };
        Step {
            records: self.outputs,
            offsets: self.next.into_iter().map(|(tp, offset)| (tp, committed(offset))).collect(),
        }
    }
}
