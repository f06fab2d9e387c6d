//! A step of a worker, and the worker's state after a failed one.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use schemas::{Cleanup, Partition};

use super::{KafkaWorker, Membership, Ownership};
use crate::kafka::group::member::Member;
use crate::kafka::group::position::{self, GroupPosition};
use crate::kafka::step::outcome::{Outcome, StepFailure};
use crate::kafka::step::producer::{Offsets, StepProducer};
use crate::{Cause, Error, NewRecord, Step, StepError, TopicPartition};

const OUTCOME_RETRY_DELAY: Duration = Duration::from_millis(200);

/// The group's positions after a step.
type NewPositions = BTreeMap<TopicPartition, GroupPosition>;

/// Partitions of the changelogs that `records` write.
fn changelogs(records: &[NewRecord]) -> impl Iterator<Item = Partition> {
    let is_state = |record: &&NewRecord| record.to.topic.spec().cleanup == Cleanup::Compact;
    records.iter().filter(is_state).map(|record| record.to.partition)
}

impl KafkaWorker {
    pub(super) fn make(&mut self, step: Step) -> Result<(), StepError> {
        let is_begun = self.producer.is_begun();
        if step.is_empty() && !is_begun {
            return Ok(());
        }
        step.check_metadata()?;
        self.check_ownership()?;
        if step.offsets.iter().any(|(of, _)| !self.cursors.has(*of)) {
            return Err(self.leave(format!("{} does not own the partitions", self.spec.member)));
        }
        let positions = self.positions_after(&step);
        if positions.is_empty() {
            return Err(self.abort(format!("{} owns no partition", self.spec.member)));
        }
        match self.shared.verify(step.records.iter().map(|record| record.to)) {
            Ok(()) => {}
            Err(Error::Fatal(cause)) => return Err(StepError::Fatal(cause)),
            Err(Error::Transient(cause) | Error::Fenced(cause)) => return Err(self.abort(cause)),
        }
        if let Err(error) = self.producer.renew() {
            return Err(self.abort(error.to_string()));
        }
        if is_begun && !self.producer.is_begun() {
            return Err(self.abort("the producer of the step's first records was replaced"));
        }
        let Err(StepFailure { outcome, cause, .. }) = self.run(&step, &positions) else {
            self.take_positions(positions);
            return Ok(());
        };
        match outcome {
            Outcome::Aborted => Err(self.abort(cause)),
            Outcome::MembershipLost | Outcome::ProducerFenced => Err(self.leave(cause)),
            Outcome::Rejected => Err(StepError::Fatal(cause)),
            Outcome::Unknown => self.resolve_unknown_outcome(positions, cause),
        }
    }

    /// Begins or extends the next step with these records and takes them, unless a rebalance or a lost
    /// membership is to be reported first, a topic cannot be verified, or no producer is usable.
    pub(super) fn begin_with(&mut self, records: &mut Vec<NewRecord>) {
        let Some(member) = self.membership.owner() else { return };
        if member.has_notice() || member.is_fenced() || member.is_lost() {
            return;
        }
        if self.shared.verify(records.iter().map(|record| record.to)).is_err() {
            return;
        }
        let Some(producer) = self.producer.get_mut().filter(|p| p.is_usable()) else { return };
        self.ahead.extend(changelogs(records));
        producer.write_ahead(records);
        records.clear();
    }

    pub(super) fn abort_begun(&mut self) {
        self.producer.abort_begun();
        self.ahead.clear();
    }

    fn check_ownership(&mut self) -> Result<(), StepError> {
        let member = self.membership.member();
        if member.is_some_and(Member::is_fenced) {
            return Err(self.leave("the group fenced the member"));
        }
        if member.is_some_and(Member::is_lost) {
            self.cursors.clear();
            self.events.clear();
            self.membership.set_ownership(Ownership::Pending);
            let text = format!("{} did not poll in time", self.spec.member);
            return Err(StepError::Fenced(text.into()));
        }
        if self.membership.owner().is_some_and(|member| !member.has_notice()) {
            return Ok(());
        }
        if self.cursors.partitions().is_empty() {
            let text = format!("{} owns no partition", self.spec.member);
            return Err(StepError::Fenced(text.into()));
        }
        Err(self.abort("the group is rebalancing"))
    }

    /// The group's positions after a step. Besides the inputs they include, for each changelog partition
    /// that the step writes, an input partition of the same number, and at least one in all. Through it
    /// the broker checks that the worker is still the owner, the next owner waits for the step, and both
    /// can read later whether it was committed.
    fn positions_after(&mut self, step: &Step) -> NewPositions {
        let mark = self.marks.next();
        let read = step.offsets.iter();
        let mut positions: NewPositions =
            read.map(|(of, committed)| (*of, GroupPosition::new(committed, &mark))).collect();
        let marked =
            |of: TopicPartition| (of, GroupPosition::marked(self.cursors.position(of), &mark));
        let mut covered: HashSet<Partition> = positions.keys().map(|of| of.partition).collect();
        for partition in self.ahead.iter().copied().chain(changelogs(&step.records)) {
            if !covered.insert(partition) {
                continue;
            }
            let inputs = self.spec.topics.iter();
            let mut inputs = inputs.map(|topic| TopicPartition { topic: *topic, partition });
            positions.extend(inputs.find(|of| self.cursors.has(*of)).map(marked));
        }
        if positions.is_empty() {
            positions.extend(self.cursors.partitions().first().copied().map(marked));
        }
        positions
    }

    fn run(&mut self, step: &Step, positions: &NewPositions) -> Result<(), StepFailure> {
        let identity = self.membership.member().and_then(Member::identity);
        let identity = identity.ok_or_else(|| StepFailure::aborted("not a member of the group"))?;
        let positions = positions.iter().map(|(of, position)| (*of, position));
        let list = position::list(&self.shared.names, positions);
        let list = list.map_err(|error| StepFailure::aborted(error.to_string()))?;
        let producer = self.producer.get_mut();
        let producer: &mut StepProducer =
            producer.ok_or_else(|| StepFailure::aborted("there is no producer"))?;
        producer.run(&step.records, Some(Offsets { list, member: identity }))
    }

    fn take_positions(&mut self, positions: NewPositions) {
        for (of, position) in positions {
            self.cursors.set_position(of, position);
        }
        self.note_positions();
    }

    /// Notes the member's positions, for the metric of the group's lag.
    pub(super) fn note_positions(&self) {
        if let Some(member) = self.membership.member() {
            member.note_positions(self.cursors.offsets());
            member.note_rest(self.cursors.are_at_rest());
        }
    }

    /// Aborts the step: reading restarts at the group's positions.
    fn abort(&mut self, cause: impl Into<Cause>) -> StepError {
        self.cursors.rewind();
        self.assign_paused();
        StepError::Aborted(cause.into())
    }

    /// Leaves the group. The next poll joins again, unless another instance has the name.
    fn leave(&mut self, cause: impl Into<Cause>) -> StepError {
        self.abort_begun();
        self.membership = Membership::Outside;
        self.producer.close();
        self.cursors.clear();
        self.events.clear();
        StepError::Fenced(cause.into())
    }

    /// Reads by its mark whether a step was committed, after a new producer has ended its transaction.
    fn resolve_unknown_outcome(
        &mut self,
        positions: NewPositions,
        cause: Cause,
    ) -> Result<(), StepError> {
        let Some(sample) = positions.keys().next().copied() else { return Err(self.abort(cause)) };
        tracing::warn!(
            %cause,
            kafka.group = self.spec.group,
            "the outcome of a step is unknown; reading it from the group's offsets"
        );
        let started = Instant::now();
        while started.elapsed() < self.shared.config.session_timeout {
            let found = self.producer.renew().and_then(|()| match self.membership.member() {
                Some(member) => member.positions(&[sample]),
                None => Err(Error::transient("not a member of the group")),
            });
            match found {
                Ok(mut found) => {
                    if found.remove(&sample).flatten().as_ref() == positions.get(&sample) {
                        self.take_positions(positions);
                        return Ok(());
                    }
                    return Err(self.abort(cause));
                }
                Err(error) => tracing::debug!(%error, "cannot read the outcome of a step yet"),
            }
            std::thread::park_timeout(OUTCOME_RETRY_DELAY);
        }
        // The state is restored from the log, which has the outcome.
        Err(self.leave(cause))
    }
}
