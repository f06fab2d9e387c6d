//! `tidemark`: the whole pipeline, or some of its stages, or a demonstration.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod asyncapi;
mod back_end;
mod chain;
mod command;
mod dead_letters;
mod dead_webhooks;
mod demo;
#[cfg(test)]
mod docs;
mod health;
mod inspect;
mod listen;
mod metrics;
mod output;
mod probe;
mod process;
mod reconcile;
mod schema_registry;
mod settings;
mod setup;
mod stage;
mod tail;

fn main() -> std::process::ExitCode {
    command::Arguments::run()
}
