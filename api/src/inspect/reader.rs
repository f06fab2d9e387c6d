//! Reads the log and the tables of an installation, for a bounded time, without effects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{Bounds, Offset, Record, TopicPartition};
use schemas::{Layout, Partition, Topic, UnixMicros};
use store::Store;
use tokio::runtime::Handle;
use tokio::time::timeout_at;

use crate::changes::first_at;

/// Maximum time for which a command reads topics.
pub const READING_MAX: Duration = Duration::from_secs(60);
/// Maximum records of one read.
const PAGE_RECORDS: usize = 500;

/// The part of a log that a reader needs. Its calls block.
pub trait Pages {
    /// Failure to read the log or the tables.
    type Error: From<store::Error>;

    /// Offset range of a partition's records.
    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Self::Error>;

    /// At most `max` records from an offset on; none at the end.
    fn page(
        &self,
        of: TopicPartition,
        from: Offset,
        max: usize,
    ) -> Result<Vec<Arc<Record>>, Self::Error>;
}

/// A reader. Its calls block.
pub struct Reader<P> {
    source: P,
    tables: Option<Arc<dyn Store>>,
    pub(crate) layout: Layout,
    reading_max: Duration,
    deadline: Instant,
    is_cut: bool,
    is_late: bool,
    unreadable: u64,
}

impl<P: Pages> Reader<P> {
    /// Creates a reader that reads topics for at most `reading_max` from now.
    pub fn new(
        source: P,
        tables: Option<Arc<dyn Store>>,
        layout: Layout,
        reading_max: Duration,
    ) -> Self {
        let deadline = Instant::now() + reading_max;
        let (is_cut, is_late, unreadable) = (false, false, 0);
        Self { source, tables, layout, reading_max, deadline, is_cut, is_late, unreadable }
    }

    /// The log.
    pub const fn source(&self) -> &P {
        &self.source
    }

    /// Reads the tables; the default if the reader has none.
    ///
    /// # Errors
    /// The tables cannot be read, or do not answer within the time limit.
    pub fn table<T: Default>(
        &self,
        ask: impl AsyncFnOnce(&dyn Store) -> Result<T, store::Error>,
    ) -> Result<T, P::Error> {
        let Some(tables) = &self.tables else { return Ok(T::default()) };
        let found = asked(&**tables, Instant::now() + self.reading_max, ask)?;
        Ok(found.ok_or_else(|| store::Error::Transient("no answer in time".into()))?)
    }

    /// Reads the tables; `None` if they do not answer before the deadline, which [`Self::remarks`] then reports.
    ///
    /// # Errors
    /// The reader has no tables, or they cannot be read.
    pub fn table_in_time<T>(
        &mut self,
        ask: impl AsyncFnOnce(&dyn Store) -> Result<T, store::Error>,
    ) -> Result<Option<T>, P::Error> {
        let Some(tables) = &self.tables else {
            return Err(store::Error::Transient("they are not open".into()).into());
        };
        let found = asked(&**tables, self.deadline, ask)?;
        self.is_late |= found.is_none();
        Ok(found)
    }

    /// Decodes the records of partitions since a time, only those of one key if given, until the deadline. Unreadable
    /// records are counted.
    pub fn scan<T: schemas::record::Record>(
        &mut self,
        topic: Topic,
        partitions: impl IntoIterator<Item = Partition>,
        place: (UnixMicros, Option<&str>),
        mut take: impl FnMut(&Record, T),
    ) -> Result<(), P::Error> {
        for partition in partitions {
            self.find(topic, partition, place, |record, decoded| {
                take(record, decoded);
                None::<()>
            })?;
            if self.is_cut {
                break;
            }
        }
        Ok(())
    }

    /// [`Self::scan`] of one partition, up to the first record for which `take` returns a value.
    pub(crate) fn find<T: schemas::record::Record, Found>(
        &mut self,
        topic: Topic,
        partition: Partition,
        (from, key): (UnixMicros, Option<&str>),
        mut take: impl FnMut(&Record, T) -> Option<Found>,
    ) -> Result<Option<Found>, P::Error> {
        let of = TopicPartition { topic, partition };
        let mut next =
            first_at(self.source.bounds(of)?, from, |from| self.source.page(of, from, 1))?;
        loop {
            if Instant::now() > self.deadline {
                self.is_cut = true;
                return Ok(None);
            }
            let page = self.source.page(of, next, PAGE_RECORDS)?;
            let Some(last) = page.last() else { return Ok(None) };
            next = last.offset.next();
            for record in &page {
                let Some(value) = record.value.as_deref() else { continue };
                if key.is_some_and(|key| key.as_bytes() != record.key) {
                    continue;
                }
                match schemas::decode(value).map(|decoded| take(record, decoded)) {
                    Ok(None) => {}
                    Ok(found) => return Ok(found),
                    Err(_) => self.unreadable = self.unreadable.saturating_add(1),
                }
            }
        }
    }

    /// The gaps of the answer, in words.
    pub fn remarks(&self) -> Vec<String> {
        let seconds = self.reading_max.as_secs();
        let cut = self.is_cut.then(|| {
            format!("Not complete: topics were read for {seconds} s, and not to their ends.")
        });
        let late = self
            .is_late
            .then(|| format!("Not complete: the tables did not answer within {seconds} s."));
        let unreadable = (self.unreadable > 0).then(|| {
            format!("Not complete: {} records cannot be read by this version.", self.unreadable)
        });
        [cut, late, unreadable].into_iter().flatten().collect()
    }
}

/// The answer of the tables; `None` if it did not come in time.
fn asked<T>(
    tables: &dyn Store,
    until: Instant,
    ask: impl AsyncFnOnce(&dyn Store) -> Result<T, store::Error>,
) -> Result<Option<T>, store::Error> {
    let answer = Handle::current().block_on(async { timeout_at(until.into(), ask(tables)).await });
    answer.ok().transpose()
}

#[cfg(test)]
mod tests {
    use log::embedded::EmbeddedLog;
    use log::{Log, NewRecord};
    use runtime::{Clock, SystemClock};
    use schemas::record::{Alert, example};
    use store::embedded::EmbeddedStore;
    use tempfile::TempDir;

    use super::*;
    use crate::error::Refusal;
    use crate::inspect::{Served, survey};
    use crate::redrive::Filter;

    const FIRST: Partition = Partition(0);

    const LAYOUT: Layout = Layout { lanes: 1, orders: 1, webhooks: 1 };

    fn log(dir: &TempDir) -> EmbeddedLog {
        EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).unwrap()
    }

    #[tokio::test]
    async fn what_an_answer_lacks_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(&dir);
        let alert = NewRecord::encode(Topic::Alerts, FIRST, "", &example::alert()).unwrap();
        let garbage = NewRecord { value: Some(vec![0]), ..alert.clone() };
        log.produce(vec![garbage, alert]).await.unwrap();
        let mut reader = Reader::new(Served(Arc::new(log)), None, LAYOUT, READING_MAX);
        let mut count = 0;
        let mut scan = |reader: &mut Reader<Served>| {
            let place = (UnixMicros(0), None);
            reader.scan(Topic::Alerts, [FIRST], place, |_, _: Alert| count += 1).unwrap();
            (count, reader.remarks())
        };
        let unreadable = "Not complete: 1 records cannot be read by this version.".to_owned();
        assert_eq!(scan(&mut reader), (1, vec![unreadable.clone()]));
        reader.deadline = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let seconds = READING_MAX.as_secs();
        let cut = format!("Not complete: topics were read for {seconds} s, and not to their ends.");
        assert_eq!(scan(&mut reader), (1, vec![cut, unreadable]));
    }

    #[tokio::test]
    async fn without_tables_nothing_of_them_is_made_up() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(&dir);
        let dead = NewRecord::encode(Topic::WebhooksDead, FIRST, "", &example::delivery()).unwrap();
        log.produce(vec![dead]).await.unwrap();
        let mut reader = Reader::new(Served(Arc::new(log)), None, LAYOUT, READING_MAX);
        let dead = survey::dead(&mut reader, &Filter::default(), SystemClock.now());
        assert_eq!(dead, Err(Refusal::Internal));
        assert_eq!(survey::orders(&mut reader, UnixMicros(0)), Err(Refusal::Internal));
    }

    /// All reads of the tables by one reader share a deadline.
    #[tokio::test]
    async fn tables_that_do_not_answer_are_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(log(&dir));
        let tables: Arc<dyn Store> = Arc::new(EmbeddedStore::open(dir.path()).unwrap());
        let silent = async |_: &dyn Store| std::future::pending::<Result<u8, store::Error>>().await;
        let ask = move || {
            let reading_max = Duration::from_millis(50);
            let mut reader = Reader::new(Served(log), Some(tables), LAYOUT, reading_max);
            assert_eq!(reader.table_in_time(async |_| Ok(7)), Ok(Some(7)));
            assert_eq!(reader.remarks(), [""; 0]);
            for _ in 0..100 {
                assert_eq!(reader.table_in_time(silent), Ok(None));
            }
            let late = "Not complete: the tables did not answer within 0 s.";
            assert_eq!(reader.remarks(), [late]);
            // A required read fails instead.
            assert_eq!(reader.table(silent), Err(Refusal::Internal));
            let orders = survey::orders(&mut reader, UnixMicros(0)).unwrap();
            assert!(orders.is_more, "what was not read is not said to be none");
        };
        tokio::task::spawn_blocking(ask).await.unwrap();
    }
}
