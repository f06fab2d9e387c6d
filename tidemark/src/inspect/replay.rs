//! `tidemark replay`: replays the inputs of the processor's machines in the logged order of their steps, and compares
//! the outputs with the emitted ones.
//!
//! Read-only, as `tidemark tail`: it joins no group and opens no transaction. With `--into` it writes to new topics.

mod course;
mod driver;
mod identity;
mod line;
mod pages;
mod present;
mod print;
mod side;
mod state;

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use log::Log;
use log::embedded::backup::Identity;
use runtime::config::Problems;
use schemas::{Blockchain, UnixMicros};
use tokio_util::sync::CancellationToken;

use self::course::Course;
use self::pages::Readahead;
use self::print::Report;
use self::side::Side;
use self::state::{Origin, State};
use crate::output::say;
use crate::process;
use crate::settings::Settings;
use crate::tail::{self, Source};

const EQUAL: u8 = 0;
const FAILED: u8 = 1;
const DIFFERENT: u8 = 2;

/// Range, starting state and outputs of a replay.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Begin with the state in this folder, which --save-state made; otherwise at the beginning of the log.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Replay nothing: save the state of now, from the changelogs, for later replays.
    #[arg(long, requires = "save_state", conflicts_with_all = ["state", "from", "until", "into"])]
    now: bool,
    /// Report only differences from this time on: a time such as 2026-11-25T00:00:00Z, or Unix seconds.
    #[arg(long, value_parser = tail::time, value_name = "TIME")]
    from: Option<UnixMicros>,
    /// Replay only steps before this time. Default: up to now.
    #[arg(long, value_parser = tail::time, value_name = "TIME")]
    until: Option<UnixMicros>,
    /// Only the transfers and deposits of this chain; may be given more than once. Orders are left out, and where other
    /// chains write too, nothing is reported as extra.
    #[arg(long = "chain", value_name = "CHAIN", conflicts_with = "save_state")]
    chains: Vec<Blockchain>,
    /// Also write the replayed outputs to new topics with this prefix. On Kafka.
    #[arg(long, value_name = "PREFIX")]
    into: Option<String>,
    /// Save the state at the end in this folder: where the next replay begins.
    #[arg(long, value_name = "DIR")]
    save_state: Option<PathBuf>,
    /// One JSON object a line: differences, then the totals.
    #[arg(long)]
    json: bool,
}

impl Options {
    fn check(&self, settings: &Settings) -> Result<(), Problems> {
        let mut problems = Vec::new();
        if self.from.zip(self.until).is_some_and(|(from, until)| from >= until) {
            problems.push("replay: --from must be before --until".to_owned());
        }
        if let Some(dir) = self.save_state.as_ref().filter(|dir| self.state.as_ref() != Some(dir))
            && state::is_in(dir)
        {
            let dir = dir.display();
            problems.push(format!(
                "replay: {dir} has a state: save to another folder, or to that of --state"
            ));
        }
        if self.into.is_some() && settings.log.topic_prefix() == self.into.as_deref().unwrap_or("")
        {
            problems.push(
                "replay: --into must be another prefix than that of the installation, on Kafka"
                    .to_owned(),
            );
        }
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }
}

/// Replays, prints, and gives the exit code.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<u8> {
    options.check(&settings)?;
    process::until_stopped(move |stop| work(&settings, &options, stop)).await
}

fn work(settings: &Settings, options: &Options, stop: &CancellationToken) -> anyhow::Result<u8> {
    let readahead = Readahead::new(Source::open(settings)?, stop.clone());
    let origin = origin(settings, readahead.source())?;
    if let (true, Some(dir)) = (options.now, &options.save_state) {
        course::present(&readahead, origin.layout)?.save(dir, &origin)?;
        say(&format!("the state of now is saved in {}", dir.display()));
        return Ok(EQUAL);
    }
    let state = options.state.as_ref().map(|dir| State::load(dir, &origin)).transpose()?;
    if state.is_none() && origin.incarnation > 0 {
        bail!(
            "the log was restored from a backup since it began: begin with a --state of --now after that"
        );
    }
    let mut course = Course::open(settings, &readahead, options, state)?;
    let side = options.into.as_ref();
    let topics = course.topics();
    let mut side = side.map(|prefix| Side::create(settings, prefix, &topics)).transpose()?;
    let mut report = Report::new(options.json);
    let is_whole = match course.run(side.as_mut(), &mut report, stop) {
        Err(_) if stop.is_cancelled() => false,
        played => played?,
    };
    if let Some(mut side) = side {
        side.flush()?;
    }
    if !is_whole {
        say(
            "interrupted: what is printed is whole up to there; no state is saved, so run it again",
        );
        return Ok(FAILED);
    }
    course.finish(&mut report)?;
    report.end()?;
    if let Some(dir) = &options.save_state {
        course.state()?.save(dir, &origin)?;
    }
    Ok(if report.totals.is_equal() { EQUAL } else { DIFFERENT })
}

fn origin(settings: &Settings, source: &Source) -> anyhow::Result<Origin> {
    let layout = settings.log.layout;
    Ok(match source {
        Source::Kafka(log) => {
            Origin { installation: log.installation()?, incarnation: log.incarnation().0, layout }
        }
        Source::Embedded(_) => {
            let identity = Identity::read(&settings.process.data_dir)?;
            let identity = identity.context("there is no log")?;
            let incarnation = identity.incarnation.0;
            Origin { installation: identity.installation, incarnation, layout }
        }
    })
}
