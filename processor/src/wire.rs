//! Encoding of the machines' inputs and effects as records of the log. Pure.

pub mod anew;
mod matching;
mod orders;
pub mod relaid;

use log::{NewRecord, TopicPartition, Unreadable};
use schemas::record::{Alert, OrderCommand, OrderCommandBody, ProcessorStep};
use schemas::{CodecError, Headers, Layout, OrderId, Partition, Topic, UnixMicros};

use crate::Error;
use crate::machine::{Machine, RestoreError};

/// Header of a step's first entry in the changelog of a partition: the next position in each input after the step, such
/// as `transfers.raw/123,deposits.commands/18`. Compaction keeps the newest one with its entry. If somebody moved the
/// group to another position, the processor stops.
pub const NEXT_HEADER: &str = "next";

/// Encoding of a machine's inputs, effects and rows on the log.
pub trait Wire: Machine {
    /// Consumer group, also the name in metrics and logs.
    const GROUP: &'static str;
    /// Input topics: one machine has the same partition of each.
    const INPUTS: &'static [Topic];
    /// Topic of its rows.
    const CHANGELOG: Topic;
    /// Topic of the inputs that each step took.
    const STEPS: Topic;
    /// `true` if it has timers that the clock triggers.
    const HAS_TIMERS: bool;

    /// A machine without rows for a partition; none if the layout has no such partition.
    fn fresh(partition: Partition, layout: &Layout) -> Option<Self>;

    /// Reads an input.
    ///
    /// # Errors
    /// The reason why the record is not an input of this machine.
    fn parse(&self, record: &log::Record) -> Result<Self::Input, Unreadable>;

    /// Encodes an effect of the machine of `partition`.
    ///
    /// # Errors
    /// [`CodecError`] if it does not fit its schema, which is a defect of this program.
    fn encode(
        effect: &Self::Effect,
        partition: Partition,
        layout: &Layout,
    ) -> Result<NewRecord, CodecError>;

    /// The order whose trace an input belongs to, for the machine that keeps the traces of orders.
    fn order(_input: &Self::Input) -> Option<OrderId> {
        None
    }

    /// The alert, if the effect is one.
    fn alert(_effect: &Self::Effect) -> Option<&Alert> {
        None
    }
}

/// Applies an input to a machine: fills `effects`, and adds their records to `outputs`. Returns the input; none if the
/// record is garbage, which becomes a dead letter.
///
/// # Errors
/// [`Error::Newer`], [`Error::Broken`] or [`Error::Encode`]: the caller must stop.
pub fn take<M: Wire>(
    machine: &mut M,
    (partition, layout): (Partition, &Layout),
    record: &log::Record,
    effects: &mut Vec<M::Effect>,
    outputs: &mut Vec<NewRecord>,
) -> Result<Option<M::Input>, Error> {
    effects.clear();
    let input = match machine.parse(record) {
        Ok(input) => input,
        Err(unreadable) => {
            let reason = unreadable.garbage(record)?;
            outputs.push(log::dead_letter(record, M::GROUP, &reason)?);
            return Ok(None);
        }
    };
    let broken = |cause| Error::Broken { at: format!("{}/{}", record.from, record.offset), cause };
    machine.decide(&input, effects).map_err(broken)?;
    let traceparent = record.traceparent();
    for effect in effects.iter() {
        outputs.push(M::encode(effect, partition, layout)?.traced(traceparent));
    }
    Ok(Some(input))
}

/// The record of the inputs that a step took.
///
/// # Errors
/// [`CodecError`] if it does not fit its schema, which is a defect of this program.
pub fn step<M: Wire>(partition: Partition, step: &ProcessorStep) -> Result<NewRecord, CodecError> {
    NewRecord::encode(M::STEPS, partition, partition.to_string(), step)
}

/// The step's entries for the changelog.
///
/// # Errors
/// [`CodecError`] if a row does not fit its schema, which is a defect of this program.
pub fn changelog<M: Wire>(machine: &M, partition: Partition) -> Result<Vec<NewRecord>, CodecError> {
    let to = TopicPartition { topic: M::CHANGELOG, partition };
    let entry = |(key, entry): (String, Option<M::Entry>)| {
        let value = entry.as_ref().map(schemas::encode).transpose()?;
        Ok(NewRecord { to, key: key.into_bytes(), value, headers: Headers::default() })
    };
    machine.changes().into_iter().map(entry).collect()
}

/// Restores a changelog entry into the machine.
///
/// # Errors
/// [`RestoreError`] if the entry cannot be decoded, is not of this machine, or contradicts those before it.
pub fn restore<M: Wire>(
    machine: &mut M,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<(), RestoreError> {
    let key = String::from_utf8_lossy(key);
    let entry = value.map(schemas::decode).transpose();
    let entry = entry.map_err(|cause| RestoreError::Value(key.to_string(), cause))?;
    machine.restore(&key, entry.as_ref())
}

/// Command for an order's due timer, written to the order's partition.
///
/// # Errors
/// [`CodecError`] if it does not fit its schema, which is a defect of this program.
pub fn tick(
    order_id: OrderId,
    issued_at: UnixMicros,
    partition: Partition,
) -> Result<NewRecord, CodecError> {
    let body = OrderCommandBody::Tick;
    let tick = OrderCommand { order_id, command_id: None, issued_at, body };
    NewRecord::encode(Topic::OrdersCommands, partition, order_id.to_string(), &tick)
}
