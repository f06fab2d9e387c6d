//! What the processor measures beyond what every group does (`tidemark_log_group_*`).

runtime::metrics! {
    /// Records written by committed steps.
    Counter OUTPUTS_TOTAL = "tidemark_processor_outputs_total" [topic];
    /// Rows in memory.
    Gauge ROWS = "tidemark_processor_rows" [machine];
}
