//! Changes of orders, read from the topic `orders` itself: for a shop that missed a webhook or an answer. A reader that
//! resumes at its cursor misses no change, even if the tables lag.

use std::sync::Arc;

use log::{Bounds, Log, Offset, Record, TopicPartition};
use schemas::record::Order;
use schemas::{Topic, UnixMicros, UnixSeconds};

use crate::error::Answer;
use crate::machine::changes::{Position, Start, is_change};

/// Records per read.
const RECORDS: usize = 500;
/// Maximum records read per answer. Most records change no status, so a limit on changes alone does not bound the read.
const SCANNED_MAX: usize = 5_000;
/// Tolerated difference between the log's clock and clients' clocks, in seconds.
const CLOCKS_SECONDS: i64 = 300;

/// Changes, in sequence per order.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) orders: Vec<Order>,
    /// Position at which the next answer starts.
    pub(crate) position: Position,
    /// `true` if more may be available at once.
    pub(crate) more: bool,
}

/// At most `limit` changes from `start` on. Blocks.
pub(crate) fn read(log: &dyn Log, start: Start, limit: usize) -> Answer<Found> {
    let topic = Topic::Orders;
    let partitions = topic.all_partitions(&log.layout());
    let partitions: Vec<_> =
        partitions.map(|partition| TopicPartition { topic, partition }).collect();
    let bounds: Result<Vec<_>, _> = partitions.iter().map(|of| log.bounds(*of)).collect();
    let bounds = bounds?;
    let mut position = match start {
        Start::Oldest => Position(bounds.iter().map(|bounds| bounds.start).collect()),
        Start::Since(since) => {
            let first =
                |(of, bounds): (&TopicPartition, &Bounds)| first_since(log, *of, *bounds, since);
            Position(partitions.iter().zip(&bounds).map(first).collect::<Result<_, _>>()?)
        }
        Start::After(position) => {
            position.check(&bounds)?;
            position
        }
    };
    let (mut orders, mut scanned) = (Vec::new(), 0);
    for ((of, bounds), next) in partitions.iter().zip(&bounds).zip(&mut position.0) {
        loop {
            let records = log.read(*of, *next, RECORDS)?;
            if records.is_empty() {
                // Past the marker of the last transaction, too: when it expires with the records, none is missing.
                *next = (*next).max(bounds.end);
                break;
            }
            for record in records {
                if orders.len() >= limit || scanned >= SCANNED_MAX {
                    return Ok(Found { orders, position, more: true });
                }
                let order = record.unless_garbage::<Order>()?;
                scanned += 1;
                *next = record.offset.next();
                orders.extend(order.filter(is_change));
            }
        }
    }
    Ok(Found { orders, position, more: false })
}

/// Offset of the first record appended at this time minus the clock tolerance, or later; the end if there is none.
fn first_since(
    log: &dyn Log,
    of: TopicPartition,
    bounds: Bounds,
    since: UnixSeconds,
) -> Result<Offset, log::Error> {
    let since = since.plus(-CLOCKS_SECONDS).micros();
    first_at(bounds, since, |from| log.read(of, from, 1))
}

/// Offset of the first record appended at this time or later, by binary search; the end if there is none. Times do not
/// decrease in a partition.
pub(crate) fn first_at<E>(
    bounds: Bounds,
    since: UnixMicros,
    read: impl Fn(Offset) -> Result<Vec<Arc<Record>>, E>,
) -> Result<Offset, E> {
    let (mut first, mut end) = (bounds.start.0, bounds.end.0);
    while first < end {
        let middle = first + (end - first) / 2;
        match read(Offset(middle))?.first() {
            Some(record) if record.appended_at < since => first = record.offset.next().0,
            Some(_) | None => end = middle,
        }
    }
    Ok(Offset(first))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use log::embedded::EmbeddedLog;
    use log::{Error, NewRecord, Records, Tail, Worker, WorkerSpec, Writer};
    use runtime::ManualClock;
    use schemas::record::example;
    use schemas::{Layout, OrderCause};
    use tempfile::TempDir;

    use super::*;

    const PARTITION: TopicPartition =
        TopicPartition { topic: Topic::Orders, partition: schemas::Partition(0) };

    fn log(dir: &TempDir) -> EmbeddedLog {
        let layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
        let clock = Arc::new(ManualClock::new(UnixSeconds(1000).micros()));
        EmbeddedLog::open(dir.path(), layout, clock).unwrap()
    }

    fn record(order: &Order) -> NewRecord {
        NewRecord::encode(Topic::Orders, PARTITION.partition, "", order).unwrap()
    }

    /// A log whose partitions end with the marker of a transaction, as on Kafka.
    struct Marked {
        log: EmbeddedLog,
        /// `true` once all records and markers have expired.
        is_expired: bool,
    }

    #[async_trait]
    impl Log for Marked {
        fn layout(&self) -> Layout {
            self.log.layout()
        }

        fn installation(&self) -> Result<String, Error> {
            self.log.installation()
        }

        async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error> {
            self.log.produce(records).await
        }

        fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error> {
            self.log.writer(name)
        }

        fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
            self.log.worker(spec)
        }

        fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
            self.log.tail(topics)
        }

        fn read(&self, of: TopicPartition, from: Offset, max: usize) -> Result<Records, Error> {
            self.log.read(of, from, max)
        }

        fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
            let Bounds { start, end } = self.log.bounds(of)?;
            let end = end.next();
            Ok(Bounds { start: if self.is_expired { end } else { start }, end })
        }
    }

    #[test]
    fn a_reader_of_everything_misses_nothing_that_expires() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Marked { log: log(&dir), is_expired: false };
        let created = Order { cause: OrderCause::Created, ..example::order() };
        log.writer("orders").unwrap().commit(vec![record(&created)]).unwrap();
        let first = read(&log, Start::Oldest, 10).unwrap();
        assert_eq!(first.orders, [created]);
        log.is_expired = true;
        let later = read(&log, Start::After(first.position), 10).unwrap();
        assert_eq!((later.orders, later.more), (vec![], false));
    }

    /// An answer reads a bounded number of records, even if none of them is a change.
    #[test]
    fn an_answer_reads_few_records_and_continues() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(&dir);
        let cause = OrderCause::DepositOpened;
        let unchanged = Order { cause, status_changed: false, ..example::order() };
        let changed = Order { status_changed: true, ..unchanged.clone() };
        let mut records = vec![record(&unchanged); SCANNED_MAX + 1];
        records.push(record(&changed));
        log.writer("orders").unwrap().commit(records).unwrap();

        let first = read(&log, Start::Oldest, 10).unwrap();
        assert_eq!((first.orders.len(), first.more), (0, true));
        assert_eq!(first.position, Position(vec![Offset(SCANNED_MAX as i64)]));
        let second = read(&log, Start::After(first.position), 10).unwrap();
        assert_eq!((second.orders, second.more), (vec![changed], false));
        // The log's clock may lag the client's by `CLOCKS_SECONDS`.
        let bounds = log.bounds(PARTITION).unwrap();
        for (ahead, first) in [(CLOCKS_SECONDS, bounds.start), (CLOCKS_SECONDS + 1, bounds.end)] {
            let found = first_since(&log, PARTITION, bounds, UnixSeconds(1000 + ahead)).unwrap();
            assert_eq!(found, first, "{ahead}");
        }
    }
}
