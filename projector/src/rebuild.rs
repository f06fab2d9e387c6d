//! Makes the tables again from what the log still has.

use log::{Log, TopicPartition};
use schemas::Topic;
use tokio::runtime::Handle;

use super::Error;
use super::machine::{TOPICS, plan_change};
use store::{Store, coalesce};

/// How many records are read at once.
const BATCH_MAX: usize = 4096;

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
            // What makes no row is in dead-letters since the projector first read it.
            let changes: Vec<_> = records
                .iter()
                .filter_map(|record| plan_change(partition.topic, record.value.as_deref()).ok())
                .flatten()
                .collect();
            handle.block_on(store.apply(coalesce(changes)))?;
        }
    }
    handle.block_on(store.flush())?;
    Ok(count)
}
