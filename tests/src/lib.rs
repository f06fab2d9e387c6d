//! What the tests above crate level share: harness, conformance suites, models, measurements.

pub mod fold;
pub mod harness;
pub mod log_suite;
pub mod machine_model;
pub mod measure;
pub mod store_suite;
