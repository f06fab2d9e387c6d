//! Switches that make the log or the store fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use log::{Log, LogLayer, NewRecord};
use schemas::Topic;
use store::{Change, Store, StoreLayer};

/// Switch that makes one kind of operation fail.
#[derive(Clone, Default)]
pub(crate) struct Switch(Arc<AtomicBool>);

impl Switch {
    pub(crate) fn set(&self, broken: bool) {
        self.0.store(broken, Ordering::SeqCst);
    }

    fn check<C: From<&'static str>, E>(&self, error: fn(C) -> E) -> Result<(), E> {
        if self.0.load(Ordering::SeqCst) { Err(error("disk full".into())) } else { Ok(()) }
    }
}

/// The switches of one world; the layer over its log and its store.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    pub(crate) log_writes: Switch,
    /// Failure of audit entries alone.
    pub(crate) audit_writes: Switch,
    pub(crate) store_writes: Switch,
    pub(crate) store_reads: Switch,
}

#[async_trait]
impl LogLayer for Faults {
    async fn produce(&self, log: &dyn Log, records: Vec<NewRecord>) -> Result<(), log::Error> {
        self.log_writes.check(log::Error::Transient)?;
        if records.iter().any(|record| record.to.topic == Topic::Audit) {
            self.audit_writes.check(log::Error::Transient)?;
        }
        log.produce(records).await
    }
}

#[async_trait]
impl StoreLayer for Faults {
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), store::Error> {
        self.store_writes.check(store::Error::Transient)?;
        store.apply(changes).await
    }

    async fn read<T, F>(&self, read: impl Fn() -> F + Send + Sync) -> Result<T, store::Error>
    where
        T: Send,
        F: Future<Output = Result<T, store::Error>> + Send,
    {
        self.store_reads.check(store::Error::Transient)?;
        read().await
    }
}
