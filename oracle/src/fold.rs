//! Compares the processor's outputs with a pure fold of its machines over the inputs.
//!
//! Every step has a record of its inputs in their order. [`explain`] replays the inputs in that order and checks that
//! the machines write exactly the records of the log, byte for byte and in partition order, and that each step's
//! changes are its changelog entries. If any order of the inputs explains all outputs, then nothing is lost, duplicated
//! or renamed. So the claimed order need not be trusted. If it does not explain them, the [`Flaw`] has the expected and
//! the found content.
//!
//! The changelogs must be complete: compaction would drop entries.

mod output;
mod reading;
mod replay;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use log::{NewRecord, Offset, TopicPartition};
use processor::machine::{Broken, matching, orders};
use processor::wire::Wire;
use schemas::{Layout, OrderId, Partition, Topic};

use crate::machine_model::delivered::Delivered;
use output::Outputs;
pub(crate) use output::{is_altered, is_before_similar};
pub use reading::{Positions, Reading, committed};
pub(crate) use reading::{is_changelog, is_steps};
use replay::Replay;

/// The position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub of: TopicPartition,
    pub offset: Offset,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.of, self.offset)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlawKind {
    /// An expected record is missing, or no step took a committed input.
    Lost,
    /// A record exists twice, or a second step claims an input.
    Doubled,
    /// A record, or the state that a changelog restores, differs from the expected one.
    Changed,
    /// A record follows from no input, or a step's record names no existing one.
    Foreign,
    /// A step claims inputs that are not committed.
    Uncommitted,
    /// Outputs are in another order than their inputs, or steps claim inputs out of order.
    Disordered,
    /// The machine finds an invariant broken.
    Broken,
}

/// A difference between the log and the replay of its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    pub kind: FlawKind,
    /// Position, with the expected and the found content.
    pub text: String,
}

impl Flaw {
    fn new(kind: FlawKind, text: String) -> Self {
        Self { kind, text }
    }
}

impl From<Broken> for Flaw {
    fn from(broken: Broken) -> Self {
        Self::new(FlawKind::Broken, broken.to_string())
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// An entry of a changelog: its key, and its encoded value or none if removed.
type Change = (String, Option<Vec<u8>>);

/// Returns the changelog entries that a step writes.
fn changes<M: Wire>(machine: &M, partition: Partition) -> Vec<Change> {
    let records = processor::wire::changelog(machine, partition).expect("rows fit their schema");
    let change = |record: NewRecord| (String::from_utf8_lossy(&record.key).into(), record.value);
    records.into_iter().map(change).collect()
}

/// Machine of a partition, before its first input.
fn fresh<M: Wire>(partition: Partition, layout: Layout) -> M {
    M::fresh(partition, &layout).expect("the layout has this partition")
}

/// One input as its machine took it.
#[derive(Debug)]
pub struct Taken<M: Wire> {
    pub from: Position,
    /// The input; none if it was unreadable and became a dead letter.
    pub input: Option<M::Input>,
    /// Effects of the input.
    pub effects: Vec<M::Effect>,
    /// Positions of the records of the effects.
    pub outputs: Vec<Position>,
}

impl<M: Wire> Taken<M> {
    fn add_to(&self, causes: &mut HashMap<Position, Position>) {
        causes.extend(self.outputs.iter().map(|output| (*output, self.from)));
    }
}

/// An order of all inputs that explains all outputs.
#[derive(Debug)]
pub struct Explanation {
    /// Inputs that each lane took, in order.
    pub lanes: BTreeMap<Partition, Vec<Taken<matching::State>>>,
    /// Inputs that each partition of orders took, in order.
    pub orders: BTreeMap<Partition, Vec<Taken<orders::State>>>,
    /// Input of each output.
    pub causes: HashMap<Position, Position>,
}

/// Explains every output by the inputs below `committed`.
pub fn explain(reading: &Reading, committed: &Positions) -> Result<Explanation, Flaw> {
    let outputs = Outputs::of(reading)?;
    let lanes: BTreeMap<_, Vec<Taken<matching::State>>> = fold_all(reading, committed, &outputs)?;
    let orders: BTreeMap<_, Vec<Taken<orders::State>>> = fold_all(reading, committed, &outputs)?;
    let mut causes = HashMap::new();
    lanes.values().flatten().for_each(|taken| taken.add_to(&mut causes));
    orders.values().flatten().for_each(|taken| taken.add_to(&mut causes));
    if causes.len() < outputs.len() {
        let text = "some outputs are of partitions that the layout does not have";
        return Err(Flaw::new(FlawKind::Foreign, text.to_owned()));
    }
    Ok(Explanation { lanes, orders, causes })
}

/// The first flaw of each partition of both machines. If there is none, the flaw of all partitions together.
pub fn flaws(reading: &Reading, committed: &Positions) -> Vec<Flaw> {
    let outputs = match Outputs::of(reading) {
        Ok(outputs) => outputs,
        Err(flaw) => return vec![flaw],
    };
    let lanes = fold::<matching::State>(reading, committed, &outputs);
    let lanes = lanes.filter_map(|(_, taken)| taken.err());
    let orders = fold::<orders::State>(reading, committed, &outputs);
    let orders = orders.filter_map(|(_, taken)| taken.err());
    let found: Vec<_> = lanes.chain(orders).collect();
    if found.is_empty() { explain(reading, committed).err().into_iter().collect() } else { found }
}

fn fold_all<M: Wire>(
    reading: &Reading,
    committed: &Positions,
    outputs: &Outputs,
) -> Result<BTreeMap<Partition, Vec<Taken<M>>>, Flaw> {
    fold(reading, committed, outputs).map(|(partition, taken)| Ok((partition, taken?))).collect()
}

/// Folds the inputs of each partition.
fn fold<M: Wire>(
    reading: &Reading,
    committed: &Positions,
    outputs: &Outputs,
) -> impl Iterator<Item = (Partition, Result<Vec<Taken<M>>, Flaw>)> {
    let layout = reading.layout();
    M::CHANGELOG.all_partitions(&layout).map(move |partition| {
        let records = |topic| reading.records(TopicPartition { topic, partition });
        let (steps, entries) = (records(M::STEPS), records(M::CHANGELOG));
        let of = |topic: &Topic| TopicPartition { topic: *topic, partition };
        let inputs: Vec<_> =
            M::INPUTS.iter().map(|topic| reading.below(of(topic), committed)).collect();
        (partition, Replay::run((partition, layout), &inputs, outputs, steps, entries))
    })
}

impl Explanation {
    /// Number of inputs taken.
    pub fn inputs(&self) -> usize {
        let lanes: usize = self.lanes.values().map(Vec::len).sum();
        let orders: usize = self.orders.values().map(Vec::len).sum();
        lanes + orders
    }

    /// Inputs and effects of a lane and of the orders of its deposits, causes before effects.
    /// [`crate::machine_model::ledger::Ledger`] checks the invariants on this history.
    pub fn delivered(&self, lane: Partition) -> Vec<Delivered> {
        let lane_inputs = self.lanes.get(&lane).map_or(&[][..], Vec::as_slice);
        let orders_of_lane: BTreeSet<OrderId> = lane_inputs.iter().filter_map(order).collect();
        let of_lane = |taken: &&Taken<orders::State>| {
            taken.input.as_ref().is_some_and(|command| orders_of_lane.contains(&command.order_id))
        };
        let mut lane_inputs = lane_inputs.iter().peekable();
        let mut orders: Vec<_> =
            self.orders.values().map(|taken| taken.iter().filter(of_lane).peekable()).collect();
        let (mut seen, mut delivered) = (HashSet::new(), Vec::new());
        // The outputs of each machine are inputs of the other. Inputs from outside have no cause.
        let is_due = |seen: &HashSet<Position>, input: Position| {
            self.causes.get(&input).is_none_or(|cause| {
                let elsewhere =
                    cause.of.topic != Topic::OrdersCommands && cause.of.partition != lane;
                elsewhere || seen.contains(cause)
            })
        };
        loop {
            let before = seen.len();
            while let Some(taken) = lane_inputs.next_if(|taken| is_due(&seen, taken.from)) {
                seen.insert(taken.from);
                let input = taken.input.clone();
                delivered.extend(input.map(|input| Delivered::Lane(input, taken.effects.clone())));
            }
            for orders in &mut orders {
                while let Some(taken) = orders.next_if(|taken| is_due(&seen, taken.from)) {
                    seen.insert(taken.from);
                    let input = taken.input.clone();
                    delivered
                        .extend(input.map(|input| Delivered::Orders(input, taken.effects.clone())));
                }
            }
            if seen.len() == before {
                return delivered;
            }
        }
    }
}

/// The order that an input of a lane is about.
fn order(taken: &Taken<matching::State>) -> Option<OrderId> {
    match &taken.input {
        Some(matching::Input::Command(command)) => Some(command.order_id),
        Some(matching::Input::Chain(_)) | None => None,
    }
}

#[cfg(test)]
mod tests;
