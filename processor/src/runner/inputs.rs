//! The inputs of a step in the order in which the machine took them.

use log::Record;
use schemas::record::{InputRun, ProcessorStep};

#[derive(Debug, Default)]
pub(super) struct Inputs(ProcessorStep);

impl Inputs {
    pub(super) fn push(&mut self, input: &Record) {
        let topic = input.from.topic.name();
        match self.0.inputs.last_mut() {
            Some(run) if run.topic == topic => run.count = run.count.saturating_add(1),
            _ => {
                let run = InputRun { topic: topic.to_owned(), first: input.offset.0, count: 1 };
                self.0.inputs.push(run);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.inputs.clear();
    }

    /// Inputs that the step took; none if it took nothing.
    pub(super) fn taken(&self) -> Option<&ProcessorStep> {
        (!self.0.inputs.is_empty()).then_some(&self.0)
    }
}
