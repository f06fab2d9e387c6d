//! A machine of a partition that this process owns.

use std::collections::HashSet;
use std::time::Instant;

use log::{Assigned, Log, NewRecord, Offset, Record, TopicPartition};
use schemas::record::{Alert, InputRun, ProcessorStep};
use schemas::{AlertState, Blockchain, CodecError, Layout, OrderId, Partition, UnixMicros};

use super::positions::Positions;
use super::traces::{self, Traces};
use crate::wire::{self, Wire};
use crate::{Error, metrics};

/// Maximum number of ticks that one step writes.
const STEP_TICKS_MAX: usize = 1000;

/// Contents of a changelog beside the rows of the state.
#[derive(Default)]
pub(super) struct Restored {
    pub(super) known: Positions,
    pub(super) written_at: UnixMicros,
    pub(super) traces: Traces,
}

pub(super) struct Owned<M: Wire> {
    pub(super) machine: M,
    partition: Partition,
    /// Ticks written and not read back yet: not to be written again.
    ticking: HashSet<OrderId>,
    /// Inputs that the present step has taken, in their order.
    taken: ProcessorStep,
    /// Positions in the inputs after the last committed step, and, as `next`, after the present one.
    known: Positions,
    next: Positions,
    /// Append time of the newest changelog entry at the restore.
    written_at: UnixMicros,
    traces: Traces,
    /// Kept between inputs to spare the allocation.
    effects: Vec<M::Effect>,
    /// Alerts of the present step.
    alerts: Vec<Alert>,
}

impl<M: Wire> Owned<M> {
    pub(super) fn new(machine: M, partition: Partition, restored: Restored) -> Self {
        let Restored { known, written_at, traces } = restored;
        Self {
            machine,
            partition,
            ticking: HashSet::new(),
            taken: ProcessorStep::default(),
            next: known.clone(),
            known,
            written_at,
            traces,
            effects: Vec::new(),
            alerts: Vec::new(),
        }
    }

    /// Takes the position at which the group continues an input.
    ///
    /// # Errors
    /// Somebody changed or deleted the group's position, or the log failed.
    pub(super) fn continues(&mut self, input: &Assigned, log: &dyn Log) -> Result<(), Error> {
        let of = input.partition;
        if input.committed.is_none() && self.is_made_anew(of, log)? {
            tracing::warn!("{of} was deleted and made anew: it is read from its beginning");
            self.known.set(of.topic, Offset(0));
            self.next = self.known.clone();
        }
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

    /// `true` if the topic was recreated: the records that this state has taken are gone, and all present ones are
    /// newer. Kafka deletes the positions of a topic with it.
    fn is_made_anew(&self, of: TopicPartition, log: &dyn Log) -> Result<bool, Error> {
        let is_known = self.known.of(of.topic).is_some_and(|next| next > Offset(0));
        if !is_known || log.bounds(of)?.start > Offset(0) {
            return Ok(false);
        }
        let first = log.read(of, Offset(0), 1)?;
        Ok(first.first().is_none_or(|record| record.appended_at > self.written_at))
    }

    /// Applies one input and appends the resulting records to `outputs`. Garbage becomes a dead letter.
    pub(super) fn take(
        &mut self,
        record: &Record,
        layout: &Layout,
        outputs: &mut Vec<NewRecord>,
    ) -> Result<(), Error> {
        note(&mut self.taken, record);
        self.next.set(record.from.topic, record.offset.next());
        let (at, begun, before) = ((self.partition, layout), Instant::now(), outputs.len());
        let input = wire::take(&mut self.machine, at, record, &mut self.effects, outputs)?;
        let followed = outputs.get_mut(before..).unwrap_or_default();
        if let Some(order_id) = input.as_ref().and_then(M::order) {
            self.traces.join(order_id, record, followed);
        }
        traces::export(M::GROUP, begun, record, followed);
        if let Some(order_id) = input.as_ref().and_then(M::ticked) {
            self.ticking.remove(&order_id);
        }
        self.alerts.extend(self.effects.iter().filter_map(M::alert).cloned());
        Ok(())
    }

    /// Adds ticks for due timers, at most [`STEP_TICKS_MAX`], except those written before and not read back yet.
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

    /// Changelog entries of the step, the first with the next input positions; then its inputs.
    pub(super) fn records(&mut self) -> Result<Vec<NewRecord>, CodecError> {
        let mut records = wire::changelog(&self.machine, self.partition)?;
        self.traces.keep(&mut records);
        if let Some(first) = records.first_mut() {
            first.headers.push(wire::NEXT_HEADER, self.next.to_string().as_bytes());
        }
        if !self.taken.inputs.is_empty() {
            records.push(wire::step::<M>(self.partition, &self.taken)?);
        }
        Ok(records)
    }

    pub(super) fn commit(&mut self) {
        self.alerts.drain(..).for_each(report);
        self.taken.inputs.clear();
        self.known = self.next.clone();
        self.machine.commit();
    }

    pub(super) fn undo(&mut self) -> Result<(), Error> {
        self.ticking.clear();
        self.alerts.clear();
        self.taken.inputs.clear();
        self.next = self.known.clone();
        let at = TopicPartition { topic: M::CHANGELOG, partition: self.partition };
        self.machine.undo().map_err(|cause| Error::Broken { at: at.to_string(), cause })
    }
}

/// Adds an input to those that a step has taken.
fn note(step: &mut ProcessorStep, input: &Record) {
    let topic = input.from.topic.name();
    match step.inputs.last_mut() {
        Some(run) if run.topic == topic => run.count = run.count.saturating_add(1),
        _ => {
            let run = InputRun { topic: topic.to_owned(), first: input.offset.0, count: 1 };
            step.inputs.push(run);
        }
    }
}

fn report(Alert { kind, blockchain, message, state, .. }: Alert) {
    let blockchain = blockchain.map_or("", Blockchain::as_str);
    if state == AlertState::Resolved {
        tracing::info!(target: "processor::alert", blockchain, "{message}");
        return;
    }
    let labels = [("kind", kind.as_str()), ("blockchain", blockchain)];
    ::metrics::counter!(metrics::ALERTS_TOTAL, &labels).increment(1);
    tracing::error!(target: "processor::alert", blockchain, "{message}");
}
