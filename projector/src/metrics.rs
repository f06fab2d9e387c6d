//! What the projector counts. Labels come from closed sets: tables.

use metrics::{Unit, describe_counter, describe_histogram};

/// Rows handed to the store, label `table`. After coalescing: fewer than the records read.
pub const ROWS_APPLIED: &str = "tidemark_projector_rows_applied_total";
/// Seconds from handing a batch to the store until it is durable.
pub const APPLY_SECONDS: &str = "tidemark_projector_apply_seconds";
/// Batches that the store could not take and that are tried again.
pub const APPLY_RETRIES: &str = "tidemark_projector_apply_retries_total";

/// Tells the recorder what the names mean.
pub fn describe() {
    describe_counter!(ROWS_APPLIED, "Rows handed to the store, by table");
    describe_histogram!(APPLY_SECONDS, Unit::Seconds, "Time until a batch was durable");
    describe_counter!(APPLY_RETRIES, "Batches the store could not take at once");
}
