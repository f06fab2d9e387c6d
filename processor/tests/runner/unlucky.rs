//! The embedded log, watched: it knows when all commands are worked off, and can make steps fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use log::embedded::EmbeddedLog;
use log::{
    Bounds, Error, Event, Log, NewRecord, Offset, Record, Step, StepError, Tail, TopicPartition,
    Worker, WorkerSpec, Writer,
};
use schemas::{Layout, Topic};

/// What the workers did.
#[derive(Default)]
pub(crate) struct Watch {
    committed: Mutex<BTreeMap<TopicPartition, Offset>>,
    aborts: AtomicU32,
}

/// The log as the runners see it.
pub(crate) struct Unlucky {
    log: EmbeddedLog,
    watch: Arc<Watch>,
    /// Whether every step fails the first time it is tried.
    fails: bool,
}

impl Unlucky {
    pub(crate) fn new(log: EmbeddedLog, watch: Arc<Watch>, fails: bool) -> Self {
        Self { log, watch, fails }
    }
}

impl Watch {
    /// Where the processor stands, by input partition.
    pub(crate) fn committed(&self) -> BTreeMap<TopicPartition, Offset> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many steps were aborted.
    pub(crate) fn aborts(&self) -> u32 {
        self.aborts.load(Ordering::SeqCst)
    }
}

struct UnluckyWorker {
    worker: Box<dyn Worker>,
    log: EmbeddedLog,
    watch: Arc<Watch>,
    fails: bool,
    tried: bool,
}

impl Worker for UnluckyWorker {
    fn poll(&mut self, timeout: Duration) -> Result<Event, Error> {
        self.worker.poll(timeout)
    }

    fn commit(&mut self, step: Step) -> Result<(), StepError> {
        self.tried = !self.tried;
        if self.fails && self.tried {
            self.log.fail_next_commit();
        }
        let offsets = step.offsets.clone();
        let outcome = self.worker.commit(step);
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

    fn restore(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        self.worker.restore(changelog, apply)
    }

    fn pause(&mut self, partition: TopicPartition) {
        self.worker.pause(partition);
    }

    fn resume(&mut self, partition: TopicPartition) {
        self.worker.resume(partition);
    }
}

#[async_trait]
impl Log for Unlucky {
    fn layout(&self) -> Layout {
        self.log.layout()
    }

    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error> {
        self.log.produce(records).await
    }

    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error> {
        self.log.writer(name)
    }

    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        Ok(Box::new(UnluckyWorker {
            worker: self.log.worker(spec)?,
            log: self.log.clone(),
            watch: self.watch.clone(),
            fails: self.fails,
            tried: false,
        }))
    }

    fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        self.log.tail(topics)
    }

    fn read(
        &self,
        of: TopicPartition,
        from: Offset,
        max: usize,
    ) -> Result<Vec<Arc<Record>>, Error> {
        self.log.read(of, from, max)
    }

    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        self.log.bounds(of)
    }
}
