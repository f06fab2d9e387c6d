//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use runtime::config::{DEFAULT, Source};

use crate::demo;
use crate::process::{self, Stage};
use crate::settings::Settings;

/// Exit code of a wrong configuration or command line use (BSD's EX_USAGE).
const EXIT_USAGE: u8 = 64;

/// Stablecoin payments on eight chains, without handing over keys.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all stages, or the named ones.
    Run {
        /// ingest, processor, projector, api or webhooks; none means all.
        #[arg(value_enum)]
        stages: Vec<Stage>,
        /// The configuration file.
        #[arg(long, short)]
        config: Option<PathBuf>,
        /// Only tell whether the configuration is right.
        #[arg(long)]
        check_config: bool,
    },
    /// Show the pipeline at work on a built-in development chain.
    Demo(demo::Options),
    /// Print the defaults with a comment for every key.
    DefaultConfig,
}

impl Arguments {
    /// Does what the command line asks for.
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Command::Run { stages, config, check_config } => {
                let settings = match Settings::read(Source::load(config.as_deref())) {
                    Ok(settings) => settings,
                    Err(problems) => {
                        say(&format!("the configuration is wrong:\n{problems}"));
                        return ExitCode::from(EXIT_USAGE);
                    }
                };
                if check_config {
                    say("the configuration is right");
                    return ExitCode::SUCCESS;
                }
                finish(block_on(process::run(settings, &stages)))
            }
            Command::Demo(options) => finish(block_on(demo::run(options))),
            Command::DefaultConfig => {
                #[expect(clippy::print_stdout, reason = "it is what was asked for")]
                {
                    print!("{DEFAULT}");
                }
                ExitCode::SUCCESS
            }
        }
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("tidemark: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "the command line talks to a person")]
fn say(text: &str) {
    eprintln!("{text}");
}
