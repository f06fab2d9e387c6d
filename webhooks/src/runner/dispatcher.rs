//! `orders` and `transfers.unknown` -> `webhooks.dispatch`, exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;

use log::consumer::{Handler, Member, Plan};
use log::{NewRecord, Record, StageContext, Step, Unreadable, dead_letter};
use schemas::record::{Delivery, Transfer};
use schemas::{Amount, Layout, Stablecoin, Topic};

use crate::config::Config;
use crate::error::Error;
use crate::machine::announcement::{decide_order, decide_transfer, is_dust};
use crate::metrics;

/// Turns changes into webhooks until the process stops. Blocks: runs on a thread of its own.
///
/// # Errors
/// [`Error`] if the log failed for good; what was not committed is read again by the next run.
pub fn run_dispatcher(config: &Config, context: &StageContext) -> Result<(), Error> {
    log::consumer::run(context, Dispatcher::new(context.log.layout(), config))
}

pub(super) struct Dispatcher {
    layout: Layout,
    /// URL to which unknown transfers are delivered.
    url: Option<String>,
    dust_threshold: BTreeMap<Stablecoin, Amount>,
    /// Coins of the dust in the current step, counted once it is committed.
    dust: Vec<Stablecoin>,
}

impl Handler for Dispatcher {
    const GROUP: &'static str = "webhooks.dispatcher";
    type Error = Error;

    fn topics(&self) -> Vec<Topic> {
        vec![Topic::Orders, Topic::TransfersUnknown]
    }

    fn step(&mut self, records: &[Arc<Record>], _member: &mut Member<'_>) -> Result<Plan, Error> {
        let mut step = Step::default();
        self.dust.clear();
        for record in records {
            step.records.extend(self.dispatch(record)?);
            step.take(record);
        }
        Ok(Plan::commit(step))
    }

    fn committed(&mut self) {
        self.dust.drain(..).for_each(metrics::dust);
    }
}

impl Dispatcher {
    pub(super) fn new(layout: Layout, config: &Config) -> Self {
        let url = config.unknown_transfer_webhook_url.clone();
        let dust_threshold = config.dust_threshold.clone();
        Self { layout, url, dust_threshold, dust: Vec::new() }
    }

    fn dispatch(&mut self, record: &Record) -> Result<Option<NewRecord>, Error> {
        match self.decide(record) {
            Ok(None) => Ok(None),
            Ok(Some(delivery)) => {
                let key = delivery.key();
                let partition = self.layout.webhook(&key);
                let new = NewRecord::encode(Topic::WebhooksDispatch, partition, key, &delivery)?;
                Ok(Some(new.traced(record.traceparent())))
            }
            Err(unreadable) => {
                Ok(Some(dead_letter(record, Self::GROUP, &unreadable.garbage(record)?)?))
            }
        }
    }

    fn decide(&mut self, record: &Record) -> Result<Option<Delivery>, Unreadable> {
        if record.from.topic == Topic::Orders {
            Ok(decide_order(&record.read()?))
        } else {
            let transfer: Transfer = record.read()?;
            if is_dust(&transfer, &self.dust_threshold) {
                self.dust.push(transfer.observation.stablecoin);
                return Ok(None);
            }
            Ok(decide_transfer(&transfer, self.url.as_deref()))
        }
    }
}
