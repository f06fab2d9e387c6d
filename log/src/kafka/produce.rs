//! Appending without a step: one idempotent producer for all callers of a process.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use tokio::sync::{Semaphore, oneshot};

use super::context::{Delivery, ProduceContext};
use super::name::number;
use super::record::native_headers;
use super::settings::RECORD_BYTES_MAX;
use super::{Site, fault, settings};
use crate::metrics;
use crate::{Error, NewRecord};

/// What may wait to be written, in [`UNIT_BYTES`]: callers wait for room, not the library.
const ROOM: u32 = 65_536;
const UNIT_BYTES: usize = 1024;

/// The producer, once somebody needed it.
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
    fn producer(&self, site: &Site) -> Result<Arc<ThreadedProducer<ProduceContext>>, Error> {
        let mut current = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*current {
            return Ok(producer.clone());
        }
        let settings = settings::plain_producer(&site.config);
        let producer =
            ThreadedProducer::from_config_and_context(&settings, ProduceContext::default());
        let producer = Arc::new(producer.map_err(|error| fault::of_client(&error))?);
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
}

/// Appends records and waits until the brokers have them.
///
/// # Errors
/// [`Error::Fatal`] for what can never be written, and then nothing of it is; [`Error::Transient`]
/// otherwise.
pub(super) async fn produce(site: &Arc<Site>, records: Vec<NewRecord>) -> Result<(), Error> {
    verify(site, &records).await?;
    if site.take_failure() {
        return Err(Error::Transient("it was made to fail".to_owned()));
    }
    let units = records.iter().map(units).fold(0, u32::saturating_add).min(ROOM);
    let room = site.produce.room.acquire_many(units).await;
    let _room = room.map_err(|error| Error::Fatal(error.to_string()))?;
    let producer = site.produce.producer(site)?;
    let (done, ended) = oneshot::channel();
    send(site, &producer, &records, &Delivery::new(records.len(), done))?;
    let result = ended.await.map_err(|error| Error::Transient(error.to_string()))?;
    result.map_err(|error| {
        ::metrics::counter!(metrics::LOG_PRODUCE_ERRORS_TOTAL).increment(1);
        site.produce.forget_if_failed(&producer);
        refused(&producer, &error)
    })
}

/// Checks places and sizes. The first time, the brokers are asked, which blocks.
async fn verify(site: &Arc<Site>, records: &[NewRecord]) -> Result<(), Error> {
    let mut unknown = Vec::new();
    for record in records {
        if !site.names.partition(record.to)?.is_verified() {
            unknown.push(record.to);
        }
        if bytes(record) > RECORD_BYTES_MAX {
            return Err(Error::Fatal(format!("a record for {} is too large", record.to)));
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let site = site.clone();
    let checked = tokio::task::spawn_blocking(move || site.check(unknown)).await;
    checked.map_err(|error| Error::Transient(error.to_string()))?
}

fn send(
    site: &Site,
    producer: &Arc<ThreadedProducer<ProduceContext>>,
    records: &[NewRecord],
    delivery: &Arc<Delivery>,
) -> Result<(), Error> {
    for (sent, record) in records.iter().enumerate() {
        let name = site.names.partition(record.to)?;
        let mut native =
            BaseRecord::<[u8], [u8], Arc<Delivery>>::with_opaque_to(&name.full, delivery.clone())
                .partition(number(record.to.partition))
                .key(&record.key);
        native.payload = record.value.as_deref();
        native.headers = native_headers(&record.headers);
        if let Err((error, _)) = producer.send(native) {
            ::metrics::counter!(metrics::LOG_PRODUCE_ERRORS_TOTAL).increment(1);
            site.produce.forget_if_failed(producer);
            if sent == 0 {
                return Err(refused(producer, &error));
            }
            // Those before it are on their way: the answer comes when they have ended.
            delivery.ended(records.len() - sent, Some(&error));
            break;
        }
    }
    Ok(())
}

fn refused(producer: &ThreadedProducer<ProduceContext>, error: &KafkaError) -> Error {
    let cause = producer.context().last.explain(error);
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => Error::Fatal(cause),
        _ => Error::Transient(cause),
    }
}

fn bytes(record: &NewRecord) -> usize {
    let value = record.value.as_ref().map_or(0, Vec::len);
    record.key.len() + value + record.headers.as_bytes().len()
}

fn units(record: &NewRecord) -> u32 {
    u32::try_from(bytes(record) / UNIT_BYTES + 1).unwrap_or(u32::MAX)
}
