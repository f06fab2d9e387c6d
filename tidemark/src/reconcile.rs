//! `tidemark reconcile`: compares a period on the chains, on the topics, in the tables, in webhooks and in the shop's
//! books. Read-only: joins no group and opens no transaction.

mod chains;
mod deliveries;
mod orders;
mod print;
mod records;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, ValueEnum};
use ingest::Survey;
use reconcile::{
    Difference, Joined, Line, Period, RowState, Statement, compare_books, compare_chain,
    compare_orders, compare_rows, compare_verdicts, compare_webhooks, read_books, rfc3339,
};
use runtime::{Clock, SystemClock};
use schemas::record::{Order, Transfer};
use schemas::{Blockchain, PaymentKey, TransferId, TransferStatus, UnixMicros, UnixSeconds};

use self::chains::Published;
use self::orders::Orders;
use self::records::{Newest, Reader};
use crate::chain::{self as chains_of_log, Status};
use crate::output::{self, progress};
use crate::settings::Settings;
use crate::setup::{misuse, verify};
use crate::tail::{self, Source};

/// The newest record of each transfer of a chain.
type Transfers = BTreeMap<TransferId, Newest<Transfer>>;

/// Exit code: everything that is compared agrees.
const AGREES: u8 = 0;
/// Exit code: a part could not be compared.
const NOT_KNOWN: u8 = 1;
const DIFFERS: u8 = 2;

/// The period and the places.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Beginning of the period: a time such as 2026-11-25T00:00:00Z, or Unix seconds.
    #[arg(long, value_parser = time, requires = "to", conflicts_with = "day")]
    from: Option<UnixSeconds>,
    /// End of the period: the first second behind it.
    #[arg(long, value_parser = time, requires = "from")]
    to: Option<UnixSeconds>,
    /// A day in UTC, such as 2026-11-25. Without a period, yesterday.
    #[arg(long, value_parser = Period::day)]
    day: Option<Period>,
    /// Transfers of this chain alone; may be given more than once. Orders and their webhooks are those of all chains.
    #[arg(long = "chain", value_name = "CHAIN")]
    chains: Vec<Blockchain>,
    /// The places that are compared, with commas between them.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Place::ALL)]
    against: Vec<Place>,
    /// The shop's books: CSV with the columns `order_id` (the service's or the shop's own), status, amount and, if
    /// there is one, `transaction_hash`.
    #[arg(long, value_name = "FILE")]
    books: Option<PathBuf>,
    /// One JSON object.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// CSV: totals, differences and the statement, one a line.
    #[arg(long)]
    csv: bool,
}

/// A place that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// The endpoints of the chains.
    Chain,
    /// `transfers.raw`.
    Raw,
    /// The processor's decisions about transfers, and the orders.
    Topics,
    Tables,
    Webhooks,
    /// The balances of the wallets, which only a node with an archive has.
    Balances,
}

impl Place {
    const ALL: [Self; 6] =
        [Self::Chain, Self::Raw, Self::Topics, Self::Tables, Self::Webhooks, Self::Balances];
}

fn time(text: &str) -> Result<UnixSeconds, &'static str> {
    tail::time(text).map(UnixMicros::seconds)
}

struct Chain {
    blockchain: Blockchain,
    /// Chain time up to which everything is decided; `None` if nothing is.
    settled: Option<UnixSeconds>,
    /// The part of the period up to `settled`: only its transfers are compared. `None` if it is empty.
    judged: Option<Period>,
    /// Number of transfers of the period after the judged part.
    younger: u64,
    survey: Option<Survey>,
}

struct Report {
    period: Period,
    chains: Vec<Chain>,
    joined: Joined,
    statement: Vec<Line>,
    /// Parts that could not be compared, and the reasons.
    unknown: Vec<String>,
}

impl Report {
    fn add(&mut self, joined: Joined) {
        self.joined.totals.extend(joined.totals);
        self.joined.differences.extend(joined.differences);
        self.joined.waiting = self.joined.waiting.saturating_add(joined.waiting);
    }

    /// Adds the survey of a chain's endpoints.
    fn survey(
        &mut self,
        blockchain: Blockchain,
        bounds: Vec<UnixSeconds>,
        survey: &Survey,
        transfers: &Transfers,
        has_balances: bool,
    ) {
        for endpoint in &survey.left_out {
            let text = format!("{blockchain}: not asked, so what it has is not known: {endpoint}");
            self.unknown.push(text);
        }
        let status = |one: &Newest<Transfer>| (one.value.observation.payment(), one.value.status);
        let statuses = transfers.values().map(status).collect();
        let (lines, joined) = statement(blockchain, bounds, survey, &statuses);
        self.statement.extend(lines);
        if !has_balances {
            return;
        }
        self.add(joined);
        if let Err(why) = &survey.wealth {
            self.unknown.push(format!(
                "{blockchain}: opening and closing balances are not known, as no endpoint has the state of those blocks: \
                 {why} (--against without balances does without)"
            ));
        }
    }

    /// Adds the places of records that no version can read.
    fn skipped(&mut self, places: &[String]) {
        self.unknown.extend(places.iter().map(|at| {
            format!("{at}: no version can read this record, so what it had is not compared")
        }));
    }

    fn differences(&self) -> &[Difference] {
        &self.joined.differences
    }

    fn code(&self) -> u8 {
        match (self.differences().is_empty(), self.unknown.is_empty()) {
            (false, _) => DIFFERS,
            (true, false) => NOT_KNOWN,
            (true, true) => AGREES,
        }
    }
}

/// Compares, prints, and gives the exit code.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<u8> {
    let now = SystemClock.now();
    let period = match (options.from, options.to, options.day) {
        (Some(from), Some(to), _) => {
            Period::new(from, to).map_err(|error| misuse(format!("reconcile: {error}")))?
        }
        (_, _, Some(day)) => day,
        _ => Period::day_before(now.seconds()),
    };
    for chain in &options.chains {
        settings.chain(*chain)?;
    }
    let has = |place| options.against.contains(&place);
    let is_pair = has(Place::Chain) && has(Place::Raw)
        || has(Place::Topics) && (has(Place::Raw) || has(Place::Tables) || has(Place::Webhooks));
    if !is_pair {
        return Err(misuse(
            "reconcile: --against needs chain and raw, or topics and raw, tables or webhooks",
        ));
    }
    let settings = Arc::new(settings);
    let report = compare(&settings, &options, period, now).await;
    progress("");
    let report = report?;
    let text = if options.json {
        print::json(&report)
    } else if options.csv {
        print::csv(&report)
    } else {
        print::text(&report)
    };
    let code = report.code();
    match output::stdout().text(&text) {
        // The reader closed the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(code),
        written => written.map(|()| code).context("the output is not complete"),
    }
}

struct Logged {
    chains: Vec<(Published, Transfers)>,
    orders: Orders,
    /// Chains that are not configured, and were followed in the period or after it.
    left_out: Vec<Blockchain>,
    /// Positions and errors of records about chains that cannot be read.
    unreadable: Vec<String>,
    /// Time from which on stages may not have processed the records yet.
    fresh_since: UnixMicros,
    /// Places of foreign records, which are not compared.
    foreign: Vec<String>,
}

async fn compare(
    settings: &Arc<Settings>,
    options: &Options,
    period: Period,
    now: UnixMicros,
) -> anyhow::Result<Report> {
    let has = |places: &[Place]| places.iter().all(|place| options.against.contains(place));
    let books = options.books.as_ref().map(|path| {
        let read = || anyhow::Ok(read_books(&std::fs::read_to_string(path)?)?);
        read().with_context(|| format!("cannot read the books {}", path.display()))
    });
    let books = books.transpose()?;
    let all = settings.ingest.chains.iter().map(|chain| chain.blockchain);
    let is_wanted =
        |chain: &Blockchain| options.chains.is_empty() || options.chains.contains(chain);
    let (of, wanted) = (settings.clone(), all.filter(is_wanted).collect::<Vec<_>>());
    let read = move || read_log(&of, &wanted, period, now);
    let log = tokio::task::spawn_blocking(read).await??;
    let (chains, joined) = (Vec::new(), Joined::default());
    let mut report = Report { period, chains, joined, statement: Vec::new(), unknown: Vec::new() };
    for chain in &log.left_out {
        report.unknown.push(format!(
            "{chain}: the log has blocks of the period, and the configuration no section [chains.{chain}]: nothing of it is \
             compared"
        ));
    }
    report.unknown.extend_from_slice(&log.unreadable);
    report.skipped(&log.foreign);
    let orders = log.orders.all();
    for (published, transfers) in &log.chains {
        let asks = has(&[Place::Chain, Place::Raw]);
        chain(settings, (published, transfers), asks, options, now, &mut report).await?;
        let judged = report.chains.last().and_then(|chain| chain.judged);
        if has(&[Place::Topics]) {
            let judged: Vec<_> = within(transfers, judged).map(|one| &one.value).collect();
            let is_new = |order: &Order| {
                let newest = log.orders.newest.get(&order.order_id);
                newest.is_some_and(|newest| newest.appended_at >= log.fresh_since)
            };
            report.add(compare_orders(published.blockchain, &judged, &orders, is_new));
        }
    }
    // A place that fails hides no difference of the others.
    if has(&[Place::Topics, Place::Tables])
        && let Err(error) = tables(settings, &log, &mut report).await
    {
        report.unknown.push(format!("the tables cannot be compared: {error:#}"));
    }
    if has(&[Place::Topics, Place::Webhooks])
        && let Err(error) = webhooks(settings, &log, &mut report).await
    {
        report.unknown.push(format!("the webhooks cannot be compared: {error:#}"));
    }
    if let Some(books) = books {
        let transfers = log.chains.iter().flat_map(|(_, transfers)| transfers.values());
        let transactions =
            transfers.map(|one| (one.value.transfer_id, one.value.observation.tx_hash)).collect();
        let orders = log.orders.changed();
        report.add(compare_books(&books, &orders, &log.orders.paid, &transactions));
    }
    Ok(report)
}

/// Transfers of the judged part.
fn within(
    transfers: &Transfers,
    judged: Option<Period>,
) -> impl Iterator<Item = &Newest<Transfer>> {
    let is_judged = move |at: UnixSeconds| judged.is_some_and(|judged| judged.contains(at));
    transfers.values().filter(move |one| is_judged(one.value.block.timestamp))
}

fn read_log(
    settings: &Settings,
    chains: &[Blockchain],
    period: Period,
    now: UnixMicros,
) -> anyhow::Result<Logged> {
    let source = Source::open(settings)?;
    let fresh_since = deliveries::fresh_since(&source, settings, now)?;
    let mut unreadable = Vec::new();
    let left_out = left_out(&source, settings, period, &mut unreadable)?;
    let mut reader = Reader::new(&source, settings.log.layout, period);
    let mut read = Vec::with_capacity(chains.len());
    for chain in chains {
        let published = Published::read(&mut reader, *chain)?;
        read.push((published, chains::transfers(&mut reader, *chain)?));
    }
    let transfers = read.iter().flat_map(|(_, transfers)| transfers.values());
    let paid = transfers.filter_map(|transfer| transfer.value.order_id).collect();
    let orders = Orders::read(&mut reader, paid)?;
    let foreign = reader.into_foreign();
    Ok(Logged { chains: read, orders, left_out, unreadable, fresh_since, foreign })
}

/// Chains that are not configured any more, and were followed in the period or after it. Records that cannot be read
/// are added to `unreadable`.
fn left_out(
    source: &Source,
    settings: &Settings,
    period: Period,
    unreadable: &mut Vec<String>,
) -> anyhow::Result<Vec<Blockchain>> {
    let configured: BTreeSet<_> =
        settings.ingest.chains.iter().map(|chain| chain.blockchain).collect();
    let is_left_out = |status: &Status| {
        !configured.contains(&status.blockchain)
            && status.scanned.as_ref().is_some_and(|last| last.head.timestamp >= period.from)
    };
    let all = chains_of_log::all(source, unreadable)?.into_iter().filter(is_left_out);
    Ok(all.map(|status| status.blockchain).collect())
}

/// Judges the transfers of a chain.
async fn chain(
    settings: &Settings,
    (published, transfers): (&Published, &Transfers),
    asks: bool,
    options: &Options,
    now: UnixMicros,
    report: &mut Report,
) -> anyhow::Result<()> {
    let blockchain = published.blockchain;
    let settled = published.settled();
    let judged = settled.and_then(|settled| report.period.before(settled.plus(1)));
    let younger = published.younger(judged.map_or(report.period.from, |judged| judged.to));
    let mut found = Chain { blockchain, settled, judged, younger, survey: None };
    let Some(judged) = judged else {
        let text = format!("{blockchain}: nothing of the period is settled yet");
        report.unknown.push(text);
        report.chains.push(found);
        return Ok(());
    };
    if judged.to < report.period.to && report.period.to <= now.seconds() {
        let text = format!(
            "{blockchain}: settled only to {}, so the rest is not judged",
            rfc3339(judged.to)
        );
        report.unknown.push(text);
    }
    let raw = published.raw(judged);
    if options.against.contains(&Place::Raw) && options.against.contains(&Place::Topics) {
        let verdicts: Vec<_> = within(transfers, Some(judged)).map(|one| &one.value).collect();
        let Published { held, retracted, .. } = published;
        report.add(compare_verdicts(blockchain, &raw, &verdicts, held, retracted));
    }
    if let Some(last) = published.anchor.filter(|_| asks) {
        let chain = settings.chain(blockchain)?;
        let bounds = judged.bounds();
        let known = raw.iter().map(|one| (one.number, one.hash, one.seen));
        let shown =
            |asked, all| progress(&format!("{blockchain}: asked for {asked} of {all} blocks"));
        match Survey::find(&chain, last, &bounds, known, shown).await {
            Ok(survey) => {
                let has_balances = options.against.contains(&Place::Balances);
                report.survey(blockchain, bounds, &survey, transfers, has_balances);
                report.add(compare_chain(blockchain, &published.due(&survey), &raw));
                found.survey = Some(survey);
            }
            Err(error) => report.unknown.push(format!("{blockchain}: {error}")),
        }
    }
    report.chains.push(found);
    Ok(())
}

fn statement(
    blockchain: Blockchain,
    bounds: Vec<UnixSeconds>,
    survey: &Survey,
    statuses: &BTreeMap<PaymentKey, TransferStatus>,
) -> (Vec<Line>, Joined) {
    let mut statement = Statement::new(blockchain, bounds);
    let day =
        |number: i64| survey.blocks.partition_point(|block| *block <= number).saturating_sub(1);
    for (number, _, seen) in &survey.received {
        let status = statuses.get(&seen.payment()).copied();
        statement.receive(day(*number), seen.stablecoin, seen.value, status);
    }
    for (number, seen) in &survey.sent {
        statement.send(day(*number), seen.stablecoin, seen.value);
    }
    for (bound, wealth) in survey.wealth.iter().flatten().enumerate() {
        for (coin, value) in wealth {
            statement.balance(bound, *coin, *value);
        }
    }
    statement.finish()
}

async fn tables(settings: &Settings, log: &Logged, report: &mut Report) -> anyhow::Result<()> {
    let rows = rows::read(settings, log).await?;
    let is_cql = matches!(settings.store, store::config::BackEnd::Cql(_));
    let joined = compare_rows(rows, |state| match state {
        _ if !is_cql => "tidemark tables rebuild",
        // `rebuild --into` copies the present rows first, and would keep a manual change.
        RowState::Newer | RowState::Other => verify::MADE_ANEW,
        // A rebuild in place cannot restore a row that a newer tombstone hides.
        RowState::Same | RowState::Missing | RowState::Older | RowState::NotYet => {
            "tidemark tables rebuild --into NEW_KEYSPACE"
        }
    });
    if joined.waiting > 0 {
        report.unknown.push(format!(
            "the tables do not have {} records yet: run it again once the projector has caught up",
            joined.waiting
        ));
    }
    report.add(joined);
    Ok(())
}

async fn webhooks(
    settings: &Arc<Settings>,
    log: &Logged,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut events = log.orders.events(log.fresh_since);
    for ((_, transfers), chain) in log.chains.iter().zip(&report.chains) {
        let judged = within(transfers, chain.judged);
        events
            .extend(judged.filter_map(|one| deliveries::event_of(settings, one, log.fresh_since)));
    }
    let (of, period) = (settings.clone(), report.period);
    let read = move || {
        let source = Source::open(&of)?;
        let mut reader = Reader::new(&source, of.log.layout, period);
        let found = deliveries::read(&mut reader, &events)?;
        anyhow::Ok((events, found, reader.into_foreign()))
    };
    let (events, found, foreign) = tokio::task::spawn_blocking(read).await??;
    report.skipped(&foreign);
    let joined = compare_webhooks(&events, &found);
    if joined.waiting > 0 {
        let waiting = joined.waiting;
        report.unknown.push(format!(
            "{waiting} events are not dispatched yet: run it again once webhooks has caught up"
        ));
    }
    report.add(joined);
    Ok(())
}
