//! What the processor measures. Labels are closed: the machine, the kind of effect.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Inputs taken, by machine.
pub(crate) const INPUTS_TOTAL: &str = "tidemark_processor_inputs_total";
/// Records written by committed steps, by topic.
pub(crate) const OUTPUTS_TOTAL: &str = "tidemark_processor_outputs_total";
/// Time from a polled batch to its committed step, by machine.
pub(crate) const STEP_SECONDS: &str = "tidemark_processor_step_seconds";
/// Steps that were aborted and done again, by machine.
pub(crate) const ABORTS_TOTAL: &str = "tidemark_processor_aborts_total";
/// Rows in memory, by machine.
pub(crate) const ROWS: &str = "tidemark_processor_rows";

/// Tells the recorder what the names mean.
pub(crate) fn describe() {
    describe_counter!(INPUTS_TOTAL, "Records taken, by machine");
    describe_counter!(OUTPUTS_TOTAL, "Records written by committed steps, by topic");
    describe_histogram!(STEP_SECONDS, Unit::Seconds, "Batch to committed step, by machine");
    describe_counter!(ABORTS_TOTAL, "Steps aborted and done again, by machine");
    describe_gauge!(ROWS, "Rows in memory, by machine");
}
