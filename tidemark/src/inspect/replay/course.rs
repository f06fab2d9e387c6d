//! The course of a replay: all machines' steps in time order, and the emitted records with which their outputs are
//! compared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use log::config::BackEnd;
use log::{Record, TopicPartition};
use processor::machine::{matching, orders};
use processor::wire::Wire;
use schemas::{Cleanup, KeyKind, Layout, Partition, Stage, Topic, UnixMicros};
use tokio_util::sync::CancellationToken;

use super::Options;
use super::driver::{Driver, Output, Play, Position};
use super::line::{Found, Line};
use super::pages::{Pages, Readahead};
use super::present;
use super::print::{Difference, Report, progress_line};
use super::side::Side;
use super::state::{Compared, State};
use crate::output::{self, Progress};
use crate::settings::Settings;

/// `true` if a machine of this kind writes results to the topic.
fn is_output_of<M: Wire>(topic: Topic) -> bool {
    let of_orders = matches!(topic, Topic::Orders | Topic::DepositsCommands);
    let is_orders = M::GROUP == orders::State::GROUP;
    is_output(topic) && (topic == Topic::DeadLetters || of_orders == is_orders)
}

/// `true` if the topic has results of the processor, and keeps each: a compacted one deletes what is superseded, which
/// would be missing.
fn is_output(topic: Topic) -> bool {
    let is_kept = topic.spec().cleanup != Cleanup::Compact;
    let is_steps = [matching::State::STEPS, orders::State::STEPS].contains(&topic);
    topic.guide().writers.contains(&Stage::Processor) && is_kept && !is_steps
}

pub(super) struct Course {
    readahead: Readahead,
    drivers: Vec<Box<dyn Play>>,
    lines: BTreeMap<TopicPartition, Line>,
    /// `true` if machines that are not replayed write to the same partitions.
    is_partial: bool,
    from: UnixMicros,
    until: Option<UnixMicros>,
    /// Maximum time by which a step's outputs precede the step's own record: on Kafka the transaction timeout.
    step_max: Duration,
    /// Upper bound of the number of steps to replay, for the progress.
    steps: u64,
}

impl Course {
    /// Prepares a replay; fails if the log cannot be read, or no longer has the steps from the starting state on.
    pub(super) fn open(
        settings: &Settings,
        readahead: &Readahead,
        options: &Options,
        state: Option<State>,
    ) -> anyhow::Result<Self> {
        let step_max = match &settings.log.back_end {
            BackEnd::Embedded => Duration::ZERO,
            BackEnd::Kafka(config) => config.transaction_timeout,
        };
        let mut course = Self {
            readahead: readahead.clone(),
            drivers: Vec::new(),
            lines: BTreeMap::new(),
            is_partial: !options.chains.is_empty(),
            from: options.from.unwrap_or(UnixMicros(0)),
            until: options.until,
            step_max,
            steps: 0,
        };
        let layout = settings.log.layout;
        let chains = &options.chains;
        let lanes: Vec<_> = chains.iter().flat_map(|chain| layout.lanes_of(*chain)).collect();
        let is_lane_chosen = |lane: &Partition| lanes.is_empty() || lanes.contains(lane);
        let is_chosen = |topic: Topic, of: &Partition| match topic.spec().key {
            KeyKind::Lane => is_lane_chosen(of),
            KeyKind::Order | KeyKind::Chain | KeyKind::Event | KeyKind::Single => true,
        };
        // The ends of the outputs are read before the ends of the steps: every output before its end follows from a
        // step that is replayed.
        for topic in Topic::ALL.into_iter().filter(|topic| is_output_of::<matching::State>(*topic))
        {
            let all: Vec<_> =
                topic.all_partitions(&layout).filter(|of| is_chosen(topic, of)).collect();
            all.into_iter().try_for_each(|of| course.add_line(topic, of, state.as_ref()))?;
        }
        if !course.is_partial {
            for topic in [Topic::Orders, Topic::DepositsCommands] {
                let mut all = topic.all_partitions(&layout);
                all.try_for_each(|of| course.add_line(topic, of, state.as_ref()))?;
            }
        }
        let all = matching::State::CHANGELOG.all_partitions(&layout).filter(is_lane_chosen);
        for partition in all {
            course.add_driver::<matching::State>((partition, layout), state.as_ref())?;
        }
        if !course.is_partial {
            for partition in orders::State::CHANGELOG.all_partitions(&layout) {
                course.add_driver::<orders::State>((partition, layout), state.as_ref())?;
            }
        }
        // These ends are read after the ends of the steps: the outputs of every replayed step are before them.
        for (of, line) in &mut course.lines {
            line.extend(readahead.source().stable_end(*of)?);
        }
        Ok(course)
    }

    fn add_line(
        &mut self,
        topic: Topic,
        partition: Partition,
        state: Option<&State>,
    ) -> anyhow::Result<()> {
        let of = TopicPartition { topic, partition };
        let bounds = self.readahead.source().bounds(of)?;
        let known = state.and_then(|state| state.outputs.get(&of)).cloned();
        let known = known.unwrap_or(Compared { next: bounds.start, ..Compared::default() });
        let mut pending = Vec::new();
        for offset in known.pending {
            let page = self.readahead.source().read(of, offset, 1)?;
            pending.extend(page.into_iter().filter(|record| record.offset == offset));
        }
        let end = bounds.end.max(known.next);
        let judged = known.judged_from..end;
        let line = Line::new(Pages::new(&self.readahead, of, known.next, end), judged, pending);
        self.lines.insert(of, line);
        Ok(())
    }

    fn add_driver<M: Wire + 'static>(
        &mut self,
        (partition, layout): (Partition, Layout),
        state: Option<&State>,
    ) -> anyhow::Result<()> {
        let of = TopicPartition { topic: M::STEPS, partition };
        let name = (M::GROUP.to_owned(), partition);
        let known = state.and_then(|state| state.machines.get(&name));
        // Without a saved state, or for a chain that was added after it was saved, the machine begins empty.
        let beginning = (Position::beginning::<M>(), Vec::new());
        let (position, rows) = known.unwrap_or(&beginning);
        let bounds = self.readahead.source().bounds(of)?;
        if bounds.start > position.steps {
            bail!(
                "the log no longer has {of}@{}: it begins at {}. Begin with a younger --state; `tidemark replay --now \
                 --save-state DIR` takes one",
                position.steps,
                bounds.start
            );
        }
        let end = self.readahead.source().stable_end(of)?;
        self.steps = self.steps.saturating_add_signed(end.0.saturating_sub(position.steps.0));
        let driver =
            Driver::<M>::new((partition, layout), (position, rows), (&self.readahead, end));
        let driver = driver.with_context(|| format!("the state of {of}"))?;
        self.drivers.push(Box::new(driver));
        Ok(())
    }

    /// Topics that are compared.
    pub(super) fn topics(&self) -> Vec<Topic> {
        let mut topics: Vec<_> = self.lines.keys().map(|of| of.topic).collect();
        topics.dedup();
        topics
    }

    /// Replays the steps before `until`. `false` if a stop, or the reader closing the output, ended it earlier.
    pub(super) fn run(
        &mut self,
        mut side: Option<&mut Side>,
        report: &mut Report,
        stop: &CancellationToken,
    ) -> anyhow::Result<bool> {
        let mut progress = Progress::begin();
        let mut due = BinaryHeap::new();
        for (number, driver) in self.drivers.iter_mut().enumerate() {
            due.extend(driver.due()?.map(|at| Reverse((at, number))));
        }
        while let Some(Reverse((at, number))) = due.pop() {
            if self.until.is_some_and(|until| at >= until) {
                break;
            }
            if stop.is_cancelled() || report.is_closed {
                output::progress("");
                return Ok(false);
            }
            let Some(driver) = self.drivers.get_mut(number) else { continue };
            let played = driver.play()?;
            due.extend(driver.due()?.map(|at| Reverse((at, number))));
            report.totals.steps = report.totals.steps.saturating_add(1);
            report.totals.inputs = report.totals.inputs.saturating_add(played.inputs);
            for record in played.untaken.iter().filter(|_| at >= self.from) {
                report.add(&Difference::Untaken(record))?;
            }
            let is_compared = |output: &Output| is_output(output.record.to.topic);
            for output in played.outputs.into_iter().filter(is_compared) {
                self.compare(&output, at, report)?;
                if let Some(side) = &mut side {
                    side.add(output.record)?;
                }
            }
            progress.show(|millis| progress_line(&report.totals, self.steps, millis));
        }
        output::progress("");
        Ok(true)
    }

    fn compare(
        &mut self,
        Output { input, record: made }: &Output,
        at: UnixMicros,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let line = self.lines.get_mut(&made.to);
        let line = line.with_context(|| format!("{} is no output of the processor", made.to))?;
        let mut extra = Vec::new();
        let found = line.find(made, &mut extra)?;
        self.report_extra(&extra, report)?;
        let is_reported = at >= self.from;
        match &found {
            Found::Same => report.totals.same = report.totals.same.saturating_add(1),
            Found::Missing if is_reported => {
                report.add(&Difference::Missing { input: *input, made })?;
            }
            Found::Different(emitted) if is_reported => {
                report.add(&Difference::Different { input: *input, made, emitted })?;
            }
            Found::Missing | Found::Different(_) => {}
        }
        Ok(())
    }

    fn report_extra(&self, extra: &[Arc<Record>], report: &mut Report) -> anyhow::Result<()> {
        let is_shared = |of: Topic| matches!(of.spec().key, KeyKind::Order | KeyKind::Single);
        for record in extra {
            let is_foreign = self.is_partial && is_shared(record.from.topic);
            if record.appended_at >= self.from && !is_foreign {
                report.add(&Difference::Extra(record))?;
            }
        }
        Ok(())
    }

    /// Reports emitted records that no replayed step made.
    pub(super) fn finish(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let until = self.until.unwrap_or(UnixMicros(i64::MAX));
        let step_max = i64::try_from(self.step_max.as_micros()).unwrap_or(i64::MAX);
        let young = self.until.map(|until| UnixMicros(until.0.saturating_sub(step_max)));
        let mut extra = Vec::new();
        for line in self.lines.values_mut() {
            line.finish(
                |record| record.appended_at >= until,
                |record| young.is_some_and(|young| record.appended_at >= young),
                &mut extra,
            )?;
        }
        self.report_extra(&extra, report)
    }

    pub(super) fn state(&self) -> anyhow::Result<State> {
        let mut state = State::default();
        for driver in &self.drivers {
            let (group, partition, position, rows) = driver.saved()?;
            state.machines.insert((group.to_owned(), partition), (position, rows));
        }
        for (of, line) in &self.lines {
            let (next, pending) = line.position();
            let judged_from = line.judged_from();
            state.outputs.insert(*of, Compared { next, judged_from, pending });
        }
        Ok(state)
    }
}

pub(super) fn present(readahead: &Readahead, layout: Layout) -> anyhow::Result<State> {
    let mut state = State::default();
    let outputs = || Topic::ALL.into_iter().filter(|topic| is_output(*topic));
    // Read before the changelogs: these outputs follow from steps that the state includes.
    for topic in outputs() {
        for partition in topic.all_partitions(&layout) {
            let of = TopicPartition { topic, partition };
            let next = readahead.source().bounds(of)?.end;
            state.outputs.insert(of, Compared { next, ..Compared::default() });
        }
    }
    for partition in matching::State::CHANGELOG.all_partitions(&layout) {
        let name = (matching::State::GROUP.to_owned(), partition);
        state.machines.insert(name, present::of::<matching::State>(readahead, partition, &layout)?);
    }
    for partition in orders::State::CHANGELOG.all_partitions(&layout) {
        let name = (orders::State::GROUP.to_owned(), partition);
        state.machines.insert(name, present::of::<orders::State>(readahead, partition, &layout)?);
    }
    for (of, compared) in &mut state.outputs {
        compared.judged_from = readahead.source().stable_end(*of)?;
    }
    Ok(state)
}
