//! What the runtime measures. Names are `tidemark_runtime_<thing>`.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// How long one transaction of the embedded log took, fsync included.
pub const LOG_COMMIT_SECONDS: &str = "tidemark_runtime_log_commit_seconds";
/// How many records one transaction of the embedded log appended.
pub const LOG_COMMIT_RECORDS: &str = "tidemark_runtime_log_commit_records";
/// Records appended to the embedded log.
pub const LOG_RECORDS_TOTAL: &str = "tidemark_runtime_log_records_total";
/// Requests left waiting when the embedded log began a transaction.
pub const LOG_QUEUE_REQUESTS: &str = "tidemark_runtime_log_queue_requests";

/// Tells the recorder what the metrics mean.
pub fn describe() {
    describe_histogram!(LOG_COMMIT_SECONDS, "Time of one transaction of the embedded log");
    describe_histogram!(LOG_COMMIT_RECORDS, "Records appended by one transaction");
    describe_counter!(LOG_RECORDS_TOTAL, "Records appended to the embedded log");
    describe_gauge!(LOG_QUEUE_REQUESTS, "Requests left waiting when a transaction began");
}
