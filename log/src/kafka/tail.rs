//! Follows topics from their end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::Offset as Place;
use schemas::Topic;

use super::context::PlainContext;
use super::{Site, fault, record, settings};
use crate::{Error, Record, Tail, TopicPartition};

/// How many records a tail brings at once.
const RECORDS_MAX: usize = 1000;

/// A consumer of all partitions of some topics.
pub(super) struct KafkaTail {
    site: Arc<Site>,
    consumer: BaseConsumer<PlainContext>,
}

impl KafkaTail {
    /// Stands at the present end of all partitions.
    ///
    /// # Errors
    /// [`Error`] if the broker cannot be reached, or a topic is not as the layout wants it.
    pub(super) fn open(site: Arc<Site>, topics: &[Topic]) -> Result<Self, Error> {
        let mut places = Vec::new();
        for topic in topics {
            for partition in topic.all_partitions(&site.layout) {
                let of = TopicPartition { topic: *topic, partition };
                site.check([of])?;
                places.push((of, Place::Offset(site.query.bounds(of)?.end.0)));
            }
        }
        let settings = settings::tail(&site.config);
        let consumer = BaseConsumer::from_config_and_context(&settings, PlainContext::default());
        let consumer = consumer.map_err(|error| fault::of_client(&error))?;
        let list = site.names.list(places)?;
        consumer.assign(&list).map_err(|error| Error::Transient(error.to_string()))?;
        Ok(Self { site, consumer })
    }
}

impl Tail for KafkaTail {
    fn poll(&mut self, timeout: Duration) -> Result<Vec<Arc<Record>>, Error> {
        let started = Instant::now();
        let mut records = Vec::new();
        let mut trouble = None;
        while records.len() < RECORDS_MAX {
            let left = timeout.saturating_sub(started.elapsed());
            let is_done = !records.is_empty() || trouble.is_some();
            let wait = if is_done { Duration::ZERO } else { left };
            match self.consumer.poll(wait) {
                Some(Ok(message)) => {
                    let Some(record) = record::of_message(&self.site.names, &message) else {
                        continue;
                    };
                    records.push(Arc::new(record));
                }
                Some(Err(error)) => match fault::of_poll(&error) {
                    // A broker that is away for long says so often: all of that is one answer.
                    Some(Error::Transient(cause)) => trouble = Some(cause),
                    Some(error) => return Err(error),
                    None => {}
                },
                None if is_done || left.is_zero() => break,
                None => {}
            }
        }
        match trouble {
            // What was taken is not taken again.
            Some(cause) if records.is_empty() => {
                Err(Error::Transient(self.consumer.context().last.explain(cause)))
            }
            _ => Ok(records),
        }
    }
}
