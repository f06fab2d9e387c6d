//! Appending without a step: one idempotent producer for all callers of a process.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use tokio::sync::{Semaphore, oneshot};

use super::client::context::{Delivery, ProduceContext};
use super::client::name::number;
use super::client::open;
use super::client::record::native_headers;
use super::client::settings::{self, RECORD_BYTES_MAX};
use super::shared::Shared;
use crate::metrics;
use crate::{Error, NewRecord};

/// Maximum size of unwritten records, in units of [`UNIT_BYTES`]: beyond it callers wait here, not
/// inside the library.
const ROOM: u32 = 65_536;
const UNIT_BYTES: usize = 1024;

/// The producer, opened by the first append.
pub(super) struct Produce {
    producer: Mutex<Option<Arc<ThreadedProducer<ProduceContext>>>>,
    room: Arc<Semaphore>,
}

impl Default for Produce {
    fn default() -> Self {
        Self { producer: Mutex::default(), room: Arc::new(Semaphore::new(ROOM as usize)) }
    }
}

impl Produce {
    fn producer(&self, shared: &Shared) -> Result<Arc<ThreadedProducer<ProduceContext>>, Error> {
        let mut current = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*current {
            return Ok(producer.clone());
        }
        let settings = settings::producer(&shared.config);
        let producer: Arc<ThreadedProducer<_>> =
            Arc::new(open(&settings, ProduceContext::default())?);
        *current = Some(producer.clone());
        Ok(producer)
    }

    /// Drops a failed producer: the next call opens another.
    fn forget_if_failed(&self, producer: &Arc<ThreadedProducer<ProduceContext>>) {
        let mut current = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, producer));
        if is_current && producer.client().fatal_error().is_some() {
            *current = None;
        }
    }

    /// Appends records and waits until the brokers have them.
    ///
    /// # Errors
    /// [`Error::Fatal`] if a record can never be written; [`Error::Transient`] otherwise.
    pub(super) async fn append(
        &self,
        shared: &Arc<Shared>,
        records: Vec<NewRecord>,
    ) -> Result<(), Error> {
        verify(shared, &records).await?;
        if shared.take_failure() {
            return Err(Error::transient("made to fail by a test"));
        }
        let units = records.iter().map(units).fold(0, u32::saturating_add).min(ROOM);
        let room = self.room.clone().acquire_many_owned(units).await;
        let room = room.map_err(|error| Error::fatal(error.to_string()))?;
        let producer = self.producer(shared)?;
        let (done, ended) = oneshot::channel();
        self.send(shared, &producer, &records, &Delivery::new(records.len(), done, room))?;
        let result = ended.await.map_err(|error| Error::transient(error.to_string()))?;
        result.map_err(|error| self.failed(&producer, error))
    }

    fn send(
        &self,
        shared: &Shared,
        producer: &Arc<ThreadedProducer<ProduceContext>>,
        records: &[NewRecord],
        delivery: &Arc<Delivery>,
    ) -> Result<(), Error> {
        for (sent, record) in records.iter().enumerate() {
            let name = &shared.names.partition(record.to)?.full;
            let mut native =
                BaseRecord::<[u8], [u8], Arc<Delivery>>::with_opaque_to(name, delivery.clone())
                    .partition(number(record.to.partition))
                    .key(&record.key);
            native.payload = record.value.as_deref();
            native.headers = native_headers(&record.headers);
            let Err((error, _)) = producer.send(native) else { continue };
            if sent == 0 {
                return Err(self.failed(producer, error));
            }
            // Earlier records were sent: the reply comes once they were written or have failed.
            delivery.ended(records.len() - sent, Some(&error));
            break;
        }
        Ok(())
    }

    fn failed(&self, producer: &Arc<ThreadedProducer<ProduceContext>>, error: KafkaError) -> Error {
        ::metrics::counter!(metrics::LOG_PRODUCE_ERRORS_TOTAL).increment(1);
        self.forget_if_failed(producer);
        let is_too_large =
            error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge);
        let cause = producer.context().last.explain(error);
        if is_too_large { Error::Fatal(cause) } else { Error::Transient(cause) }
    }
}

/// Checks partitions and sizes. The first call for a topic queries the brokers, on a thread that
/// may block.
async fn verify(shared: &Arc<Shared>, records: &[NewRecord]) -> Result<(), Error> {
    let mut unknown = Vec::new();
    for record in records {
        if !shared.names.partition(record.to)?.is_verified() {
            unknown.push(record.to);
        }
        if bytes(record) > RECORD_BYTES_MAX {
            return Err(Error::fatal(format!("a record for {} is too large", record.to)));
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let shared = shared.clone();
    let verified = tokio::task::spawn_blocking(move || shared.verify(unknown)).await;
    verified.map_err(|error| Error::transient(error.to_string()))?
}

fn bytes(record: &NewRecord) -> usize {
    let value = record.value.as_ref().map_or(0, Vec::len);
    record.key.len() + value + record.headers.as_bytes().len()
}

fn units(record: &NewRecord) -> u32 {
    u32::try_from(bytes(record) / UNIT_BYTES + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use schemas::{Headers, Partition, Topic};

    use super::*;
    use crate::TopicPartition;
    use crate::kafka::shared::tests::mock;

    const TO: TopicPartition = TopicPartition { topic: Topic::Orders, partition: Partition(0) };

    #[tokio::test(flavor = "multi_thread")]
    async fn a_record_has_a_limit_of_bytes() {
        let (_cluster, shared) = mock(&[Topic::Orders]);
        let record = |bytes| NewRecord {
            to: TO,
            key: vec![b'k'],
            value: Some(vec![0; bytes - 1]),
            headers: Headers::default(),
        };
        verify(&shared, &[record(RECORD_BYTES_MAX)]).await.unwrap();
        let refused = verify(&shared, &[record(RECORD_BYTES_MAX + 1)]).await.unwrap_err();
        assert!(matches!(refused, Error::Fatal(_)), "{refused:?}");
    }

    /// A cancelled call must not free its room before its records have ended.
    #[test]
    fn records_take_room_until_they_have_ended() {
        let (cluster, shared) = mock(&[Topic::Orders]);
        let produce = Produce::default();
        let headers = Headers::default();
        let record = NewRecord { to: TO, key: Vec::new(), value: None, headers };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let append = || produce.append(&shared, vec![record.clone()]);
        runtime.block_on(append()).unwrap();
        cluster.broker_down(1).unwrap();
        let moment = Duration::from_millis(20);
        runtime.block_on(async { tokio::time::timeout(moment, append()).await }).unwrap_err();
        assert_eq!(produce.room.available_permits(), ROOM as usize - 1);
        cluster.broker_up(1).unwrap();
        let all = produce.room.acquire_many(ROOM);
        let patience = Duration::from_secs(60);
        drop(runtime.block_on(async { tokio::time::timeout(patience, all).await }).unwrap());
    }
}
