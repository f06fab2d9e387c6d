//! Runs a machine on the log: restores its state, decides, and undoes what the log aborted.

mod chain_time;
mod draft;
mod owned;
mod positions;
mod traces;

use std::collections::BTreeMap;
use std::sync::Arc;

use log::consumer::{Handler, Member, Plan};
use log::{Assigned, Log, Record, StageContext, TopicPartition};
use runtime::Clock;
use runtime::metrics::NO_VALUE;
use schemas::{Blockchain, Layout, Partition, Stablecoin, Stage, Topic};

use crate::machine::{matching, orders};
use crate::wire::{self, NEXT_HEADER, Wire};
use crate::{Error, metrics};
use chain_time::ChainTime;
use draft::Draft;
use owned::{Owned, Restored};
use positions::Positions;
pub use positions::{OWN as OWN_POSITION, next_inputs};

/// Runs the matching machine until the process stops. Blocks.
///
/// # Errors
/// [`Error`]: the process must stop.
pub fn run_matching(context: &StageContext) -> Result<(), Error> {
    run::<matching::State>(context)
}

/// Runs the orders machine until the process stops. Blocks.
///
/// # Errors
/// [`Error`]: the process must stop.
pub fn run_orders(context: &StageContext) -> Result<(), Error> {
    run::<orders::State>(context)
}

fn run<M: Wire>(context: &StageContext) -> Result<(), Error> {
    let is_output = |topic: &Topic| topic.guide().writers.contains(&Stage::Processor);
    let outputs: Vec<_> = Topic::ALL.into_iter().filter(is_output).map(Topic::name).collect();
    runtime::metrics::register(metrics::METRICS, &[("topic", &outputs)]);
    let (clock, layout) = (context.clock.clone(), context.log.layout());
    let (machines, outputs) = (BTreeMap::new(), BTreeMap::new());
    let follow = || M::HAS_TIMERS.then(|| ChainTime::follow(&*context.log)).transpose();
    let Some(chain_time) = log::retry(&context.stop, M::GROUP, follow)? else { return Ok(()) };
    let log = context.log.clone();
    log::consumer::run(context, Runner::<M> { clock, log, layout, chain_time, machines, outputs })
}

struct Runner<M: Wire> {
    clock: Arc<dyn Clock>,
    log: Arc<dyn Log>,
    layout: Layout,
    /// None for machines without timers.
    chain_time: Option<ChainTime>,
    machines: BTreeMap<Partition, Owned<M>>,
    /// Number of records that the step under way writes to each topic.
    outputs: BTreeMap<Topic, u64>,
}

impl<M: Wire> Handler for Runner<M> {
    const GROUP: &'static str = M::GROUP;
    const BATCH_MAX: usize = 4096;
    type Error = Error;

    fn topics(&self) -> Vec<Topic> {
        M::INPUTS.to_vec()
    }

    /// Restores the state of partitions. Both input partitions of a lane share one state.
    fn assigned(&mut self, assigned: Vec<Assigned>, member: &mut Member<'_>) -> Result<(), Error> {
        for partition in assigned.iter().map(|input| input.partition.partition) {
            if !self.machines.contains_key(&partition) {
                // None: the process is stopping, and the changelog was not read to its end.
                let Some(machine) = self.restored(partition, member)? else { return Ok(()) };
                self.machines.insert(partition, machine);
            }
        }
        for input in &assigned {
            if let Some(machine) = self.machines.get_mut(&input.partition.partition) {
                machine.continues(input, &*self.log)?;
            }
        }
        self.check_positions(&assigned)
    }

    fn revoked(&mut self, lost: &[TopicPartition]) -> Result<(), Error> {
        let (stops, shares) = self.measured();
        self.machines.retain(|partition, _| lost.iter().all(|of| of.partition != *partition));
        let (stops_left, shares_left) = self.measured();
        for blockchain in stops.keys().filter(|of| !stops_left.contains_key(of)) {
            ::metrics::gauge!(metrics::STOPS, "blockchain" => blockchain.as_str()).set(NO_VALUE);
        }
        for of in shares.keys().filter(|of| !shares_left.contains_key(of)) {
            amounts_in_use(*of).set(NO_VALUE);
        }
        Ok(())
    }

    /// Builds one step: the outputs of all inputs, due ticks, the changelog, the inputs taken, and the offsets.
    fn step(&mut self, inputs: &[Arc<Record>], member: &mut Member<'_>) -> Result<Plan, Error> {
        let mut draft = Draft::for_inputs(inputs.len());
        for input in inputs {
            let machine = self.machines.get_mut(&input.from.partition).ok_or_else(|| {
                let cause = format!("a record of {} came, which is not assigned", input.from);
                log::Error::Fatal(cause.into())
            })?;
            machine.take(input, &self.layout, &mut draft.step.records)?;
            draft.step.take(input);
            draft.write_ahead(member);
        }
        if let Some(chain_time) = &mut self.chain_time {
            let now = chain_time.bound(self.clock.now())?;
            for machine in self.machines.values_mut() {
                machine.tick(now, &mut draft.step.records)?;
            }
        }
        for machine in self.machines.values_mut() {
            draft.step.records.extend(machine.records()?);
        }
        let (step, outputs) = draft.finish();
        self.outputs = outputs;
        Ok(Plan::commit(step))
    }

    fn committed(&mut self) {
        self.machines.values_mut().for_each(Owned::commit);
        for (topic, count) in std::mem::take(&mut self.outputs) {
            ::metrics::counter!(metrics::OUTPUTS_TOTAL, "topic" => topic.name()).increment(count);
        }
        let rows: usize = self.machines.values().map(|of| of.machine.rows()).sum();
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float; 2^52 rows are enough")]
        ::metrics::gauge!(metrics::ROWS, "machine" => M::GROUP).set(rows as f64);
        let (stops, shares) = self.measured();
        for (blockchain, count) in stops {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            ::metrics::gauge!(metrics::STOPS, "blockchain" => blockchain.as_str()).set(count);
        }
        for (of, ratio) in shares {
            amounts_in_use(of).set(ratio);
        }
    }

    fn aborted(&mut self) -> Result<(), Error> {
        self.machines.values_mut().try_for_each(Owned::undo)
    }
}

fn amounts_in_use((blockchain, stablecoin): (Blockchain, Stablecoin)) -> ::metrics::Gauge {
    let labels = [("blockchain", blockchain.as_str()), ("stablecoin", stablecoin.as_str())];
    ::metrics::gauge!(metrics::AMOUNTS_IN_USE, &labels)
}

#[expect(clippy::float_arithmetic, reason = "a gauge is a float, and decides nothing")]
fn ratio(share: matching::Share) -> f64 {
    f64::from(share.taken) / f64::from(share.tried.max(1))
}

impl<M: Wire> Runner<M> {
    fn restored(
        &self,
        partition: Partition,
        member: &mut Member<'_>,
    ) -> Result<Option<Owned<M>>, Error> {
        let from = TopicPartition { topic: M::CHANGELOG, partition };
        let damaged = |cause: String| Error::Changelog { partition: from, cause };
        let new = M::fresh(partition, &self.layout)
            .ok_or_else(|| damaged("the layout has no such partition".to_owned()))?;
        let apply = |(state, restored): &mut (Result<M, _>, Restored), record: Record| {
            let Restored { known, written_at, traces } = restored;
            traces.restore(&record);
            *written_at = record.appended_at;
            if let Ok(machine) = state
                && let Err(error) = wire::restore(machine, &record.key, record.value.as_deref())
            {
                *state = Err(error);
            }
            let next = record.header(NEXT_HEADER).and_then(Positions::parse);
            *known = next.unwrap_or_else(|| std::mem::take(known));
        };
        let fresh = || (Ok(new.clone()), Restored::default());
        let Some((machine, restored)) = member.restore(from, fresh, apply)? else {
            return Ok(None);
        };
        let machine = machine.map_err(|error| damaged(error.to_string()))?;
        tracing::debug!(rows = machine.rows(), "{} restored {from}", M::GROUP);
        Ok(Some(Owned::new(machine, partition, restored)))
    }

    /// Gauge values of this member's machines: the stops of each chain, and the ratio of amounts in
    /// use.
    fn measured(&self) -> (BTreeMap<Blockchain, usize>, BTreeMap<(Blockchain, Stablecoin), f64>) {
        // The highest ratio of all lanes of a chain.
        let mut ratios = BTreeMap::new();
        for (blockchain, stablecoin, share) in
            self.machines.values().flat_map(|of| of.machine.shares())
        {
            let fullest: &mut f64 = ratios.entry((blockchain, stablecoin)).or_default();
            *fullest = fullest.max(ratio(share));
        }
        // Every lane of a chain gets every stop, so the counts of lanes differ only while one lags.
        let mut stops = BTreeMap::new();
        for (blockchain, count) in self.machines.values().filter_map(|of| of.machine.stops()) {
            let most: &mut usize = stops.entry(blockchain).or_default();
            *most = count.max(*most);
        }
        (stops, ratios)
    }

    /// A step that made state committed a position with it. State without any position means that the
    /// log has lost the positions, and reading everything again would publish everything again.
    fn check_positions(&self, assigned: &[Assigned]) -> Result<(), Error> {
        let has_position = |of: Partition| {
            let mut inputs = assigned.iter().filter(|input| input.partition.partition == of);
            inputs.any(|input| input.committed.is_some())
        };
        for of in assigned.iter().map(|input| input.partition.partition) {
            let rows = self.machines.get(&of).map_or(0, |of| of.machine.rows());
            if rows > 0 && !has_position(of) {
                let cause = format!(
                    "it has {rows} rows, but the group {} has no position in its input any more",
                    M::GROUP
                );
                let partition = TopicPartition { topic: M::CHANGELOG, partition: of };
                return Err(Error::Changelog { partition, cause });
            }
        }
        Ok(())
    }
}
