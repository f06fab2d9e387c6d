//! The embedded log with faults: it records committed positions, and can make steps fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use log::embedded::EmbeddedLog;
use log::{
    Error, Log, LogLayer, Offset, Step, StepError, TopicPartition, Worker, WorkerLayer, WorkerSpec,
    layered,
};

/// Commits and aborts of the workers.
#[derive(Default)]
pub(crate) struct Watch {
    committed: Mutex<BTreeMap<TopicPartition, Offset>>,
    aborts: AtomicU32,
}

/// Layer over the log of the runners, which records their commits.
pub(crate) struct Unlucky {
    pub(crate) log: EmbeddedLog,
    pub(crate) watch: Arc<Watch>,
    /// `true` if every step fails the first time it is tried.
    pub(crate) fails: bool,
}

impl Watch {
    /// The processor's position in each input partition.
    pub(crate) fn committed(&self) -> BTreeMap<TopicPartition, Offset> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of steps that were aborted.
    pub(crate) fn aborts(&self) -> u32 {
        self.aborts.load(Ordering::SeqCst)
    }
}

struct UnluckyWorker {
    log: EmbeddedLog,
    watch: Arc<Watch>,
    fails: bool,
    tried: bool,
}

impl WorkerLayer for UnluckyWorker {
    fn commit(&mut self, worker: &mut dyn Worker, step: Step) -> Result<(), StepError> {
        self.tried = !self.tried;
        if self.fails && self.tried {
            self.log.fail_next_commit();
        }
        let offsets = step.offsets.clone();
        let outcome = worker.commit(step);
        match &outcome {
            Ok(()) => {
                let mut all = self.watch.committed.lock().unwrap_or_else(PoisonError::into_inner);
                all.extend(offsets.into_iter().map(|(tp, committed)| (tp, committed.offset)));
            }
            Err(StepError::Aborted(_)) => {
                self.watch.aborts.fetch_add(1, Ordering::SeqCst);
            }
            Err(_) => {}
        }
        outcome
    }
}

impl LogLayer for Unlucky {
    fn worker(&self, log: &dyn Log, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        let Self { log: embedded, watch, fails } = self;
        let (embedded, watch) = (embedded.clone(), watch.clone());
        let unlucky = UnluckyWorker { log: embedded, watch, fails: *fails, tried: false };
        Ok(layered(log.worker(spec)?, unlucky))
    }
}
