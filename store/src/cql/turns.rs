//! Requests one after the other, so that a test can put those of another process between any two of them.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use schemas::UnixMicros;

use super::{CqlStore, Tables, sweep};
use crate::Error;

/// The turns in which requests are made.
#[doc(hidden)]
#[async_trait]
pub trait Turns: Debug + Send + Sync + 'static {
    /// Waits for the turn of a request. The turn ends when the value is dropped, after the answer.
    async fn next(&self) -> Box<dyn Send>;

    /// Present time for the cache of directory rows.
    fn instant(&self) -> Instant;
}

/// Methods for tests alone.
impl CqlStore {
    /// Makes all requests from now on in turns. A second call has no effect.
    #[doc(hidden)]
    pub fn take_turns(&self, turns: Arc<dyn Turns>) {
        self.tables.turns.get_or_init(|| turns);
    }

    /// As [`crate::Store::sweep`], at another time.
    #[doc(hidden)]
    pub async fn sweep_at(&self, now: UnixMicros) -> Result<(), Error> {
        sweep::sweep(&self.tables, now).await.map(drop)
    }
}

impl Tables {
    /// Waits for the turn of a request, where requests are made in turns.
    pub(super) async fn turn(&self) -> Option<Box<dyn Send>> {
        match self.turns.get() {
            Some(turns) => Some(turns.next().await),
            None => None,
        }
    }

    pub(super) fn instant(&self) -> Instant {
        self.turns.get().map_or_else(Instant::now, |turns| turns.instant())
    }
}
