//! Presence of the tables: without them an api is not ready.

use std::sync::Arc;
use std::time::Duration;

use runtime::readiness::Part;
use store::{Error, Store};
use tokio_util::sync::CancellationToken;

const INTERVAL: Duration = Duration::from_secs(10);

/// Polls until `stop`. Tables that do not answer leave the readiness unchanged: the api's responses report them.
pub(crate) async fn watch(tables: Arc<dyn Store>, part: Part, stop: CancellationToken) {
    loop {
        match tables.check().await {
            Ok(()) => part.ready(),
            Err(error @ Error::TablesMissing { .. }) => part.waiting(error.to_string()),
            Err(error) => tracing::debug!(%error, "it is not known whether all tables are there"),
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = stop.cancelled() => return,
        }
    }
}
