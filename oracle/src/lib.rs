//! Checks of the processor: an independent model of its outcomes, a ledger of its invariants, and a fold that replays
//! its machines over a log.

pub mod fold;
pub mod history;
pub mod load;
pub mod machine_model;
pub mod verdict;
