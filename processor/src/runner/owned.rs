//! A machine of a partition that this process owns.

use std::collections::HashSet;

use log::{Assigned, NewRecord, TopicPartition};
use schemas::{Blockchain, CodecError, Layout, OrderId, Partition, Stablecoin, UnixMicros};

use super::inputs::Inputs;
use super::positions::Positions;
use crate::machine::Broken;
use crate::machine::matching::Share;
use crate::wire::{self, Wire};
use crate::{Error, metrics};

/// How many ticks one step writes at most.
const STEP_TICKS_MAX: usize = 1000;

pub(super) struct Owned<M: Wire> {
    machine: M,
    partition: Partition,
    /// Ticks written and not read back yet: not to be written again.
    ticking: HashSet<OrderId>,
    /// What the present step has taken.
    inputs: Inputs,
    /// How far the inputs were taken by the last step, and with the present one.
    known: Positions,
    next: Positions,
    /// Kept between inputs to spare the allocation.
    effects: Vec<M::Effect>,
}

impl<M: Wire> Owned<M> {
    pub(super) fn new(machine: M, partition: Partition, known: Positions) -> Self {
        let (ticking, inputs, effects) = (HashSet::new(), Inputs::default(), Vec::new());
        Self { machine, partition, ticking, inputs, next: known.clone(), known, effects }
    }

    /// The group continues an input here.
    ///
    /// # Errors
    /// The state is that of another position.
    pub(super) fn continues(&mut self, input: &Assigned) -> Result<(), Error> {
        let partition = TopicPartition { topic: M::CHANGELOG, partition: self.partition };
        if let Some(cause) = self.known.misfit(M::GROUP, input) {
            return Err(Error::Changelog { partition, cause });
        }
        if let Some(committed) = &input.committed {
            self.known.set(input.partition.topic, committed.offset);
            self.next = self.known.clone();
        }
        Ok(())
    }

    /// Takes one input and adds the records that follow. Garbage becomes a dead letter.
    pub(super) fn take(
        &mut self,
        record: &log::Record,
        layout: &Layout,
        outputs: &mut Vec<NewRecord>,
    ) -> Result<(), Error> {
        self.inputs.push(record);
        self.next.set(record.from.topic, record.offset.next());
        let input = match self.machine.parse(record) {
            Ok(input) => input,
            Err(unreadable) => {
                let reason = unreadable.garbage(record)?;
                outputs.push(log::dead_letter(record, M::GROUP, &reason)?);
                return Ok(());
            }
        };
        if let Some(order_id) = M::ticked(&input) {
            self.ticking.remove(&order_id);
        }
        let decided = self.machine.decide(&input, &mut self.effects);
        decided.map_err(|cause| broken(place(record), cause))?;
        let traceparent = record.traceparent();
        for effect in self.effects.drain(..) {
            if let Some(alert) = M::alert(&effect) {
                let (kind, blockchain) =
                    (alert.kind.as_str(), alert.blockchain.map_or("", Blockchain::as_str));
                let labels = [("kind", kind), ("blockchain", blockchain)];
                ::metrics::counter!(metrics::ALERTS_TOTAL, &labels).increment(1);
                tracing::error!(target: "processor::alert", blockchain, "{}", alert.message);
            }
            outputs.push(M::encode(&effect, self.partition, layout)?.traced(traceparent));
        }
        Ok(())
    }

    /// Adds a tick for each timer that is due and has none on the log yet.
    pub(super) fn tick(
        &mut self,
        now: UnixMicros,
        outputs: &mut Vec<NewRecord>,
    ) -> Result<(), CodecError> {
        for order_id in self.machine.due(now.seconds(), STEP_TICKS_MAX) {
            if self.ticking.insert(order_id) {
                outputs.push(wire::tick(order_id, now, self.partition)?);
            }
        }
        Ok(())
    }

    /// The step's entries. The first one says which inputs they follow from.
    pub(super) fn changelog(&self) -> Result<Vec<NewRecord>, CodecError> {
        let mut entries = wire::changelog(&self.machine, self.partition)?;
        if let Some(first) = entries.first_mut() {
            first.headers.push(wire::INPUTS_HEADER, self.inputs.to_string().as_bytes());
            first.headers.push(wire::NEXT_HEADER, self.next.to_string().as_bytes());
        }
        Ok(entries)
    }

    pub(super) fn commit(&mut self) {
        self.inputs.clear();
        self.known = self.next.clone();
        self.machine.commit();
    }

    pub(super) fn undo(&mut self) -> Result<(), Error> {
        self.ticking.clear();
        self.inputs.clear();
        self.next = self.known.clone();
        let at = TopicPartition { topic: M::CHANGELOG, partition: self.partition };
        self.machine.undo().map_err(|cause| broken(at.to_string(), cause))
    }

    pub(super) fn shares(&self) -> Vec<(Blockchain, Stablecoin, Share)> {
        self.machine.shares()
    }

    pub(super) fn stops(&self) -> Option<(Blockchain, usize)> {
        self.machine.stops()
    }

    pub(super) fn rows(&self) -> usize {
        self.machine.rows()
    }
}

fn place(record: &log::Record) -> String {
    format!("{}/{}", record.from, record.offset)
}

fn broken(at: String, cause: Broken) -> Error {
    Error::Broken { at, cause }
}
