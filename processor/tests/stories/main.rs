//! The processor: stories of its two machines, and both runners on the embedded log.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what fails here is the test")]

mod chain;
mod command;
mod matching;
mod name;
mod orders;
mod runner;
mod story;
mod wire;
