//! `tidemark`: the whole pipeline, or some of its stages, or a demonstration.

mod command;
mod demo;
mod process;
mod settings;

use std::process::ExitCode;

use clap::Parser;

/// Records travel between threads: an allocator made for that halves the cost of a step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command::Arguments::parse().run()
}
