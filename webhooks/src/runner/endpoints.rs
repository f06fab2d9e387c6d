//! Reports endpoints that fail for long: in the log of the process, in a metric, and on `alerts`.

use std::collections::BTreeSet;
use std::time::Duration;

use log::NewRecord;
use schemas::record::Alert;
use schemas::{AlertKind, AttemptOutcome, CodecError, Partition, Topic, UnixMicros};

use super::elapsed;
use crate::machine::endpoint;
use crate::metrics;

/// How many endpoints the metric has at most: each is a time series. The alerts have all.
const SHOWN_MAX: usize = 20;

/// The endpoints of a process's deliveries.
pub(super) struct Endpoints {
    all: endpoint::Endpoints,
    /// Those that the metric has.
    shown: BTreeSet<String>,
}

impl Endpoints {
    pub(super) fn new(failing_after: Duration) -> Self {
        Self { all: endpoint::Endpoints::new(failing_after), shown: BTreeSet::new() }
    }

    /// An attempt has ended. Its step takes the alert, if there is one.
    ///
    /// # Errors
    /// [`CodecError`] if the alert does not fit its schema, which is a defect of this program.
    pub(super) fn attempted(
        &mut self,
        host: &str,
        (emitted_at, outcome): (UnixMicros, AttemptOutcome),
        now: UnixMicros,
    ) -> Result<Option<NewRecord>, CodecError> {
        if outcome == AttemptOutcome::Delivered {
            if let Some(since) = self.all.acknowledged(host) {
                if self.shown.remove(host) {
                    metrics::endpoint_failing(host, Duration::ZERO);
                }
                let since = since.to_rfc3339();
                tracing::info!(
                    webhook.host = host,
                    since,
                    "an endpoint acknowledges webhooks again"
                );
            }
            return Ok(None);
        }
        let Some(failing) = self.all.failed(host, emitted_at, now) else {
            return Ok(None);
        };
        let (since, oldest) = (failing.since.to_rfc3339(), failing.oldest.to_rfc3339());
        if self.shown.len() < SHOWN_MAX || self.shown.contains(host) {
            self.shown.insert(host.to_owned());
            metrics::endpoint_failing(host, elapsed(failing.since, now));
        }
        tracing::error!(
            webhook.host = host,
            since,
            oldest,
            "an endpoint has acknowledged no webhook for long"
        );
        let message = format!(
            "{host} has acknowledged no webhook since {since}; the oldest event that waits is of {oldest}"
        );
        let alert = Alert {
            kind: AlertKind::EndpointFailing,
            blockchain: None,
            transfer_id: None,
            order_id: None,
            message,
            raised_at: now,
        };
        NewRecord::encode(Topic::Alerts, Partition(0), host, &alert).map(Some)
    }

    /// A delivery was deferred.
    pub(super) fn deferred(&mut self, host: &str, emitted_at: UnixMicros, now: UnixMicros) {
        self.all.deferred(host, emitted_at, now);
    }

    /// The oldest event that waits for an endpoint that fails.
    pub(super) fn oldest(&self) -> Option<UnixMicros> {
        self.all.oldest()
    }
}
