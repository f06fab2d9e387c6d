//! Parts of the stage on threads of their own, over the embedded log.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use log::embedded::EmbeddedLog;
use log::{Log, Offset, StageContext};
use runtime::Clock;
use schemas::Topic;
use schemas::record::Record;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::scripted::{LAYOUT, at};
use crate::error::Error;

pub(super) type Part = JoinHandle<Result<(), Error>>;

/// Parts that run until they are stopped.
pub(super) struct Running {
    stop: CancellationToken,
    threads: Vec<Part>,
}

impl Running {
    pub(super) fn start(
        log: &EmbeddedLog,
        clock: Arc<dyn Clock>,
        parts: impl FnOnce(StageContext) -> Vec<Part>,
    ) -> Self {
        let stop = CancellationToken::new();
        let threads = parts(StageContext {
            log: Arc::new(log.clone()),
            clock,
            member: "webhooks.0".to_owned(),
            handle: Handle::current(),
            stop: stop.clone(),
        });
        Self { stop, threads }
    }

    /// Cancels the stop token, and waits until all parts have ended without an error.
    pub(super) fn stop(self) {
        self.stop.cancel();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    }
}

pub(super) fn open(dir: &Path, clock: Arc<dyn Clock>) -> EmbeddedLog {
    EmbeddedLog::open(dir, LAYOUT, clock).unwrap()
}

pub(super) fn read<R: Record>(log: &EmbeddedLog, topic: Topic) -> Vec<R> {
    let records = log.read(at(topic), Offset(0), 100_000).unwrap();
    records.iter().map(|r| schemas::decode(r.value.as_deref().unwrap()).unwrap()).collect()
}
