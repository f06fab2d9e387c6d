//! Decisions of the webhook stage: the webhook for an event, its due time, and the consequence of
//! an attempt. Pure: time is an argument.

pub(crate) mod announcement;
pub(crate) mod breaker;
pub(crate) mod endpoint;
pub(crate) mod hosts;
pub(crate) mod outbox;
pub(crate) mod partitions;
pub(crate) mod schedule;
pub(crate) mod sequence;
pub(crate) mod tracker;
