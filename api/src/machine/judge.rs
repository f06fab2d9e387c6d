//! The problems of an installation, each with its remedy. The most severe kind comes first.

use schemas::record::Alert;
use schemas::{AlertKind, UnixMicros};

use super::story::words::time;
use super::survey::{Chain, Group, Survey, id_of};

/// Maximum age of the newest block of a followed chain.
const HEAD_SECONDS_MAX: i64 = 300;
/// Maximum lag of confirmation behind the head. A longer lag usually means that no second endpoint answers.
const CONFIRMED_SECONDS_MAX: i64 = 3600;
/// Wait of a record above which its stage is behind.
const LAG_SECONDS_MAX: i64 = 60;
/// Wait of a webhook above which it is a problem: its receiver is probably down.
const WEBHOOK_SECONDS_MAX: i64 = 600;
const ALERTS_MAX: usize = 20;
/// Seconds after its deadline beyond which a pending order counts as overdue.
pub const OVERDUE_SECONDS: i64 = 3600;
/// Inverse of the minimum free share of a file system.
const FREE_PART: u64 = 20;

/// Problem for an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub text: String,
    /// Commands, sections of documents, or advice.
    pub help: String,
}

fn problem(text: impl Into<String>, help: impl Into<String>) -> Problem {
    Problem { text: text.into(), help: help.into() }
}

/// All problems.
pub fn problems(survey: &Survey) -> Vec<Problem> {
    let now = survey.at;
    let mut found = Vec::new();
    found.extend(survey.chains.iter().flat_map(|chain| of_chain(chain, now)));
    found.extend(
        survey.not_ready.as_ref().map(|why| {
            problem(format!("the process is not ready: {why}"), "its log; tidemark run")
        }),
    );
    found.extend(survey.groups.iter().flat_map(|group| of_group(group, now)));
    found.extend(survey.stops.iter().map(|stop| {
        problem(
            format!("payments are stopped: {stop}"),
            "tidemark stop SUBJECT --end; docs/operate/jobs.md, The emergency stop",
        )
    }));
    found.extend(of_disk(survey));
    found.extend(survey.orders.and_then(|orders| orders.overdue).map(|(id, count)| {
        problem(
            format!("{count} orders are pending an hour after their deadline, such as {id}"),
            format!("tidemark find {id}"),
        )
    }));
    found.extend(of_webhooks(survey));
    found.extend(of_alerts(survey));
    found
}

fn seconds(from: UnixMicros, to: UnixMicros) -> i64 {
    to.seconds().0.saturating_sub(from.seconds().0)
}

fn of_chain(chain: &Chain, now: UnixMicros) -> Vec<Problem> {
    let Chain { blockchain, endpoints, head, confirmed_at, halt, held, has_gap, .. } = chain;
    let mut found = Vec::new();
    let age = head.map(|head| now.seconds().0.saturating_sub(head.timestamp.0));
    match (halt, age) {
        (Some((why, since)), _) => found.push(problem(
            format!("{blockchain} is halted since {}: {why}", time(since.seconds())),
            "tidemark chain status; docs/operate/jobs.md, A halted chain",
        )),
        (None, None) => found.push(problem(
            format!("{blockchain} was not scanned yet"),
            "tidemark doctor; tidemark run ingest",
        )),
        (None, Some(age)) if *endpoints > 0 && age > HEAD_SECONDS_MAX => found.push(problem(
            format!("the newest block of {blockchain} is {age} s old: the chain is not followed"),
            "tidemark doctor; tidemark run ingest",
        )),
        (None, Some(_)) => {}
    }
    let unconfirmed =
        head.zip(*confirmed_at).map(|(head, at)| head.timestamp.0.saturating_sub(at.0));
    if let Some(seconds) = unconfirmed.filter(|seconds| *seconds > CONFIRMED_SECONDS_MAX) {
        found.push(problem(
            format!("nothing in the last {seconds} s of {blockchain} is confirmed"),
            "tidemark doctor; docs/internals/evidence.md",
        ));
    }
    if let Some(first) = held.first() {
        let (count, hash) = (held.len(), first.transfer.tx_hash);
        found.push(problem(
            format!("endpoints of {blockchain} disagree about {count} transfers: they pay nothing"),
            format!(
                "tidemark chain resolve {blockchain} {hash}; docs/operate/jobs.md, A transfer that endpoints disagree about"
            ),
        ));
    }
    if *has_gap {
        found.push(problem(
            format!("blocks of {blockchain} are gone from every endpoint: no deposit opens there"),
            "docs/operate/jobs.md, Blocks that every endpoint has deleted",
        ));
    }
    found
}

fn of_group(group: &Group, now: UnixMicros) -> Vec<Problem> {
    let Group { stage, name, lag, oldest, members } = group;
    let mut found = Vec::new();
    if members.as_ref().is_some_and(Vec::is_empty) {
        found.push(problem(
            format!("no process of {stage} runs (group {name})"),
            format!("tidemark run {stage}"),
        ));
    }
    let age = oldest.map_or(0, |oldest| seconds(oldest, now));
    if age > LAG_SECONDS_MAX {
        found.push(problem(
            format!("{stage} is {age} s behind: {lag} records wait for group {name}"),
            format!("the log of {stage}; docs/operate/monitor.md, What to monitor"),
        ));
    }
    found
}

fn of_disk(survey: &Survey) -> Option<Problem> {
    let disk = survey.disk.as_ref()?;
    let is_short = disk.free_bytes < disk.all_bytes / FREE_PART;
    is_short.then(|| {
        problem(
            format!(
                "the disk of {} is nearly full: {} MB free",
                disk.folder,
                disk.free_bytes >> 20
            ),
            "free some, or move data.dir to a larger one",
        )
    })
}

fn of_webhooks(survey: &Survey) -> Vec<Problem> {
    let mut found = Vec::new();
    let webhooks = &survey.webhooks;
    let age = webhooks.oldest.map_or(0, |oldest| seconds(oldest, survey.at));
    if age > WEBHOOK_SECONDS_MAX {
        found.push(problem(
            format!("{} webhooks wait, the oldest for {age} s", webhooks.waiting),
            "tidemark webhook test URL",
        ));
    }
    let dead = webhooks.dead.as_deref().unwrap_or_default();
    if let Some(first) = dead.first() {
        let (count, id) = (dead.len(), id_of(*first));
        found.push(problem(
            format!("{count} webhooks were given up and not delivered since, such as that of {id}"),
            "tidemark webhook dead list; tidemark webhook dead redrive",
        ));
    }
    found
}

/// Problems of the open alerts, the newest first.
fn of_alerts(survey: &Survey) -> Vec<Problem> {
    let newest = survey.alerts.iter().rev().take(ALERTS_MAX);
    let mut found: Vec<_> = newest.map(of_alert).collect();
    let left_out = survey.alerts.len().saturating_sub(ALERTS_MAX);
    if left_out > 0 {
        found.push(problem(format!("{left_out} more alerts are open"), "tidemark alerts list"));
    }
    found
}

fn of_alert(alert: &Alert) -> Problem {
    let Alert { kind, alert_id, message, raised_at, .. } = alert;
    let end = format!("tidemark alerts resolve {alert_id}");
    let first = if *kind == AlertKind::DeadLetter {
        "tidemark dead-letters list"
    } else if *kind == AlertKind::DeadWebhook {
        "tidemark webhook dead redrive"
    } else {
        "docs/operate/monitor.md, Alerts"
    };
    // The alert of a condition ends by itself.
    let help = if kind.is_condition() { first.to_owned() } else { format!("{first}; {end}") };
    problem(format!("{kind} since {}: {message}", time(raised_at.seconds())), help)
}

#[cfg(test)]
mod tests;
