//! Makes the tables again from what the log still has.

use std::time::Duration;

use log::{Log, TopicPartition};
use schemas::Topic;
use store::{Change, Store, coalesce};
use tokio::runtime::Handle;

use super::Error;
use super::machine::call_size::ROWS_MAX;
use super::machine::{TOPICS, plan_change};

/// How many records are read at once.
const BATCH_MAX: usize = 4096;
/// How often, one second apart, rows are written that the tables cannot take now. A long rebuild would
/// otherwise begin again after one late answer.
const TRIES_MAX: usize = 60;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(super) fn rebuild(log: &dyn Log, store: &dyn Store, handle: &Handle) -> Result<u64, Error> {
    let mut count = 0;
    let layout = log.layout();
    let partitions = |topic: Topic| {
        topic.all_partitions(&layout).map(move |partition| TopicPartition { topic, partition })
    };
    for partition in TOPICS.into_iter().flat_map(partitions) {
        let mut next = log.bounds(partition)?.start;
        loop {
            let records = log.read(partition, next, BATCH_MAX)?;
            let Some(last) = records.last() else { break };
            next = last.offset.next();
            count += records.len() as u64;
            let mut changes = Vec::new();
            for record in &records {
                match plan_change(record) {
                    Ok(change) => changes.extend(change),
                    // It is in dead-letters since the projector first read it.
                    Err(unreadable) => drop(unreadable.garbage(record)?),
                }
            }
            for rows in coalesce(changes).chunks(ROWS_MAX) {
                handle.block_on(apply(store, rows))?;
            }
        }
    }
    handle.block_on(store.flush())?;
    Ok(count)
}

async fn apply(store: &dyn Store, rows: &[Change]) -> Result<(), Error> {
    for _ in 1..TRIES_MAX {
        match store.apply(rows.to_vec()).await {
            Err(store::Error::Transient(cause)) => {
                tracing::warn!(%cause, "the tables cannot take rows now; will retry");
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
            }
            written => return Ok(written?),
        }
    }
    Ok(store.apply(rows.to_vec()).await?)
}
