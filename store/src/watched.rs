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
}

#[async_trait]
impl StoreLayer for WatchedStore {
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), Error> {
        let applied = store.apply(changes).await;
        match &applied {
            Ok(()) => self.part.ready(),
            Err(error) => self.part.waiting(error.to_string()),
        }
        applied
    }
}
