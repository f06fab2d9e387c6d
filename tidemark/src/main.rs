//! `tidemark`: the whole pipeline, or some of its stages, or a demonstration.

mod command;
mod demo;
mod process;
mod settings;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    command::Arguments::parse().run()
}
