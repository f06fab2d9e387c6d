//! Context that every stage is started with.

use std::sync::Arc;

use runtime::Clock;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::Log;

/// Parts of the process that one thread of a stage needs.
#[derive(Clone)]
pub struct StageContext {
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    /// Name of the thread's member in its groups, stable over restarts.
    pub member: String,
    /// Runs futures of a thread that blocks.
    pub handle: Handle,
    pub stop: CancellationToken,
}
