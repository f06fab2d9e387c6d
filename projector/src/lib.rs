//! The projector: derives the tables from the log.
//!
//! Reads `orders`, `deposits`, `transfers.detected`, `.confirmed`, `.matched`, `.unknown`, `.failed`,
//! `webhooks.attempts` and `chains` in group [`GROUP`]; writes the tables, and `dead-letters`. **Invariants:** offsets
//! are committed after the rows of their records are durable ([`Store::flush`]), never before; an unreadable record
//! becomes a dead letter in the same step as its offset; a replay changes nothing.
//!
//! Deliberately not here: the form of the rows in a back end, and any decision.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod life;
mod machine;
pub mod metrics;
mod rebuild;
mod runner;
mod scan;
mod upkeep;
mod verify;

use std::sync::Arc;

use log::StageContext;
pub use machine::TOPICS;
pub use rebuild::{FollowReport, Followed, Rebuilt, follow, rebuild};
pub use scan::{Positions, Progress, Report};
use store::Store;
use store::config::Retention;
pub use tracing::Level;
pub use verify::{Difference, Differs, Verified, verify};

/// Consumer group of all projectors.
pub const GROUP: &str = "projector";

/// Error for which the projector stopped for good.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log failed.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The offsets may have been committed.
    #[error(transparent)]
    Step(#[from] log::StepError),
    /// The tables failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A record has a schema or an enum value of a newer version.
    #[error(transparent)]
    Newer(#[from] log::NewerRecord),
    /// The tables lack rows that the group has read: they are older than the log, or newly made.
    #[error("{0}")]
    Unfit(String),
    /// A dead letter could not be made, which is a defect of this program.
    #[error("cannot make a dead letter: {0}")]
    Letter(#[from] schemas::CodecError),
}

/// Projects the log to the tables until the process stops. The owner of the first partition of `orders` also removes
/// empty partitions of the tables' lists, and old rows once an hour if there is a retention. Each step of a payment is
/// a log line: at info if `level` is info, otherwise at debug. Blocks: belongs on a thread of its own.
///
/// # Errors
/// [`Error`]: the tables or the log failed for good, and the process must stop. Transient failures
/// are retried.
pub fn run(
    store: Arc<dyn Store>,
    retention: Option<Retention>,
    level: Level,
    context: &StageContext,
) -> Result<(), Error> {
    let upkeep = upkeep::Upkeep::new(retention, context.clock.clone());
    let projector = runner::Projector::new(store, context.handle.clone(), upkeep, level);
    log::consumer::run(context, projector)
}
