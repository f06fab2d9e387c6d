//! Periodic background work on the tables.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Runs the work at most once at a time. Dropping it cancels the run.
#[derive(Debug)]
pub(super) struct Housekeeping {
    every: Duration,
    running: Option<JoinHandle<()>>,
    /// Time at which the last run began.
    begun: Option<Instant>,
}

impl Housekeeping {
    /// Due at once, and then this long after the last start.
    pub(super) fn every(every: Duration) -> Self {
        Self { every, running: None, begun: None }
    }

    /// Begins the work, if it is time and the last one has ended.
    pub(super) fn if_due<F>(&mut self, handle: &Handle, work: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let is_running = self.running.as_ref().is_some_and(|running| !running.is_finished());
        if is_running || self.begun.is_some_and(|begun| begun.elapsed() < self.every) {
            return;
        }
        self.begun = Some(Instant::now());
        self.running = Some(handle.spawn(work()));
    }

    /// Cancels the run, at any point; it is due again at once.
    pub(super) fn stop(&mut self) {
        self.begun = None;
        if let Some(running) = self.running.take() {
            running.abort();
        }
    }

    /// The run that is under way.
    #[cfg(test)]
    pub(super) fn running(&mut self) -> Option<JoinHandle<()>> {
        self.running.take()
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        self.stop();
    }
}
