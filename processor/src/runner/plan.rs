//! A step being built.

use std::collections::BTreeMap;

use runtime::log::{Committed, NewRecord, Offset, Record, Step, TopicPartition};
use schemas::{Headers, Partition, Topic};

use super::Change;

/// Outputs so far, and how far the inputs are taken.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) outputs: Vec<NewRecord>,
    next: BTreeMap<TopicPartition, Offset>,
}

impl Plan {
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
