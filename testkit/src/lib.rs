//! Shared parts of the tests: waiting, the harness of processes, endpoints with faults, the
//! conformance suites of logs and tables, measurements.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what fails here is a test")]

mod clock;
mod dice;
pub mod faults;
pub mod harness;
pub mod log_suite;
pub mod measure;
pub mod observed;
pub mod process;
pub mod relocation;
pub mod repository;
pub mod restarts;
pub mod store_suite;
mod suite;
pub mod tables;
mod wait;

pub use clock::MovedClock;
pub use dice::Dice;
use suite::run_checks;
pub use wait::{DEADLINE, Pace, eventually, eventually_or, wait_until};
