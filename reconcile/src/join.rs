//! The joins: one for each pair of places.

pub(crate) mod books;
pub(crate) mod chain;
pub(crate) mod orders;
pub(crate) mod tables;
pub(crate) mod verdicts;
pub(crate) mod webhooks;
