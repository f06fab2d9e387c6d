//! An independent model of the processor, and an environment in which both are run and compared.
//!
//! [`prediction`] is the model. Beside it: [`chain`], a chain with reorganisations as ingest reports it; [`driver`] and
//! [`pipeline`], the two machines with their queues, and [`adversary`], which runs them; [`ledger`] and [`check`], the
//! invariants of `docs/internals/invariants.md` over the outputs.

pub mod adversary;
mod amounts;
pub mod chain;
pub mod check;
pub mod delivered;
pub mod driver;
pub mod fact;
pub mod ledger;
pub mod operator;
pub mod pipeline;
pub mod prediction;
pub mod restored;
mod shop;
pub mod violation;
