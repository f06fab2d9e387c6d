//! What the tables and the configuration answer.

use std::sync::Arc;

use schemas::record::{Order, Transfer};
use schemas::{Address, OrderId, Wallet};
use store::{
    ChainRow, DepositFilter, DepositRow, OrderFilter, OrderRow, Page, Store, TransferFilter,
};

use crate::error::Refusal;
use crate::machine::catalog::{Catalog, ChainChoices};

/// Everything that requests read.
pub(crate) struct Reads {
    store: Arc<dyn Store>,
    catalog: Arc<Catalog>,
}

impl Reads {
    pub(crate) fn new(store: Arc<dyn Store>, catalog: Arc<Catalog>) -> Self {
        Self { store, catalog }
    }

    pub(crate) async fn order(&self, order_id: OrderId) -> Result<Order, Refusal> {
        let row = self.store.order(order_id).await?.ok_or(Refusal::OrderNotFound)?;
        Ok(row.order)
    }

    /// An order and how far its chains are scanned.
    pub(crate) async fn checkout(
        &self,
        order_id: OrderId,
    ) -> Result<(Order, Vec<ChainRow>), Refusal> {
        Ok((self.order(order_id).await?, self.store.chains().await?))
    }

    /// What an order can be paid with.
    pub(crate) async fn choices(&self, order_id: OrderId) -> Result<Vec<ChainChoices>, Refusal> {
        Ok(self.catalog.choices(&self.order(order_id).await?))
    }

    pub(crate) async fn orders(
        &self,
        filter: OrderFilter,
        page: Page,
    ) -> Result<Vec<OrderRow>, Refusal> {
        Ok(self.store.orders(filter, page).await?)
    }

    pub(crate) async fn deposits(
        &self,
        filter: DepositFilter,
        page: Page,
    ) -> Result<Vec<DepositRow>, Refusal> {
        Ok(self.store.deposits(filter, page).await?)
    }

    pub(crate) async fn transfers(
        &self,
        wallet: Address,
        filter: TransferFilter,
        page: Page,
    ) -> Result<Vec<Transfer>, Refusal> {
        Ok(self.store.transfers(wallet, filter, page).await?)
    }

    /// The configured wallets, in the order of the file (spec 2.6).
    pub(crate) fn wallets(&self) -> &[Wallet] {
        self.catalog.wallets()
    }

    /// The configured wallet of this address. Its hex digits may have any case: explorers and
    /// spreadsheets change it. A mistyped digit finds no wallet, so there is nothing for the checksum to
    /// protect.
    ///
    /// # Errors
    /// [`Refusal::ResourceNotFound`]
    pub(crate) fn wallet(&self, text: &str) -> Result<Address, Refusal> {
        let lower = text.to_ascii_lowercase();
        let text = if lower.starts_with("0x") { &lower } else { text };
        let address = Address::parse(text).ok();
        let is_configured = |address: &Address| self.catalog.has_wallet(address);
        address.filter(is_configured).ok_or(Refusal::ResourceNotFound)
    }
}
