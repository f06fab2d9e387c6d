//! `tidemark`: the whole pipeline, or some of its stages, or a demonstration.

mod back_end;
mod command;
mod demo;
mod health;
mod process;
mod provision;
mod publication;
mod registration;
mod settings;
mod stage;
mod tail;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::Arguments::run()
}
