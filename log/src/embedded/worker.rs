//! Workers, writers and tails: what the stages hold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use schemas::Topic;

use super::cursor::Cursors;
use super::group::{Change, Lost, MemberId};
use super::queue::{Author, Work};
use super::{Shared, Site, storage};
use crate::{
    Assigned, Error, Event, NewRecord, Offset, Record, Step, StepError, Tail, TopicPartition,
    Worker, WorkerSpec, Writer,
};

/// How many records a tail brings at once.
const TAIL_RECORDS_MAX: usize = 1000;
/// Nobody waits longer in one piece; keeps sums of times in range.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A member of a group.
pub(super) struct EmbeddedWorker {
    site: Arc<Site>,
    spec: WorkerSpec,
    membership: Membership,
    cursors: Cursors,
}

#[derive(Debug, Clone, Copy)]
enum Membership {
    Member(MemberId),
    /// Lost its partitions; the next poll joins again.
    Outside,
    /// Another worker has its name.
    Superseded,
}

impl EmbeddedWorker {
    /// Joins the group.
    pub(super) fn join(site: Arc<Site>, spec: WorkerSpec) -> Self {
        let membership = Membership::Member(join(&site.shared, &spec));
        Self { site, spec, membership, cursors: Cursors::default() }
    }

    fn shared(&self) -> &Shared {
        &self.site.shared
    }

    /// What changed about the partitions, if anything.
    fn membership_event(&mut self) -> Result<Option<Event>, Error> {
        let id = match self.membership {
            Membership::Member(id) => id,
            Membership::Superseded => return Err(Error::Fenced(self.superseded().into())),
            Membership::Outside => {
                let id = join(&self.site.shared, &self.spec);
                self.membership = Membership::Member(id);
                id
            }
        };
        let polled =
            self.shared().groups().poll(self.spec.group, &self.spec.member, id, Instant::now());
        match polled {
            Ok((change, for_others)) => {
                if for_others {
                    self.shared().view.signal.raise();
                }
                Ok(self.apply(change))
            }
            Err(Lost::Superseded) => {
                self.membership = Membership::Superseded;
                Err(Error::Fenced(self.superseded().into()))
            }
            Err(Lost::Evicted) => {
                self.membership = Membership::Outside;
                let lost = self.cursors.clear();
                if lost.is_empty() {
                    self.membership_event()
                } else {
                    Ok(Some(Event::Revoked(lost)))
                }
            }
        }
    }

    fn apply(&mut self, change: Change) -> Option<Event> {
        match change {
            Change::None => None,
            Change::Revoked(lost) => {
                lost.iter().for_each(|of| self.cursors.remove(*of));
                Some(Event::Revoked(lost))
            }
            Change::Assigned(gained) => {
                let assigned = gained.into_iter().map(|of| {
                    let committed = self.site.shared.view.committed(self.spec.group, of);
                    self.cursors.add(of, committed.as_ref().map_or(Offset(0), |c| c.offset));
                    Assigned { partition: of, committed }
                });
                Some(Event::Assigned(assigned.collect()))
            }
        }
    }

    fn superseded(&self) -> String {
        format!("another {} joined the group {}", self.spec.member, self.spec.group)
    }

    /// Keeps the member's partitions its own until the guard is dropped.
    fn hold(&self, needed: impl IntoIterator<Item = TopicPartition>) -> Result<Held, Lost> {
        let id = match self.membership {
            Membership::Member(id) => id,
            Membership::Outside => return Err(Lost::Evicted),
            Membership::Superseded => return Err(Lost::Superseded),
        };
        let (group, name) = (self.spec.group, self.spec.member.clone());
        self.shared().groups().hold(group, &name, id, needed)?;
        Ok(Held { site: self.site.clone(), group, name, id })
    }

    /// Leaves the group after it was found out that it is not what the worker believed.
    fn lose(&mut self, lost: Lost) -> StepError {
        self.leave();
        self.cursors.clear();
        match lost {
            Lost::Superseded => {
                self.membership = Membership::Superseded;
                StepError::Fenced(self.superseded().into())
            }
            Lost::Evicted => {
                self.membership = Membership::Outside;
                StepError::Fenced(
                    format!("{} does not own the partitions", self.spec.member).into(),
                )
            }
        }
    }

    fn leave(&self) {
        if let Membership::Member(id) = self.membership {
            let left = self.shared().groups().leave(self.spec.group, &self.spec.member, id);
            if left {
                self.shared().view.signal.raise();
            }
        }
    }

    /// Goes back to the committed offsets.
    fn rewind(&mut self) {
        let (view, group) = (&self.site.shared.view, self.spec.group);
        self.cursors.seek(|of| view.committed(group, of).map_or(Offset(0), |c| c.offset));
    }
}

fn join(shared: &Shared, spec: &WorkerSpec) -> MemberId {
    let id = shared.groups().join(spec.group, &spec.member, &spec.topics, Instant::now());
    // Members that have to give partitions away find out at once.
    shared.view.signal.raise();
    id
}

/// A hold on partitions; ends when dropped.
struct Held {
    site: Arc<Site>,
    group: &'static str,
    name: String,
    id: MemberId,
}

impl Drop for Held {
    fn drop(&mut self) {
        let shared = &self.site.shared;
        let superseded = shared.groups().release(self.group, &self.name, self.id, Instant::now());
        if superseded {
            // Its successor waits for the partitions.
            shared.view.signal.raise();
        }
    }
}

impl Worker for EmbeddedWorker {
    /// Takes nothing: a step is written in one go.
    fn write_ahead(&mut self, _records: &mut Vec<NewRecord>) {}

    fn poll(&mut self, timeout: Duration) -> Result<Event, Error> {
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        let site = self.site.clone();
        let shared = &site.shared;
        // Long waits are cut so that a waiting member is never taken for a silent one.
        let alive = shared.groups().session_timeout() / 4;
        loop {
            let seen = shared.view.signal.seen();
            shared.check_open()?;
            if let Some(event) = self.membership_event()? {
                return Ok(event);
            }
            let records = self.cursors.gather(shared, self.spec.batch_max)?;
            if !records.is_empty() {
                return Ok(Event::Records(records));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Event::Idle);
            }
            shared.view.signal.wait(seen, left.min(alive));
        }
    }

    fn commit(&mut self, step: Step) -> Result<(), StepError> {
        if step.is_empty() {
            return Ok(());
        }
        step.check_metadata()?;
        let Step { records, offsets } = step;
        let held = match self.hold(offsets.iter().map(|(of, _)| *of)) {
            Ok(held) => held,
            Err(lost) => return Err(self.lose(lost)),
        };
        let author = Author::Group(self.spec.group);
        let outcome =
            self.shared().queue.submit_blocking(Work::Append { records, offsets, author });
        drop(held);
        if let Err(StepError::Aborted(_)) = outcome {
            self.rewind();
        }
        outcome
    }

    fn restore(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        self.shared().check_open()?;
        let standing = self.shared().standing(changelog)?;
        // A long restore is not silence. One who is no member learns so by polling.
        let _held = self.hold([]);
        self.shared()
            .readers
            .with(|connection| storage::scan(connection, changelog, standing.slot, apply))
    }

    fn pause(&mut self, partition: TopicPartition) {
        self.cursors.set_paused(partition, true);
    }

    fn resume(&mut self, partition: TopicPartition) {
        self.cursors.set_paused(partition, false);
    }
}

impl Drop for EmbeddedWorker {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A writer of steps without input.
pub(super) struct EmbeddedWriter {
    pub(super) site: Arc<Site>,
    pub(super) name: String,
    pub(super) epoch: u64,
}

impl Writer for EmbeddedWriter {
    fn commit(&mut self, records: Vec<NewRecord>) -> Result<(), StepError> {
        if records.is_empty() {
            return Ok(());
        }
        let author = Author::Writer { name: self.name.clone(), epoch: self.epoch };
        let work = Work::Append { records, offsets: Vec::new(), author };
        self.site.shared.queue.submit_blocking(work)
    }
}

/// A reader without a group.
pub(super) struct EmbeddedTail {
    site: Arc<Site>,
    cursors: Cursors,
}

impl EmbeddedTail {
    /// Stands at the present end of all partitions.
    pub(super) fn new(site: Arc<Site>, topics: &[Topic]) -> Self {
        let mut cursors = Cursors::default();
        for (of, standing) in site.shared.view.standings() {
            if topics.contains(&of.topic) {
                cursors.add(of, standing.bounds.end);
            }
        }
        Self { site, cursors }
    }
}

impl Tail for EmbeddedTail {
    fn poll(&mut self, timeout: Duration) -> Result<Vec<Arc<Record>>, Error> {
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        let shared = &self.site.shared;
        loop {
            let seen = shared.view.signal.seen();
            shared.check_open()?;
            let records = self.cursors.gather(shared, TAIL_RECORDS_MAX)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !records.is_empty() || left.is_zero() {
                return Ok(records);
            }
            shared.view.signal.wait(seen, left);
        }
    }
}
