//! The arguments of `tidemark alerts` and `tidemark dead-letters`.

use std::process::ExitCode;

use clap::Subcommand;

use super::File;
use super::exit::{block_on, blocking, report};
use crate::dead_letters;
use crate::inspect::alerts;

#[derive(Debug, Subcommand)]
pub(super) enum Alerts {
    /// Print them: when each was raised, its state, its name and what it says.
    List {
        #[command(flatten)]
        options: alerts::Selection,
        #[command(flatten)]
        file: File,
    },
    /// Send a message to a sink of `[[alerts.sinks]]`, or to each, and print the answers: exit code 0 if all accept it.
    Test {
        /// The name of the sink.
        sink: Option<String>,
        #[command(flatten)]
        file: File,
    },
    /// End an alert that no event ends. Also while processes run.
    Resolve {
        #[command(flatten)]
        options: alerts::Ending,
        #[command(flatten)]
        file: File,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum DeadLetters {
    /// Print them: number, time, origin, group and reason.
    List(File),
    /// Move a record that no version can read, and that ends its stage, to the dead letters: the stage continues behind
    /// it. While no process of the stage runs.
    Skip {
        #[command(flatten)]
        options: dead_letters::skip::Options,
        #[command(flatten)]
        file: File,
    },
    /// Append inputs to where they were, once this version can read them. With the embedded log: while no
    /// process runs.
    Replay {
        #[command(flatten)]
        which: dead_letters::Which,
        #[command(flatten)]
        file: File,
    },
}

impl Alerts {
    pub(super) fn run(self) -> Result<ExitCode, ExitCode> {
        Ok(match self {
            Self::List { options, file } => {
                let settings = file.read(&[])?;
                report(block_on(blocking(move || alerts::list(&settings, &options))))
            }
            Self::Test { sink, file } => {
                report(block_on(alerts::test(file.read(&[])?, sink.as_deref())))
            }
            Self::Resolve { options, file } => {
                report(block_on(alerts::resolve(file.read(&[])?, options)))
            }
        })
    }
}

impl DeadLetters {
    pub(super) fn run(self) -> Result<ExitCode, ExitCode> {
        Ok(match self {
            Self::List(file) => {
                let settings = file.read(&[])?;
                report(block_on(blocking(move || dead_letters::list(&settings))))
            }
            Self::Skip { options, file } => {
                report(block_on(dead_letters::skip::run(file.read(&[])?, options)))
            }
            Self::Replay { which, file } => {
                report(block_on(dead_letters::replay(file.read(&[])?, which)))
            }
        })
    }
}
