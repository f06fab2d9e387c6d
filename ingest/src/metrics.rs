//! What ingest measures. Each metric has the label `blockchain`; `rpc_errors` also has `class`.

/// Gauge.
pub const HEAD_BLOCK: &str = "tidemark_ingest_head_block";
/// Gauge.
pub const FINALIZED_BLOCK: &str = "tidemark_ingest_finalized_block";
/// Gauge.
pub const LAG_SECONDS: &str = "tidemark_ingest_lag_seconds";
/// Counter.
pub const STEPS_TOTAL: &str = "tidemark_ingest_steps_total";
/// Counter.
pub const TRANSFERS_TOTAL: &str = "tidemark_ingest_transfers_total";
/// Counter.
pub const RETRACTS_TOTAL: &str = "tidemark_ingest_retracts_total";
/// Counter.
pub const SKIPPED_TOTAL: &str = "tidemark_ingest_skipped_total";
/// Counter.
pub const RPC_ERRORS_TOTAL: &str = "tidemark_ingest_rpc_errors_total";
/// Counter.
pub const BEHIND_TOTAL: &str = "tidemark_ingest_behind_total";
/// Counter.
pub const RETRIES_TOTAL: &str = "tidemark_ingest_retries_total";
/// Histogram.
pub const REORG_DEPTH_BLOCKS: &str = "tidemark_ingest_reorg_depth_blocks";
/// Gauge.
pub const RANGE_BLOCKS: &str = "tidemark_ingest_range_blocks";
/// Gauge.
pub const HALTED: &str = "tidemark_ingest_halted";

/// The shape of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// Every metric with its shape and meaning.
pub const METRICS: [(&str, Kind, &str); 13] = [
    (HEAD_BLOCK, Kind::Gauge, "The last scanned block."),
    (FINALIZED_BLOCK, Kind::Gauge, "The height below which nothing is taken back any more."),
    (LAG_SECONDS, Kind::Gauge, "Age of the last scanned block."),
    (STEPS_TOTAL, Kind::Counter, "Atomic steps published."),
    (TRANSFERS_TOTAL, Kind::Counter, "Transfers published, re-inclusions counted again."),
    (RETRACTS_TOTAL, Kind::Counter, "Orphaned transfers retracted."),
    (SKIPPED_TOTAL, Kind::Counter, "Events of a trusted contract that are no amount we can hold."),
    (RPC_ERRORS_TOTAL, Kind::Counter, "Refused or broken requests to the endpoint, by class."),
    (BEHIND_TOTAL, Kind::Counter, "Answers of an endpoint that is behind what was scanned."),
    (RETRIES_TOTAL, Kind::Counter, "Steps begun again because answers contradicted each other."),
    (REORG_DEPTH_BLOCKS, Kind::Histogram, "How far a reorganisation took the cursor back."),
    (RANGE_BLOCKS, Kind::Gauge, "Most blocks asked for at once, adapted to the endpoint."),
    (HALTED, Kind::Gauge, "1 while a chain is stopped and needs an operator, otherwise 0."),
];

/// Tells the recorder what each metric means. Call once, after the recorder is installed.
pub fn describe() {
    for (name, kind, meaning) in METRICS {
        match kind {
            Kind::Counter => metrics::describe_counter!(name, meaning),
            Kind::Gauge => metrics::describe_gauge!(name, meaning),
            Kind::Histogram => metrics::describe_histogram!(name, meaning),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_follow_the_template_and_are_unique() {
        let names: HashSet<_> = METRICS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names.len(), METRICS.len());
        for (name, kind, _) in METRICS {
            assert!(name.starts_with("tidemark_ingest_"), "{name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        }
    }
}
