//! What the projector counts. Labels come from closed sets: tables and topics.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Rows handed to the store, label `table`. After coalescing: fewer than the records read.
pub const ROWS_APPLIED: &str = "tidemark_projector_rows_applied_total";
/// Records in a batch, before coalescing.
pub const BATCH_RECORDS: &str = "tidemark_projector_batch_records";
/// Seconds from handing a batch to the store until it is durable.
pub const APPLY_SECONDS: &str = "tidemark_projector_apply_seconds";
/// Batches that the store could not take and that are tried again.
pub const APPLY_RETRIES: &str = "tidemark_projector_apply_retries_total";
/// Records appended and not yet in the tables, label `topic`; this member's partitions only.
pub const LAG_RECORDS: &str = "tidemark_projector_lag_records";

/// Tells the recorder what the names mean.
pub fn describe() {
    describe_counter!(ROWS_APPLIED, "Rows handed to the store, by table");
    describe_histogram!(BATCH_RECORDS, "Records in a batch, before coalescing");
    describe_histogram!(APPLY_SECONDS, Unit::Seconds, "Time until a batch was durable");
    describe_counter!(APPLY_RETRIES, "Batches the store could not take at once");
    describe_gauge!(LAG_RECORDS, "Records not yet in the tables, by topic");
}
