//! What is to be told to whom, and what follows from an attempt. Pure: time is an argument.

pub(crate) mod announcement;
pub(crate) mod gate;
pub(crate) mod lanes;
pub(crate) mod schedule;
pub(crate) mod tracker;
