//! Metrics of the log.

/// Outcomes of a group's step.
const STEP: &[&str] = &["committed", "aborted", "fenced", "failed"];
/// Outcomes of a transaction on Kafka.
const TRANSACTION: &[&str] = &["committed", "aborted", "fenced", "unknown"];
/// Parts of a step on Kafka.
const PHASES: &[&str] = &["begin", "send", "offsets", "drain", "commit", "abort"];

runtime::metrics! {
    /// Records that a stage could not process and moved to `dead-letters`.
    Counter DEAD_LETTERS_TOTAL = "tidemark_log_dead_letters_total" [topic];
    /// Unread records of a group (lag), 0 at rest; on Kafka only of this process's partitions.
    Gauge LOG_LAG_RECORDS = "tidemark_log_lag_records" [group, topic];
    /// 1 for each partition of a group assigned to this process, 0 for one that was revoked.
    Gauge ASSIGNED_PARTITIONS = "tidemark_log_assigned_partitions" [group, topic, partition];
    /// Records read by committed steps of a group.
    Counter GROUP_RECORDS_TOTAL = "tidemark_log_group_records_total" [group];
    /// Steps of a group, by outcome: committed, aborted, fenced, failed.
    Counter GROUP_STEPS_TOTAL = "tidemark_log_group_steps_total" [group, outcome in STEP];
    /// Time from a poll to its committed step.
    Histogram GROUP_STEP_SECONDS = "tidemark_log_group_step_seconds" [group];
    /// Time of one transaction of the embedded log, fsync included.
    Histogram LOG_COMMIT_SECONDS = "tidemark_log_commit_seconds" [];
    /// Records appended by one transaction of the embedded log.
    Histogram LOG_COMMIT_RECORDS = "tidemark_log_commit_records" [];
    /// Records appended to the embedded log.
    Counter LOG_RECORDS_TOTAL = "tidemark_log_records_total" [];
    /// Requests still waiting when the embedded log began a transaction.
    Gauge LOG_QUEUE_REQUESTS = "tidemark_log_queue_requests" [];
    /// Time of a part of a step on Kafka: begin, send, offsets, drain, commit, abort. A long step has
    /// several sends.
    Histogram LOG_STEP_SECONDS = "tidemark_log_step_seconds" [phase in PHASES];
    /// Transactions on Kafka, by outcome: committed, aborted, fenced, unknown.
    Counter LOG_STEPS_TOTAL = "tidemark_log_steps_total" [outcome in TRANSACTION];
    /// Rebalances of a group on Kafka in which this process took part.
    Counter LOG_REBALANCES_TOTAL = "tidemark_log_rebalances_total" [group];
    /// Records that Kafka rejected or did not acknowledge in time.
    Counter LOG_PRODUCE_ERRORS_TOTAL = "tidemark_log_produce_errors_total" [];
}
