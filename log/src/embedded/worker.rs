//! Workers, writers and tails of the embedded log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use schemas::Topic;

use super::cursor::Cursors;
use super::group::{Change, Lost, MemberId};
use super::queue::{Author, Work};
use super::signal::Listener;
use super::{Handle, Shared, rows};
use crate::{
    Assigned, Error, Event, NewRecord, Offset, Record, Records, Step, StepError, Tail,
    TopicPartition, Worker, WorkerSpec, Writer,
};

/// Maximum number of records that one poll of a tail returns.
const TAIL_RECORDS_MAX: usize = 1000;
/// Maximum wait of one poll: keeps its deadline within the range of `Instant`.
const WAIT_MAX: Duration = Duration::from_secs(3600);

pub(super) struct EmbeddedWorker {
    handle: Arc<Handle>,
    spec: WorkerSpec,
    membership: Membership,
    cursors: Cursors,
    listener: Arc<Listener>,
}

#[derive(Debug, Clone)]
enum Membership {
    Member(MemberId),
    /// The next poll joins again.
    Outside,
    /// Another worker has the name.
    Superseded,
}

impl EmbeddedWorker {
    pub(super) fn join(handle: Arc<Handle>, spec: WorkerSpec) -> Self {
        let listener = handle.shared.view.signal.listen(&spec.topics);
        let membership = Membership::Member(join(&handle.shared, &spec));
        Self { handle, spec, membership, cursors: Cursors::default(), listener }
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// Returns the change of the partitions, if there is one.
    fn membership_event(&mut self) -> Result<Option<Event>, Error> {
        if matches!(self.membership, Membership::Outside) {
            self.membership = Membership::Member(join(self.shared(), &self.spec));
        }
        let Membership::Member(id) = &self.membership else {
            return Err(Error::Fenced(self.superseded().into()));
        };
        let polled = self.shared().groups().poll(id, Instant::now());
        match polled {
            Ok((change, for_others)) => {
                if for_others {
                    self.shared().view.signal.raise_for_all();
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
                    let committed = self.handle.shared.view.committed(self.spec.group, of);
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

    /// Holds the member's partitions until the guard is dropped.
    fn hold(&self, needed: impl IntoIterator<Item = TopicPartition>) -> Result<Held, Lost> {
        let id = match &self.membership {
            Membership::Member(id) => id.clone(),
            Membership::Outside => return Err(Lost::Evicted),
            Membership::Superseded => return Err(Lost::Superseded),
        };
        self.shared().groups().hold(&id, needed)?;
        Ok(Held { handle: self.handle.clone(), id })
    }

    /// Leaves the group after a lost membership.
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
        if let Membership::Member(id) = &self.membership
            && self.shared().groups().leave(id)
        {
            self.shared().view.signal.raise_for_all();
        }
    }

    /// Returns to the committed offsets.
    fn rewind(&mut self) {
        let (view, group) = (&self.handle.shared.view, self.spec.group);
        self.cursors.seek(|of| view.committed(group, of).map_or(Offset(0), |c| c.offset));
    }
}

fn join(shared: &Shared, spec: &WorkerSpec) -> MemberId {
    let id = shared.groups().join(spec.group, &spec.member, &spec.topics, Instant::now());
    // Members that must release partitions are woken.
    shared.view.signal.raise_for_all();
    id
}

/// A hold on partitions; ends when dropped.
struct Held {
    handle: Arc<Handle>,
    id: MemberId,
}

impl Drop for Held {
    fn drop(&mut self) {
        let shared = &self.handle.shared;
        let has_freed = shared.groups().release(&self.id, Instant::now());
        if has_freed {
            shared.view.signal.raise_for_all();
        }
    }
}

impl Worker for EmbeddedWorker {
    /// Accepts nothing: the committer writes a step as a whole.
    fn write_ahead(&mut self, _records: &mut Vec<NewRecord>) {}

    fn poll(&mut self, timeout: Duration) -> Result<Event, Error> {
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        let handle = self.handle.clone();
        let shared = &handle.shared;
        // Bounds waits so that a waiting member is not evicted.
        let alive = shared.groups().session_timeout() / 4;
        loop {
            let seen = self.listener.seen();
            shared.queue.check_open()?;
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
            self.listener.wait(seen, left.min(alive));
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
        self.shared().queue.check_open()?;
        let extent = self.shared().extent(changelog)?;
        // Prevents eviction during a long restore. An error is ignored: the next poll handles a lost membership.
        let _held = self.hold([]);
        self.shared()
            .readers
            .with(|connection| rows::scan(connection, changelog, extent.slot, apply))
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

pub(super) struct EmbeddedWriter {
    pub(super) handle: Arc<Handle>,
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
        self.handle.shared.queue.submit_blocking(work)
    }
}

pub(super) struct EmbeddedTail {
    handle: Arc<Handle>,
    cursors: Cursors,
    listener: Arc<Listener>,
}

impl EmbeddedTail {
    /// Starts at the present end of all partitions.
    pub(super) fn new(handle: Arc<Handle>, topics: &[Topic]) -> Self {
        let listener = handle.shared.view.signal.listen(topics);
        let mut cursors = Cursors::default();
        for (of, extent) in handle.shared.view.extents() {
            if topics.contains(&of.topic) {
                cursors.add(of, extent.bounds.end);
            }
        }
        Self { handle, cursors, listener }
    }
}

impl Tail for EmbeddedTail {
    fn poll(&mut self, timeout: Duration) -> Result<Records, Error> {
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        let shared = &self.handle.shared;
        loop {
            let seen = self.listener.seen();
            shared.queue.check_open()?;
            let records = self.cursors.gather(shared, TAIL_RECORDS_MAX)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !records.is_empty() || left.is_zero() {
                return Ok(records);
            }
            self.listener.wait(seen, left);
        }
    }
}
