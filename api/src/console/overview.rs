//! The first page: problems with remedies, then the general state. It applies the rules of `tidemark status` to the log
//! and the tables, without consumer groups and disk.

use std::collections::BTreeSet;

use log::OpenAlerts;
use schemas::{Blockchain, OrderStatus, TransferStatus, UnixMicros, UnixSeconds};
use store::{ChainRow, OrderFilter, Page as Part, TransferFilter, Within};

use super::Page;
use super::chains::of_chains;
use super::list::ROWS;
use super::markup::{badge, code, head, hints, plain, section, table, time};
use super::records::of_subject;
use crate::error::Answer;
use crate::inspect::reader::Reader;
use crate::inspect::{Served, survey as parts};
use crate::machine::catalog::Catalog;
use crate::machine::judge::{self, Problem};
use crate::machine::survey::{Chain, Subject, Survey, Webhooks, stop_words};
use crate::page::Html;
use crate::reads::transfers_to;
use crate::redrive::Filter;

/// Maximum of today's orders that are counted per status.
const COUNTED: Part = Part { limit: 1000, offset: 0 };
const DAY_SECONDS: i64 = 24 * 3600;
/// Final statuses of orders.
const ENDED: [OrderStatus; 3] = [OrderStatus::Paid, OrderStatus::Expired, OrderStatus::Cancelled];

pub(crate) struct Overview {
    pub(crate) survey: Survey,
    /// Number of orders created today (UTC) by final status, of the statuses that the tables counted in time.
    today: Vec<(OrderStatus, usize)>,
    /// Number of unknown payments of the last day, at most `ROWS`; none if the tables did not answer in time.
    unknown: Option<usize>,
}

/// Reads the log and the tables, until the reader's deadline. Blocks.
pub(crate) fn ask(
    reader: &mut Reader<Served>,
    catalog: &Catalog,
    now: UnixMicros,
) -> Answer<Overview> {
    let rows = reader.table(async |tables| tables.chains().await)?;
    let alerts = parts::open_alerts(reader.source())?;
    let dead = parts::dead(reader, &Filter::default(), now)?;
    let dead = dead.subjects.into_iter().map(|(subject, _)| subject).collect();
    let survey = Survey {
        at: now,
        chains: chains(reader, &rows, &alerts, catalog)?,
        groups: Vec::new(),
        not_ready: None,
        orders: Some(parts::orders(reader, now)?),
        webhooks: Webhooks { dead: Some(dead), ..Webhooks::default() },
        dead_letters: parts::dead_letters(reader)?,
        alerts: parts::open(&alerts),
        stops: stops(&rows),
        disk: None,
        unknown: Vec::new(),
    };
    let from = now.seconds().0.div_euclid(DAY_SECONDS) * DAY_SECONDS;
    let within = Within { from: Some(UnixSeconds(from)), before: None };
    let mut today = Vec::new();
    for status in ENDED {
        let of = OrderFilter { status: Some(status), within, ..OrderFilter::default() };
        let rows = reader.table_in_time(async |tables| tables.orders(of, COUNTED).await)?;
        today.extend(rows.map(|rows| (status, rows.len())));
    }
    let within = Within { from: Some(now.seconds().plus(-DAY_SECONDS)), before: None };
    let status = Some(TransferStatus::NoMatchedDeposit);
    let of = TransferFilter { status, within, ..TransferFilter::default() };
    let unknown = reader
        .table_in_time(async |tables| transfers_to(tables, catalog.wallets(), of, ROWS).await)?;
    let survey = Survey { unknown: reader.remarks(), ..survey };
    Ok(Overview { survey, today, unknown: unknown.map(|found| found.len()) })
}

/// Chains followed now or before. Their number of endpoints is unknown here: 1 for a followed chain, else 0.
fn chains(
    reader: &Reader<Served>,
    rows: &[ChainRow],
    alerts: &OpenAlerts,
    catalog: &Catalog,
) -> Answer<Vec<Chain>> {
    let mut found = Vec::new();
    for blockchain in Blockchain::ALL.iter().copied() {
        let row = rows.iter().find(|row| row.blockchain == blockchain && row.lane.is_none());
        let is_followed = catalog.terms(blockchain).is_some();
        if row.is_none() && !is_followed {
            continue;
        }
        let lane = reader.layout.lanes_of(blockchain).next();
        let last = match lane {
            Some(lane) => parts::last_head(reader.source(), lane)?,
            None => None,
        };
        let halt = parts::halt_of(alerts, blockchain);
        found.push(Chain {
            blockchain,
            endpoints: usize::from(is_followed),
            head: row.map(|row| row.head),
            confirmed: row.map_or(-1, |row| row.confirmed),
            confirmed_at: last.as_ref().and_then(parts::confirmed_at),
            finalized: row.map_or(-1, |row| row.finalized),
            halt: halt.map(|halt| (halt.message.clone(), halt.raised_at)),
            has_gap: last.as_ref().is_some_and(|head| head.has_gap),
            held: last.map(|head| head.held).unwrap_or_default(),
        });
    }
    Ok(found)
}

/// The stops in force, in words.
fn stops(rows: &[ChainRow]) -> Vec<String> {
    let all = rows.iter().flat_map(|row| {
        row.stopped.iter().map(|scope| format!("{}: {}", row.blockchain, stop_words(*scope)))
    });
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Class and text of the page's title.
fn verdict(problems: usize, is_complete: bool) -> (&'static str, String) {
    match problems {
        0 if is_complete => ("well", "All is well".to_owned()),
        0 => ("wrong", "Not everything could be asked".to_owned()),
        1 => ("wrong", "1 thing needs you".to_owned()),
        count => ("wrong", format!("{count} things need you")),
    }
}

pub(crate) fn render(overview: &Overview) -> Page {
    let survey = &overview.survey;
    let problems = judge::problems(survey);
    let (kind, verdict) = verdict(problems.len(), survey.unknown.is_empty());
    let values = [("all", problems.iter().map(of_problem).collect::<Html>())];
    let listed = plain("<ul class=\"problems\">{{all}}</ul>", &values);
    let listed = if problems.is_empty() { Html::default() } else { listed };
    let remarks = hints(&survey.unknown);
    let title = plain(
        "<span class=\"verdict {{kind}}\" role=\"status\">{{text}}</span>",
        &[("kind", kind.into()), ("text", verdict.as_str().into())],
    );
    let at = plain(
        "<p class=\"hint\">At {{at}} UTC, by the log and the tables. Groups, lags and disks: <code>tidemark \
                    status</code>.</p>",
        &[("at", time(survey.at.seconds()))],
    );
    let main = head(title, listed.then(remarks).then(at))
        .then(section("Now", numbers(overview)))
        .then(section("Chains", of_chains(survey)))
        .then(section("Given up webhooks", of_dead(&survey.webhooks)));
    Page { is_live: true, ..Page::new(verdict, main).at("/console") }
}

fn of_problem(problem: &Problem) -> Html {
    let values = [("text", problem.text.as_str().into()), ("help", code(problem.help.as_str()))];
    plain("<li><bdi>{{text}}</bdi><p class=\"hint\">What helps: {{help}}</p></li>", &values)
}

fn numbers(overview: &Overview) -> Html {
    let Overview { survey, today, unknown } = overview;
    let number = |to: &str, count: usize, is_more: bool, what: &str| {
        let more = if is_more { " or more" } else { "" };
        plain(
            "<li><a href=\"{{to}}\"><b>{{count}}</b> {{what}}</a></li>",
            &[("to", to.into()), ("count", format!("{count}{more}").into()), ("what", what.into())],
        )
    };
    let orders = survey.orders.unwrap_or_default();
    let is_cut = |count| COUNTED.limit == u32::try_from(count).unwrap_or(u32::MAX);
    let mut all =
        number("/console/orders?status=pending", orders.pending, orders.is_more, "orders pending");
    for (status, count) in today {
        let to = format!("/console/orders?status={status}");
        all = all.then(number(&to, *count, is_cut(*count), &format!("of today's orders {status}")));
    }
    if let Some(unknown) = *unknown {
        let is_full = ROWS.limit == u32::try_from(unknown).unwrap_or(u32::MAX);
        all = all.then(number("/console/unknown", unknown, is_full, "unknown payments in a day"));
    }
    let all = all
        .then(number("/console/alerts", survey.alerts.len(), false, "open alerts"))
        .then(number("/console/dead-letters", survey.dead_letters, false, "dead letters"));
    plain("<ul class=\"numbers\">{{all}}</ul>", &[("all", all)])
}

fn of_dead(webhooks: &Webhooks) -> Html {
    let row = |subject: &Subject| vec![of_subject(*subject), badge("given_up")];
    table(
        &["Subject", "State"],
        webhooks.dead.iter().flatten().map(row),
        "None that was not delivered since.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_survey_can_be_well() {
        let kinds =
            [(0, true), (0, false), (1, true), (2, false)].map(|(problems, is_complete)| {
                let (kind, _) = verdict(problems, is_complete);
                kind
            });
        assert_eq!(kinds, ["well", "wrong", "wrong", "wrong"]);
    }
}
