//! Health (spec 4.2): for anyone that the service answers, and for an operator how each chain is followed.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use log::{Log, Offset, TopicPartition};
use runtime::{Clock, Readiness};
use schemas::record::Alert;
use schemas::{AlertKind, Partition, Topic};
use serde_json::json;

use crate::auth::{AUTHORIZATION, Auth};
use crate::client::Client;
use crate::error::{Answer, Refusal};
use crate::machine::chain_health::{self, ChainHealth};
use crate::machine::query::Query;
use crate::reads::Reads;

/// Newest records of `alerts` that are searched for a halt. There are few.
const ALERTS_MAX: i64 = 500;

/// What the health of the service is read from, beside the tables.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) version: &'static str,
    pub(crate) readiness: Readiness,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// `GET /health`; with `verbose=1` only for an operator.
pub(crate) async fn health(
    State(health): State<Health>,
    State(auth): State<Arc<Auth>>,
    State(reads): State<Reads>,
    client: Option<Extension<Client>>,
    headers: HeaderMap,
    query: Query,
) -> Answer {
    query.only(&[&["verbose"]])?;
    let version = health.version;
    if query.text("verbose")? != Some("1") {
        return Ok(Json(json!({ "status": "ok", "version": version })).into_response());
    }
    let client = client.map(|Extension(client)| client);
    auth.verify_operator(headers.get(AUTHORIZATION), client)?;
    let chains = health.chains(&reads).await?;
    let verbose = json!({ "status": "ok", "version": version, "chains": chains });
    Ok(Json(verbose).into_response())
}

impl Health {
    async fn chains(&self, reads: &Reads) -> Answer<Vec<ChainHealth>> {
        let rows = reads.chains().await?;
        let log = self.log.clone();
        let halts = tokio::task::spawn_blocking(move || halts(&*log));
        let halts = halts.await.map_err(|_| Refusal::Internal)??;
        let details = self.readiness.details();
        Ok(chain_health::of(&rows, &details, &halts, self.clock.now().seconds()))
    }
}

/// The newest alerts about halted chains. Blocks.
fn halts(log: &dyn Log) -> Result<Vec<Alert>, log::Error> {
    let of = TopicPartition { topic: Topic::Alerts, partition: Partition(0) };
    let bounds = log.bounds(of)?;
    let start = Offset(bounds.end.0.saturating_sub(ALERTS_MAX)).max(bounds.start);
    let count = usize::try_from(bounds.end.0.saturating_sub(start.0)).unwrap_or_default();
    let records = if count == 0 { Vec::new() } else { log.read(of, start, count)? };
    let values = records.iter().filter_map(|record| record.value.as_deref());
    // What only a newer version can read is for its own answer: this one shows what it can.
    let alerts = values.filter_map(|value| schemas::decode::<Alert>(value).ok());
    Ok(alerts.filter(|alert| alert.kind == AlertKind::ChainHalted).collect())
}
