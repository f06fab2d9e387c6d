//! Reads records, writes their rows at once, and commits their offsets after a flush of many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::consumer::{Handler, Member, Plan};
use log::{Assigned, Committed, NewRecord, Record, Step, TopicPartition, dead_letter};
use schemas::Topic;
use store::{Change, Store, coalesce};
use tokio::runtime::Handle;
use tracing::Level;

use super::life::{self, Event};
use super::machine::call_size::CallSize;
use super::machine::{TOPICS, forward, lacking, plan_change, position};
use super::upkeep::Upkeep;
use super::{Error, GROUP};
use crate::metrics::{APPLY_RETRIES, APPLY_SECONDS, FLUSH_SECONDS, ROWS_APPLIED};

/// Maximum time for which offsets wait for the flush that they share. After a crash, uncommitted
/// records are applied again, which changes nothing.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// Number of waiting records at which the flush is due.
const FLUSH_RECORDS: usize = 10_000;
/// Maximum time of one turn with slow tables before the next poll: a member that does not poll is evicted, and the next
/// owner would take as long.
const TURN_MAX: Duration = Duration::from_secs(1);

pub(super) struct Projector {
    store: Arc<dyn Store>,
    handle: Handle,
    /// Records read and not committed; kept while the tables cannot take them.
    batch: Batch,
    call: CallSize,
    /// [`TURN_MAX`], except in tests.
    turn_max: Duration,
    /// `true` if the tables cannot take the batch now.
    is_waiting: bool,
    /// `true` if the process stops: a flush no longer waits for more records.
    is_stopping: bool,
    upkeep: Upkeep,
    /// Level of the lines about payments.
    level: Level,
    /// Events to be logged once the present step is committed.
    events: Vec<Event>,
    /// Partitions not yet checked for rows that the group has read and the tables lack.
    unchecked: Vec<Assigned>,
}

#[derive(Debug, Default)]
struct Batch {
    /// Not applied yet.
    changes: Vec<Change>,
    letters: Vec<(TopicPartition, NewRecord)>,
    /// Events to be logged once their offsets are committed.
    events: Vec<(TopicPartition, Event)>,
    /// Offsets of the records read; it has no outputs.
    read: Step,
    records: usize,
    /// Time at which the first of them was read.
    since: Option<Instant>,
}

impl Batch {
    fn add(&mut self, record: &Record, level: Level) -> Result<(), Error> {
        match plan_change(record) {
            Ok(change) => {
                let event = change.as_ref().filter(|_| life::is_read(level)).and_then(Event::of);
                self.events.extend(event.map(|event| (record.from, event)));
                self.changes.extend(change);
            }
            Err(unreadable) => {
                let letter = dead_letter(record, GROUP, &unreadable.garbage(record)?)?;
                self.letters.push((record.from, letter));
            }
        }
        self.read.take(record);
        self.records += 1;
        self.since.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.records >= FLUSH_RECORDS
            || self.since.is_some_and(|since| since.elapsed() >= FLUSH_INTERVAL)
    }
}

/// Extent to which a batch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Applied {
    All,
    /// The turn has no more time.
    Some,
    /// The tables cannot take the rest now.
    Unavailable,
}

impl Projector {
    pub(super) fn new(store: Arc<dyn Store>, handle: Handle, upkeep: Upkeep, level: Level) -> Self {
        Self {
            store,
            handle,
            batch: Batch::default(),
            call: CallSize::new(),
            turn_max: TURN_MAX,
            is_waiting: false,
            is_stopping: false,
            upkeep,
            level,
            events: Vec::new(),
            unchecked: Vec::new(),
        }
    }

    /// Checks that the tables have all that the group has read. `false` if they are unavailable.
    fn are_checked(&mut self) -> Result<bool, Error> {
        if self.unchecked.is_empty() {
            return Ok(true);
        }
        let Some(positions) = available(self.handle.block_on(self.store.positions()))? else {
            return Ok(false);
        };
        match lacking(&self.unchecked, &positions) {
            Some(problem) => Err(Error::Unfit(problem)),
            None => {
                self.unchecked.clear();
                Ok(true)
            }
        }
    }

    /// Writes the rows that are not written yet, until the turn's time is over.
    fn apply(&mut self) -> Result<Applied, Error> {
        let turn = Instant::now();
        let mut rows = coalesce(std::mem::take(&mut self.batch.changes));
        let (mut written, mut applied) = (0, Applied::All);
        while written < rows.len() {
            if written > 0 && turn.elapsed() >= self.turn_max {
                applied = Applied::Some;
                break;
            }
            let some: Vec<_> = rows[written..].iter().take(self.call.rows()).cloned().collect();
            let (begun, count) = (Instant::now(), some.len());
            if available(self.handle.block_on(self.store.apply(some)))?.is_none() {
                self.call.failed();
                applied = Applied::Unavailable;
                break;
            }
            let time = begun.elapsed();
            self.call.took(count, time);
            metrics::histogram!(APPLY_SECONDS).record(time);
            written += count;
        }
        self.batch.changes = rows.split_off(written);
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for row in &rows {
            *counts.entry(row.table()).or_default() += 1;
        }
        for (table, rows) in counts {
            metrics::counter!(ROWS_APPLIED, "table" => table).increment(rows);
        }
        Ok(applied)
    }

    /// Makes rows and positions durable. False: the tables are unavailable.
    fn flush(&self) -> Result<bool, Error> {
        let begun = Instant::now();
        let position = |(of, next): &(TopicPartition, Committed)| position(*of, next.offset);
        let positions: Vec<_> = self.batch.read.offsets.iter().map(position).collect();
        let flushed = available(self.handle.block_on(async {
            let positions = forward(positions, &self.store.positions().await?);
            self.store.set_positions(&positions).await?;
            self.store.flush().await
        }))?;
        if flushed.is_some() {
            metrics::histogram!(FLUSH_SECONDS).record(begun.elapsed());
        }
        Ok(flushed.is_some())
    }
}

/// None: the tables are not available now.
fn available<T>(outcome: Result<T, store::Error>) -> Result<Option<T>, Error> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(store::Error::Transient(cause)) => {
            metrics::counter!(APPLY_RETRIES).increment(1);
            // At debug, since `WatchedStore` logs each outage once.
            tracing::debug!(%cause, "the projector cannot use the tables; will retry");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

impl Handler for Projector {
    const GROUP: &'static str = GROUP;
    /// Maximum number of records of one step: several versions of one row in it are one write.
    const BATCH_MAX: usize = 4096;
    type Error = Error;

    fn topics(&self) -> Vec<Topic> {
        TOPICS.to_vec()
    }

    fn assigned(&mut self, assigned: Vec<Assigned>, _member: &mut Member<'_>) -> Result<(), Error> {
        self.upkeep.assigned(assigned.iter().map(|assigned| assigned.partition));
        self.unchecked.extend(assigned);
        Ok(())
    }

    fn revoked(&mut self, lost: &[TopicPartition]) -> Result<(), Error> {
        self.upkeep.revoked(lost);
        self.unchecked.retain(|assigned| !lost.contains(&assigned.partition));
        // The rows of these records may still be written: the next owner writes the same ones.
        self.batch.read.offsets.retain(|(partition, _)| !lost.contains(partition));
        self.batch.letters.retain(|(from, _)| !lost.contains(from));
        self.batch.events.retain(|(from, _)| !lost.contains(from));
        Ok(())
    }

    fn step(&mut self, records: &[Arc<Record>], _member: &mut Member<'_>) -> Result<Plan, Error> {
        records.iter().try_for_each(|record| self.batch.add(record, self.level))?;
        if !self.are_checked()? {
            self.is_waiting = true;
            return Ok(Plan::Retry);
        }
        self.upkeep.if_due(&self.store, &self.handle);
        if self.batch.read.offsets.is_empty() {
            self.batch = Batch::default();
            return Ok(Plan::Nothing);
        }
        let is_due = self.batch.is_due() || self.is_stopping;
        let applied = self.apply()?;
        if applied == Applied::Some {
            return Ok(Plan::Unfinished);
        }
        self.is_waiting = applied == Applied::Unavailable || (is_due && !self.flush()?);
        if self.is_waiting {
            return Ok(Plan::Retry);
        }
        if !is_due {
            return Ok(Plan::Nothing);
        }
        let Batch { letters, events, mut read, .. } = std::mem::take(&mut self.batch);
        self.events = events.into_iter().map(|(_, event)| event).collect();
        read.records = letters.into_iter().map(|(_, letter)| letter).collect();
        Ok(Plan::Commit(read))
    }

    /// Logs the events of a committed step; a failed one is read again.
    fn committed(&mut self) {
        std::mem::take(&mut self.events).iter().for_each(|event| event.write(self.level));
    }

    /// Drained if nothing is left that the tables can take now; the next run reads the rest again.
    fn is_drained(&mut self) -> bool {
        self.is_stopping = true;
        self.is_waiting || self.batch.read.offsets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use log::Offset;
    use runtime::SystemClock;
    use schemas::record::{Order, example};
    use schemas::{OrderId, Partition};
    use store::embedded::EmbeddedStore;
    use store::{OrderFilter, Page};
    use tokio::runtime::Runtime;
    use uuid::Uuid;

    use super::*;
    use crate::machine::call_size::ROWS_MAX;

    fn projector(store: Arc<EmbeddedStore>, runtime: &Runtime) -> Projector {
        let upkeep = Upkeep::new(None, Arc::new(SystemClock));
        Projector::new(store, runtime.handle().clone(), upkeep, Level::DEBUG)
    }

    /// Rows that the group has passed would never be written.
    #[test]
    fn tables_that_lack_rows_stop_it() {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
        let store = Arc::new(EmbeddedStore::open(dir.path()).unwrap());
        let mut projector = projector(store.clone(), &runtime);
        let partition = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
        let position = |offset| position(partition, Offset(offset));
        let set = |offset| runtime.block_on(store.set_positions(&[position(offset)])).unwrap();
        let committed = Some(Committed { offset: Offset(8), metadata: String::new() });
        projector.unchecked.push(Assigned { partition, committed });
        set(7);
        let refused = projector.are_checked();
        assert!(matches!(refused, Err(Error::Unfit(_))), "{refused:?}");
        set(8);
        assert!(projector.are_checked().unwrap());
    }

    /// Another process has passed it while it was frozen, and its step will be fenced only after the flush.
    #[test]
    fn a_flush_takes_no_position_back() {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
        let store = Arc::new(EmbeddedStore::open(dir.path()).unwrap());
        let mut projector = projector(store.clone(), &runtime);
        let of = |number| TopicPartition { topic: Topic::Orders, partition: Partition(number) };
        let next = |offset| Committed { offset: Offset(offset), metadata: String::new() };
        let passed = position(of(0), Offset(9));
        runtime.block_on(store.set_positions(&[passed])).unwrap();
        projector.batch.read.offsets = vec![(of(0), next(7)), (of(1), next(3))];
        assert!(projector.flush().unwrap());
        let mut found = runtime.block_on(store.positions()).unwrap();
        found.sort_by_key(|at| at.partition);
        assert_eq!(found, [passed, position(of(1), Offset(3))]);
    }

    #[test]
    fn what_a_turn_leaves_is_written_in_the_next() {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
        let store = Arc::new(EmbeddedStore::open(dir.path()).unwrap());
        let mut projector = projector(store.clone(), &runtime);
        projector.turn_max = Duration::ZERO;
        let orders = (0..2 * ROWS_MAX + 1).map(|number| {
            let order_id = OrderId(Uuid::from_u128(number as u128));
            Change::Order(Order { order_id, ..example::order() })
        });
        projector.batch.changes = orders.collect();
        let applied = [(); 3].map(|()| projector.apply().unwrap());
        assert_eq!(applied, [Applied::Some, Applied::Some, Applied::All]);
        assert!(projector.batch.changes.is_empty());
        let last = Page { limit: 2, offset: 2 * ROWS_MAX as u32 };
        let listed = runtime.block_on(store.orders(OrderFilter::default(), last)).unwrap();
        assert_eq!(listed.len(), 1);
    }
}
