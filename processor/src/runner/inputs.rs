//! The inputs of a step in the order in which the machine took them.

use std::fmt;

use log::{Offset, Record};
use schemas::Topic;

/// Runs of inputs, each of one topic: written as `transfers.raw/120+3,deposits.commands/17+1`, where a run
/// is its topic, the offset of its first record and how many records it has.
#[derive(Debug, Default)]
pub(super) struct Inputs(Vec<(Topic, Offset, u32)>);

impl Inputs {
    pub(super) fn push(&mut self, input: &Record) {
        match self.0.last_mut() {
            Some((topic, _, count)) if *topic == input.from.topic => {
                *count = count.saturating_add(1);
            }
            _ => self.0.push((input.from.topic, input.offset, 1)),
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl fmt::Display for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (topic, first, count)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{topic}/{first}+{count}")?;
        }
        Ok(())
    }
}
