//! Work on the tables that one projector does for all: it removes empty partitions of their lists, and old rows if the
//! configuration has a retention.

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::TopicPartition;
use runtime::Clock;
use schemas::{Partition, Topic};
use store::Store;
use store::config::Retention;
use store::prune::{Day, Export, FileExport, WithoutExport, prune};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::metrics::ROWS_PRUNED;

const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
const PRUNE_INTERVAL: Duration = Duration::from_secs(3_600);
/// Partition whose owner does this work for all projectors.
const OWNED: TopicPartition = TopicPartition { topic: Topic::Orders, partition: Partition(0) };

/// Ownership and schedules of that work.
pub(super) struct Upkeep {
    is_owner: bool,
    sweeps: Housekeeping,
    /// None keeps everything.
    retention: Option<Retention>,
    clock: Arc<dyn Clock>,
    pruning: Housekeeping,
}

impl Upkeep {
    pub(super) fn new(retention: Option<Retention>, clock: Arc<dyn Clock>) -> Self {
        let sweeps = Housekeeping::every(SWEEP_INTERVAL);
        let pruning = Housekeeping::every(PRUNE_INTERVAL);
        Self { is_owner: false, sweeps, retention, clock, pruning }
    }

    pub(super) fn assigned(&mut self, mut partitions: impl Iterator<Item = TopicPartition>) {
        self.is_owner |= partitions.any(|partition| partition == OWNED);
    }

    /// Takes revoked partitions. Runs are cancelled at any point: the next owner continues.
    pub(super) fn revoked(&mut self, partitions: &[TopicPartition]) {
        if partitions.contains(&OWNED) {
            self.is_owner = false;
            self.sweeps.stop();
            self.pruning.stop();
        }
    }

    /// Starts due work whose last run has ended, if this projector is the owner.
    pub(super) fn if_due(&mut self, store: &Arc<dyn Store>, handle: &Handle) {
        if !self.is_owner {
            return;
        }
        self.sweeps.if_due(handle, || sweep(store.clone()));
        if let Some(retention) = &self.retention {
            let run = || prune_old(store.clone(), retention.clone(), self.clock.clone());
            self.pruning.if_due(handle, run);
        }
    }
}

/// Periodic background work, at most one run at a time. Dropping it cancels the run.
#[derive(Debug)]
struct Housekeeping {
    every: Duration,
    running: Option<JoinHandle<()>>,
    /// Time at which the last run began.
    begun: Option<Instant>,
}

impl Housekeeping {
    /// Due at once, and then this long after the last start.
    fn every(every: Duration) -> Self {
        Self { every, running: None, begun: None }
    }

    /// Begins the work, if it is time and the last one has ended.
    fn if_due<F>(&mut self, handle: &Handle, work: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let is_running = self.running.as_ref().is_some_and(|running| !running.is_finished());
        if is_running || self.begun.is_some_and(|begun| begun.elapsed() < self.every) {
            return;
        }
        self.begun = Some(Instant::now());
        self.running = Some(handle.spawn(work()));
    }

    /// Cancels the run, at any point; it is due again at once.
    fn stop(&mut self) {
        self.begun = None;
        if let Some(running) = self.running.take() {
            running.abort();
        }
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn sweep(store: Arc<dyn Store>) {
    if let Err(cause) = store.sweep().await {
        // The next sweep does the rest; whether the tables are available is reported elsewhere.
        tracing::debug!(%cause, "the tables were not swept");
    }
}

/// Removes old rows. Their age counts from the earlier of clock and chain time: removal is final, and the clock may be
/// ahead. Does nothing before the first head of a chain.
async fn prune_old(store: Arc<dyn Store>, retention: Retention, clock: Arc<dyn Clock>) {
    let now = clock.now();
    let newest = match store.chains().await {
        Ok(chains) => chains.iter().map(|chain| chain.head.timestamp).max(),
        Err(error) => {
            tracing::debug!(%error, "how far the chains are could not be read; will retry in an hour");
            return;
        }
    };
    let Some(newest) = newest else { return };
    let before = Day::of(now.seconds().min(newest)).back(retention.days);
    let file = retention.export.map(|folder| {
        // A new name for each run; without rows there is no file.
        FileExport::to(folder.join(format!("before-{before}-{}.jsonl", now.0)))
    });
    let export: &dyn Export = file.as_ref().map_or(&WithoutExport, |file| file);
    let ended = prune(&*store, before, &*clock, export, |day, pruned| {
        for (table, rows) in pruned.removed.by_table() {
            metrics::counter!(ROWS_PRUNED, "table" => table).increment(rows);
        }
        let store::prune::Removed { orders, deposits, transfers, attempts } = pruned.removed;
        if orders + deposits + transfers + attempts > 0 {
            tracing::info!(
                %day,
                orders,
                deposits,
                transfers,
                attempts,
                "old rows were removed from the tables"
            );
        }
    });
    if let Err(error) = ended.await {
        tracing::error!(%error, "old rows were not removed from the tables; will retry in an hour");
    }
}

#[cfg(test)]
mod tests {
    use runtime::ManualClock;
    use schemas::record::{Block, ChainProgress, Order, example};
    use schemas::{OrderId, OrderStatus, UnixSeconds};
    use store::embedded::EmbeddedStore;
    use store::{Change, OrderFilter, Page};
    use tokio::runtime::Runtime;
    use uuid::Uuid;

    use super::*;

    const DAY_SECONDS: i64 = 86_400;

    #[test]
    fn owner_of_the_first_partition_sweeps() {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(dir.path()).unwrap());
        let today = example::order().created_at;
        let order = |days: i64| Order {
            order_id: OrderId(Uuid::from_u128(days.unsigned_abs().into())),
            created_at: UnixSeconds(today.0 - days * DAY_SECONDS),
            status: OrderStatus::Expired,
            ..example::order()
        };
        let orders = [0, 1, 92, 93, 400].map(|days| Change::Order(order(days)));
        runtime.block_on(store.apply(orders.to_vec())).unwrap();
        let chain = ChainProgress {
            head: Block { timestamp: today, ..example::chain_progress().head },
            ..example::chain_progress()
        };
        let days = || -> Vec<i64> {
            let page = Page { limit: 10, offset: 0 };
            let rows = runtime.block_on(store.orders(OrderFilter::default(), page)).unwrap();
            rows.iter().map(|row| (today.0 - row.order.created_at.0) / DAY_SECONDS).collect()
        };
        let folder = tempfile::tempdir().unwrap();
        let retention = Retention { days: 92, export: Some(folder.path().to_owned()) };
        let clock = Arc::new(ManualClock::new(today.micros()));
        let mut upkeep = Upkeep::new(Some(retention), clock.clone());
        // Runs the due work. Returns whether it swept, and whether it pruned.
        let run = |upkeep: &mut Upkeep| {
            upkeep.if_due(&store, runtime.handle());
            [upkeep.sweeps.running.take(), upkeep.pruning.running.take()]
                .map(|running| running.is_some_and(|running| runtime.block_on(running).is_ok()))
        };
        let other = TopicPartition { partition: Partition(1), ..OWNED };
        upkeep.assigned([other].into_iter());
        assert_eq!(run(&mut upkeep), [false; 2]);
        assert_eq!(days(), [0, 1, 92, 93, 400]);
        upkeep.assigned([OWNED].into_iter());
        assert_eq!(run(&mut upkeep), [true; 2]);
        assert_eq!(days(), [0, 1, 92, 93, 400], "no chain shows how late it is");
        upkeep.revoked(&[OWNED]);
        runtime.block_on(store.apply(vec![Change::Chain(chain)])).unwrap();
        clock.advance(Duration::from_secs(365 * DAY_SECONDS.unsigned_abs()));
        upkeep.assigned([OWNED].into_iter());
        assert_eq!(run(&mut upkeep), [true; 2]);
        assert_eq!(
            days(),
            [0, 1, 92],
            "the whole of the last day stays, although the clock is ahead"
        );
        let files = || std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        let lines: Vec<_> = files().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        assert_eq!(lines.iter().map(|lines| lines.lines().count()).collect::<Vec<_>>(), [2]);
        assert_eq!(run(&mut upkeep), [false; 2], "neither is due");
        upkeep.revoked(&[other, OWNED]);
        assert_eq!(run(&mut upkeep), [false; 2]);
        upkeep.assigned([OWNED].into_iter());
        assert_eq!(run(&mut upkeep), [true; 2], "a new owner does not wait");
        assert_eq!(files().count(), 1, "no file without rows");
    }
}
