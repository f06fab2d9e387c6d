//! What the log measures. Names are `tidemark_log_<thing>`.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Records that a stage could not process, by topic.
pub(crate) const DEAD_LETTERS_TOTAL: &str = "tidemark_log_dead_letters_total";
/// How long one transaction of the embedded log took, fsync included.
pub(crate) const LOG_COMMIT_SECONDS: &str = "tidemark_log_commit_seconds";
/// How many records one transaction of the embedded log appended.
pub(crate) const LOG_COMMIT_RECORDS: &str = "tidemark_log_commit_records";
/// Records appended to the embedded log.
pub(crate) const LOG_RECORDS_TOTAL: &str = "tidemark_log_records_total";
/// Requests left waiting when the embedded log began a transaction.
pub(crate) const LOG_QUEUE_REQUESTS: &str = "tidemark_log_queue_requests";
/// How long a part of a step took on Kafka, by phase: begin, send, offsets, drain, commit, abort.
pub(crate) const LOG_STEP_SECONDS: &str = "tidemark_log_step_seconds";
/// Steps on Kafka, by outcome: committed, aborted, fenced, unknown.
pub(crate) const LOG_STEPS_TOTAL: &str = "tidemark_log_steps_total";
/// How often the partitions of a group on Kafka were shared anew, by group.
pub(crate) const LOG_REBALANCES_TOTAL: &str = "tidemark_log_rebalances_total";
/// Records that Kafka did not take.
pub(crate) const LOG_PRODUCE_ERRORS_TOTAL: &str = "tidemark_log_produce_errors_total";
/// Records that a group has not read yet, by group and topic; on Kafka those of this process's member.
pub(crate) const LOG_LAG_RECORDS: &str = "tidemark_log_lag_records";

/// Records that committed steps took, by group.
pub(crate) const GROUP_RECORDS_TOTAL: &str = "tidemark_log_group_records_total";
/// Steps, by group and outcome: committed, aborted, fenced, failed.
pub(crate) const GROUP_STEPS_TOTAL: &str = "tidemark_log_group_steps_total";
/// Time from a poll to its committed step, by group.
pub(crate) const GROUP_STEP_SECONDS: &str = "tidemark_log_group_step_seconds";

/// Tells the recorder what the metrics mean.
pub fn describe() {
    describe_counter!(DEAD_LETTERS_TOTAL, "Records moved to dead-letters, by topic");
    describe_histogram!(
        LOG_COMMIT_SECONDS,
        Unit::Seconds,
        "Time of one transaction of the embedded log"
    );
    describe_histogram!(LOG_COMMIT_RECORDS, "Records appended by one transaction");
    describe_counter!(LOG_RECORDS_TOTAL, "Records appended to the embedded log");
    describe_gauge!(LOG_QUEUE_REQUESTS, "Requests left waiting when a transaction began");
    describe_histogram!(
        LOG_STEP_SECONDS,
        Unit::Seconds,
        "Time of a part of a step on Kafka; a long one is sent in several"
    );
    describe_counter!(LOG_STEPS_TOTAL, "Steps on Kafka, by outcome");
    describe_counter!(LOG_REBALANCES_TOTAL, "Rebalances of a group on Kafka");
    describe_counter!(LOG_PRODUCE_ERRORS_TOTAL, "Records that Kafka did not take");
    describe_gauge!(LOG_LAG_RECORDS, "Records that a group has not read yet");
    describe_counter!(GROUP_RECORDS_TOTAL, "Records that committed steps took, by group");
    describe_counter!(GROUP_STEPS_TOTAL, "Steps of a group, by outcome");
    describe_histogram!(
        GROUP_STEP_SECONDS,
        Unit::Seconds,
        "Time from a poll to its committed step"
    );
}
