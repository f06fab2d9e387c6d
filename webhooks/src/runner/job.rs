//! A delivery under work.

use std::sync::Arc;

use log::{NewRecord, Record};
use schemas::record::Delivery;

use crate::machine::partitions::Place;
use crate::machine::sequence::Turn;

/// A delivery on its way to its receiver.
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) record: Arc<Record>,
    pub(super) delivery: Delivery,
    /// None if it is about no order.
    pub(super) turn: Option<Turn>,
}

impl Job {
    pub(super) fn new(place: Place, record: Arc<Record>, delivery: Delivery) -> Self {
        let turn = Turn::of(&delivery);
        Self { place, record, delivery, turn }
    }
}

/// A record that is complete, and what must be written with its offset.
pub(super) struct Finished {
    pub(super) place: Place,
    pub(super) records: Vec<NewRecord>,
}
