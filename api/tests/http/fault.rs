//! The log and the store, each with a switch that makes it fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use log::{
    Bounds, Error, Log, NewRecord, Offset, Record, Tail, TopicPartition, Worker, WorkerSpec, Writer,
};
use schemas::{Address, Layout, OrderId, Topic, TransferId};
use store::{
    ChainRow, Change, DepositFilter, DepositRow, OrderFilter, OrderRow, Page, Store,
    TransferFilter, TransferRow,
};

/// Whether something fails now.
#[derive(Clone, Default)]
pub(crate) struct Switch(Arc<AtomicBool>);

impl Switch {
    pub(crate) fn set(&self, broken: bool) {
        self.0.store(broken, Ordering::SeqCst);
    }

    fn broken(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A log that cannot be written while its switch is on.
pub(crate) struct FaultyLog {
    pub(crate) inner: Arc<dyn Log>,
    pub(crate) writes: Switch,
}

#[async_trait]
impl Log for FaultyLog {
    fn layout(&self) -> Layout {
        self.inner.layout()
    }
    async fn produce(&self, records: Vec<NewRecord>) -> Result<(), Error> {
        if self.writes.broken() {
            return Err(Error::Transient("disk full".into()));
        }
        self.inner.produce(records).await
    }
    fn writer(&self, name: &str) -> Result<Box<dyn Writer>, Error> {
        self.inner.writer(name)
    }
    fn worker(&self, spec: WorkerSpec) -> Result<Box<dyn Worker>, Error> {
        self.inner.worker(spec)
    }
    fn tail(&self, topics: &[Topic]) -> Result<Box<dyn Tail>, Error> {
        self.inner.tail(topics)
    }
    fn read(
        &self,
        of: TopicPartition,
        from: Offset,
        max: usize,
    ) -> Result<Vec<Arc<Record>>, Error> {
        self.inner.read(of, from, max)
    }
    fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        self.inner.bounds(of)
    }
}

/// A store that cannot be written, or read, while its switches are on.
pub(crate) struct FaultyStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) writes: Switch,
    pub(crate) reads: Switch,
}

impl FaultyStore {
    fn check(switch: &Switch) -> Result<(), store::Error> {
        if switch.broken() { Err(store::Error::Transient("disk full".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn apply(&self, changes: Vec<Change>) -> Result<(), store::Error> {
        Self::check(&self.writes)?;
        self.inner.apply(changes).await
    }
    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, store::Error> {
        Self::check(&self.reads)?;
        self.inner.order(id).await
    }
    async fn orders(&self, filter: OrderFilter, page: Page) -> Result<Vec<OrderRow>, store::Error> {
        Self::check(&self.reads)?;
        self.inner.orders(filter, page).await
    }
    async fn deposits(
        &self,
        filter: DepositFilter,
        page: Page,
    ) -> Result<Vec<DepositRow>, store::Error> {
        Self::check(&self.reads)?;
        self.inner.deposits(filter, page).await
    }
    async fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, store::Error> {
        Self::check(&self.reads)?;
        self.inner.transfer(id).await
    }
    async fn transfers(
        &self,
        wallet: Address,
        filter: TransferFilter,
        page: Page,
    ) -> Result<Vec<TransferRow>, store::Error> {
        Self::check(&self.reads)?;
        self.inner.transfers(wallet, filter, page).await
    }
    async fn chains(&self) -> Result<Vec<ChainRow>, store::Error> {
        Self::check(&self.reads)?;
        self.inner.chains().await
    }
}
