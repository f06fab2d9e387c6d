//! The two state machines: pure, synchronous, without clock or configuration.
//!
//! Each takes a record of the log and returns effects; time is in the record. What a machine changed
//! since the last commit is in its journal: from it come the changelog and, if the step is aborted, the
//! way back.

pub mod journal;
pub mod matching;
pub mod orders;
