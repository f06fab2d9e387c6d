//! One atomic step: its producer, and the meaning of its failures.

pub(super) mod named;
pub(super) mod outcome;
pub(super) mod producer;
