//! Boot of a process: configuration, clock, telemetry, readiness, orderly start and stop.
//!
//! Reads the configuration file and `TIDEMARK__*` variables. **Invariants:** no other crate reads the
//! environment or the wall clock.
//!
//! Deliberately not here: topics, records, tables, routes, the shop.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod clock;
pub mod config;
pub mod metrics;
pub mod open_files;
pub mod process;
pub mod readiness;
pub mod task;
pub mod telemetry;
pub mod traces;

pub use clock::{Clock, ManualClock, SystemClock};
pub use readiness::Readiness;
