//! The command line.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use runtime::config::{DEFAULT, Problems, Source};

use crate::provision::Outcome;
use crate::settings::Settings;
use crate::stage::Stage;
use crate::{demo, health, process, provision, publication, tail};

/// Exit code of a wrong configuration or command line use (BSD's EX_USAGE).
const EXIT_USAGE: u8 = 64;
/// How long the end of the process waits for a call to a back end that does not answer.
const BLOCKED_MAX: Duration = Duration::from_secs(1);

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
        #[command(flatten)]
        file: File,
        /// Only tell whether the configuration is right.
        #[arg(long)]
        check_config: bool,
    },
    /// Make or check the topics on Kafka.
    #[command(subcommand)]
    Topics(Topics),
    /// Bring the tables on CQL to this version's schema, or tell a registry the schemas of the topics.
    #[command(subcommand)]
    Schema(Schema),
    /// Ask the process that runs by this configuration whether it is ready: exit code 0 or 1.
    Health {
        #[command(flatten)]
        file: File,
    },
    /// Show the pipeline at work on a built-in development chain.
    Demo(demo::Options),
    /// Print the records of a topic, decoded.
    Tail {
        #[command(flatten)]
        file: File,
        #[command(flatten)]
        options: tail::Options,
    },
    /// Print the AsyncAPI document of the topics.
    Asyncapi {
        #[command(flatten)]
        file: File,
    },
    /// Print the defaults with a comment for every key.
    DefaultConfig,
}

#[derive(Debug, Subcommand)]
enum Topics {
    /// Make the topics that are missing.
    Create {
        #[command(flatten)]
        file: File,
    },
    /// Tell what is wrong with the topics: exit code 1 if anything is.
    Check {
        #[command(flatten)]
        file: File,
    },
}

#[derive(Debug, Subcommand)]
enum Schema {
    /// Apply the migrations that are missing.
    Migrate {
        #[command(flatten)]
        file: File,
    },
    /// Tell an external schema registry every version of every schema, under the ids that records carry.
    Register {
        #[command(flatten)]
        file: File,
    },
}

#[derive(Debug, Args)]
struct File {
    /// The configuration file.
    #[arg(long, short)]
    config: Option<PathBuf>,
}

impl File {
    /// The settings for a process that runs some stages, or none.
    fn read(&self, stages: &[Stage]) -> Result<Settings, ExitCode> {
        Settings::read(Source::load(self.config.as_deref()), stages)
            .map_err(|problems| refuse(&problems))
    }
}

impl Arguments {
    /// Does what the command line asks for.
    pub(crate) fn run() -> ExitCode {
        match Self::try_parse() {
            Ok(arguments) => arguments.command.run().unwrap_or_else(|code| code),
            Err(answer) => {
                // Whoever closed the pipe has seen enough.
                drop(answer.print());
                // Help and version were asked for.
                if answer.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
            }
        }
    }
}

impl Command {
    fn run(self) -> Result<ExitCode, ExitCode> {
        Ok(match self {
            Self::Run { stages, file, check_config } => {
                let stages = if stages.is_empty() { Stage::ALL.to_vec() } else { stages };
                let settings = file.read(&stages)?;
                if check_config {
                    say("the configuration is right");
                    return Ok(ExitCode::SUCCESS);
                }
                finish(block_on(process::run(settings, &stages)))
            }
            Self::Topics(Topics::Create { file }) => {
                tell(block_on(provision::create_topics(file.read(&[])?.log)))
            }
            Self::Topics(Topics::Check { file }) => {
                tell(block_on(provision::check_topics(file.read(&[])?.log)))
            }
            Self::Schema(Schema::Migrate { file }) => {
                tell(block_on(provision::migrate_schema(file.read(&[])?.store)))
            }
            Self::Schema(Schema::Register { file }) => {
                tell(block_on(provision::register_schemas(file.read(&[])?)))
            }
            Self::Tail { file, options } => finish(block_on(tail::run(file.read(&[])?, options))),
            Self::Asyncapi { file } => {
                show(&publication::asyncapi(&file.read(&[])?));
                ExitCode::SUCCESS
            }
            Self::Health { file } => finish(block_on(health::ask(&file.read(&[])?.telemetry))),
            Self::Demo(options) => finish(block_on(demo::run(options))),
            Self::DefaultConfig => {
                show(DEFAULT);
                ExitCode::SUCCESS
            }
        })
    }
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(BLOCKED_MAX);
    result
}

fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<Problems>() {
            Some(problems) => refuse(problems),
            None => {
                say(&format!("tidemark: {error:#}"));
                ExitCode::FAILURE
            }
        },
    }
}

fn refuse(problems: &Problems) -> ExitCode {
    say(&format!("the configuration is wrong:\n{problems}"));
    ExitCode::from(EXIT_USAGE)
}

fn show(document: &str) {
    // Whoever closed the pipe has seen enough.
    drop(std::io::stdout().lock().write_all(document.as_bytes()));
}

/// Prints what an errand has to tell.
#[expect(clippy::print_stdout, reason = "it is what was asked for")]
fn tell(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome { lines, is_right }) => {
            for line in lines {
                println!("{line}");
            }
            if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => finish(Err(error)),
    }
}

#[expect(clippy::print_stderr, reason = "the command line talks to a person")]
fn say(text: &str) {
    eprintln!("{text}");
}
