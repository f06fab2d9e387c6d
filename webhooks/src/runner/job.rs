//! A delivery under work.

use std::sync::Arc;

use log::{NewRecord, Record};
use schemas::record::Delivery;
use tokio_util::sync::CancellationToken;

use super::desk::Desk;
use crate::machine::partitions::Place;
use crate::machine::sequence::Turn;

/// A delivery on its way to its receiver.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) record: Arc<Record>,
    pub(super) delivery: Delivery,
    /// Of its URL: what its receiver is known by.
    pub(super) host: Arc<str>,
    /// None if it is about no order.
    pub(super) turn: Option<Turn>,
    pub(super) desk: Arc<Desk>,
    /// Its partition was lost.
    pub(super) lost: CancellationToken,
}

impl Job {
    pub(super) fn new(
        place: Place,
        record: Arc<Record>,
        delivery: Delivery,
        host: String,
        desk: Arc<Desk>,
        lost: CancellationToken,
    ) -> Self {
        let (host, turn) = (host.into(), Turn::of(&delivery));
        Self { place, record, delivery, host, turn, desk, lost }
    }
}

/// A record that is complete, and what must be written with its offset.
pub(super) struct Finished {
    pub(super) place: Place,
    pub(super) records: Vec<NewRecord>,
}
