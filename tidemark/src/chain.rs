//! `tidemark chain`: progress of chains, manual rewind after a reorganisation below the finalized height, and decisions
//! about held transfers.

pub(crate) mod rescan;
pub(crate) mod stop;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::bail;
use api::inspect::survey;
use api::story::words::{finality, time};
use api::survey::stop_words;
use clap::Args;
use ingest::{ChainConfig, Resolution, Rewind, RewindError, Target, Verdict};
use log::{Log, TopicPartition};
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::record::{Alert, ChainProgress, Held, StopScope};
use schemas::{Blockchain, Partition, Topic, TxHash, UnixMicros};
use serde_json::{Value, json};

use crate::back_end::open_existing_log;
use crate::output;
use crate::settings::Settings;
use crate::setup::Outcome;
use crate::tail::{Source, read_readable};

/// The chain to take back, and the block to take it back to.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The chain, for example eth.
    chain: Blockchain,
    /// The newest block that both forks have, or a lower one. The chain is rewound to the newest published block at or
    /// below this height; if the log has none, to the endpoints' block at it.
    #[arg(required_unless_present = "find")]
    height: Option<i64>,
    /// Find that block: the newest published one that the endpoints have.
    #[arg(long, conflicts_with = "height")]
    find: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// An operator's decision about a transaction.
#[derive(Debug, Args)]
pub(crate) struct Dispute {
    /// The chain, for example eth.
    chain: Blockchain,
    /// The transaction of the held transfers.
    transaction: TxHash,
    /// The chain has it: its transfers are confirmed, and pay.
    #[arg(long, required_unless_present = "reject", conflicts_with = "reject")]
    accept: bool,
    /// The chain does not have it: its transfers are taken back.
    #[arg(long)]
    reject: bool,
}

pub(crate) struct Status {
    pub(crate) blockchain: Blockchain,
    /// Newest report of the chain as a whole; `None` if it was never scanned.
    pub(crate) scanned: Option<ChainProgress>,
    /// Open alert that the chain is halted.
    pub(crate) halt: Option<Alert>,
    /// Scopes that operators have stopped on this chain.
    stopped: BTreeSet<StopScope>,
}

/// Lists the chains that were scanned or are halted, one a line or as a JSON array. Also while processes run. Fails if
/// a record cannot be read.
pub(crate) fn status(settings: &Settings, is_json: bool) -> anyhow::Result<Outcome> {
    let mut unreadable = Vec::new();
    let all = all(&Source::open(settings)?, &mut unreadable)?;
    let now = SystemClock.now();
    let lines = if is_json {
        vec![Value::from_iter(all.iter().map(Status::json)).to_string()]
    } else {
        all.iter().map(|status| status.line(now)).collect()
    };
    Ok(Outcome::readable(lines, "no chain was followed yet", &unreadable))
}

/// The chains that were scanned or are halted. Records that cannot be read are added to `unreadable`.
pub(crate) fn all(source: &Source, unreadable: &mut Vec<String>) -> anyhow::Result<Vec<Status>> {
    let alerts = survey::open_alerts(source)?;
    let page = |of, from, max| source.read(of, from, max);
    let mut stopped = stop::in_force(source, &mut Vec::new())?;
    let mut all = Vec::new();
    for blockchain in Blockchain::ALL {
        let of = TopicPartition { topic: Topic::Chains, partition: Partition(blockchain.index()) };
        let mut scanned = None;
        let take = |_, progress: ChainProgress| {
            if progress.lane.is_none() {
                scanned = Some(progress);
            }
        };
        read_readable(of, source.bounds(of)?.start, page, take, unreadable)?;
        let halt = survey::halt_of(&alerts, *blockchain).cloned();
        if scanned.is_some() || halt.is_some() {
            let stopped = stopped.remove(blockchain).unwrap_or_default();
            all.push(Status { blockchain: *blockchain, scanned, halt, stopped });
        }
    }
    Ok(all)
}

impl Status {
    fn line(&self, now: UnixMicros) -> String {
        let blockchain = self.blockchain;
        let halted = self.halt.as_ref().map(|Alert { message, raised_at, .. }| {
            format!("; HALTED since {}: {message}", time(raised_at.seconds()))
        });
        let halted = halted.unwrap_or_default();
        let stopped = self.stopped.iter().map(|scope| format!("; {}", stop_words(*scope)));
        let stopped = stopped.collect::<String>();
        let Some(ChainProgress { epoch, head, confirmed, finalized, .. }) = &self.scanned else {
            return format!("{blockchain}: not scanned yet{halted}{stopped}");
        };
        let age = now.seconds().0.saturating_sub(head.timestamp.0);
        let (number, epoch) = (head.number, epoch.0);
        let finality = finality("finalized", *finalized);
        format!(
            "{blockchain}: scanned to {number}, {age} s old; confirmed {confirmed}, {finality}, epoch \
             {epoch}{halted}{stopped}"
        )
    }

    fn json(&self) -> Value {
        let scanned = self.scanned.as_ref();
        let head = scanned.map(|scanned| scanned.head);
        json!({
            "blockchain": self.blockchain.as_str(),
            "scanned": head.map(|head| head.number),
            "hash": head.map(|head| head.hash.to_string()),
            "timestamp": head.map(|head| head.timestamp.0),
            "confirmed": scanned.map(|scanned| scanned.confirmed),
            "finalized": scanned.map(|scanned| scanned.finalized),
            "epoch": scanned.map(|scanned| scanned.epoch.0),
            "halted": self.halt.as_ref().map(|halt| &halt.message),
            "halted_since": self.halt.as_ref().map(|halt| halt.raised_at.seconds().0),
            "stopped": self.stopped.iter().map(|scope| stop_words(*scope)).collect::<Vec<_>>(),
        })
    }
}

/// Rewinds a chain, after the operator has confirmed what is retracted or given `--yes`.
///
/// # Errors
/// The operator declined, the chain cannot be rewound to that height, or the log cannot be read or written.
pub(crate) async fn rewind(settings: Settings, options: Options) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let Options { chain: name, height, yes, .. } = options;
    let chain = settings.chain(name)?;
    let log = open_existing_log(&settings, &Readiness::default()).await?;
    let now = SystemClock.now();
    let target = match height {
        Some(height) => target_at(log.clone(), &chain, height, now).await?,
        None => Target::common(log.clone(), &chain).await?,
    };
    tokio::task::spawn_blocking(move || rewind_on(&*log, &chain, target, yes, now)).await?
}

/// The block at a height: the published one, or the endpoints' if the log has none.
async fn target_at(
    log: Arc<dyn Log>,
    chain: &ChainConfig,
    height: i64,
    now: UnixMicros,
) -> anyhow::Result<Target> {
    let of = chain.clone();
    let published = move || Rewind::plan(&*log, &of, Target::Published(height), now);
    Ok(match tokio::task::spawn_blocking(published).await? {
        Err(RewindError::Gone(_)) => Target::shown(chain, height).await?,
        Ok(_) | Err(_) => Target::Published(height),
    })
}

fn rewind_on(
    log: &dyn Log,
    chain: &ChainConfig,
    target: Target,
    yes: bool,
    now: UnixMicros,
) -> anyhow::Result<Outcome> {
    let planned = Rewind::plan(log, chain, target, now)?;
    if !yes && !output::is_agreed(&describe(chain, &planned), "Write this?")? {
        bail!("nothing was written");
    }
    let mut lines = describe(chain, &Rewind::write(log, chain, target, now)?);
    lines.push(
        "written: ingest continues from there within seconds, or when it is started".to_owned(),
    );
    Ok(Outcome::success(lines, ""))
}

fn describe(chain: &ChainConfig, rewind: &Rewind) -> Vec<String> {
    let Rewind { from, to, epoch, retracted, is_lost, .. } = rewind;
    let confirmed = retracted.iter().filter(|(_, _, confirmed)| *confirmed).count();
    let mut lines = vec![format!(
        "{}: back from block {} to {} ({}), epoch {}; takes back {} transfers, {confirmed} of them confirmed",
        chain.blockchain,
        from.number,
        to.number,
        to.hash,
        epoch.0,
        retracted.len()
    )];
    if *is_lost {
        lines.push(
            "  the records of the chain are gone: each lane takes back what it knows of the blocks above, and everything \
             there is scanned again"
                .to_owned(),
        );
    }
    lines.extend(retracted.iter().map(|(block, seen, confirmed)| {
        let state = if *confirmed { "confirmed" } else { "waiting" };
        let (value, coin) = (seen.value, seen.stablecoin);
        format!(
            "  block {} {state}: {value} {coin} to {} in {}",
            block.number, seen.to_address, seen.tx_hash
        )
    }));
    lines
}

/// Writes the operator's decision about the held transfers of a transaction.
///
/// # Errors
/// No transfer of it is held, its block is not confirmed for all amounts or not final, or the log cannot be read or
/// written.
pub(crate) async fn resolve(settings: Settings, dispute: Dispute) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let Dispute { chain: name, transaction, accept, .. } = dispute;
    let verdict = if accept { Verdict::Accept } else { Verdict::Reject };
    let chain = settings.chain(name)?;
    let log = open_existing_log(&settings, &Readiness::default()).await?;
    let now = SystemClock.now();
    let write = move || Resolution::write(&*log, &chain, transaction, verdict, now);
    let resolution = tokio::task::spawn_blocking(write).await??;
    Ok(Outcome::success(lines_of(name, &resolution), ""))
}

fn lines_of(chain: Blockchain, resolution: &Resolution) -> Vec<String> {
    let Resolution { verdict, transfers, left, epoch } = resolution;
    let what = match verdict {
        Verdict::Accept => "accepted: confirmed with the blocks around it",
        Verdict::Reject => "rejected: taken back",
    };
    let mut lines: Vec<_> = transfers
        .iter()
        .map(|Held { block, transfer }| {
            let (value, coin, to) = (transfer.value, transfer.stablecoin, transfer.to_address);
            let tx_hash = transfer.tx_hash;
            format!("{chain}: block {} {value} {coin} to {to} in {tx_hash} {what}", block.number)
        })
        .collect();
    lines.push(format!("written in epoch {}; {left} more held", epoch.0));
    lines
}
