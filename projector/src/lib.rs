//! The projector: makes the tables out of the log.
//!
//! Reads `orders`, `deposits`, `transfers.detected`, `.confirmed`, `.matched`, `.unknown`,
//! `.failed`, `webhooks.attempts` and `chains` in group [`GROUP`]; writes the tables, and
//! `dead-letters`. **Invariants:** offsets are committed after the rows of their records are
//! durable ([`Store::flush`]), never before; a record that makes no row is a dead letter in the same
//! step as its offset; reading anything again changes nothing.
//!
//! Deliberately not here: the form of the rows in a back end, and any decision.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod housekeeping;
mod life;
mod machine;
pub mod metrics;
mod rebuild;
mod runner;
mod scan;
mod upkeep;
mod verify;

use std::sync::Arc;

use log::{Log, StageContext};
pub use machine::TOPICS;
pub use rebuild::{FollowReport, Followed, Rebuilt};
pub use scan::{Positions, Progress, Report};
use store::Store;
use store::config::Retention;
use tokio::runtime::Handle;
pub use tracing::Level;
pub use verify::{Difference, Differs, Verified};

/// Consumer group of all projectors.
pub const GROUP: &str = "projector";

/// Error for which the projector stopped for good.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log failed.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// It is not known whether offsets were committed.
    #[error(transparent)]
    Step(#[from] log::StepError),
    /// The tables failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A record has a schema or a word that this version does not have.
    #[error(transparent)]
    Newer(#[from] log::NewerRecord),
    /// Log and tables are not of one moment, or not of one installation.
    #[error("{0}")]
    Unfit(String),
    /// A dead letter could not be made, which is a defect of this program.
    #[error("cannot make a dead letter: {0}")]
    Letter(#[from] schemas::CodecError),
}

/// Keeps the tables up with the log until the process stops. The one that has the first partition of `orders` also takes
/// empty partitions out of lists, and removes old rows once an hour if there is a retention. Each step of a payment is a
/// log line of `level`, which is debug unless it is info. Blocks: belongs on a thread of its own.
///
/// # Errors
/// [`Error`]: the tables or the log failed in a way that will not pass, and the process must stop.
/// Everything that may pass is waited for.
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

/// Makes the tables again from all that the log still has: the newest version of each row, so that no row is wrong in
/// between. The group itself continues where it was. Tables in use may be given: what is there already stays, and what
/// comes meanwhile wins. Returns none if `report` ended it. Blocks.
///
/// # Errors
/// [`Error`]: the log failed, or the tables, for a minute if a retry may help; run it again, from the beginning.
pub fn rebuild(
    log: &dyn Log,
    store: &dyn Store,
    handle: &Handle,
    report: Report<'_>,
) -> Result<Option<Rebuilt>, Error> {
    rebuild::rebuild(log, store, handle, report)
}

/// Writes what came to the log since, as [`run`] does but without a group, until `report` ends it. The tables have had
/// everything once each partition was read to where it ended at the beginning. Blocks.
///
/// # Errors
/// As [`rebuild`].
pub fn follow(
    log: &dyn Log,
    store: &dyn Store,
    handle: &Handle,
    from: Positions,
    report: FollowReport<'_>,
) -> Result<(), Error> {
    rebuild::follow(log, store, handle, from, report)
}

/// Compares the newest version of each row that the log still has with the row, and gives what differs to `differs`.
/// Returns none if `report` ended it. Changes nothing; tables in use may be given, and what a projector has not read is
/// waited for, ten seconds in all. Blocks.
///
/// # Errors
/// As [`rebuild`].
pub fn verify(
    log: &dyn Log,
    store: &dyn Store,
    handle: &Handle,
    report: Report<'_>,
    differs: Differs<'_>,
) -> Result<Option<Verified>, Error> {
    verify::verify(log, store, handle, report, differs)
}
