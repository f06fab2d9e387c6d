//! A delivery under work, and how it comes back to its worker.

use std::sync::Arc;

use log::{NewRecord, Record};
use schemas::record::Delivery;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::desk::Desk;
use crate::machine::partitions::Position;
use crate::machine::schedule::{Answer, Reason};
use crate::machine::sequence::Turn;

/// A delivery on its way to its receiver.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) position: Position,
    pub(super) record: Arc<Record>,
    pub(super) delivery: Delivery,
    /// Of its URL: what its receiver is known by.
    pub(super) host: Arc<str>,
    /// None if it is about no order.
    pub(super) turn: Option<Turn>,
    pub(super) desk: Arc<Desk<Back>>,
    /// Its partition was lost.
    pub(super) lost: CancellationToken,
}

impl Job {
    pub(super) fn new(
        position: Position,
        record: Arc<Record>,
        delivery: Delivery,
        host: String,
        desk: Arc<Desk<Back>>,
        lost: CancellationToken,
    ) -> Self {
        let (host, turn) = (host.into(), Turn::of(&delivery));
        Self { position, record, delivery, host, turn, desk, lost }
    }
}

/// A job that comes back to its worker.
#[derive(Debug)]
pub(super) enum Back {
    /// Its request has ended: without an answer if it was broken off.
    Ended(Result<(Job, Option<Answer>), JoinError>),
    /// It cannot be sent soon.
    Spilled(Job, Reason),
    /// It could have started, but its worker was not there.
    Unsent(Job),
}

/// A record that is complete, and what must be written with its offset.
pub(super) struct Finished {
    pub(super) position: Position,
    pub(super) records: Vec<NewRecord>,
}
