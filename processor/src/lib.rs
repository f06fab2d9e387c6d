//! The processor: matching joins transfers with deposits, orders decide what pays them.
//!
//! Reads `transfers.raw`, `deposits.commands` (matching), `orders.commands` and, for timers, `chains` (orders). Writes
//! the other `transfers.*`, `deposits`, `orders`, both command topics, `chains`, `alerts`, `dead-letters`, its
//! changelogs, and the inputs of each step. **Invariants:** outputs depend on its inputs alone and are committed in one
//! step with its input positions; a state restored from the changelog equals the state that was lost.
//!
//! Machines check the invariants where money moves; a breach stops the processor before the step is committed.
//!
//! Deliberately not here: configuration (it arrives in records), tables, webhooks, chains. Time arrives in records too;
//! only the timers of orders need the clock.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod error;
pub mod machine;
pub mod metrics;
pub mod replay;
mod runner;
pub mod wire;

pub use error::Error;
pub use runner::{OWN_POSITION, next_inputs, run_matching, run_orders};
