//! Runs the machines against the log: two loops, each on a thread of its own.

mod deliverer;
mod dispatcher;
mod endpoints;
mod job;
mod results;
mod sequences;

pub use deliverer::run_deliverer;
pub use dispatcher::run_dispatcher;

#[cfg(test)]
mod fairness_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod pipeline_tests;
#[cfg(test)]
mod receiver;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod scripted_tests;
