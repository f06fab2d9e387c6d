//! Runs the machines against the log: two loops, each on a thread of its own.

mod deliverer;
mod dispatcher;

pub use deliverer::run_deliverer;
pub use dispatcher::run_dispatcher;

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// How many records one poll brings at most.
const BATCH_MAX: usize = 500;
/// How long a poll waits when nothing is expected.
const POLL_IDLE: Duration = Duration::from_millis(50);
/// How long to leave the log alone after it could not write.
const BACK_OFF: Duration = Duration::from_millis(500);

/// Lets the log recover, or ends early because the process stops.
fn back_off(stop: &CancellationToken) {
    let until = Instant::now() + BACK_OFF;
    while !stop.is_cancelled() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::park_timeout(left.min(POLL_IDLE));
    }
}

#[cfg(test)]
mod pipeline_tests;
#[cfg(test)]
mod receiver;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod scripted_tests;
