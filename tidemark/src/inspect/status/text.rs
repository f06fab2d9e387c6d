//! A survey on one screen, and as JSON. What is wrong comes first.

use api::judge::Problem;
use api::story::words::{finality, time};
use api::survey::{Chain, Group, Survey};
use schemas::UnixSeconds;
use serde_json::{Value, json};

/// Returns the lines of the screen.
pub(super) fn lines(survey: &Survey, problems: &[Problem]) -> Vec<String> {
    let at = time(survey.at.seconds());
    let mut lines = vec![match (problems.len(), survey.unknown.len()) {
        (0, 0) => format!("WELL  {at}"),
        (0, unknown) => format!("UNKNOWN: {unknown}  {at}"),
        (wrong, _) => format!("NOT WELL: {wrong}  {at}"),
    }];
    for Problem { text, help } in problems {
        lines.push(format!("! {text}"));
        lines.push(format!("    {help}"));
    }
    lines.extend(survey.unknown.iter().map(|what| format!("? {what}")));
    lines.push(String::new());
    let rows: Vec<_> = survey.chains.iter().map(|chain| of_chain(chain, survey)).collect();
    lines.extend(titled("chains", rows));
    let rows: Vec<_> = survey.groups.iter().map(|group| of_group(group, survey)).collect();
    lines.extend(titled("stages", rows));
    lines.extend(titled("orders", vec![of_orders(survey)]));
    lines.extend(titled("webhooks", vec![of_webhooks(survey)]));
    let alerts = survey.alerts.len();
    let records = format!(
        "{alerts} open alerts, {} dead letters in all, {} stops",
        survey.dead_letters,
        survey.stops.len()
    );
    lines.extend(titled("records", vec![records]));
    lines.extend(titled(
        "disk",
        survey
            .disk
            .iter()
            .map(|disk| {
                format!(
                    "{} MB free of {} in {}",
                    disk.free_bytes >> 20,
                    disk.all_bytes >> 20,
                    disk.folder
                )
            })
            .collect(),
    ));
    lines
}

/// Puts the title before the first row.
fn titled(title: &str, rows: Vec<String>) -> Vec<String> {
    let titles = std::iter::once(title).chain(std::iter::repeat(""));
    titles.zip(rows).map(|(title, row)| format!("{title:<9} {row}")).collect()
}

/// Seconds from a time to the survey; 0 if the clock of a chain or of another host is ahead.
fn age(survey: &Survey, from: UnixSeconds) -> i64 {
    survey.at.seconds().0.saturating_sub(from.0).max(0)
}

fn of_chain(chain: &Chain, survey: &Survey) -> String {
    let Chain { blockchain, endpoints, head, confirmed, finalized, held, .. } = chain;
    let name = blockchain.as_str();
    let Some(head) = head else {
        return format!("{name:<9} not scanned yet, {endpoints} endpoints");
    };
    let age = age(survey, head.timestamp);
    let held = if held.is_empty() { String::new() } else { format!(", {} held", held.len()) };
    let finality = finality("final", *finalized);
    format!(
        "{name:<9} {age} s old at block {}, confirmed {confirmed}, {finality}, {endpoints} endpoints{held}",
        head.number
    )
}

fn of_group(group: &Group, survey: &Survey) -> String {
    let Group { name, lag, oldest, members, .. } = group;
    let age = oldest.map_or(0, |at| age(survey, at.seconds()));
    let members = members.as_ref().map(|members| {
        let each = members.iter().map(|(name, partitions)| format!("{name} ({partitions})"));
        format!("; {}", each.collect::<Vec<_>>().join(", "))
    });
    format!("{name:<20} lag {lag} records, {age} s{}", members.unwrap_or_default())
}

fn of_orders(survey: &Survey) -> String {
    let Some(orders) = survey.orders else { return "no tables".to_owned() };
    let more = if orders.is_more { " or more" } else { "" };
    let oldest = orders.oldest.map(|at| format!(", the oldest {} s old", age(survey, at)));
    format!("{}{more} pending{}", orders.pending, oldest.unwrap_or_default())
}

fn of_webhooks(survey: &Survey) -> String {
    let webhooks = &survey.webhooks;
    let oldest =
        webhooks.oldest.map(|at| format!(", the oldest for {} s", age(survey, at.seconds())));
    let dead = webhooks.dead.as_ref().map(|dead| dead.len().to_string());
    format!(
        "{} wait{}, {} given up and not delivered since",
        webhooks.waiting,
        oldest.unwrap_or_default(),
        dead.as_deref().unwrap_or("an unknown number")
    )
}

/// Returns the survey as JSON for programs.
pub(super) fn document(survey: &Survey, problems: &[Problem]) -> Value {
    let at = |at: schemas::UnixMicros| at.seconds().0;
    let chain = |chain: &Chain| {
        json!({
            "blockchain": chain.blockchain,
            "endpoints": chain.endpoints,
            "head": chain.head.map(|head| head.number),
            "timestamp": chain.head.map(|head| head.timestamp),
            "confirmed": chain.confirmed,
            "finalized": chain.finalized,
            "halted": chain.halt.as_ref().map(|(why, _)| why),
            "halted_since": chain.halt.as_ref().map(|(_, since)| at(*since)),
            "held": chain.held.iter().map(|held| held.transfer.tx_hash).collect::<Vec<_>>(),
            "has_gap": chain.has_gap,
        })
    };
    let group = |group: &Group| {
        let members = group.members.as_ref().map(|members| {
            let one = |(name, partitions): &(String, usize)| {
                json!({ "name": name, "partitions": partitions })
            };
            members.iter().map(one).collect::<Value>()
        });
        json!({
            "stage": group.stage,
            "group": group.name,
            "lag": group.lag,
            "oldest": group.oldest.map(at),
            "members": members,
        })
    };
    let problem = |problem: &Problem| json!({ "text": problem.text, "help": problem.help });
    json!({
        "well": problems.is_empty() && survey.unknown.is_empty(),
        "time": at(survey.at),
        "problems": problems.iter().map(problem).collect::<Value>(),
        "unknown": survey.unknown,
        "chains": survey.chains.iter().map(chain).collect::<Value>(),
        "groups": survey.groups.iter().map(group).collect::<Value>(),
        "orders": survey.orders.map(|orders| json!({
            "pending": orders.pending,
            "is_more": orders.is_more,
            "oldest": orders.oldest,
            "overdue": orders.overdue.map_or(0, |(_, count)| count),
        })),
        "webhooks": {
            "waiting": survey.webhooks.waiting,
            "oldest": survey.webhooks.oldest.map(at),
            "dead": survey.webhooks.dead.as_ref().map(Vec::len),
        },
        "dead_letters": survey.dead_letters,
        "alerts": survey.alerts.len(),
        "stops": survey.stops,
        "disk_free_bytes": survey.disk.as_ref().map(|disk| disk.free_bytes),
    })
}
