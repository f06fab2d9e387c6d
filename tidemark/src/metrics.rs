//! The metrics of all crates.

use runtime::metrics::{Metric, describe};

/// The tables of the crates, in the order of dependence.
pub(crate) const TABLES: [&[Metric]; 7] = [
    runtime::readiness::METRICS,
    log::metrics::METRICS,
    ingest::metrics::METRICS,
    processor::metrics::METRICS,
    projector::metrics::METRICS,
    api::metrics::METRICS,
    webhooks::metrics::METRICS,
];

/// Describes every metric to the installed recorder.
pub(crate) fn describe_all() {
    TABLES.into_iter().for_each(describe);
}
