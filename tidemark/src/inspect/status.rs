//! `tidemark status`: the health of an installation on one screen. Read-only, also while processes run.

mod ask;
mod text;

use std::time::Duration;

use api::inspect::reader::{READING_MAX, Reader};
use api::inspect::survey as parts;
use api::judge;
use api::survey::{Disk, Survey, Webhooks};
use clap::Args;
use log::config::BackEnd;
use runtime::{Clock, SystemClock};

pub(crate) use self::ask::groups;
use crate::back_end::read_tables;
use crate::settings::Settings;
use crate::tail::{Source, quiet};
use crate::{health, output, process};

/// Interval between two screens.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// The form of the answer.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// One JSON object.
    #[arg(long)]
    json: bool,
    /// Draw it again every two seconds, until Ctrl-C.
    #[arg(long)]
    watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Well,
    NotWell,
    /// A part could not be read, and nothing is known to be wrong.
    Unknown,
}

pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<Health> {
    if !options.watch {
        let (health, text) = once(&settings, options.json).await?;
        quiet(output::stdout().text(&text))?;
        return Ok(health);
    }
    let mut stop = std::pin::pin!(process::stop_signal());
    let mut health = Health::Unknown;
    loop {
        let drawn = tokio::select! {
            drawn = once(&settings, options.json) => drawn,
            // Brokers, nodes or a process that do not answer would hold it up for long.
            () = &mut stop => return Ok(health),
        };
        let (now, text) =
            drawn.unwrap_or_else(|error| (Health::Unknown, format!("UNKNOWN: {error:#}\n")));
        health = now;
        let mut screen = output::stdout();
        let written = if options.json { screen.text(&text) } else { screen.page(&text) };
        drop(screen);
        if quiet(written)?.is_none() {
            return Ok(health);
        }
        tokio::select! {
            () = &mut stop => return Ok(health),
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
        }
    }
}

async fn once(settings: &Settings, is_json: bool) -> anyhow::Result<(Health, String)> {
    let survey = survey(settings).await?;
    let problems = judge::problems(&survey);
    let health = match (problems.is_empty(), survey.unknown.is_empty()) {
        (false, _) => Health::NotWell,
        (true, false) => Health::Unknown,
        (true, true) => Health::Well,
    };
    let text = if is_json {
        text::document(&survey, &problems).to_string() + "\n"
    } else {
        text::lines(&survey, &problems).iter().map(|line| format!("{line}\n")).collect()
    };
    Ok((health, text))
}

async fn survey(settings: &Settings) -> anyhow::Result<Survey> {
    let is_embedded = matches!(settings.log.back_end, BackEnd::Embedded);
    let (tables, no_tables) = match read_tables(settings).await {
        Ok(Some(tables)) => (Some(tables), None),
        Ok(None) => (None, Some("the tables: there are none".to_owned())),
        Err(error) => (None, Some(format!("the tables: {error:#}"))),
    };
    let has_tables = tables.is_some();
    // The embedded log has no list of members: the process itself is queried.
    let not_ready = match settings.telemetry.listen {
        Some(_) if is_embedded => health::ask(&settings.telemetry).await.err(),
        Some(_) | None => None,
    };
    let settings = settings.clone();
    let ask = move || -> anyhow::Result<Survey> {
        let now = SystemClock.now();
        let source = Source::open(&settings)?;
        let mut reader = Reader::new(source, tables, settings.log.layout, READING_MAX);
        let mut unknown: Vec<String> = no_tables.into_iter().collect();
        let chains = ask::chains(reader.source(), &settings, &mut unknown)?;
        let groups = groups(reader.source(), &settings)?;
        let alerts = parts::open(&parts::open_alerts(reader.source())?);
        let stops = ask::stops(reader.source())?;
        let dead_letters = parts::dead_letters(&mut reader)?;
        let orders = has_tables.then(|| parts::orders(&mut reader, now));
        let orders = orders.and_then(|orders| noted(orders, "the orders", &mut unknown));
        let waiting = ask::waiting(reader.source(), &settings);
        let waiting = noted(waiting, "the webhooks", &mut unknown);
        let (waiting, oldest) = waiting.unwrap_or_default();
        let dead = ask::dead(&mut reader, now);
        let dead = noted(dead, "the webhooks that were given up", &mut unknown);
        let disk = is_embedded.then(|| disk(&settings));
        let disk = disk.and_then(|disk| noted(disk, "the disk", &mut unknown));
        unknown.extend(reader.remarks());
        Ok(Survey {
            // The clock is read last, so that a record appended during the reading is not later than the survey.
            at: SystemClock.now(),
            chains,
            groups,
            not_ready: not_ready.map(|error| format!("{error:#}")),
            orders,
            webhooks: Webhooks { waiting, oldest, dead },
            dead_letters,
            alerts,
            stops,
            disk,
            unknown,
        })
    };
    tokio::task::spawn_blocking(ask).await?
}

/// Returns an optional part of a survey, or notes it as unknown.
fn noted<T>(found: anyhow::Result<T>, what: &str, unknown: &mut Vec<String>) -> Option<T> {
    found.map_err(|error| unknown.push(format!("{what}: {error:#}"))).ok()
}

/// The file system of the data folder.
fn disk(settings: &Settings) -> anyhow::Result<Disk> {
    let dir = &settings.process.data_dir;
    let found = rustix::fs::statvfs(dir)?;
    Ok(Disk {
        folder: dir.display().to_string(),
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        all_bytes: found.f_blocks.saturating_mul(found.f_frsize),
    })
}
