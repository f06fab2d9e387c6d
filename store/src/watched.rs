//! Tables whose writes are a part of a process's readiness.

use std::sync::Arc;

use async_trait::async_trait;
use runtime::readiness::Part;

use crate::{Change, Error, LayeredStore, Store, StoreLayer};

/// Ready while changes can be applied. For the projector, which waits for the tables when they cannot
/// be written; a process that only reads them reports it in its answers.
pub struct WatchedStore {
    part: Part,
}

impl WatchedStore {
    /// Watches `store`.
    #[must_use]
    pub fn over(store: Arc<dyn Store>, part: Part) -> LayeredStore<Self> {
        part.ready();
        LayeredStore::new(store, Self { part })
    }

    fn watch(&self, written: Result<(), Error>) -> Result<(), Error> {
        match &written {
            Ok(()) => self.part.ready(),
            Err(error) => self.part.waiting(error.to_string()),
        }
        written
    }
}

#[async_trait]
impl StoreLayer for WatchedStore {
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), Error> {
        self.watch(store.apply(changes).await)
    }

    async fn flush(&self, store: &dyn Store) -> Result<(), Error> {
        self.watch(store.flush().await)
    }
}
