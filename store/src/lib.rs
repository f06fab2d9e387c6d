//! The tables that the API reads.
//!
//! **Invariants:** every row carries the version clock of the record it came from; applying a
//! change twice, or after a later one, changes nothing; the tables can be dropped and rebuilt from
//! the log.
//!
//! Deliberately not here: the log, and any decision. The processor decided what a row contains.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod coalesce;
mod compare;
pub mod config;
pub mod cql;
pub mod embedded;
mod error;
mod layer;
pub mod prune;
mod retry;
mod row;
#[cfg(test)]
mod sample;
mod watched;

pub use coalesce::{Newest, coalesce};
pub use compare::{Defect, has_subject, stored};
pub use error::{Cause, Error};
pub use layer::{LayeredStore, StoreLayer};
pub use retry::retry;
pub use row::{ChainRow, Change, DepositRow, OrderRow, TransferRow, transfer_cursor};
pub use watched::WatchedStore;

use async_trait::async_trait;
use schemas::record::{Attempt, Order};
use schemas::{
    Address, Blockchain, Incarnation, OrderId, OrderStatus, Partition, Stablecoin, Topic,
    TransferId, TransferStatus, UnixMicros, UnixSeconds,
};

use self::prune::{Day, Export, Pruned};

/// A page of a list: spec 8 bounds both numbers, the api checks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    pub limit: u32,
    pub offset: u32,
}

impl Page {
    /// `true` if the page has its maximum number of rows, so another page may follow.
    #[must_use]
    pub fn is_full<Row>(self, rows: &[Row]) -> bool {
        usize::try_from(self.limit).is_ok_and(|limit| rows.len() == limit)
    }
}

/// A row's position in its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Creation time of the row; of a deposit, its start.
    pub at: UnixSeconds,
    /// The row's id as a number.
    pub id: u128,
}

/// Part of a list by time and position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Within {
    /// Only rows that were created at this second or later.
    pub from: Option<UnixSeconds>,
    /// Only rows that come after this position in the list: older ones.
    pub before: Option<Cursor>,
}

/// Filter of a list of orders (spec 4.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrderFilter {
    pub status: Option<OrderStatus>,
    /// Only this merchant reference, exactly.
    pub merchant_order_id: Option<String>,
    pub within: Within,
}

/// Filter of a list of deposits (spec 4.2). Only open ones are ever listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DepositFilter {
    pub order_id: Option<OrderId>,
    pub blockchain: Option<Blockchain>,
    pub stablecoin: Option<Stablecoin>,
    /// Range by start time.
    pub within: Within,
}

/// Filter of a list of a wallet's transfers (spec 4.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransferFilter {
    pub status: Option<TransferStatus>,
    pub blockchain: Option<Blockchain>,
    pub stablecoin: Option<Stablecoin>,
    pub within: Within,
}

/// The subject of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    Order(OrderId),
    /// A transfer that pays no order.
    Transfer(TransferId),
}

impl Subject {
    /// The order, else the transfer.
    #[must_use]
    pub fn of(order: Option<OrderId>, transfer: Option<TransferId>) -> Option<Self> {
        order.map(Self::Order).or(transfer.map(Self::Transfer))
    }
}

/// The log that tables are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Names the installation.
    pub installation: String,
    pub incarnation: Incarnation,
}

/// Position in a partition of the log up to which its rows are in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub topic: Topic,
    pub partition: Partition,
    /// Offset of the next record: the rows of all earlier ones are in the tables.
    pub next: i64,
}

/// The tables. Lists are newest first: by creation time, then id, both descending. Every read fails
/// with an [`Error`] if the tables cannot be read, and every write as [`Store::apply`].
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies changes and returns when every reader sees them and they survive a crash of the
    /// process. A power cut may lose them, unless [`Store::flush`] has returned since. Each change
    /// has its own version clock; changes of a call are neither ordered nor atomic.
    ///
    /// # Errors
    /// [`Error::Transient`]: some may have been applied; apply all of them again.
    async fn apply(&self, changes: Vec<Change>) -> Result<(), Error>;

    /// Returns when all that was applied before is durable.
    ///
    /// # Errors
    /// [`Error::Transient`]: it is not known what is durable; flush again.
    async fn flush(&self) -> Result<(), Error>;

    /// Removes empty partitions of lists, so that reads skip them. The process that writes the tables
    /// calls it about every half a minute. May take long, and may run beside every other call.
    ///
    /// # Errors
    /// Those of reads. The next call sweeps the rest.
    async fn sweep(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Checks that all tables exist. The embedded tables are checked only when they are opened.
    ///
    /// # Errors
    /// [`Error::TablesMissing`] if some were dropped; those of reads if the check fails.
    async fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// One order with its delivery state (spec 2.3).
    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error>;

    /// One order without its delivery state.
    async fn order_record(&self, id: OrderId) -> Result<Option<Order>, Error> {
        Ok(self.order(id).await?.map(|row| row.order))
    }

    /// Orders, newest first (spec 4.2).
    async fn orders(&self, filter: OrderFilter, page: Page) -> Result<Vec<OrderRow>, Error>;

    /// Open deposits, newest first (spec 4.2).
    async fn deposits(&self, filter: DepositFilter, page: Page) -> Result<Vec<DepositRow>, Error>;

    /// One transfer.
    async fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, Error>;

    /// The transfers to a wallet, newest first (spec 4.2).
    async fn transfers(
        &self,
        wallet: Address,
        filter: TransferFilter,
        page: Page,
    ) -> Result<Vec<TransferRow>, Error>;

    /// The webhook attempts for an order or a transfer, the latest first, including those that made
    /// no request.
    async fn attempts(&self, subject: Subject, page: Page) -> Result<Vec<Attempt>, Error>;

    /// Returns the progress of the chains, ordered by index, each followed by that of its lanes.
    async fn chains(&self) -> Result<Vec<ChainRow>, Error>;

    /// Days earlier than `before` that have orders or transfers, the oldest first.
    async fn old_days(&self, before: Day) -> Result<Vec<Day>, Error>;

    /// Removes final rows created on a day, after a copy of each to `export`. For [`prune::prune`].
    ///
    /// # Errors
    /// Also those of `export`. Some rows may be removed: call it again.
    async fn prune_day(
        &self,
        day: Day,
        now: UnixMicros,
        export: &dyn Export,
    ) -> Result<Pruned, Error>;

    /// The log that the tables are made from; none if no process has used them.
    async fn origin(&self) -> Result<Option<Origin>, Error>;

    /// Stores [`Store::origin`].
    async fn set_origin(&self, origin: &Origin) -> Result<(), Error>;

    /// Returns the positions of the tables; partitions without rows may be missing.
    async fn positions(&self) -> Result<Vec<Position>, Error>;

    /// Stores [`Store::positions`]. To be called after the rows before them were applied.
    async fn set_positions(&self, positions: &[Position]) -> Result<(), Error>;

    /// Creation time before which final rows were removed; none before a first complete pruning.
    async fn pruned_before(&self) -> Result<Option<UnixSeconds>, Error>;

    /// Stores [`Store::pruned_before`], which never decreases.
    async fn set_pruned_before(&self, second: UnixSeconds) -> Result<(), Error>;
}
