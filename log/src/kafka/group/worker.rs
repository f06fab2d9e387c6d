//! The `Worker` on Kafka: a group's member and a producer of steps.

mod adoption;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Offset as KafkaOffset;
use schemas::Partition;

use super::assignment;
use super::cursor::Cursors;
use super::member::{Member, Polled};
use super::position::Marks;
use crate::kafka::claim::Claim;
use crate::kafka::client::context::Notice;
use crate::kafka::client::settings::{Appetite, Reports};
use crate::kafka::read::reader::{Extent, Reader};
use crate::kafka::shared::Shared;
use crate::kafka::step::named::NamedProducer;
use crate::{
    Error, Event, NewRecord, Record, Records, Step, StepError, TopicPartition, Worker, WorkerSpec,
};

const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Number of batches that are polled ahead and sorted, or [`RECORDS_AHEAD`] records if that is more, so that
/// all partitions have their turn.
const BATCHES_AHEAD: usize = 4;
const RECORDS_AHEAD: usize = 10_000;
/// Approximate maximum of bytes that one poll takes from the library: the number of records alone
/// would not bound the memory.
const BYTES_AHEAD: usize = 64 * 1024 * 1024;

pub(crate) struct KafkaWorker {
    shared: Arc<Shared>,
    spec: WorkerSpec,
    /// Name of the member in the group, of its transactions and of its claim.
    name: String,
    claim: Claim,
    membership: Membership,
    producer: NamedProducer,
    /// Reader of changelogs, reused for the next one.
    restorer: Option<Reader>,
    marks: Marks,
    /// Retained during a rebalance, for partitions that stay with this member.
    cursors: Cursors,
    events: VecDeque<Event>,
    /// Partitions whose changelogs were written ahead of the step.
    ahead: BTreeSet<Partition>,
}

enum Membership {
    /// The next poll joins.
    Outside,
    Joined(Member, Ownership),
    /// Another instance claimed the name.
    Superseded,
}

#[derive(Debug, PartialEq, Eq)]
enum Ownership {
    /// A rebalance is under way.
    Pending,
    /// Assigned by the group; the group's positions are yet to be read.
    Assigned { partitions: Vec<TopicPartition>, since: Instant },
    /// The worker owns its cursors' partitions; reads once the caller polls.
    Owner { is_reading: bool },
}

impl Membership {
    const fn member(&self) -> Option<&Member> {
        match self {
            Self::Joined(member, _) => Some(member),
            Self::Outside | Self::Superseded => None,
        }
    }

    const fn owner(&self) -> Option<&Member> {
        match self {
            Self::Joined(member, Ownership::Owner { .. }) => Some(member),
            Self::Joined(..) | Self::Outside | Self::Superseded => None,
        }
    }

    fn set_ownership(&mut self, ownership: Ownership) {
        if let Self::Joined(_, current) = self {
            *current = ownership;
        }
    }

    fn has_notice(&self) -> bool {
        self.member().is_some_and(Member::has_notice)
    }
}

impl KafkaWorker {
    /// Joins with the first poll.
    pub(crate) fn new(shared: Arc<Shared>, spec: WorkerSpec) -> Result<Self, Error> {
        let Some(topic) = spec.topics.first().copied() else {
            return Err(Error::fatal(format!("{} has no topics", spec.group)));
        };
        let name = format!("{}{}-{}", shared.config.prefix, spec.group, spec.member);
        let claim = Claim::new(&name, TopicPartition { topic, partition: Partition(0) });
        let producer = NamedProducer::new(shared.clone(), name.clone(), Reports::Failures);
        Ok(Self {
            shared,
            spec,
            name,
            claim,
            membership: Membership::Outside,
            producer,
            restorer: None,
            marks: Marks::new(),
            cursors: Cursors::default(),
            events: VecDeque::new(),
            ahead: BTreeSet::new(),
        })
    }

    fn superseded(&self) -> String {
        format!("another {} joined the group {}", self.spec.member, self.spec.group)
    }

    /// Joins, unless another instance claimed the name.
    fn join(&mut self) -> Result<(), Error> {
        match self.membership {
            Membership::Joined(..) => return Ok(()),
            Membership::Superseded => return Err(Error::Fenced(self.superseded().into())),
            Membership::Outside => {}
        }
        for topic in &self.spec.topics {
            self.shared.verify([TopicPartition { topic: *topic, partition: Partition(0) }])?;
        }
        match self.claim.hold(&self.shared) {
            Err(Error::Fenced(_)) => {
                self.membership = Membership::Superseded;
                self.producer.close();
                self.cursors.clear();
                return self.join();
            }
            held => held?,
        }
        let member = Member::join(&self.shared, &self.spec, &self.name)?;
        self.membership = Membership::Joined(member, Ownership::Pending);
        Ok(())
    }

    /// Leaves a group that has another member id under this name. The next poll joins again, unless
    /// another instance claimed the name.
    fn leave_if_fenced(&mut self) {
        if self.membership.member().is_some_and(Member::is_fenced) {
            tracing::warn!(
                kafka.group = self.spec.group,
                kafka.member = self.spec.member,
                "the group fenced this member; will join again unless another instance has its name"
            );
            self.cursors.forget_waiting();
            self.membership = Membership::Outside;
        }
    }

    /// Applies the rebalances since the last poll.
    fn take_notices(&mut self) {
        while let Membership::Joined(member, _) = &mut self.membership
            && let Some(notice) = member.take_notice()
        {
            match notice {
                Notice::Revoked { lost } => {
                    self.cursors.forget_waiting();
                    self.membership.set_ownership(Ownership::Pending);
                    // Partitions not lost are reported only if they are not assigned again.
                    if lost {
                        self.report_lost(self.cursors.partitions());
                        self.cursors.clear();
                    }
                }
                Notice::Assigned(partitions) => self.assign(partitions),
            }
        }
    }

    /// Reports lost partitions before it adopts the rest, which waits for a broker's response: the
    /// lost ones may have new owners by then.
    fn assign(&mut self, partitions: Vec<TopicPartition>) {
        let lost = assignment::lost(&self.cursors.partitions(), &partitions);
        self.cursors.remove(&lost);
        self.report_lost(lost);
        let since = Instant::now();
        self.membership.set_ownership(Ownership::Assigned { partitions, since });
    }

    fn report_lost(&mut self, lost: Vec<TopicPartition>) {
        if !lost.is_empty() {
            self.events.push_back(Event::Revoked(lost));
        }
    }

    /// Reads from all partitions that the caller has not paused.
    fn start_reading(&mut self) {
        let Membership::Joined(member, ownership) = &mut self.membership else { return };
        if *ownership == (Ownership::Owner { is_reading: false }) {
            self.restorer = None;
            member.resume(&self.cursors.unpaused());
            member.wake();
            *ownership = Ownership::Owner { is_reading: true };
        }
        self.producer.serve_callbacks();
    }

    /// Assigns the cursors' positions again, paused.
    fn assign_paused(&mut self) {
        let Some(member) = self.membership.owner() else { return };
        match member.assign_paused(self.cursors.starts()) {
            Ok(()) => self.membership.set_ownership(Ownership::Owner { is_reading: false }),
            Err(error) => {
                tracing::warn!(%error, "a member of a group joins again");
                self.membership = Membership::Outside;
            }
        }
    }

    /// Polls records and sorts them by partition.
    fn gather(&mut self, wait: Duration) -> Result<Records, Error> {
        let ahead = (self.spec.batch_max.saturating_mul(BATCHES_AHEAD)).max(RECORDS_AHEAD);
        let mut ready = self.cursors.ready();
        let mut wait = if ready > 0 { Duration::ZERO } else { wait };
        let mut bytes = 0;
        let mut unavailable = None;
        while ready < ahead && bytes < BYTES_AHEAD {
            let Some(member) = self.membership.member() else { return Ok(Vec::new()) };
            match member.poll(wait) {
                Polled::Record(record) => {
                    unavailable = None;
                    bytes += record.key.len() + record.value.as_ref().map_or(0, Vec::len);
                    self.cursors.push(record);
                }
                Polled::Ignored => {}
                Polled::Nothing => break,
                Polled::OutOfRange => self.correct_range()?,
                Polled::Fenced => {
                    self.cursors.forget_waiting();
                    return Ok(Vec::new());
                }
                // librdkafka queues one event for each failed attempt: all of them are taken, so that
                // none is reported after the recovery.
                Polled::Failed(Error::Transient(cause)) => unavailable = Some(cause),
                Polled::Failed(error) => return Err(error),
            }
            wait = Duration::ZERO;
            ready += 1;
        }
        match unavailable {
            Some(cause) if self.cursors.ready() == 0 => return Err(Error::Transient(cause)),
            Some(cause) => tracing::debug!(%cause, "a group is unavailable; records are left"),
            None => {}
        }
        if self.membership.has_notice() {
            // Another member may own the records' partitions by now; if not, they are read again.
            self.cursors.forget_waiting();
            return Ok(Vec::new());
        }
        Ok(self.cursors.take(self.spec.batch_max))
    }

    /// Corrects positions outside the log: skips expired records, and fails if the log was
    /// truncated.
    fn correct_range(&mut self) -> Result<(), Error> {
        // The library reports such a position once and stops reading the partition. After a new
        // assignment it reports it again, which is needed if a query below fails.
        self.cursors.forget_waiting();
        self.assign_paused();
        for of in self.cursors.partitions() {
            let Some(next) = self.cursors.next(of) else { continue };
            let bounds = self.shared.query.written(of)?;
            if next > bounds.end {
                return Err(Error::fatal(format!(
                    "{of} ends at {}, but the group {} has read it up to {next}: the log was truncated",
                    bounds.end, self.spec.group
                )));
            }
            if next < bounds.start {
                tracing::error!(
                    kafka.group = self.spec.group,
                    kafka.topic = of.topic.name(),
                    kafka.partition = of.partition.0,
                    kafka.offset = next.0,
                    skipped = bounds.start.0.saturating_sub(next.0),
                    "records expired before the group read them; it continues with the oldest record; `tidemark reconcile` says \
                     what is missing"
                );
                self.cursors.skip_to(of, bounds.start);
            }
        }
        self.assign_paused();
        self.start_reading();
        Ok(())
    }

    /// Passes a changelog to `apply`. Sets `is_disturbed` if the member meanwhile polled an error
    /// that only a new assignment reports again.
    fn replay(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
        is_disturbed: &mut bool,
    ) -> Result<(), Error> {
        let Self { shared, membership, cursors, restorer, .. } = self;
        if let Membership::Joined(member, Ownership::Owner { is_reading }) = membership
            && std::mem::take(is_reading)
        {
            member.pause(&cursors.partitions());
        }
        // The member polls during a long restore. A rebalance meanwhile is reported by the next poll.
        let mut alive = || match membership.member().map(|member| member.poll(Duration::ZERO)) {
            Some(Polled::Record(record)) => cursors.push(record),
            Some(Polled::Ignored | Polled::Nothing) | None => {}
            Some(Polled::OutOfRange | Polled::Fenced | Polled::Failed(_)) => *is_disturbed = true,
        };
        let end = shared.query.stable_end(changelog, &mut alive)?;
        if shared.query.bounds(changelog)?.start >= end {
            return Ok(());
        }
        let reader = match restorer.take() {
            Some(reader) => reader,
            None => Reader::new(shared, Appetite::Whole)?,
        };
        let mut take = |record| {
            apply(record);
            std::ops::ControlFlow::Continue(())
        };
        let range = (KafkaOffset::Beginning, end);
        reader.scan(shared, changelog, range, Extent::Whole, &mut take, &mut alive)?;
        *restorer = Some(reader);
        Ok(())
    }

    fn switch(&mut self, partition: TopicPartition, is_paused: bool) {
        self.cursors.set_paused(partition, is_paused);
        let Membership::Joined(member, Ownership::Owner { is_reading: true }) = &self.membership
        else {
            return;
        };
        if is_paused { member.pause(&[partition]) } else { member.resume(&[partition]) }
    }
}

impl Worker for KafkaWorker {
    fn poll(&mut self, timeout: Duration) -> Result<Event, Error> {
        self.abort_begun();
        let started = Instant::now();
        let timeout = timeout.min(WAIT_MAX);
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.leave_if_fenced();
            self.join()?;
            self.take_notices();
            if self.events.is_empty()
                && matches!(self.membership, Membership::Joined(_, Ownership::Assigned { .. }))
            {
                self.adopt_assignment()?;
            }
            if !self.events.is_empty() {
                continue;
            }
            self.start_reading();
            let records = self.gather(timeout.saturating_sub(started.elapsed()))?;
            if !records.is_empty() {
                return Ok(Event::Records(records));
            }
            if !self.membership.has_notice() && started.elapsed() >= timeout {
                self.note_positions();
                return Ok(Event::Idle);
            }
        }
    }

    fn write_ahead(&mut self, records: &mut Vec<NewRecord>) {
        self.begin_with(records);
    }

    fn commit(&mut self, step: Step) -> Result<(), StepError> {
        let made = self.make(step);
        self.abort_begun();
        made
    }

    fn restore(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        self.abort_begun();
        self.shared.verify([changelog])?;
        let mut is_disturbed = false;
        let restored = self.replay(changelog, apply, &mut is_disturbed);
        if is_disturbed {
            self.assign_paused();
        }
        restored
    }

    fn pause(&mut self, partition: TopicPartition) {
        self.switch(partition, true);
    }

    fn resume(&mut self, partition: TopicPartition) {
        self.switch(partition, false);
    }
}

impl Drop for KafkaWorker {
    fn drop(&mut self) {
        // Otherwise readers of committed records wait until the transaction times out.
        self.abort_begun();
    }
}
