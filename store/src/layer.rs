//! Decorator of a [`Store`]: forwards every call to the store below, except those that a layer
//! overrides.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use schemas::record::{Attempt, Order};
use schemas::{Address, OrderId, TransferId, UnixMicros, UnixSeconds};

use crate::prune::{Day, Export, Pruned};
use crate::{
    ChainRow, Change, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Origin, Page,
    Position, Store, Subject, TransferFilter, TransferRow,
};

/// Overrides of the tables below.
#[async_trait]
pub trait StoreLayer: Send + Sync + 'static {
    /// Instead of [`Store::apply`].
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), Error> {
        store.apply(changes).await
    }

    /// Instead of [`Store::flush`].
    async fn flush(&self, store: &dyn Store) -> Result<(), Error> {
        store.flush().await
    }

    /// Instead of [`Store::positions`].
    async fn positions(&self, store: &dyn Store) -> Result<Vec<Position>, Error> {
        store.positions().await
    }

    /// Instead of [`Store::set_positions`].
    async fn set_positions(&self, store: &dyn Store, positions: &[Position]) -> Result<(), Error> {
        store.set_positions(positions).await
    }

    /// Instead of every other call: reads, maintenance, [`Store::set_origin`] and
    /// [`Store::set_pruned_before`].
    async fn read<T, F>(&self, read: impl Fn() -> F + Send + Sync) -> Result<T, Error>
    where
        T: Send,
        F: Future<Output = Result<T, Error>> + Send,
    {
        read().await
    }
}

/// Tables with a [`StoreLayer`] over them.
pub struct LayeredStore<L> {
    store: Arc<dyn Store>,
    layer: L,
}

impl<L: StoreLayer> LayeredStore<L> {
    /// Puts `layer` over `store`.
    pub fn new(store: Arc<dyn Store>, layer: L) -> Self {
        Self { store, layer }
    }
}

#[async_trait]
impl<L: StoreLayer> Store for LayeredStore<L> {
    async fn apply(&self, changes: Vec<Change>) -> Result<(), Error> {
        self.layer.apply(&*self.store, changes).await
    }

    async fn flush(&self) -> Result<(), Error> {
        self.layer.flush(&*self.store).await
    }

    async fn sweep(&self) -> Result<(), Error> {
        self.layer.read(|| self.store.sweep()).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.layer.read(|| self.store.check()).await
    }

    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error> {
        self.layer.read(|| self.store.order(id)).await
    }

    async fn order_record(&self, id: OrderId) -> Result<Option<Order>, Error> {
        self.layer.read(|| self.store.order_record(id)).await
    }

    async fn orders(&self, filter: OrderFilter, page: Page) -> Result<Vec<OrderRow>, Error> {
        self.layer.read(|| self.store.orders(filter.clone(), page)).await
    }

    async fn deposits(&self, filter: DepositFilter, page: Page) -> Result<Vec<DepositRow>, Error> {
        self.layer.read(|| self.store.deposits(filter, page)).await
    }

    async fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, Error> {
        self.layer.read(|| self.store.transfer(id)).await
    }

    async fn transfers(
        &self,
        wallet: Address,
        filter: TransferFilter,
        page: Page,
    ) -> Result<Vec<TransferRow>, Error> {
        self.layer.read(|| self.store.transfers(wallet, filter, page)).await
    }

    async fn attempts(&self, subject: Subject, page: Page) -> Result<Vec<Attempt>, Error> {
        self.layer.read(|| self.store.attempts(subject, page)).await
    }

    async fn chains(&self) -> Result<Vec<ChainRow>, Error> {
        self.layer.read(|| self.store.chains()).await
    }

    async fn old_days(&self, before: Day) -> Result<Vec<Day>, Error> {
        self.layer.read(|| self.store.old_days(before)).await
    }

    async fn prune_day(
        &self,
        day: Day,
        now: UnixMicros,
        export: &dyn Export,
    ) -> Result<Pruned, Error> {
        self.layer.read(|| self.store.prune_day(day, now, export)).await
    }

    async fn origin(&self) -> Result<Option<Origin>, Error> {
        self.layer.read(|| self.store.origin()).await
    }

    async fn set_origin(&self, origin: &Origin) -> Result<(), Error> {
        self.layer.read(|| self.store.set_origin(origin)).await
    }

    async fn positions(&self) -> Result<Vec<Position>, Error> {
        self.layer.positions(&*self.store).await
    }

    async fn set_positions(&self, positions: &[Position]) -> Result<(), Error> {
        self.layer.set_positions(&*self.store, positions).await
    }

    async fn pruned_before(&self) -> Result<Option<UnixSeconds>, Error> {
        self.layer.read(|| self.store.pruned_before()).await
    }

    async fn set_pruned_before(&self, second: UnixSeconds) -> Result<(), Error> {
        self.layer.read(|| self.store.set_pruned_before(second)).await
    }
}
