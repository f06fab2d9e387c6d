//! A log that keeps records and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use log::{
    Bounds, Error, Log, NewRecord, Offset, Record, Tail, TopicPartition, Worker, WorkerSpec, Writer,
};
use schemas::record::ChainRecord;
use schemas::{Headers, Layout, Topic, UnixMicros};

use crate::{ChainConfig, publish};

/// Records by partition. Offsets have holes, as Kafka's have where a transaction ended.
#[derive(Clone)]
pub(crate) struct MemoryLog {
    layout: Layout,
    records: BTreeMap<TopicPartition, Vec<Record>>,
    next: i64,
    /// Maximum number of records of one read.
    pub(crate) read_max: usize,
}

impl MemoryLog {
    pub(crate) fn new() -> Self {
        let layout = Layout { lanes: 2, orders: 1, webhooks: 1 };
        Self { layout, records: BTreeMap::new(), next: 0, read_max: usize::MAX }
    }

    pub(crate) fn commit(&mut self, step: Vec<NewRecord>) {
        for record in step {
            let offset = Offset(self.next);
            self.next += 1;
            self.records.entry(record.to).or_default().push(Record {
                from: record.to,
                offset,
                appended_at: UnixMicros(0),
                key: record.key,
                value: record.value,
                headers: record.headers,
            });
        }
        self.next += 2;
    }

    /// Commits a step of ingest.
    pub(crate) fn publish(&mut self, chain: &ChainConfig, records: &[ChainRecord]) {
        self.commit(publish::step(records, chain.watched(), &self.layout).unwrap());
    }

    /// Puts bytes that no version can read into a partition.
    pub(crate) fn spoil(&mut self, to: TopicPartition) {
        self.put(to, vec![9; 9]);
    }

    pub(crate) fn put(&mut self, to: TopicPartition, value: Vec<u8>) {
        let (key, headers) = (Vec::new(), Headers::default());
        self.commit(vec![NewRecord { to, key, value: Some(value), headers }]);
    }

    /// Forgets all but the last records of each partition.
    pub(crate) fn expire(&mut self, kept: usize) {
        for records in self.records.values_mut() {
            records.drain(..records.len().saturating_sub(kept));
        }
    }

    pub(crate) fn clear(&mut self, of: TopicPartition) {
        self.records.remove(&of);
    }

    pub(crate) fn lanes(&self) -> Vec<TopicPartition> {
        self.records.keys().filter(|of| of.topic == Topic::TransfersRaw).copied().collect()
    }
}

#[async_trait]
impl Log for MemoryLog {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn installation(&self) -> Result<String, Error> {
        Err(Error::Fatal("not here".into()))
    }

    fn read(
        &self,
        of: TopicPartition,
        from: Offset,
        max: usize,
    ) -> Result<Vec<Arc<Record>>, Error> {
        let records = self.records.get(&of).into_iter().flatten();
        Ok(records
            .filter(|record| record.offset >= from)
            .take(max.min(self.read_max))
            .cloned()
            .map(Arc::new)
            .collect())
    }

    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        let records = self.records.get(&of);
        let start = records.and_then(|r| r.first()).map_or(Offset(self.next), |r| r.offset);
        Ok(Bounds { start, end: Offset(self.next) })
    }

    async fn produce(&self, _: Vec<NewRecord>) -> Result<(), Error> {
        Err(Error::Fatal("not here".into()))
    }

    fn writer(&self, _: &str) -> Result<Box<dyn Writer>, Error> {
        Err(Error::Fatal("not here".into()))
    }

    fn worker(&self, _: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        Err(Error::Fatal("not here".into()))
    }

    fn tail(&self, _: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        Err(Error::Fatal("not here".into()))
    }
}
