//! Health (spec 4.2): liveness for anyone, and the state of each chain for operators.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use log::{Log, OpenAlerts};
use runtime::{Clock, Readiness};
use schemas::AlertKind;
use serde_json::json;

use crate::auth::{AUTHORIZATION, Auth};
use crate::client::Client;
use crate::error::{Answer, Refusal};
use crate::machine::chain_health::{self, ChainHealth};
use crate::machine::query::Query;
use crate::reads::Reads;

/// Sources of the service's health, beside the tables.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) version: &'static str,
    pub(crate) readiness: Readiness,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Open alerts, as far as the topic was read; each verbose request reads what was added since.
    pub(crate) alerts: Arc<Mutex<OpenAlerts>>,
}

/// `GET /health` where no admin secret is read. Parameters are ignored: load balancers add their own.
pub(crate) async fn brief(State(health): State<Health>) -> Response {
    Json(json!({ "status": "ok", "version": health.version })).into_response()
}

/// `GET /health`; with `verbose=1` only for an operator.
pub(crate) async fn health(
    State(health): State<Health>,
    State(auth): State<Arc<Auth>>,
    State(reads): State<Reads>,
    client: Option<Client>,
    headers: HeaderMap,
    query: Query,
) -> Answer {
    if query.text("verbose")? != Some("1") {
        return Ok(brief(State(health)).await);
    }
    query.only(&[&["verbose"]])?;
    auth.verify_operator(headers.get(AUTHORIZATION), client)?;
    let chains = health.chains(&reads).await?;
    let verbose = json!({ "status": "ok", "version": health.version, "chains": chains });
    Ok(Json(verbose).into_response())
}

impl Health {
    async fn chains(&self, reads: &Reads) -> Answer<Vec<ChainHealth>> {
        let rows = reads.chains().await?;
        let (log, alerts) = (self.log.clone(), self.alerts.clone());
        let open = tokio::task::spawn_blocking(move || {
            let mut alerts = alerts.lock().unwrap_or_else(PoisonError::into_inner);
            alerts.refresh(&*log).map(|()| alerts.clone())
        });
        let open = open.await.map_err(|_| Refusal::Internal)??;
        let halts = open.iter().filter(|alert| alert.kind == AlertKind::ChainHalted);
        let halts: Vec<_> = halts.collect();
        let details = self.readiness.details();
        Ok(chain_health::of(&rows, &details, &halts, self.clock.now().seconds()))
    }
}
