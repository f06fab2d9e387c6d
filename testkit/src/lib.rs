//! What tests share: the harness, the conformance suites of logs and tables, measurements.

pub mod dump;
pub mod harness;
pub mod keyspace;
pub mod log_suite;
pub mod measure;
pub mod restarts;
pub mod store_suite;
