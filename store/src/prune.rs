//! Removal of old, final rows, day by day: copies go to an [`Export`] first.
//!
//! A day's removal covers ended orders without an open deposit, with their webhook attempts and
//! closed deposits, and transfers that do not wait, with their attempts. Kept rows are counted by
//! reason. A repeated call may export rows again, but no row is removed before its export.

mod day;
mod export;

use std::ops::AddAssign;

use async_trait::async_trait;
use runtime::clock::Clock;

pub use self::day::{Day, NotADay};
pub use self::export::FileExport;
use crate::{Change, Error, Store};

/// Destination of copies of rows before they are removed.
#[async_trait]
pub trait Export: Send + Sync {
    /// Copies rows. Returns when they may be removed.
    ///
    /// # Errors
    /// [`Error::Fatal`]: the rows may not be removed.
    async fn keep(&self, rows: &[Change]) -> Result<(), Error>;
}

/// Export that keeps no copy.
#[derive(Debug, Clone, Copy)]
pub struct WithoutExport;

#[async_trait]
impl Export for WithoutExport {
    async fn keep(&self, _rows: &[Change]) -> Result<(), Error> {
        Ok(())
    }
}

/// Numbers of removed and kept rows of some days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub removed: Removed,
    pub kept: Kept,
}

/// Rows that were exported and removed, by table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub orders: u64,
    /// Closed deposits: only the embedded tables keep them.
    pub deposits: u64,
    pub transfers: u64,
    pub attempts: u64,
}

/// Old rows that are kept, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    pub pending: u64,
    /// Orders that have ended, with a deposit that is still open.
    pub open: u64,
    /// Transfers that wait for confirmation or for their match.
    pub waiting: u64,
    /// Orders and transfers whose record this program cannot read.
    pub unreadable: u64,
    /// On CQL, lists of a day that may still be written: one of their partitions was written within the last
    /// minute, or one of their final rows changed within the last hour. In embedded tables, orders and transfers that
    /// changed between their export and their removal.
    pub busy: u64,
}

impl Kept {
    /// `true` if no final row stayed: rebuilt tables need no final rows of these days.
    const fn is_without_final(self) -> bool {
        let Self { pending: _, open, waiting: _, unreadable, busy } = self;
        open == 0 && unreadable == 0 && busy == 0
    }
}

impl Removed {
    pub(crate) fn count(&mut self, rows: &[Change]) {
        for row in rows {
            let count = match row {
                Change::Order(_) => &mut self.orders,
                Change::Deposit(_) => &mut self.deposits,
                Change::Transfer(_) => &mut self.transfers,
                Change::Attempt(_) => &mut self.attempts,
                Change::Chain(_) => continue,
            };
            *count += 1;
        }
    }

    /// Returns each table's name and its number of rows.
    #[must_use]
    pub const fn by_table(self) -> [(&'static str, u64); 4] {
        let Self { orders, deposits, transfers, attempts } = self;
        [
            ("orders", orders),
            ("deposits", deposits),
            ("transfers", transfers),
            ("attempts", attempts),
        ]
    }
}

impl AddAssign for Pruned {
    fn add_assign(&mut self, other: Self) {
        let Self { removed, kept } = other;
        self.removed.orders += removed.orders;
        self.removed.deposits += removed.deposits;
        self.removed.transfers += removed.transfers;
        self.removed.attempts += removed.attempts;
        self.kept.pending += kept.pending;
        self.kept.open += kept.open;
        self.kept.waiting += kept.waiting;
        self.kept.unreadable += kept.unreadable;
        self.kept.busy += kept.busy;
    }
}

/// Removes final rows created before a day, and stores the creation time before which no final row
/// is left ([`Store::set_pruned_before`]). Calls `report` after each day that has rows. May be
/// dropped at any point, and may run beside everything but a rebuild of the same tables.
///
/// # Errors
/// Those of reads and of the export. The next call removes the rest.
pub async fn prune(
    store: &dyn Store,
    before: Day,
    clock: &dyn Clock,
    export: &dyn Export,
    mut report: impl FnMut(Day, Pruned) + Send,
) -> Result<Pruned, Error> {
    let mut all = Pruned::default();
    for day in store.old_days(before).await? {
        let pruned = store.prune_day(day, clock.now(), export).await?;
        report(day, pruned);
        all += pruned;
        if all.kept.is_without_final() {
            store.set_pruned_before(day.next().start()).await?;
        }
    }
    if all.kept.is_without_final() {
        store.set_pruned_before(before.start()).await?;
    }
    Ok(all)
}
