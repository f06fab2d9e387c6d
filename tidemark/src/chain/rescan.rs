//! `tidemark rescan`: requests scanned blocks again from the endpoints of a chain, and publishes missing transfers.

use anyhow::bail;
use clap::Args;
use ingest::{ChainConfig, Rescan};
use log::Log;
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::Blockchain;
use schemas::record::{Block, Observation};

use crate::back_end::open_existing_log;
use crate::output;
use crate::settings::Settings;
use crate::setup::{Outcome, misuse};

/// The blocks to ask for again.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The chain, for example eth.
    chain: Blockchain,
    /// The first block.
    #[arg(value_parser = clap::value_parser!(i64).range(1..))]
    from: i64,
    /// The last block.
    #[arg(value_parser = clap::value_parser!(i64).range(1..))]
    to: i64,
    /// Do not ask before something is written.
    #[arg(long)]
    yes: bool,
}

/// Publishes missing transfers, after the operator has confirmed them or given `--yes`. Succeeds if all endpoints were
/// asked and nothing is left unproven.
///
/// # Errors
/// The operator declined, the blocks cannot be requested, or the log cannot be read or written.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let Options { chain: name, from, to, yes } = options;
    if from > to {
        return Err(misuse(format!("rescan: the first block {from} is after the last one {to}")));
    }
    let chain = settings.chain(name)?;
    let log = open_existing_log(&settings, &Readiness::default()).await?;
    let progress = |asked: i64, all: i64| {
        let percent = 100 * asked / all.max(1);
        output::progress(&format!("asked for {asked} of {all} blocks, {percent} %"));
    };
    let found = Rescan::find(&log, &chain, (from, to), progress).await;
    output::end_progress();
    let found = found?;
    tokio::task::spawn_blocking(move || write_if_agreed(&*log, &chain, &found, yes)).await?
}

fn write_if_agreed(
    log: &dyn Log,
    chain: &ChainConfig,
    found: &Rescan,
    yes: bool,
) -> anyhow::Result<Outcome> {
    let mut lines = describe(chain, found);
    let is_success = found.unproven.is_empty() && found.left_out.is_empty();
    if found.missing.is_empty() {
        return Ok(Outcome { lines, is_success });
    }
    if !yes {
        if !output::is_agreed(&lines, "Publish what is missing?")? {
            bail!("nothing was written");
        }
        lines.clear();
    }
    let written = found.write(log, chain, SystemClock.now())?;
    lines.push(format!(
        "written: {written} transfers; ingest continues within seconds, or when it is started"
    ));
    Ok(Outcome { lines, is_success })
}

fn describe(chain: &ChainConfig, found: &Rescan) -> Vec<String> {
    let Rescan { from, to, endpoints, left_out, missing, unproven, stale_before, .. } = found;
    let mut lines = vec![format!(
        "{}: blocks {from} to {to} asked of {endpoints} endpoints; {} transfers are missing, {} more are not proven",
        chain.blockchain,
        missing.len(),
        unproven.len(),
    )];
    lines.extend(
        left_out
            .iter()
            .map(|endpoint| format!("  NOT ASKED, so what it has is not known: {endpoint}")),
    );
    let line = |(block, seen): &(Block, Observation), what: &str| {
        let is_stale = block.timestamp < *stale_before;
        let stale = if is_stale {
            "; more than a day old: it raises an alert and matches nothing"
        } else {
            ""
        };
        format!(
            "  block {} {what}: {} {} to {} in {}{stale}",
            block.number, seen.value, seen.stablecoin, seen.to_address, seen.tx_hash
        )
    };
    lines.extend(missing.iter().map(|one| line(one, "missing")));
    let what =
        "NOT PROVEN and not published, as too few endpoints have a receipt of it, or one denies it";
    lines.extend(unproven.iter().map(|one| line(one, what)));
    lines
}
