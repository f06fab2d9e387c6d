//! What the runtime measures. Names are `tidemark_runtime_<thing>`.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Records that a stage could not process, by topic.
pub(crate) const DEAD_LETTERS_TOTAL: &str = "tidemark_runtime_dead_letters_total";
/// How long one transaction of the embedded log took, fsync included.
pub(crate) const LOG_COMMIT_SECONDS: &str = "tidemark_runtime_log_commit_seconds";
/// How many records one transaction of the embedded log appended.
pub(crate) const LOG_COMMIT_RECORDS: &str = "tidemark_runtime_log_commit_records";
/// Records appended to the embedded log.
pub(crate) const LOG_RECORDS_TOTAL: &str = "tidemark_runtime_log_records_total";
/// Requests left waiting when the embedded log began a transaction.
pub(crate) const LOG_QUEUE_REQUESTS: &str = "tidemark_runtime_log_queue_requests";

/// Tells the recorder what the metrics mean.
pub(crate) fn describe() {
    describe_counter!(DEAD_LETTERS_TOTAL, "Records moved to dead-letters, by topic");
    describe_histogram!(
        LOG_COMMIT_SECONDS,
        Unit::Seconds,
        "Time of one transaction of the embedded log"
    );
    describe_histogram!(LOG_COMMIT_RECORDS, "Records appended by one transaction");
    describe_counter!(LOG_RECORDS_TOTAL, "Records appended to the embedded log");
    describe_gauge!(LOG_QUEUE_REQUESTS, "Requests left waiting when a transaction began");
}
