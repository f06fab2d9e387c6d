//! What every stage stands on: the log, configuration, clock, telemetry, orderly start and stop.
//!
//! Reads the configuration file and `TIDEMARK__*` variables; reads and writes the log. **Invariants:**
//! a stage sees an outside world only through what is handed to it from here; no other crate touches
//! SQLite's log file, the environment or the wall clock.
//!
//! Deliberately not here: what any record means, tables, HTTP routes.

pub mod clock;
pub mod config;
mod envelope;
pub mod log;
mod metrics;
pub mod readiness;
pub mod task;
pub mod telemetry;

pub use clock::{Clock, ManualClock, SystemClock};
pub use envelope::{Envelope, dead_letter};
pub use readiness::Readiness;
