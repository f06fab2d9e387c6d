//! `tidemark stop`: the emergency stop of a wallet, a coin, a contract or a chain, and its end.
//!
//! The command writes an audit entry and one record for each lane that it covers. If a running process has the
//! embedded log open, that process writes them, on a request to its Admin API.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, anyhow, bail};
use api::StopRequest;
use api::audit::Asker;
use api::survey::stop_words;
use clap::Args;
use log::TopicPartition;
use log::config::BackEnd;
use processor::machine::matching;
use processor::wire::Wire;
use reqwest::Method;
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::record::{ChainProgress, DepositCommand, DepositCommandBody, StopScope};
use schemas::{Address, Blockchain, Layout, Partition, Topic};
use serde_json::json;
use url::Url;

use crate::back_end::open_existing_log;
use crate::health::admin_api::Api;
use crate::settings::Settings;
use crate::setup::{Outcome, misuse};
use crate::tail::{Source, read_readable};

/// The scopes that are stopped on each chain.
type Stopped = BTreeMap<Blockchain, BTreeSet<StopScope>>;

/// The stop to begin or to end.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A wallet, a coin, a contract or a chain, such as USDC. Without it the stops in force are printed.
    subject: Option<String>,
    /// On this chain alone.
    #[arg(long, requires = "subject")]
    chain: Option<Blockchain>,
    /// End the stop of exactly this subject.
    #[arg(long, requires = "subject")]
    end: bool,
    /// URL of the running process's API; default: from `server.admin_listen` or `server.listen`.
    #[arg(long, requires = "subject")]
    api: Option<Url>,
}

/// Sends the command to the lanes, or lists the stops in force.
///
/// # Errors
/// The subject is not valid, or its stop to end is not in force; or neither the log nor the API takes the command.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let Options { subject, chain, end, api } = options;
    let Some(subject) = subject else {
        return tokio::task::spawn_blocking(move || list(&settings)).await?;
    };
    let refused = |problem: &str| misuse(format!("stop: {subject:?} {problem}"));
    let request = StopRequest::parse(&subject, chain, !end).map_err(refused)?;
    if let Some(address) = request.address_to_stop()
        && !is_watched(&settings, address, &request)
    {
        return Err(refused("is no wallet and no contract of a chain"));
    }
    if let Some(scope) = request.to_end() {
        let (source, layout) = (Source::open(&settings)?, settings.log.layout);
        let ask = move || is_stopped(&source, &layout, scope);
        if !tokio::task::spawn_blocking(ask).await?? {
            return Err(refused("is not stopped: `tidemark stop` lists what is"));
        }
    }
    let done = match open_existing_log(&settings, &Readiness::default()).await {
        Ok(log) => {
            let now = SystemClock.now();
            log.produce(vec![request.audit(&Asker::command_line(), now)?]).await?;
            log.produce(request.commands(&log.layout(), now)?).await?;
            "written: in force as soon as the processor reads it"
        }
        Err(error) if matches!(settings.log.back_end, BackEnd::Embedded) => {
            let api = Api::new(&settings, api)?;
            let body = json!({ "subject": subject, "blockchain": chain });
            let path = if end { "stops/end" } else { "stops" };
            let asked = api.ask(Method::POST, path, Some(&body)).await;
            let (status, text) = asked.with_context(|| format!("{error:#}"))?;
            if !status.is_success() {
                bail!("{} answers {status}: {text}", api.base());
            }
            "asked of the process that runs: in force within a moment"
        }
        Err(error) => return Err(error),
    };
    let what = if end { "resumed" } else { "stopped" };
    Ok(Outcome::success(vec![format!("{} {what}: {done}", request.subject())], ""))
}

/// `true` if a stop of this scope is in force, or will be once the processor has read its command.
///
/// # Errors
/// The log cannot be read; or there is no such stop, except perhaps in a record that this version cannot read.
fn is_stopped(source: &Source, layout: &Layout, scope: StopScope) -> anyhow::Result<bool> {
    let mut unreadable = Vec::new();
    let stopped = in_force(source, &mut unreadable)?;
    if stopped.values().any(|scopes| scopes.contains(&scope)) || is_asked(source, layout, scope)? {
        return Ok(true);
    }
    unreadable.first().map_or(Ok(false), |first| Err(anyhow!("{first}")))
}

/// `true` if a lane has not read a command that begins this stop.
fn is_asked(source: &Source, layout: &Layout, scope: StopScope) -> anyhow::Result<bool> {
    let topic = Topic::DepositsCommands;
    let lanes = topic.all_partitions(layout).map(|partition| TopicPartition { topic, partition });
    let page = |of, from, max| source.read(of, from, max);
    let mut is_asked = false;
    for (of, committed) in source.committed(matching::State::GROUP, &lanes.collect::<Vec<_>>())? {
        let start = source.bounds(of)?.start;
        let from = committed.map_or(start, |at| at.offset.max(start));
        let take = |_, command: DepositCommand| {
            is_asked |= command.body == DepositCommandBody::Stop(scope);
        };
        read_readable(of, from, page, take, &mut Vec::new())?;
    }
    Ok(is_asked)
}

fn is_watched(settings: &Settings, address: Address, request: &StopRequest) -> bool {
    let covered: Vec<_> = request.blockchains().collect();
    let mut chains = settings.ingest.chains.iter().filter(|of| covered.contains(&of.blockchain));
    chains.any(|chain| {
        let mut contracts = chain.read_contracts();
        chain.wallets.contains(&address) || contracts.any(|of| of.address == address)
    })
}

/// Lists the stops in force as the lanes report them, one a line. Also while processes run. Fails if a record cannot be
/// read.
fn list(settings: &Settings) -> anyhow::Result<Outcome> {
    let mut unreadable = Vec::new();
    let lines = lines(in_force(&Source::open(settings)?, &mut unreadable)?);
    Ok(Outcome::readable(lines, "nothing is stopped", &unreadable))
}

/// The stops in words, one a line.
pub(crate) fn lines(stopped: Stopped) -> Vec<String> {
    let lines = stopped.into_iter().flat_map(|(blockchain, scopes)| {
        scopes.into_iter().map(move |scope| format!("{blockchain}: {}", stop_words(scope)))
    });
    lines.collect()
}

/// Returns the stopped scopes by chain, from the last report of each lane. Records that cannot be read are added to
/// `unreadable`.
pub(crate) fn in_force(source: &Source, unreadable: &mut Vec<String>) -> anyhow::Result<Stopped> {
    let mut all = BTreeMap::new();
    let page = |of, from, max| source.read(of, from, max);
    for blockchain in Blockchain::ALL {
        let of = TopicPartition { topic: Topic::Chains, partition: Partition(blockchain.index()) };
        let mut lanes = BTreeMap::new();
        let take = |_, progress: ChainProgress| {
            if let Some(lane) = progress.lane {
                lanes.insert(lane, progress.stopped);
            }
        };
        read_readable(of, source.bounds(of)?.start, page, take, unreadable)?;
        let scopes: BTreeSet<_> = lanes.into_values().flatten().collect();
        if !scopes.is_empty() {
            all.insert(*blockchain, scopes);
        }
    }
    Ok(all)
}
