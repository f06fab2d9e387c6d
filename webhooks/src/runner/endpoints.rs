//! Reports endpoints that fail for long: in the log of the process, in a metric, and on `alerts`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use log::{NewRecord, OpenAlerts};
use schemas::record::Alert;
use schemas::{AlertKind, AlertState, AttemptOutcome, CodecError, Partition, Topic, UnixMicros};

use super::elapsed;
use crate::machine::endpoint;
use crate::metrics;

/// Maximum number of endpoints in the metric, each of them a time series. Alerts have no limit.
const SHOWN_MAX: usize = 20;

/// The endpoints of a process's deliveries.
pub(super) struct Endpoints {
    all: endpoint::Endpoints,
    /// Endpoints shown in the metric.
    shown: BTreeSet<String>,
    /// Alerts open on the topic, of all processes.
    open: OpenAlerts,
    /// Alerts that were put into steps since the topic was read, by name, so that they are not written again at once.
    /// Their step may never be committed.
    taken: BTreeMap<String, Alert>,
}

/// Resets the metric of each shown endpoint: the process no longer delivers to it.
impl Drop for Endpoints {
    fn drop(&mut self) {
        self.shown.iter().for_each(|host| metrics::endpoint_failing(host, Duration::ZERO));
    }
}

impl Endpoints {
    pub(super) fn new(failing_after: Duration) -> Self {
        let all = endpoint::Endpoints::new(failing_after);
        let (open, taken) = (OpenAlerts::default(), BTreeMap::new());
        Self { all, shown: BTreeSet::new(), open, taken }
    }

    pub(super) fn open(&self) -> &OpenAlerts {
        &self.open
    }

    /// Replaces the open alerts by the topic's present ones. An endpoint whose alert has ended meanwhile, by another
    /// process that delivers to it or by an operator, counts as one that acknowledges.
    pub(super) fn set_open(&mut self, open: OpenAlerts) {
        let has_ended = |host: &String| {
            let id = Alert::id(AlertKind::EndpointFailing, None, host);
            self.open.get(&id).is_some() && open.get(&id).is_none()
        };
        for host in self.shown.extract_if(.., has_ended) {
            self.all.acknowledged(&host);
            metrics::endpoint_failing(&host, Duration::ZERO);
        }
        self.open = open;
        self.taken.clear();
    }

    /// The open alert of a name.
    fn known(&self, alert_id: &str) -> Option<&Alert> {
        match self.taken.get(alert_id) {
            Some(taken) => Some(taken).filter(|taken| taken.state == AlertState::Raised),
            None => self.open.get(alert_id),
        }
    }

    /// Notes an attempt. Its step must commit the alert, if any.
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
            return self.end_failing(host, now);
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
        let alert = Alert::raise(AlertKind::EndpointFailing, None, &host, message, now);
        self.write(host, alert).map(Some)
    }

    /// Resolves the alert of an endpoint that acknowledged a webhook, whichever process raised it.
    fn end_failing(
        &mut self,
        host: &str,
        now: UnixMicros,
    ) -> Result<Option<NewRecord>, CodecError> {
        if self.open.is_empty() && self.taken.is_empty() {
            return Ok(None);
        }
        let known = self.known(&Alert::id(AlertKind::EndpointFailing, None, &host)).cloned();
        let Some(known) = known else { return Ok(None) };
        let message = format!("{host} acknowledges webhooks again");
        self.write(host, known.resolve(message, now)).map(Some)
    }

    /// Raises the alert of an abandoned event for its step, unless it is already open.
    pub(super) fn gave_up(
        &mut self,
        host: &str,
        cause: &str,
        now: UnixMicros,
    ) -> Result<Option<NewRecord>, CodecError> {
        let message = format!(
            "webhooks to {host} were given up ({cause}): `tidemark webhook dead list` has them, `tidemark webhook dead \
             redrive` sends them again"
        );
        let alert = Alert::raise(AlertKind::DeadWebhook, None, &host, message, now);
        if self.known(&alert.alert_id).is_some() {
            return Ok(None);
        }
        self.write(host, alert).map(Some)
    }

    fn write(&mut self, host: &str, alert: Alert) -> Result<NewRecord, CodecError> {
        let record = NewRecord::encode(Topic::Alerts, Partition(0), host, &alert);
        self.taken.insert(alert.alert_id.clone(), alert);
        record
    }

    pub(super) fn deferred(&mut self, host: &str, emitted_at: UnixMicros, now: UnixMicros) {
        self.all.deferred(host, emitted_at, now);
    }

    /// Oldest event waiting for a failing endpoint.
    pub(super) fn oldest(&self, now: UnixMicros) -> Option<UnixMicros> {
        self.all.oldest(now)
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    const HOST: &str = "shop.example";
    const NOW: UnixMicros = UnixMicros(1_790_000_000_000_000);

    /// Refreshes from a topic without new records.
    fn read_again(endpoints: &mut Endpoints) {
        let open = endpoints.open().clone();
        endpoints.set_open(open);
    }

    #[test]
    fn an_end_whose_step_was_lost_is_written_again() {
        let mut endpoints = Endpoints::new(Duration::from_secs(60));
        let mut open = OpenAlerts::default();
        let message = String::new();
        open.apply(Alert::raise(AlertKind::EndpointFailing, None, &HOST, message, NOW));
        endpoints.set_open(open);
        let mut delivered =
            || endpoints.attempted(HOST, (NOW, AttemptOutcome::Delivered), NOW).unwrap().is_some();
        assert_eq!([delivered(), delivered()], [true, false], "once for each reading");
        read_again(&mut endpoints);
        let again = endpoints.attempted(HOST, (NOW, AttemptOutcome::Delivered), NOW).unwrap();
        assert!(again.is_some());
        let mut gave_up = || endpoints.gave_up(HOST, "timeout", NOW).unwrap().is_some();
        assert_eq!([gave_up(), gave_up()], [true, false]);
        read_again(&mut endpoints);
        assert!(endpoints.gave_up(HOST, "timeout", NOW).unwrap().is_some());
    }

    /// Another process has its partitions, and delivers to it.
    #[test]
    fn an_alert_that_ended_elsewhere_ends_the_failure() {
        let minute = UnixMicros(NOW.0 + 60_000_000);
        let recorder = PrometheusBuilder::new().build_recorder();
        let is_shown_as = |seconds: u32| {
            let line = format!(
                "tidemark_webhooks_endpoint_failing_seconds{{host=\"{HOST}\"}} {seconds}\n"
            );
            recorder.handle().render().contains(&line)
        };
        let mut endpoints = Endpoints::new(Duration::from_secs(60));
        let failed = |endpoints: &mut Endpoints, now| {
            let timeout = (NOW, AttemptOutcome::Timeout);
            endpoints.attempted(HOST, timeout, now).unwrap().is_some()
        };
        let alert = Alert::raise(AlertKind::EndpointFailing, None, &HOST, String::new(), minute);
        ::metrics::with_local_recorder(&recorder, || {
            assert_eq!([NOW, minute].map(|now| failed(&mut endpoints, now)), [false, true]);
            let mut open = OpenAlerts::default();
            open.apply(alert.clone());
            endpoints.set_open(open.clone());
            assert!(is_shown_as(60));
            open.apply(alert.resolve(String::new(), minute));
            endpoints.set_open(open);
        });
        assert!(is_shown_as(0));
        assert_eq!(endpoints.oldest(minute), None);
        assert!(!failed(&mut endpoints, minute), "it counts anew");
    }
}
