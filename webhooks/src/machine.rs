//! Which webhook an event becomes, when it is due, and what follows from an attempt. Pure: time is an
//! argument.

pub(crate) mod announcement;
pub(crate) mod breaker;
pub(crate) mod endpoint;
pub(crate) mod outbox;
pub(crate) mod partitions;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod sequence;
pub(crate) mod tracker;
