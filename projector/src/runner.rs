//! Reads records, writes their rows, commits their offsets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use log::consumer::{Handler, Member, Plan};
use log::{NewRecord, Record, Step, TopicPartition, dead_letter};
use schemas::Topic;
use store::{Change, Store, coalesce};
use tokio::runtime::Handle;

use super::machine::{TOPICS, plan_change};
use super::{Error, GROUP};
use crate::metrics::{APPLY_RETRIES, APPLY_SECONDS, ROWS_APPLIED};

pub(super) struct Projector {
    store: Arc<dyn Store>,
    handle: Handle,
    /// Records read and not committed; kept while the tables cannot take them.
    batch: Batch,
}

#[derive(Debug, Default)]
struct Batch {
    changes: Vec<Change>,
    letters: Vec<(TopicPartition, NewRecord)>,
    /// Only its offsets.
    read: Step,
}

impl Projector {
    pub(super) fn new(store: Arc<dyn Store>, handle: Handle) -> Self {
        Self { store, handle, batch: Batch::default() }
    }

    /// Writes the rows of the batch. False: the tables cannot take them now.
    fn apply(&self) -> Result<bool, Error> {
        let rows = coalesce(&self.batch.changes);
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for row in &rows {
            *counts.entry(row.table()).or_default() += 1;
        }
        let begun = Instant::now();
        match self.handle.block_on(self.store.apply(rows)) {
            Ok(()) => {}
            Err(store::Error::Transient(cause)) => {
                metrics::counter!(APPLY_RETRIES).increment(1);
                // Logged once, by the readiness of the tables.
                tracing::debug!(%cause, "the projector cannot write the tables; will retry");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        metrics::histogram!(APPLY_SECONDS).record(begun.elapsed());
        for (table, rows) in counts {
            metrics::counter!(ROWS_APPLIED, "table" => table).increment(rows);
        }
        Ok(true)
    }
}

impl Handler for Projector {
    const GROUP: &'static str = GROUP;
    type Error = Error;

    fn topics(&self) -> Vec<Topic> {
        TOPICS.to_vec()
    }

    fn revoked(&mut self, lost: &[TopicPartition]) -> Result<(), Error> {
        // Their rows may still be written: the next owner writes the same ones.
        self.batch.read.offsets.retain(|(partition, _)| !lost.contains(partition));
        self.batch.letters.retain(|(from, _)| !lost.contains(from));
        Ok(())
    }

    fn step(&mut self, records: &[Arc<Record>], _member: &mut Member<'_>) -> Result<Plan, Error> {
        for record in records {
            match plan_change(record.from.topic, record.value.as_deref()) {
                Ok(change) => self.batch.changes.extend(change),
                Err(poison) => {
                    let letter = dead_letter(record, GROUP, &poison.to_string())?;
                    self.batch.letters.push((record.from, letter));
                }
            }
            self.batch.read.take(record);
        }
        if self.batch.read.offsets.is_empty() {
            self.batch = Batch::default();
            return Ok(Plan::Nothing);
        }
        if !self.apply()? {
            return Ok(Plan::Retry);
        }
        let Batch { letters, mut read, .. } = std::mem::take(&mut self.batch);
        read.records = letters.into_iter().map(|(_, letter)| letter).collect();
        Ok(Plan::Commit(read))
    }
}
