//! A log that forwards to another one, with some calls overridden by a layer.
//!
//! A layer implements the calls that it changes. The others reach the log below unchanged.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemas::{Incarnation, Layout, Topic};

use crate::{
    Bounds, Error, Event, Log, NewRecord, Offset, Record, Records, Step, StepError, Tail,
    TopicPartition, Worker, WorkerSpec, Writer,
};

/// Overrides of the log below. Reads of a partition and [`Log::bounds`] are never overridden.
#[async_trait]
pub trait LogLayer: Send + Sync + 'static {
    /// As [`Log::produce`].
    async fn produce(&self, log: &dyn Log, records: Vec<NewRecord>) -> Result<(), Error> {
        log.produce(records).await
    }

    /// As [`Log::writer`].
    fn writer(&self, log: &dyn Log, name: &str) -> Result<Box<dyn Writer>, Error> {
        log.writer(name)
    }

    /// As [`Log::worker`].
    fn worker(&self, log: &dyn Log, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        log.worker(spec)
    }

    /// As [`Log::tail`].
    fn tail(&self, log: &dyn Log, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        log.tail(topics)
    }
}

/// A log with a layer over it.
pub struct LayeredLog<L> {
    log: Arc<dyn Log>,
    layer: L,
}

impl<L: LogLayer> LayeredLog<L> {
    /// Puts `layer` over `log`.
    #[must_use]
    pub fn new(log: Arc<dyn Log>, layer: L) -> Self {
        Self { log, layer }
    }
}

#[async_trait]
impl<L: LogLayer> Log for LayeredLog<L> {
    fn layout(&self) -> Layout {
        self.log.layout()
    }

    fn installation(&self) -> Result<String, Error> {
        self.log.installation()
    }

    fn incarnation(&self) -> Incarnation {
        self.log.incarnation()
    }

    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error> {
        self.layer.produce(&*self.log, records).await
    }

    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error> {
        self.layer.writer(&*self.log, name)
    }

    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        self.layer.worker(&*self.log, spec)
    }

    fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        self.layer.tail(&*self.log, topics)
    }

    fn read(&self, of: TopicPartition, from: Offset, max: usize) -> Result<Records, Error> {
        self.log.read(of, from, max)
    }

    fn read_ended(&self, of: TopicPartition, from: Offset, max: usize) -> Result<Records, Error> {
        self.log.read_ended(of, from, max)
    }

    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        self.log.bounds(of)
    }
}

/// Overrides of the worker below. Pause and resume are never overridden.
pub trait WorkerLayer: Send {
    /// As [`Worker::poll`].
    fn poll(&mut self, worker: &mut dyn Worker, timeout: Duration) -> Result<Event, Error> {
        worker.poll(timeout)
    }

    /// As [`Worker::write_ahead`].
    fn write_ahead(&mut self, worker: &mut dyn Worker, records: &mut Vec<NewRecord>) {
        worker.write_ahead(records);
    }

    /// As [`Worker::commit`].
    fn commit(&mut self, worker: &mut dyn Worker, step: Step) -> Result<(), StepError> {
        worker.commit(step)
    }

    /// As [`Worker::restore`].
    fn restore(
        &mut self,
        worker: &mut dyn Worker,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        worker.restore(changelog, apply)
    }
}

/// Puts `layer` over `worker`.
#[must_use]
pub fn layered(worker: Box<dyn Worker>, layer: impl WorkerLayer + 'static) -> Box<dyn Worker> {
    Box::new(LayeredWorker { worker, layer })
}

struct LayeredWorker<L> {
    worker: Box<dyn Worker>,
    layer: L,
}

impl<L: WorkerLayer> Worker for LayeredWorker<L> {
    fn poll(&mut self, timeout: Duration) -> Result<Event, Error> {
        self.layer.poll(&mut *self.worker, timeout)
    }

    fn write_ahead(&mut self, records: &mut Vec<NewRecord>) {
        self.layer.write_ahead(&mut *self.worker, records);
    }

    fn commit(&mut self, step: Step) -> Result<(), StepError> {
        self.layer.commit(&mut *self.worker, step)
    }

    fn restore(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        self.layer.restore(&mut *self.worker, changelog, apply)
    }

    fn pause(&mut self, partition: TopicPartition) {
        self.worker.pause(partition);
    }

    fn resume(&mut self, partition: TopicPartition) {
        self.worker.resume(partition);
    }
}
