//! Runs a machine on the log: restore, decide, commit one step, undo where the log asks for it.

mod inputs;
mod owned;
mod plan;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use log::{Assigned, Event, Log, StepError, TopicPartition, Worker, WorkerSpec};
use runtime::{Clock, task};
use schemas::{Layout, Partition, Topic};
use tokio_util::sync::CancellationToken;

use crate::machine::{matching, orders};
use crate::wire::{self, Wire};
use crate::{Error, metrics};
use owned::Owned;
use plan::Plan;

/// How long one poll waits: also how late a timer or a stop may be noticed.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// How many records one step takes at most.
const BATCH_RECORDS_MAX: usize = 4096;
/// How long to wait before an aborted step is tried again.
const ABORT_PAUSE: Duration = Duration::from_millis(200);

/// Runs the matching machine until `stop`. Blocks.
///
/// # Errors
/// [`Error`]: the process must stop.
pub fn run_matching(
    log: &Arc<dyn Log>,
    clock: &Arc<dyn Clock>,
    member: &str,
    stop: &CancellationToken,
) -> Result<(), Error> {
    run::<matching::State>(log, clock, member, stop)
}

/// Runs the orders machine until `stop`. Blocks.
///
/// # Errors
/// [`Error`]: the process must stop.
pub fn run_orders(
    log: &Arc<dyn Log>,
    clock: &Arc<dyn Clock>,
    member: &str,
    stop: &CancellationToken,
) -> Result<(), Error> {
    run::<orders::State>(log, clock, member, stop)
}

fn run<M: Wire>(
    log: &Arc<dyn Log>,
    clock: &Arc<dyn Clock>,
    member: &str,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let spec = WorkerSpec {
        group: M::GROUP,
        member: member.to_owned(),
        topics: M::INPUTS.to_vec(),
        batch_max: BATCH_RECORDS_MAX,
    };
    let Some(worker) = log::retry(stop, M::GROUP, || log.worker(spec.clone()))? else {
        return Ok(());
    };
    let (clock, layout) = (clock.clone(), log.layout());
    Runner::<M> { worker, clock, layout, machines: HashMap::new() }.run(stop)
}

struct Runner<M: Wire> {
    worker: Box<dyn Worker>,
    clock: Arc<dyn Clock>,
    layout: Layout,
    machines: HashMap<Partition, Owned<M>>,
}

impl<M: Wire> Runner<M> {
    fn run(mut self, stop: &CancellationToken) -> Result<(), Error> {
        while !stop.is_cancelled() {
            match self.worker.poll(POLL_TIMEOUT) {
                Ok(Event::Assigned(assigned)) => {
                    for assigned in &assigned {
                        self.restore(assigned.partition.partition, stop)?;
                    }
                    self.check_positions(&assigned)?;
                }
                Ok(Event::Revoked(lost)) => {
                    for partition in lost {
                        self.machines.remove(&partition.partition);
                    }
                }
                Ok(Event::Records(records)) => self.step(&records, stop)?,
                Ok(Event::Idle) => self.step(&[], stop)?,
                Err(log::Error::Transient(cause)) => {
                    tracing::debug!(%cause, "{} waits for the log", M::GROUP);
                    task::wait(stop, ABORT_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Builds the state of a newly owned partition. Both inputs of a lane announce it; one state serves.
    fn restore(&mut self, partition: Partition, stop: &CancellationToken) -> Result<(), Error> {
        while !self.machines.contains_key(&partition) && !stop.is_cancelled() {
            match self.restored(partition) {
                Ok(machine) => drop(self.machines.insert(partition, machine)),
                Err(Error::Log(log::Error::Transient(cause))) => {
                    tracing::warn!(%cause, "{} waits for its changelog", M::GROUP);
                    task::wait(stop, ABORT_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A step that made state committed a position with it. State without any position means that the
    /// log has lost the positions, and reading everything again would publish everything again.
    fn check_positions(&self, assigned: &[Assigned]) -> Result<(), Error> {
        let has_position = |of: Partition| {
            let mut inputs = assigned.iter().filter(|input| input.partition.partition == of);
            inputs.any(|input| input.committed.is_some())
        };
        for of in assigned.iter().map(|input| input.partition.partition) {
            let rows = self.machines.get(&of).map_or(0, Owned::rows);
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

    fn restored(&mut self, partition: Partition) -> Result<Owned<M>, Error> {
        let from = TopicPartition { topic: M::CHANGELOG, partition };
        let damaged = |cause: String| Error::Changelog { partition: from, cause };
        let mut machine = M::fresh(partition, &self.layout)
            .ok_or_else(|| damaged("the layout has no such partition".to_owned()))?;
        let mut restored = Ok(());
        self.worker.restore(from, &mut |record| {
            if restored.is_ok() {
                restored = wire::restore(&mut machine, &record.key, record.value.as_deref());
            }
        })?;
        restored.map_err(|error| damaged(error.to_string()))?;
        tracing::debug!(rows = machine.rows(), "{} restored {from}", M::GROUP);
        Ok(Owned::new(machine, partition))
    }

    /// One step: all inputs, all that follows from them, the changelog and the offsets.
    fn step(&mut self, inputs: &[Arc<log::Record>], stop: &CancellationToken) -> Result<(), Error> {
        let started = self.clock.now();
        let mut plan = Plan::for_inputs(inputs.len());
        for input in inputs {
            let Some(machine) = self.machines.get_mut(&input.from.partition) else { continue };
            machine.take(input, &self.layout, &mut plan.outputs)?;
            plan.taken(input);
            plan.write_ahead(&mut *self.worker);
        }
        for machine in self.machines.values_mut() {
            machine.tick(&*self.clock, &mut plan.outputs)?;
        }
        for machine in self.machines.values() {
            plan.outputs.extend(machine.changelog()?);
        }
        if plan.is_empty() {
            return Ok(());
        }
        let (step, topics) = plan.into_step();
        match self.worker.commit(step) {
            Ok(()) => {
                self.machines.values_mut().for_each(Owned::commit);
                self.measure(inputs.len(), &topics, started);
                Ok(())
            }
            Err(StepError::Aborted(cause)) => {
                tracing::warn!(%cause, "{} repeats an aborted step", M::GROUP);
                ::metrics::counter!(metrics::ABORTS_TOTAL, "machine" => M::GROUP).increment(1);
                for machine in self.machines.values_mut() {
                    machine.undo()?;
                }
                task::wait(stop, ABORT_PAUSE);
                Ok(())
            }
            Err(StepError::Fenced(cause)) => {
                tracing::warn!(%cause, "{} lost its partitions", M::GROUP);
                self.machines.clear();
                Ok(())
            }
            Err(StepError::Fatal(cause)) => Err(Error::Step(cause.to_string())),
        }
    }

    fn measure(&self, inputs: usize, topics: &BTreeMap<Topic, u64>, started: schemas::UnixMicros) {
        ::metrics::counter!(metrics::INPUTS_TOTAL, "machine" => M::GROUP).increment(inputs as u64);
        for (topic, count) in topics {
            ::metrics::counter!(metrics::OUTPUTS_TOTAL, "topic" => topic.name()).increment(*count);
        }
        let micros = self.clock.now().0.saturating_sub(started.0);
        let taken = Duration::from_micros(micros.unsigned_abs());
        ::metrics::histogram!(metrics::STEP_SECONDS, "machine" => M::GROUP).record(taken);
        let rows: usize = self.machines.values().map(Owned::rows).sum();
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float; 2^52 rows are enough")]
        ::metrics::gauge!(metrics::ROWS, "machine" => M::GROUP).set(rows as f64);
    }
}
