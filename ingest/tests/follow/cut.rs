//! A log that stops ingest right after a step that retracts.

use std::sync::Arc;

use async_trait::async_trait;
use log::embedded::EmbeddedLog;
use log::{
    Bounds, Error, Log, NewRecord, Offset, Record, StepError, Tail, TopicPartition, Worker,
    WorkerSpec, Writer,
};
use schemas::record::{ChainBody, ChainRecord};
use schemas::{Layout, Topic};
use tokio_util::sync::CancellationToken;

pub(crate) struct CutAfterRetract {
    pub(crate) log: EmbeddedLog,
    pub(crate) stop: CancellationToken,
}

struct CutWriter {
    writer: Box<dyn Writer>,
    stop: CancellationToken,
}

impl Writer for CutWriter {
    fn commit(&mut self, records: Vec<NewRecord>) -> Result<(), StepError> {
        let retracts =
            records.iter().filter(|record| record.to.topic == Topic::TransfersRaw).any(|record| {
                let value = record.value.as_deref().unwrap();
                let decoded: ChainRecord = schemas::decode(value).unwrap();
                matches!(decoded.body, ChainBody::Retract(_))
            });
        self.writer.commit(records)?;
        if retracts {
            self.stop.cancel();
        }
        Ok(())
    }
}

#[async_trait]
impl Log for CutAfterRetract {
    fn layout(&self) -> Layout {
        self.log.layout()
    }

    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error> {
        self.log.produce(records).await
    }

    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error> {
        let writer = self.log.writer(name)?;
        Ok(Box::new(CutWriter { writer, stop: self.stop.clone() }))
    }

    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        self.log.worker(spec)
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
