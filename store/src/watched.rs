//! Tables whose writes are a part of a process's readiness.

use std::sync::Arc;

use async_trait::async_trait;
use runtime::readiness::Part;
use schemas::{Address, OrderId, TransferId};

use crate::{
    ChainRow, Change, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Page, Store,
    TransferFilter, TransferRow,
};

/// Ready while changes can be applied. For the projector, which waits for the tables when they cannot
/// be written; whoever only reads is better told by the answers it gets.
pub struct WatchedStore {
    store: Arc<dyn Store>,
    part: Part,
}

impl WatchedStore {
    /// Watches `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, part: Part) -> Self {
        part.ready();
        Self { store, part }
    }
}

#[async_trait]
impl Store for WatchedStore {
    async fn apply(&self, changes: Vec<Change>) -> Result<(), Error> {
        let applied = self.store.apply(changes).await;
        match &applied {
            Ok(()) => self.part.ready(),
            Err(error) => self.part.waits(error.to_string()),
        }
        applied
    }

    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error> {
        self.store.order(id).await
    }

    async fn orders(&self, filter: OrderFilter, page: Page) -> Result<Vec<OrderRow>, Error> {
        self.store.orders(filter, page).await
    }

    async fn deposits(&self, filter: DepositFilter, page: Page) -> Result<Vec<DepositRow>, Error> {
        self.store.deposits(filter, page).await
    }

    async fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, Error> {
        self.store.transfer(id).await
    }

    async fn transfers(
        &self,
        wallet: Address,
        filter: TransferFilter,
        page: Page,
    ) -> Result<Vec<TransferRow>, Error> {
        self.store.transfers(wallet, filter, page).await
    }

    async fn chains(&self) -> Result<Vec<ChainRow>, Error> {
        self.store.chains().await
    }
}
