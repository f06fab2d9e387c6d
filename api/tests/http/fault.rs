//! Switches that make the log or the store fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use log::{Log, LogLayer, NewRecord};
use store::{Change, Store, StoreLayer};

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

    fn check_store(&self) -> Result<(), store::Error> {
        if self.broken() { Err(store::Error::Transient("disk full".into())) } else { Ok(()) }
    }
}

/// A log that cannot be written while its switch is on.
pub(crate) struct FaultyLog {
    pub(crate) writes: Switch,
}

#[async_trait]
impl LogLayer for FaultyLog {
    async fn produce(&self, log: &dyn Log, records: Vec<NewRecord>) -> Result<(), log::Error> {
        if self.writes.broken() {
            return Err(log::Error::Transient("disk full".into()));
        }
        log.produce(records).await
    }
}

/// A store that cannot be written, or read, while its switches are on.
pub(crate) struct FaultyStore {
    pub(crate) writes: Switch,
    pub(crate) reads: Switch,
}

#[async_trait]
impl StoreLayer for FaultyStore {
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), store::Error> {
        self.writes.check_store()?;
        store.apply(changes).await
    }

    fn before_read(&self) -> Result<(), store::Error> {
        self.reads.check_store()
    }
}
