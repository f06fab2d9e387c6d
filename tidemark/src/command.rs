//! The command line.

pub(crate) mod code;
mod exit;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use exit::{EXIT_USAGE, answer, block_on, blocking, finish, refuse, report, show, verdict};

use crate::chain::{rescan, stop};
use crate::inspect::status;
use crate::inspect::{alerts, doctor, find, replay};
use crate::output::say;
use crate::settings::{Settings, defaults};
use crate::setup::verify;
use crate::setup::{Outcome, backup, prune, relocation, tables};
use crate::stage::Stage;
use crate::{
    asyncapi, chain, dead_letters, dead_webhooks, demo, health, listen, probe, process, reconcile,
    setup, tail,
};

/// Stablecoin payments on eight chains, without handing over keys.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all stages, or the named ones. SIGTERM stops in order; SIGHUP reads the configuration again.
    Run {
        /// ingest, processor, projector, api or webhooks; none means all.
        #[arg(value_enum)]
        stages: Vec<Stage>,
        #[command(flatten)]
        file: File,
        /// Only check the configuration.
        #[arg(long)]
        check_config: bool,
    },
    /// Create or check the topics on Kafka.
    #[command(subcommand)]
    Topics(Topics),
    /// Migrate the tables on CQL, or register the schemas of the topics with an external registry.
    #[command(subcommand)]
    Schema(Schema),
    /// Show inputs that stages could not process, put them back, or skip a record that ends a stage.
    #[command(subcommand)]
    DeadLetters(DeadLetters),
    /// Show alerts, end them, or test a sink.
    #[command(subcommand)]
    Alerts(Alerts),
    /// Show how far chains are, take one back after a reorganisation below its finalized height, or decide about a
    /// transfer that endpoints disagree about.
    #[command(subcommand)]
    Chain(ChainCommand),
    /// Stop payments of a wallet, a coin, a contract or a chain, also for open orders; end a stop; or print the stops.
    /// A payment that is confirmed meanwhile pays nothing until an operator attaches it.
    Stop(With<stop::Options>),
    /// Ask the endpoints of a chain again for blocks that were scanned, and publish what is missing. With the embedded
    /// log: while no process runs.
    Rescan(With<rescan::Options>),
    /// Compare what a period has on the chains, on the topics, in the tables, in webhooks and in the shop's books, and
    /// print what differs with the command that mends it. Also while processes run; changes nothing. Exit code 0 if all
    /// of it agrees, 2 if something differs, 1 if part of it could not be compared.
    Reconcile(With<reconcile::Options>),
    /// Replay the logged inputs of the processor's machines, and print where their outputs differ from those emitted:
    /// after an incident, or with another release before it is installed. Also while processes run; changes nothing.
    /// Exit code 0 if all is equal, 2 if something differs, 1 if it failed or was interrupted.
    Replay(With<replay::Options>),
    /// Compare the tables with the log, rebuild them, or remove old rows.
    #[command(subcommand)]
    Tables(Tables),
    /// Copy the embedded log and tables, as they are at one moment, to a new folder. Also while the process runs.
    Backup {
        /// A folder that is not there yet.
        folder: PathBuf,
        #[command(flatten)]
        file: File,
    },
    /// Put a backup in the place of the embedded log and tables, which are kept beside it. While no process runs.
    Restore {
        /// A folder that `tidemark backup` made.
        folder: PathBuf,
        #[command(flatten)]
        file: File,
    },
    /// Write everything that the installation has to a new folder, to move it to other back ends or another layout.
    /// While no process runs.
    Export {
        /// A folder that is not there yet.
        folder: PathBuf,
        #[command(flatten)]
        file: File,
    },
    /// Fill an empty log and empty tables from a folder that `tidemark export` made; ids and keys are kept. While no
    /// process runs. If it is interrupted a start is refused: run it again.
    Import {
        /// A folder that `tidemark export` made.
        folder: PathBuf,
        #[command(flatten)]
        file: File,
    },
    /// Ask the process that runs by this configuration whether it is ready: exit code 0 or 1. Prints what needs a
    /// person, such as a halted chain.
    Health(File),
    /// Show what happened to an order or a payment, and what that means: exit code 1 if nothing is known of it, 2 if
    /// that could not be found out. Also while processes run.
    Find(With<find::Options>),
    /// Show whether the installation is well, what is wrong first: exit code 1 if something is, 2 if that could not be
    /// found out. Also while processes run.
    Status(With<status::Options>),
    /// Examine every endpoint of every chain, the log and the tables: exit code 1 if something keeps a chain from being
    /// followed. Changes nothing.
    Doctor(With<doctor::Options>),
    /// Show the pipeline at work on a built-in development chain.
    Demo(demo::Options),
    /// Print the records of a topic, decoded.
    Tail {
        #[command(flatten)]
        file: File,
        #[command(flatten)]
        options: tail::Options,
    },
    /// Receive webhooks, as a developer of a shop does.
    #[command(subcommand)]
    Webhook(Webhook),
    /// Print the AsyncAPI document of the topics.
    Asyncapi(File),
    /// Print the defaults with a comment for every key.
    DefaultConfig,
}

#[derive(Debug, Subcommand)]
enum Topics {
    /// Create the topics that are missing.
    Create(File),
    /// Report topics that differ from the configuration: exit code 1 if any does.
    Check(File),
}

#[derive(Debug, Subcommand)]
enum Tables {
    /// Compare each row with its newest version on the log, and print what differs with the command that mends it: exit
    /// code 0 if nothing does, 2 if something does, 1 if that is not known. Changes nothing. While no process runs with
    /// embedded back ends; on CQL beside all of them.
    Verify(With<verify::Options>),
    /// Rebuild the tables from the records that the log still has. While no process runs with embedded back ends; on
    /// CQL beside all processes, except the api if rows were lost. Exit code 2 if rows are hidden by deletions made
    /// outside.
    Rebuild(With<tables::Options>),
    /// Remove what is old and final: orders that have ended, their closed deposits and webhook attempts, and transfers.
    /// Also while processes run. Run it again if it was cut off.
    Prune(With<prune::Options>),
}

#[derive(Debug, Subcommand)]
enum ChainCommand {
    /// Print them: scanned, confirmed, finalized, epoch, and why one is halted.
    Status {
        /// One JSON array.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: File,
    },
    /// Take back what was published above a height, also below the finalized one. With the embedded log: while no
    /// process runs.
    Rewind(With<chain::Options>),
    /// Decide about a transaction that endpoints disagree about: its transfers pay nothing until then. With the
    /// embedded log: while no process runs.
    Resolve(With<chain::Dispute>),
}

#[derive(Debug, Subcommand)]
enum Webhook {
    /// Verify webhooks with the merchant's secret, print them, and answer.
    Listen {
        #[command(flatten)]
        file: File,
        #[command(flatten)]
        options: listen::Options,
    },
    /// Show webhooks that were given up, or send them again.
    #[command(subcommand)]
    Dead(DeadWebhooks),
    /// Send one webhook of the type "test" to a receiver, as all are sent: exit code 0 if it acknowledges.
    Test {
        url: String,
        #[command(flatten)]
        file: File,
    },
}

#[derive(Debug, Subcommand)]
enum DeadWebhooks {
    /// Print them: time, event, receiver and how the last attempt ended.
    List(With<dead_webhooks::Filter>),
    /// Ask the API to send them again, but for those that were delivered since. Run it again if it was cut off.
    Redrive {
        #[command(flatten)]
        filter: dead_webhooks::Filter,
        #[command(flatten)]
        pace: dead_webhooks::Pace,
        #[command(flatten)]
        file: File,
    },
}

#[derive(Debug, Subcommand)]
enum Schema {
    /// Apply the migrations that are missing, and create again tables that were dropped.
    Migrate {
        /// Only print what is to be done, and whether older processes may run on: exit code 1 if there is something.
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        file: File,
    },
    /// Register every version of every schema with an external registry, under the ids that records carry.
    Register(File),
}

#[derive(Debug, Subcommand)]
enum Alerts {
    /// Print them: when each was raised, its state, its name and what it says.
    List(With<alerts::Selection>),
    /// Send a message to a sink of `[[alerts.sinks]]`, or to each, and print the answers: exit code 0 if all accept it.
    Test {
        /// The name of the sink.
        sink: Option<String>,
        #[command(flatten)]
        file: File,
    },
    /// End an alert that no event ends. Also while processes run.
    Resolve(With<alerts::Ending>),
}

#[derive(Debug, Subcommand)]
enum DeadLetters {
    /// Print them: number, time, origin, group and reason.
    List(File),
    /// Move a record that no version can read, and that ends its stage, to the dead letters: the stage continues behind
    /// it. While no process of the stage runs.
    Skip(With<dead_letters::skip::Options>),
    /// Append inputs to where they were, once this version can read them. With the embedded log: while no
    /// process runs.
    Replay(With<dead_letters::Which>),
}

/// The options of a command, and its configuration file.
#[derive(Debug, Args)]
struct With<T: Args> {
    #[command(flatten)]
    options: T,
    #[command(flatten)]
    file: File,
}

#[derive(Debug, Args)]
struct File {
    /// The configuration file.
    #[arg(long, short)]
    config: Option<PathBuf>,
}

impl<T: Args> With<T> {
    /// As [`File::report`], with the options.
    fn report(
        self,
        work: impl AsyncFnOnce(Settings, T) -> anyhow::Result<Outcome>,
    ) -> Result<ExitCode, ExitCode> {
        let Self { options, file } = self;
        file.report(async move |settings| work(settings, options).await)
    }

    /// Runs a comparison, and exits with the code that it returns or that of its error.
    fn compare(
        self,
        work: impl AsyncFnOnce(Settings, T) -> anyhow::Result<u8>,
    ) -> Result<ExitCode, ExitCode> {
        let code = block_on(work(self.file.read(&[])?, self.options));
        Ok(code.map_or_else(|error| finish(Err(error)), ExitCode::from))
    }
}

impl File {
    /// The settings for a process that runs some stages, or none.
    fn read(&self, stages: &[Stage]) -> Result<Settings, ExitCode> {
        Settings::load(self.config.as_deref(), stages).map_err(|problems| refuse(&problems))
    }

    /// Runs a command with the settings, and prints its outcome.
    fn report(
        &self,
        work: impl AsyncFnOnce(Settings) -> anyhow::Result<Outcome>,
    ) -> Result<ExitCode, ExitCode> {
        Ok(report(block_on(work(self.read(&[])?))))
    }

    /// As [`File::report`], for a command that blocks.
    fn report_blocking(
        &self,
        work: impl FnOnce(&Settings) -> anyhow::Result<Outcome> + Send + 'static,
    ) -> Result<ExitCode, ExitCode> {
        self.report(async |settings| blocking(move || work(&settings)).await)
    }
}

impl Arguments {
    /// Parses the command line and runs its command.
    pub(crate) fn run() -> ExitCode {
        match Self::try_parse() {
            Ok(arguments) => arguments.command.run().unwrap_or_else(|code| code),
            Err(answer) => {
                // A closed pipe is not a failure.
                drop(answer.print());
                // clap returns the texts of `--help` and `--version` as errors for standard output.
                if answer.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
            }
        }
    }
}

impl Command {
    fn run(self) -> Result<ExitCode, ExitCode> {
        match self {
            Self::Run { stages, file, check_config } => {
                let stages = if stages.is_empty() { Stage::ALL.to_vec() } else { stages };
                let settings = file.read(&stages)?;
                if check_config {
                    say("configuration is valid");
                    return Ok(ExitCode::SUCCESS);
                }
                Ok(finish(block_on(process::run(settings, file.config.as_deref(), &stages))))
            }
            Self::Topics(Topics::Create(file)) => {
                file.report(async |settings| setup::create_topics(settings.log).await)
            }
            Self::Topics(Topics::Check(file)) => {
                file.report(async |settings| setup::check_topics(settings.log).await)
            }
            Self::Schema(Schema::Migrate { check, file }) => {
                file.report(async |settings| setup::migrate_schema(settings.store, check).await)
            }
            Self::Schema(Schema::Register(file)) => file.report(setup::register_schemas),
            Self::Alerts(command) => command.run(),
            Self::DeadLetters(command) => command.run(),
            Self::Chain(command) => command.run(),
            Self::Stop(command) => command.report(stop::run),
            Self::Rescan(command) => command.report(rescan::run),
            Self::Reconcile(command) => command.compare(reconcile::run),
            Self::Replay(command) => command.compare(replay::run),
            Self::Tables(Tables::Verify(command)) => command.report(verify::run),
            Self::Tables(Tables::Rebuild(command)) => command.report(tables::rebuild),
            Self::Tables(Tables::Prune(command)) => command.report(prune::run),
            Self::Backup { folder, file } => {
                file.report_blocking(move |settings| backup::back_up(settings, &folder))
            }
            Self::Restore { folder, file } => {
                file.report_blocking(move |settings| backup::restore(settings, &folder))
            }
            Self::Export { folder, file } => {
                file.report_blocking(move |settings| relocation::export(settings, &folder))
            }
            Self::Import { folder, file } => {
                file.report_blocking(move |settings| relocation::import(settings, &folder))
            }
            Self::Tail { file, options } => {
                Ok(finish(block_on(tail::run(file.read(&[])?, options))))
            }
            Self::Webhook(command) => command.run(),
            Self::Asyncapi(file) => Ok(show(&asyncapi::document(&file.read(&[])?))),
            Self::Health(file) => {
                file.report(async |settings| health::ask(&settings.telemetry).await)
            }
            Self::Find(With { options, file }) => {
                Ok(answer(block_on(find::run(file.read(&[])?, options))))
            }
            Self::Status(With { options, file }) => {
                Ok(verdict(block_on(status::run(file.read(&[])?, options))))
            }
            Self::Doctor(command) => command.report(doctor::run),
            Self::Demo(options) => Ok(finish(block_on(demo::run(options)))),
            Self::DefaultConfig => Ok(show(&defaults())),
        }
    }
}

impl Alerts {
    fn run(self) -> Result<ExitCode, ExitCode> {
        match self {
            Self::List(With { options, file }) => {
                file.report_blocking(move |settings| alerts::list(settings, &options))
            }
            Self::Test { sink, file } => {
                file.report(async |settings| alerts::test(settings, sink).await)
            }
            Self::Resolve(command) => command.report(alerts::resolve),
        }
    }
}

impl DeadLetters {
    fn run(self) -> Result<ExitCode, ExitCode> {
        match self {
            Self::List(file) => file.report_blocking(dead_letters::list),
            Self::Skip(command) => command.report(dead_letters::skip::run),
            Self::Replay(command) => command.report(dead_letters::replay),
        }
    }
}

impl ChainCommand {
    fn run(self) -> Result<ExitCode, ExitCode> {
        match self {
            Self::Status { json, file } => {
                file.report_blocking(move |settings| chain::status(settings, json))
            }
            Self::Rewind(command) => command.report(chain::rewind),
            Self::Resolve(command) => command.report(chain::resolve),
        }
    }
}

impl Webhook {
    fn run(self) -> Result<ExitCode, ExitCode> {
        match self {
            Self::Listen { file, options } => {
                let secrets = file.read(&[])?.shop.merchant.accepted_secrets();
                Ok(finish(block_on(listen::run(secrets, options))))
            }
            Self::Test { url, file } => {
                file.report(async |settings| probe::run(&settings.webhooks, &url).await)
            }
            Self::Dead(DeadWebhooks::List(With { options, file })) => {
                file.report_blocking(move |settings| dead_webhooks::list(settings, &options))
            }
            Self::Dead(DeadWebhooks::Redrive { filter, pace, file }) => {
                file.report(async |settings| dead_webhooks::redrive(settings, filter, pace).await)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// Two groups of options with the same name would make a command panic when it is used.
    #[test]
    fn no_command_has_options_that_clash() {
        super::Arguments::command().debug_assert();
    }
}
