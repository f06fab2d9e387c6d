//! What the processor measures.

runtime::metrics! {
    /// Records taken.
    Counter INPUTS_TOTAL = "tidemark_processor_inputs_total" [machine];
    /// Records written by committed steps.
    Counter OUTPUTS_TOTAL = "tidemark_processor_outputs_total" [topic];
    /// Time from a polled batch to its committed step.
    Histogram STEP_SECONDS = "tidemark_processor_step_seconds" [machine];
    /// Steps that were aborted and made again.
    Counter ABORTS_TOTAL = "tidemark_processor_aborts_total" [machine];
    /// Rows in memory.
    Gauge ROWS = "tidemark_processor_rows" [machine];
}
