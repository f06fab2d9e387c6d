//! Runs a machine on the log: restore, decide, commit one step, undo where the log asks for it.

mod matching;
mod orders;
mod plan;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use log::{Assigned, Event, Log, NewRecord, StepError, TopicPartition, Worker, WorkerSpec};
use runtime::{Clock, task};
use schemas::record::Record;
use schemas::{CodecError, Layout, Partition, Topic, UnixSeconds};
use tokio_util::sync::CancellationToken;

use crate::{Error, metrics};
use plan::Plan;

/// How long one poll waits: also how late a timer or a stop may be noticed.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// How many records one step takes at most.
const BATCH_MAX: usize = 4096;
/// How long to wait before an aborted step is tried again.
const ABORT_PAUSE: Duration = Duration::from_millis(200);

/// An entry of a changelog: its key, and its value or none where it is gone.
type Change = (String, Option<Vec<u8>>);

/// What differs between the two machines.
trait Machine: Sized {
    /// Consumer group, also the name in metrics and logs.
    const GROUP: &'static str;
    /// Input topics.
    const INPUTS: &'static [Topic];
    /// Changelog.
    const CHANGELOG: Topic;

    /// A partition that has seen nothing.
    fn new(partition: Partition, layout: &Layout) -> Self;

    /// Takes one input and adds the records that follow.
    ///
    /// # Errors
    /// [`Rejected::Poison`] if the input is not a record of its topic; [`Rejected::Defect`] if an output
    /// cannot be encoded.
    fn take(
        &mut self,
        input: &log::Record,
        layout: &Layout,
        outputs: &mut Vec<NewRecord>,
    ) -> Result<(), Rejected>;

    /// Inputs that the machine owes itself at `now`.
    fn timers(
        &mut self,
        now: UnixSeconds,
        outputs: &mut Vec<NewRecord>,
        clock: &dyn Clock,
    ) -> Result<(), CodecError>;

    /// What the step changed.
    fn changes(&self) -> Result<Vec<Change>, CodecError>;

    /// Takes an entry of the changelog.
    fn restore(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), String>;

    /// The step is committed.
    fn commit(&mut self);

    /// The step did not happen.
    fn undo(&mut self);

    /// How many rows it holds.
    fn rows(&self) -> usize;
}

/// Changelog entries as the log takes them.
fn encode_changes<R: Record>(changes: Vec<(String, Option<R>)>) -> Result<Vec<Change>, CodecError> {
    let encode = |(key, entry): (String, Option<R>)| {
        Ok((key, entry.as_ref().map(schemas::encode).transpose()?))
    };
    changes.into_iter().map(encode).collect()
}

/// A changelog entry as the log gave it.
fn decode_entry<R: Record>(value: Option<&[u8]>) -> Result<Option<R>, String> {
    value.map(schemas::decode).transpose().map_err(|error| error.to_string())
}

/// Why an input was not taken.
#[derive(Debug)]
enum Rejected {
    /// Reading it again would give the same: it goes to the dead letters.
    Poison(String),
    /// An output does not fit its schema: this program is wrong.
    Defect(CodecError),
}

impl From<CodecError> for Rejected {
    fn from(error: CodecError) -> Self {
        Self::Defect(error)
    }
}

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
    run::<matching::Lane>(log, clock, member, stop)
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
    run::<orders::Orders>(log, clock, member, stop)
}

fn run<M: Machine>(
    log: &Arc<dyn Log>,
    clock: &Arc<dyn Clock>,
    member: &str,
    stop: &CancellationToken,
) -> Result<(), Error> {
    metrics::describe();
    let spec = WorkerSpec {
        group: M::GROUP,
        member: member.to_owned(),
        topics: M::INPUTS.to_vec(),
        batch_max: BATCH_MAX,
    };
    let Some(worker) = log::retry(stop, M::GROUP, || log.worker(spec.clone()))? else {
        return Ok(());
    };
    let (clock, layout) = (clock.clone(), log.layout());
    Runner::<M> { worker, clock, layout, machines: HashMap::new() }.run(stop)
}

struct Runner<M> {
    worker: Box<dyn Worker>,
    clock: Arc<dyn Clock>,
    layout: Layout,
    machines: HashMap<Partition, M>,
}

impl<M: Machine> Runner<M> {
    fn run(mut self, stop: &CancellationToken) -> Result<(), Error> {
        while !stop.is_cancelled() {
            match self.worker.poll(POLL_TIMEOUT) {
                Ok(Event::Assigned(assigned)) => {
                    for assigned in &assigned {
                        self.restore(assigned.partition.partition, stop)?;
                    }
                    self.check_places(&assigned)?;
                }
                Ok(Event::Revoked(lost)) => {
                    for partition in lost {
                        self.machines.remove(&partition.partition);
                    }
                }
                Ok(Event::Records(records)) => self.step(&records, stop)?,
                Ok(Event::Idle) => self.step(&[], stop)?,
                Err(log::Error::Transient(cause)) => {
                    tracing::debug!(cause, "{} waits for the log", M::GROUP);
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
                    tracing::warn!(cause, "{} waits for its changelog", M::GROUP);
                    task::wait(stop, ABORT_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A step that made state committed a place with it. State without any place means that the log has
    /// forgotten the places, and reading everything again would tell everything again.
    fn check_places(&self, assigned: &[Assigned]) -> Result<(), Error> {
        let has_place = |of: Partition| {
            let mut inputs = assigned.iter().filter(|input| input.partition.partition == of);
            inputs.any(|input| input.committed.is_some())
        };
        for of in assigned.iter().map(|input| input.partition.partition) {
            let rows = self.machines.get(&of).map_or(0, M::rows);
            if rows > 0 && !has_place(of) {
                let cause = format!(
                    "it has {rows} rows, but the group {} has no place in its input any more",
                    M::GROUP
                );
                let partition = TopicPartition { topic: M::CHANGELOG, partition: of };
                return Err(Error::Changelog { partition, cause });
            }
        }
        Ok(())
    }

    fn restored(&mut self, partition: Partition) -> Result<M, Error> {
        let from = TopicPartition { topic: M::CHANGELOG, partition };
        let mut machine = M::new(partition, &self.layout);
        let mut failure = None;
        self.worker.restore(from, &mut |record| {
            let key = String::from_utf8_lossy(&record.key);
            if let Err(cause) = machine.restore(&key, record.value.as_deref()) {
                failure.get_or_insert(cause);
            }
        })?;
        if let Some(cause) = failure {
            return Err(Error::Changelog { partition: from, cause });
        }
        tracing::debug!(rows = machine.rows(), "{} restored {from}", M::GROUP);
        Ok(machine)
    }

    /// One step: all inputs, all that follows from them, the changelog and the offsets.
    fn step(&mut self, inputs: &[Arc<log::Record>], stop: &CancellationToken) -> Result<(), Error> {
        let started = self.clock.now();
        let mut plan = Plan::for_inputs(inputs.len());
        for input in inputs {
            let Some(machine) = self.machines.get_mut(&input.from.partition) else { continue };
            match machine.take(input, &self.layout, &mut plan.outputs) {
                Ok(()) => {}
                Err(Rejected::Poison(reason)) => {
                    plan.outputs.push(log::dead_letter(input, M::GROUP, &reason)?);
                }
                Err(Rejected::Defect(error)) => return Err(error.into()),
            }
            plan.taken(input);
            plan.write_ahead(&mut *self.worker);
        }
        for machine in self.machines.values_mut() {
            machine.timers(started.seconds(), &mut plan.outputs, &*self.clock)?;
        }
        for (partition, machine) in &self.machines {
            plan.changelog(M::CHANGELOG, *partition, machine.changes()?);
        }
        if plan.is_empty() {
            return Ok(());
        }
        let (step, topics) = plan.into_step();
        match self.worker.commit(step) {
            Ok(()) => {
                self.machines.values_mut().for_each(M::commit);
                self.measure(inputs.len(), &topics, started);
                Ok(())
            }
            Err(StepError::Aborted(cause)) => {
                tracing::warn!(cause, "{} does a step again", M::GROUP);
                ::metrics::counter!(metrics::ABORTS_TOTAL, "machine" => M::GROUP).increment(1);
                self.machines.values_mut().for_each(M::undo);
                task::wait(stop, ABORT_PAUSE);
                Ok(())
            }
            Err(StepError::Fenced(cause)) => {
                tracing::warn!(cause, "{} lost its partitions", M::GROUP);
                self.machines.clear();
                Ok(())
            }
            Err(StepError::Fatal(cause)) => Err(Error::Step(cause)),
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
        let rows: usize = self.machines.values().map(M::rows).sum();
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float; 2^52 rows are enough")]
        ::metrics::gauge!(metrics::ROWS, "machine" => M::GROUP).set(rows as f64);
    }
}
