//! Tables that are a part of a process's readiness.

use std::sync::Arc;

use async_trait::async_trait;
use runtime::readiness::Part;

use crate::{Change, Error, LayeredStore, Position, Store, StoreLayer};

/// Ready while changes and positions can be written and flushed, and positions read. For the projector, which
/// waits for unwritable tables; a process that only reads them returns errors in its responses.
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

    fn watch<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        match &outcome {
            Ok(_) => self.part.ready(),
            Err(error) => self.part.waiting(error.to_string()),
        }
        outcome
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
    async fn positions(&self, store: &dyn Store) -> Result<Vec<Position>, Error> {
        self.watch(store.positions().await)
    }

    async fn set_positions(&self, store: &dyn Store, positions: &[Position]) -> Result<(), Error> {
        self.watch(store.set_positions(positions).await)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use runtime::Readiness;

    use super::*;

    #[derive(Clone, Default)]
    struct Away(Arc<AtomicBool>);

    impl Away {
        fn check(&self) -> Result<(), Error> {
            let is_away = self.0.load(Ordering::Relaxed);
            if is_away { Err(Error::Transient("away".into())) } else { Ok(()) }
        }
    }

    #[async_trait]
    impl StoreLayer for Away {
        async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), Error> {
            self.check()?;
            store.apply(changes).await
        }

        async fn flush(&self, store: &dyn Store) -> Result<(), Error> {
            self.check()?;
            store.flush().await
        }

        async fn positions(&self, store: &dyn Store) -> Result<Vec<Position>, Error> {
            self.check()?;
            store.positions().await
        }

        async fn set_positions(&self, store: &dyn Store, to: &[Position]) -> Result<(), Error> {
            self.check()?;
            store.set_positions(to).await
        }
    }

    /// A projector waits for each of these calls.
    #[tokio::test]
    async fn each_call_of_a_projector_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let (away, readiness) = (Away::default(), Readiness::default());
        let embedded = Arc::new(crate::embedded::EmbeddedStore::open(dir.path()).unwrap());
        let store = Arc::new(LayeredStore::new(embedded, away.clone()));
        let store = WatchedStore::over(store, readiness.part("tables", "opening them"));
        for call in ["apply", "flush", "positions", "set_positions"] {
            for is_away in [true, false] {
                away.0.store(is_away, Ordering::Relaxed);
                let outcome = match call {
                    "apply" => store.apply(Vec::new()).await,
                    "flush" => store.flush().await,
                    "positions" => store.positions().await.map(drop),
                    _ => store.set_positions(&[]).await,
                };
                assert_eq!(outcome.is_err(), is_away, "{call}");
                assert_eq!(!readiness.waiting_for().is_empty(), is_away, "{call}");
            }
        }
    }
}
