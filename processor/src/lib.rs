//! The processor: matching joins transfers with deposits, orders decide what pays them.
//!
//! Reads `transfers.raw`, `deposits.commands` (matching) and `orders.commands` (orders). Writes `transfers.*`,
//! `deposits`, `orders`, the two command topics, `alerts`, its changelogs, and each step's inputs.
//! **Invariants:** outputs depend on its inputs alone and are committed in one step with its input positions; a state
//! restored from the changelog equals the state that was lost.
//!
//! An invariant that does not hold where money moves ends the partition before the step is committed.
//!
//! Deliberately not here: configuration and time (both arrive in records), tables, webhooks, chains.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod error;
pub mod machine;
pub mod metrics;
pub mod replay;
mod runner;
pub mod wire;

pub use error::Error;
pub use runner::{OWN_POSITION, next_inputs, run_matching, run_orders};
