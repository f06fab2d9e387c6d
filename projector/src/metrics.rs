//! What the projector measures.

runtime::metrics! {
    /// Rows handed to the store. Changes of one row in one step are one: fewer than the records read.
    Counter ROWS_APPLIED = "tidemark_projector_rows_applied_total" [table];
    /// Time from handing the rows of a step to the store until they are durable.
    Histogram APPLY_SECONDS = "tidemark_projector_apply_seconds" [];
    /// Writes that the store could not take and that are retried.
    Counter APPLY_RETRIES = "tidemark_projector_apply_retries_total" [];
}
