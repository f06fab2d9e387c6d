//! Metrics of the projector.

/// Values of `Row::table`.
const TABLES: &[&str] = &["orders", "deposits", "transfers", "attempts", "chains"];
/// Values of `Removed::by_table`.
const PRUNED: &[&str] = &["orders", "deposits", "transfers", "attempts"];

runtime::metrics! {
    /// Rows handed to the store. Changes of one row in one step are one: fewer than the records read.
    Counter ROWS_APPLIED = "tidemark_projector_rows_applied_total" [table in TABLES];
    /// Time from handing rows to the store until readers see them.
    Histogram APPLY_SECONDS = "tidemark_projector_apply_seconds" [];
    /// Time of a flush, after which the rows are durable and their offsets are committed.
    Histogram FLUSH_SECONDS = "tidemark_projector_flush_seconds" [];
    /// Writes and flushes that the store could not take and that are retried.
    Counter APPLY_RETRIES = "tidemark_projector_apply_retries_total" [];
    /// Rows that were old and final, and were removed.
    Counter ROWS_PRUNED = "tidemark_projector_rows_pruned_total" [table in PRUNED];
}
