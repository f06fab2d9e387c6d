//! `tidemark find`: the history of a payment or an order on one screen. Read-only, also beside running processes:
//! indexed fields from the tables, the rest from the topics.

mod elsewhere;

use api::inspect::gather;
use api::inspect::reader::{READING_MAX, Reader};
use api::inspect::search::{self, Hit, Hits, Subject};
use api::inspect::wanted::Wanted;
use api::story::{Story, meaning, words};
use clap::Args;
use runtime::{Clock, SystemClock};
use schemas::UnixMicros;
use serde_json::json;

use super::note;
use crate::back_end::read_tables;
use crate::output::one_line;
use crate::settings::Settings;
use crate::setup::Outcome;
use crate::tail::{Source, time};

/// Maximum number of hits in a list.
const HITS_MAX: usize = 20;
/// Maximum number of events on a screen: the newest ones.
const EVENTS_MAX: usize = 200;

/// The subject, and the form of the answer.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The id of an order, a transfer or a deposit, the hash of a transaction, an address, an amount, or the shop's own
    /// reference of an order.
    what: String,
    /// Search for hashes, addresses and amounts from this time on: such as 2026-09-21T14:00:00Z, or Unix seconds.
    /// By default 30 days.
    #[arg(long, value_parser = time)]
    since: Option<UnixMicros>,
    /// One JSON object a line: each event with its record, then what they mean; or each hit.
    #[arg(long)]
    json: bool,
}

pub(crate) struct Findings {
    /// Succeeds if something was found.
    pub(crate) outcome: Outcome,
    /// `false` if nothing was found, and the search was not complete or a chain that may have the transaction gave no
    /// answer.
    pub(crate) is_known: bool,
}

/// Searches the tables, the topics, and for an unknown transaction the endpoints.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<Findings> {
    let now = SystemClock.now();
    let since =
        options.since.unwrap_or_else(|| now.seconds().plus(-search::SINCE_SECONDS).micros());
    let wanted = Wanted::new(&options.what);
    let tables = read_tables(&settings).await?;
    let no_tables = tables.is_none().then(|| "Not complete: there are no tables.".to_owned());
    let search = {
        let (settings, wanted) = (settings.clone(), wanted.clone());
        move || -> anyhow::Result<_> {
            let source = Source::open(&settings)?;
            let mut reader = Reader::new(source, tables, settings.log.layout, READING_MAX);
            let hits = search::run(&mut reader, &wanted, since)?;
            let story = match hits.only() {
                Some(subject) => Some(gather::story(&mut reader, subject, since)?),
                None => None,
            };
            Ok((hits, story, reader.remarks()))
        }
    };
    let (hits, story, mut remarks) = tokio::task::spawn_blocking(search).await??;
    remarks.extend(no_tables);
    if let Some(story) = story {
        let mut outcome = shown(&story, options.json, now, remarks)?;
        // A shop's reference may have line ends. They are escaped, so that it adds no line to the output.
        outcome.lines.iter_mut().for_each(|line| *line = one_line(line));
        return Ok(Findings { outcome, is_known: true });
    }
    if hits.is_empty() {
        return missing(&settings, &wanted, options.json, since, remarks).await;
    }
    let lines = listed(&hits, options.json, remarks).iter().map(|line| one_line(line)).collect();
    Ok(Findings { outcome: Outcome { lines, is_success: true }, is_known: true })
}

fn shown(
    story: &Story,
    is_json: bool,
    now: UnixMicros,
    remarks: Vec<String>,
) -> anyhow::Result<Outcome> {
    let left_out = story.events.len().saturating_sub(EVENTS_MAX);
    let events = story.events.iter().skip(left_out);
    let meaning = meaning::of(story, now.seconds());
    let mut lines = Vec::new();
    if is_json {
        for event in events {
            lines.push(event.json()?.to_string());
        }
        let kind = "meaning";
        let (text, help) = (meaning.text, meaning.help);
        lines.push(json!({ "kind": kind, "text": text, "help": help }).to_string());
        lines.extend(remarks.iter().map(|remark| note(remark)));
    } else {
        lines.extend(title(story));
        lines.extend((left_out > 0).then(|| format!("{left_out} earlier events are left out")));
        lines.extend(events.map(words::line));
        lines.push(String::new());
        lines.push(meaning.text);
        lines.extend(meaning.help.map(|help| format!("What helps: {help}")));
        lines.extend(remarks);
    }
    Ok(Outcome { lines, is_success: true })
}

fn title(story: &Story) -> Option<String> {
    let order = story.order.as_ref().map(|order| {
        format!(
            "order {}  {}  {}  reference {}",
            order.order_id, order.status, order.amount_text, order.merchant_order_id
        )
    });
    let transfer = story.transfers.last().map(|transfer| {
        format!("transfer {}  {}  {}", transfer.transfer_id, transfer.status, transfer.value_text)
    });
    order.or(transfer)
}

fn listed(hits: &Hits, is_json: bool, remarks: Vec<String>) -> Vec<String> {
    let newest = hits.newest(HITS_MAX);
    let (shown, all) = (newest.len(), hits.len());
    let mut lines: Vec<_> = newest.into_iter().map(|hit| line(hit, is_json)).collect();
    let rest = format!("{shown} of {all} hits, the newest first: `tidemark find ID` shows one");
    lines.extend(remarks.into_iter().map(|text| if is_json { note(&text) } else { text }));
    lines.extend((!is_json).then_some(rest));
    lines
}

fn line(hit: &Hit, is_json: bool) -> String {
    let (kind, id) = match hit.subject {
        Subject::Order(id) => ("order", id.to_string()),
        Subject::Transfer(id) => ("transfer", id.to_string()),
    };
    let time = words::time(hit.at);
    if is_json {
        return json!({ "time": time, "kind": kind, "id": id, "text": hit.text }).to_string();
    }
    format!("{time}  {kind:<8}  {}: tidemark find {id}", hit.text)
}

/// Lists the searched sources, and the transaction if an endpoint has it.
async fn missing(
    settings: &Settings,
    wanted: &Wanted,
    is_json: bool,
    since: UnixMicros,
    remarks: Vec<String>,
) -> anyhow::Result<Findings> {
    let since = words::time(since.seconds());
    let text = &wanted.text;
    let kinds = wanted.kinds().join(", ");
    let mut lines = vec![format!(
        "Nothing is known of {text}. It was searched for as {kinds}, in the tables and in the topics from {since} on \
         (--since)."
    )];
    let mut is_known = remarks.is_empty();
    lines.extend(remarks);
    match wanted.hash {
        Some(hash) if settings.ingest.chains.is_empty() => {
            lines.push(format!("The configuration has no endpoint to ask for transaction {hash}."))
        }
        Some(hash) => {
            let (found, is_answered) = elsewhere::ask(&settings.ingest.chains, hash).await?;
            lines.extend(found);
            is_known &= is_answered;
        }
        None => {}
    }
    let lines = if is_json { lines.iter().map(|line| note(line)).collect() } else { lines };
    Ok(Findings { outcome: Outcome { lines, is_success: false }, is_known })
}

#[cfg(test)]
mod tests {
    use schemas::OrderId;
    use schemas::record::{Order, example};
    use uuid::Uuid;

    use super::*;
    use api::story::Event;

    #[test]
    fn the_newest_hits_are_listed() {
        let mut hits = Hits::default();
        for number in 0..=HITS_MAX as u128 {
            hits.order(&Order { order_id: OrderId(Uuid::from_u128(number)), ..example::order() });
        }
        let lines = listed(&hits, false, vec!["a remark".to_owned()]);
        let last = format!("{HITS_MAX} of {} hits, the newest first", HITS_MAX + 1);
        assert_eq!((lines.len(), &lines[HITS_MAX]), (HITS_MAX + 2, &"a remark".to_owned()));
        assert!(lines[HITS_MAX + 1].starts_with(&last), "{lines:?}");
    }

    #[test]
    fn the_newest_events_are_shown() {
        let change = |version: usize| {
            let version = version as i64;
            Event::Order(Order { version, updated_at: UnixMicros(version), ..example::order() })
        };
        let story = Story::new((0..=EVENTS_MAX).map(change).collect());
        let lines = shown(&story, false, UnixMicros(0), vec![]).unwrap().lines;
        assert_eq!(lines[1], "1 earlier events are left out");
        let events = lines.iter().filter(|line| line.contains("  order     "));
        assert_eq!(events.count(), EVENTS_MAX);
    }
}
