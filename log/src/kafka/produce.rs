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

/// How much may wait to be written, in [`UNIT_BYTES`]: callers wait for room, not the library.
const ROOM: u32 = 65_536;
const UNIT_BYTES: usize = 1024;

/// The producer, opened by the first append.
pub(super) struct Produce {
    producer: Mutex<Option<Arc<ThreadedProducer<ProduceContext>>>>,
    room: Semaphore,
}

impl Default for Produce {
    fn default() -> Self {
        Self { producer: Mutex::default(), room: Semaphore::new(ROOM as usize) }
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

    /// A producer that failed for good is replaced by the next call.
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
    /// [`Error::Fatal`] for what can never be written, and then nothing of it is; [`Error::Transient`]
    /// otherwise.
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
        let _room = self.room.acquire_many(units).await.map_err(|e| Error::fatal(e.to_string()))?;
        let producer = self.producer(shared)?;
        let (done, ended) = oneshot::channel();
        self.send(shared, &producer, &records, &Delivery::new(records.len(), done))?;
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
            // The first ones were sent: the answer comes when they have ended.
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

/// Checks partitions and sizes. The first time, the brokers are asked, which blocks.
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
