//! Reading without a group: queries, single partitions to their end, and topics from their end.

pub(super) mod query;
pub(super) mod reader;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Offset as KafkaOffset;
use rdkafka::consumer::Consumer;
use schemas::Topic;

use crate::kafka::client::context::PlainContext;
use crate::kafka::client::{PlainConsumer, fault, open, record, settings};
use crate::kafka::shared::Shared;
use crate::{Error, Records, Tail, TopicPartition};

/// Maximum number of records that one poll returns.
const RECORDS_MAX: usize = 1000;

/// A consumer of all partitions of some topics.
pub(crate) struct KafkaTail {
    shared: Arc<Shared>,
    consumer: PlainConsumer,
}

impl KafkaTail {
    /// Starts at the present end of all partitions.
    pub(crate) fn open(shared: Arc<Shared>, topics: &[Topic]) -> Result<Self, Error> {
        let mut ends = Vec::new();
        for topic in topics {
            for partition in topic.all_partitions(&shared.layout) {
                let of = TopicPartition { topic: *topic, partition };
                shared.verify([of])?;
                ends.push((of, KafkaOffset::Offset(shared.query.bounds(of)?.end.0)));
            }
        }
        let consumer: PlainConsumer =
            open(&settings::tail(&shared.config), PlainContext::default())?;
        consumer.assign(&shared.names.list(ends)?).map_err(Error::transient)?;
        Ok(Self { shared, consumer })
    }
}

impl Tail for KafkaTail {
    fn poll(&mut self, timeout: Duration) -> Result<Records, Error> {
        let started = Instant::now();
        let mut records = Vec::new();
        let mut unavailable = None;
        while records.len() < RECORDS_MAX {
            let left = timeout.saturating_sub(started.elapsed());
            let is_done = !records.is_empty() || unavailable.is_some();
            let wait = if is_done { Duration::ZERO } else { left };
            match self.consumer.poll(wait) {
                Some(Ok(message)) => {
                    records.extend(record::of_message(&self.shared.names, &message).map(Arc::new));
                }
                Some(Err(error)) => match fault::of_poll(error) {
                    // An unavailable broker causes many errors: one of them is returned.
                    Some(Error::Transient(cause)) => unavailable = Some(cause),
                    Some(error) => return Err(error),
                    None => {}
                },
                None if is_done || left.is_zero() => break,
                None => {}
            }
        }
        match unavailable {
            Some(cause) if records.is_empty() => {
                Err(Error::Transient(self.consumer.context().last.explain(cause)))
            }
            // Polled records are not delivered again, so they are returned instead of the error.
            _ => Ok(records),
        }
    }
}
