//! Removes old rows once an hour, where the configuration says how long they are kept.

use std::sync::Arc;
use std::time::Duration;

use log::TopicPartition;
use runtime::Clock;
use schemas::{Partition, Topic};
use store::Store;
use store::config::Retention;
use store::prune::{Day, Export, FileExport, WithoutExport, prune};
use tokio::runtime::Handle;

use super::housekeeping::Housekeeping;
use crate::metrics::ROWS_PRUNED;

const INTERVAL: Duration = Duration::from_secs(3_600);
/// Of all projectors the one that has this partition removes rows.
const OWNED: TopicPartition = TopicPartition { topic: Topic::Orders, partition: Partition(0) };

/// Whether this projector removes old rows, and of which age.
pub(super) struct Pruning {
    /// None keeps everything.
    plan: Option<(Retention, Arc<dyn Clock>)>,
    is_owner: bool,
    work: Housekeeping,
}

impl Default for Pruning {
    fn default() -> Self {
        Self { plan: None, is_owner: false, work: Housekeeping::every(INTERVAL) }
    }
}

impl Pruning {
    pub(super) fn new(retention: Retention, clock: Arc<dyn Clock>) -> Self {
        Self { plan: Some((retention, clock)), ..Self::default() }
    }

    /// These partitions are this projector's.
    pub(super) fn assigned(&mut self, mut partitions: impl Iterator<Item = TopicPartition>) {
        self.is_owner |= partitions.any(|partition| partition == OWNED);
    }

    /// They are not any more. What is under way ends at any point: the next owner continues.
    pub(super) fn revoked(&mut self, partitions: &[TopicPartition]) {
        if partitions.contains(&OWNED) {
            self.is_owner = false;
            self.work.stop();
        }
    }

    /// Begins one, if it is time and the last one has ended.
    pub(super) fn if_due(&mut self, store: &Arc<dyn Store>, handle: &Handle) {
        let Some((retention, clock)) = self.plan.as_ref().filter(|_| self.is_owner) else { return };
        self.work.if_due(handle, || run(store.clone(), retention.clone(), clock.clone()));
    }
}

async fn run(store: Arc<dyn Store>, retention: Retention, clock: Arc<dyn Clock>) {
    let now = clock.now();
    let before = Day::of(now.seconds()).back(retention.days);
    let file = retention.export.map(|folder| {
        // A name of its own for each run; without rows there is no file.
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
    use schemas::record::{Order, example};
    use schemas::{OrderId, OrderStatus, UnixSeconds};
    use store::embedded::EmbeddedStore;
    use store::{Change, OrderFilter, Page};
    use tokio::runtime::Runtime;
    use uuid::Uuid;

    use super::*;

    const DAY_SECONDS: i64 = 86_400;

    #[test]
    fn the_owner_of_the_first_partition_removes_what_is_too_old() {
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
        let days = || -> Vec<i64> {
            let page = Page { limit: 10, offset: 0 };
            let rows = runtime.block_on(store.orders(OrderFilter::default(), page)).unwrap();
            rows.iter().map(|row| (today.0 - row.order.created_at.0) / DAY_SECONDS).collect()
        };
        let folder = tempfile::tempdir().unwrap();
        let retention = Retention { days: 92, export: Some(folder.path().to_owned()) };
        let mut pruning = Pruning::new(retention, Arc::new(ManualClock::new(today.micros())));
        let run = |pruning: &mut Pruning| {
            pruning.if_due(&store, runtime.handle());
            let running = pruning.work.running();
            running.is_some_and(|running| runtime.block_on(running).is_ok())
        };
        let other = TopicPartition { partition: Partition(1), ..OWNED };
        pruning.assigned([other].into_iter());
        assert!(!run(&mut pruning));
        assert_eq!(days(), [0, 1, 92, 93, 400]);
        pruning.assigned([OWNED].into_iter());
        assert!(run(&mut pruning));
        assert_eq!(days(), [0, 1, 92], "the whole of the last day stays");
        let files = || std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        let lines: Vec<_> = files().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        assert_eq!(lines.iter().map(|lines| lines.lines().count()).collect::<Vec<_>>(), [2]);
        assert!(!run(&mut pruning), "it is not due");
        pruning.revoked(&[other, OWNED]);
        assert!(!run(&mut pruning));
        pruning.assigned([OWNED].into_iter());
        assert!(run(&mut pruning), "a new owner does not wait");
        assert_eq!(files().count(), 1, "no file without rows");
    }
}
