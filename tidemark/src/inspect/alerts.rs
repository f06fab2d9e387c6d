//! `tidemark alerts`: lists alerts, ends one that was dealt with, and tests sinks.
//!
//! If a running process has the embedded log open, that process writes the end of the alert, on a
//! request to its Admin API.

use std::sync::Arc;

use anyhow::{Context, bail};
use api::AlertEnd;
use api::audit::Asker;
use api::inspect::reader::{READING_MAX, Reader};
use api::inspect::survey;
use api::story::words::time;
use clap::Args;
use log::OpenAlerts;
use log::config::BackEnd;
use reqwest::{Method, StatusCode};
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::record::{Alert, Record};
use schemas::{AlertState, Partition, Topic, UnixMicros};
use serde_json::json;
use url::Url;

use super::note;
use crate::back_end::open_existing_log;
use crate::health::admin_api::Api;
use crate::output::one_line;
use crate::settings::Settings;
use crate::setup::{Outcome, misuse};
use crate::tail::Source;

/// The alerts to print.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Those that are open: the default.
    #[arg(long, conflicts_with = "all")]
    open: bool,
    /// Every record of the topic, also those that end an alert.
    #[arg(long)]
    all: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// The alert to end.
#[derive(Debug, Args)]
pub(crate) struct Ending {
    /// Its name, as `tidemark alerts list` prints it.
    alert_id: String,
    /// For the record: what was done about it.
    #[arg(long)]
    reason: Option<String>,
    /// URL of the running process's API; default: from `server.admin_listen` or `server.listen`.
    #[arg(long)]
    api: Option<Url>,
}

/// Prints alerts, the oldest first. Also while processes run.
pub(crate) fn list(settings: &Settings, options: &Selection) -> anyhow::Result<Outcome> {
    let mut remarks = Vec::new();
    let alerts = if options.all {
        let (mut reader, mut all) = (
            Reader::new(Source::open(settings)?, None, settings.log.layout, READING_MAX),
            Vec::new(),
        );
        let place = (UnixMicros(0), None);
        reader.scan(Topic::Alerts, [Partition(0)], place, |_, alert: Alert| all.push(alert))?;
        remarks = reader.remarks();
        all
    } else {
        let mut open: Vec<_> =
            survey::open_alerts(&Source::open(settings)?)?.iter().cloned().collect();
        open.sort_by_key(|alert| alert.raised_at);
        open
    };
    let lines =
        alerts.iter().map(|alert| if options.json { object(alert) } else { Ok(line(alert)) });
    let mut lines = lines.collect::<anyhow::Result<Vec<_>>>()?;
    lines.extend(remarks.into_iter().map(|text| if options.json { note(&text) } else { text }));
    let none = if options.all { "the topic has no alert" } else { "no alert is open" };
    Ok(Outcome::success(lines, if options.json { "" } else { none }))
}

fn line(alert: &Alert) -> String {
    let Alert { alert_id, state, message, raised_at, .. } = alert;
    let (at, state) = (time(raised_at.seconds()), state.as_str());
    one_line(&format!("{at}  {state:<8}  {alert_id}  {message}"))
}

fn object(alert: &Alert) -> anyhow::Result<String> {
    let value = schemas::decode_json(Alert::SCHEMA, &schemas::encode(alert)?)?;
    Ok(value.to_string())
}

/// Ends an open alert, with an entry in `audit`.
///
/// # Errors
/// The reason is not valid, no open alert has the name, or neither the log nor the API takes the command.
pub(crate) async fn resolve(settings: Settings, options: Ending) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let Ending { alert_id, reason, api } = options;
    if let Some(Err(problem)) = reason.as_deref().map(AlertEnd::check_reason) {
        return Err(misuse(format!("--reason {problem}")));
    }
    match open_existing_log(&settings, &Readiness::default()).await {
        Ok(log) => {
            let (asked, of) = (log.clone(), alert_id.clone());
            let find = move || {
                let mut open = OpenAlerts::default();
                open.refresh(&*asked).map(|()| AlertEnd::of(&open, &of, reason))
            };
            let end = tokio::task::spawn_blocking(find).await??;
            let Some(end) = end else { bail!("{}", unknown(&alert_id)) };
            let now = SystemClock.now();
            let by = Asker::command_line();
            log.produce(vec![end.audit(&by, now)?]).await?;
            log.produce(vec![end.record(&by, now)?]).await?;
        }
        Err(error) if matches!(settings.log.back_end, BackEnd::Embedded) => {
            let api = Api::new(&settings, api)?;
            let body = json!({ "alert_id": alert_id, "reason": reason });
            let asked = api.ask(Method::POST, "alerts/resolve", Some(&body)).await;
            let (status, text) = asked.with_context(|| format!("{error:#}"))?;
            if status == StatusCode::NOT_FOUND {
                bail!("{}", unknown(&alert_id));
            }
            if !status.is_success() {
                bail!("{} answers {status}: {text}", api.base());
            }
        }
        Err(error) => return Err(error),
    }
    let line = format!("{} {alert_id}", AlertState::Resolved);
    Ok(Outcome::success(vec![one_line(&line)], ""))
}

fn unknown(alert_id: &str) -> String {
    format!("no alert {alert_id:?} is open: `tidemark alerts list` has those that are")
}

/// Sends a message to one sink, or to each. Succeeds if all accept it.
pub(crate) async fn test(settings: Settings, sink: Option<String>) -> anyhow::Result<Outcome> {
    let all = settings.alerts.sinks.iter().map(|sink| sink.name.as_str());
    let is_wanted = |name: &&str| sink.as_deref().is_none_or(|wanted| wanted == *name);
    let names: Vec<_> = all.filter(is_wanted).collect();
    if names.is_empty() {
        let which = sink.map(|name| format!(" {name:?}")).unwrap_or_default();
        bail!(
            "[[alerts.sinks]] has no sink{which}: `tidemark run --check-config` says what is wrong with one"
        );
    }
    let (mut lines, mut is_success) = (Vec::new(), true);
    for name in names {
        let (alerts, config) = (&settings.alerts, &settings.webhooks);
        let report = webhooks::test_sink(alerts, config, Arc::new(SystemClock), name).await?;
        let Some(report) = report else { continue };
        is_success &= report.is_delivered;
        let what = if report.is_delivered { "took it" } else { "did not take it" };
        lines.push(one_line(&format!("{name} {what}: {}", report.text)));
    }
    Ok(Outcome { lines, is_success })
}
