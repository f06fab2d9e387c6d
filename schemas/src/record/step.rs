//! The inputs of a step of the processor.

use serde::{Deserialize, Serialize};


/// A record of `processor.matching.steps` or `processor.orders.steps`: inputs of the machine in one step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessorStep {
    /// In the order in which they were taken. Never empty.
    pub inputs: Vec<InputRun>,
}

/// Inputs of one topic that follow each other, in the partition of the step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRun {
    /// Without the prefix of the installation.
    pub topic: String,
    /// Offset of the first one.
    pub first: i64,
    /// Number of records; their offsets may have gaps.
    pub count: i32,
}
