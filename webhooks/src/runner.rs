//! Runs the machines against the log: three loops, each on a thread of its own.

mod deliverer;
mod dispatcher;
mod endpoints;
mod engine;
mod herald;
mod job;
mod results;
mod sequences;

use std::time::Duration;

use schemas::UnixMicros;

pub use deliverer::{deliverer_inputs, run_deliverer};
pub use dispatcher::run_dispatcher;
pub use engine::Engine;
pub use herald::{run_herald, sinks_of, sinks_text};

/// Time from `earlier` to `later`, zero if it is the other way round.
fn elapsed(earlier: UnixMicros, later: UnixMicros) -> Duration {
    let micros = later.0.saturating_sub(earlier.0);
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

#[cfg(test)]
mod tests;
