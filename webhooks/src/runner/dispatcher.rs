//! `orders` and `transfers.unknown` -> `webhooks.dispatch`, exactly once.

use std::collections::BTreeMap;

use log::{
    Committed, Error as LogError, Event, Log, NewRecord, Offset, Record, Step, StepError,
    TopicPartition, Worker, WorkerSpec,
};
use log::{Envelope, dead_letter};
use schemas::record::{Delivery, Order, Transfer};
use schemas::{Layout, Topic};
use tokio_util::sync::CancellationToken;

use super::{BATCH_MAX, POLL_IDLE, back_off};
use crate::config::Config;
use crate::error::Error;
use crate::machine::announcement::{decide_order, decide_transfer};

const GROUP: &str = "webhooks.dispatcher";

/// Turns changes into webhooks until `stop`, as `member` of the group. Blocks: runs on a thread of its
/// own.
///
/// # Errors
/// [`Error`] if the log cannot go on; what was not committed is read again by the next run.
pub fn run_dispatcher(
    log: &dyn Log,
    config: &Config,
    member: &str,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let spec = WorkerSpec {
        group: GROUP,
        member: member.to_owned(),
        topics: vec![Topic::Orders, Topic::TransfersUnknown],
        batch_max: BATCH_MAX,
    };
    let Some(worker) = log::retry(stop, GROUP, || log.worker(spec.clone()))? else {
        return Ok(());
    };
    let url = config.unknown_transfer_webhook_url.clone();
    let mut dispatcher = Dispatcher { worker, layout: log.layout(), url };
    while !stop.is_cancelled() {
        if dispatcher.turn()? == Turn::LogAway {
            back_off(stop);
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Done,
    /// The log cannot read or write now. Nothing is lost: it is read again.
    LogAway,
}

pub(super) struct Dispatcher {
    pub(super) worker: Box<dyn Worker>,
    pub(super) layout: Layout,
    /// Where unknown transfers are delivered.
    pub(super) url: Option<String>,
}

impl Dispatcher {
    pub(super) fn turn(&mut self) -> Result<Turn, Error> {
        let records = match self.worker.poll(POLL_IDLE) {
            Ok(Event::Records(records)) => records,
            // There is no state to take over or to drop.
            Ok(Event::Assigned(_) | Event::Revoked(_) | Event::Idle) => return Ok(Turn::Done),
            Err(LogError::Transient(cause)) => {
                tracing::debug!(cause, "webhooks cannot read the log, trying again");
                return Ok(Turn::LogAway);
            }
            Err(error) => return Err(error.into()),
        };
        let mut step = Step::default();
        let mut offsets: BTreeMap<TopicPartition, Offset> = BTreeMap::new();
        for record in &records {
            step.records.extend(self.dispatch(record)?);
            offsets.insert(record.from, record.offset.next());
        }
        let committed = |offset| Committed { offset, metadata: String::new() };
        step.offsets = offsets.into_iter().map(|(of, next)| (of, committed(next))).collect();
        match self.worker.commit(step) {
            Ok(()) => Ok(Turn::Done),
            Err(StepError::Aborted(cause)) => {
                tracing::warn!(cause, "webhooks cannot write the log, trying again");
                Ok(Turn::LogAway)
            }
            Err(StepError::Fenced(cause)) => {
                tracing::info!(cause, "webhooks lost partitions to another member");
                Ok(Turn::Done)
            }
            Err(error @ StepError::Fatal(_)) => Err(error.into()),
        }
    }

    fn dispatch(&self, record: &Record) -> Result<Option<NewRecord>, Error> {
        match self.decide(record) {
            Ok(None) => Ok(None),
            Ok(Some(delivery)) => {
                let key = delivery.key();
                let partition = self.layout.webhook(&key);
                let mut envelope = Envelope::of(record);
                Ok(Some(envelope.wrap(Topic::WebhooksDispatch, partition, key, &delivery)?))
            }
            Err(reason) => Ok(Some(dead_letter(record, GROUP, &reason)?)),
        }
    }

    /// The record's place names the event, so a replay gives the same name.
    fn decide(&self, record: &Record) -> Result<Option<Delivery>, String> {
        let event_id = format!("{}/{}", record.from, record.offset);
        let value = record.value.as_deref().ok_or("the record has no value")?;
        if record.from.topic == Topic::Orders {
            let order: Order = schemas::decode(value).map_err(|error| error.to_string())?;
            Ok(decide_order(&order, &event_id))
        } else {
            let transfer: Transfer = schemas::decode(value).map_err(|error| error.to_string())?;
            Ok(decide_transfer(&transfer, &event_id, self.url.as_deref()))
        }
    }
}
