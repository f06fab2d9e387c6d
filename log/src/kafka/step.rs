//! One atomic step: its producer, the meaning of its failures, and the points that it passes.

pub(super) mod named;
pub(super) mod observer;
pub(super) mod outcome;
pub(super) mod producer;
