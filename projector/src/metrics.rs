//! Metrics of the projector.

/// Values of `Change::table`.
const TABLES: &[&str] = &["orders", "deposits", "transfers", "attempts", "chains"];
/// Values of `Removed::by_table`.
const PRUNED: &[&str] = &["orders", "deposits", "transfers", "attempts"];

runtime::metrics! {
    /// Rows written to the store. Several changes of a row in one step count once.
    Counter ROWS_APPLIED = "tidemark_projector_rows_applied_total" [table in TABLES];
    /// Time from a write until readers see the rows.
    Histogram APPLY_SECONDS = "tidemark_projector_apply_seconds" [];
    /// Time of a flush, after which the rows are durable and their offsets are committed.
    Histogram FLUSH_SECONDS = "tidemark_projector_flush_seconds" [];
    /// Failed writes and flushes, which are retried.
    Counter APPLY_RETRIES = "tidemark_projector_apply_retries_total" [];
    /// Old final rows removed.
    Counter ROWS_PRUNED = "tidemark_projector_rows_pruned_total" [table in PRUNED];
}
