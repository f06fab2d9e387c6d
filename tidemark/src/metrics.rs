//! The metrics of all crates.

use runtime::metrics::{Metric, describe, register};

/// The tables of the crates, in the order of dependence.
pub(crate) const TABLES: [&[Metric]; 9] = [
    runtime::readiness::METRICS,
    runtime::process::METRICS,
    runtime::traces::METRICS,
    log::metrics::METRICS,
    ingest::metrics::METRICS,
    processor::metrics::METRICS,
    projector::metrics::METRICS,
    api::metrics::METRICS,
    webhooks::metrics::METRICS,
];

/// Describes every metric to the installed recorder, and exports those of the log and of traces, which every process
/// has.
pub(crate) fn describe_all() {
    TABLES.into_iter().for_each(describe);
    register(log::metrics::METRICS, &[]);
    register(runtime::traces::METRICS, &[]);
}
