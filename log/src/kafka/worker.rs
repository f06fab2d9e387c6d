//! A member of a group with a producer of steps: what the stages hold.

mod step;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::topic_partition_list::Offset as Start;
use schemas::Partition;

use super::Site;
use super::assignment;
use super::context::Notice;
use super::cursor::Cursors;
use super::mark::Marks;
use super::member::{Member, Polled};
use super::observer::StepObserver;
use super::reader::Reader;
use super::settings::{Appetite, Reports};
use super::transaction::Transaction;
use crate::metrics;
use crate::{
    Assigned, Error, Event, NewRecord, Record, Step, StepError, TopicPartition, Worker, WorkerSpec,
};

/// Nobody waits longer in one piece; keeps sums of times in range.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// How long to wait before the group's offsets are asked for again.
const SETTLE: Duration = Duration::from_millis(5);
/// How many batches are sorted ahead, so that all partitions have their turn.
const BATCHES_AHEAD: usize = 4;
/// And how many records at least.
const RECORDS_AHEAD: usize = 10_000;
/// How many bytes of them one poll brings, about: a few large records are as much as many small ones.
const BYTES_AHEAD: usize = 64 * 1024 * 1024;

/// A member of a group.
pub(super) struct KafkaWorker {
    site: Arc<Site>,
    observer: Option<Arc<dyn StepObserver>>,
    spec: WorkerSpec,
    /// Name of the member in the group, and of its transactions.
    name: String,
    member: Option<Member>,
    transaction: Option<Transaction>,
    /// Kept from one changelog to the next.
    restorer: Option<Reader>,
    marks: Marks,
    cursors: Cursors,
    events: VecDeque<Event>,
    standing: Standing,
    /// Whose changelogs were written ahead of the step.
    ahead: BTreeSet<Partition>,
}

/// What a worker may do.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// It has nothing now. What it has cursors for may come back.
    Between,
    /// It got these, and has yet to find out where the group stands.
    Given(Vec<TopicPartition>),
    /// It owns what it has cursors for, and reads once the caller polls.
    Owner { reading: bool },
    /// Another worker has its name.
    Superseded,
}

impl KafkaWorker {
    /// Joins with the first poll.
    ///
    /// # Errors
    /// [`Error::Fatal`] if the configuration cannot be used.
    pub(super) fn new(
        site: Arc<Site>,
        observer: Option<Arc<dyn StepObserver>>,
        spec: WorkerSpec,
    ) -> Result<Self, Error> {
        let name = format!("{}{}-{}", site.config.prefix, spec.group, spec.member);
        let member = Member::join(&site, &spec, &name)?;
        Ok(Self {
            site,
            observer,
            spec,
            name,
            member: Some(member),
            transaction: None,
            restorer: None,
            marks: Marks::new(),
            cursors: Cursors::default(),
            events: VecDeque::new(),
            standing: Standing::Between,
            ahead: BTreeSet::new(),
        })
    }

    fn superseded(&self) -> String {
        format!("another {} joined the group {}", self.spec.member, self.spec.group)
    }

    /// Joins again after it left.
    fn join(&mut self) -> Result<(), Error> {
        if self.member.is_none() {
            self.member = Some(Member::join(&self.site, &self.spec, &self.name)?);
            self.standing = Standing::Between;
        }
        Ok(())
    }

    /// Everything is lost, and another worker has the name.
    fn supersede(&mut self) {
        self.take_back();
        self.standing = Standing::Superseded;
        self.transaction = None;
        self.cursors.clear();
        self.events.clear();
    }

    /// Takes note of what the group decided.
    fn take_notices(&mut self) {
        while let Some(notice) = self.member.as_ref().and_then(Member::take_notice) {
            match notice {
                Notice::Revoked { lost } => {
                    self.cursors.forget_waiting();
                    self.standing = Standing::Between;
                    // Otherwise it is told only what does not come back.
                    if lost {
                        self.tell_lost(self.cursors.partitions());
                        self.cursors.clear();
                    }
                }
                Notice::Assigned(given) => self.standing = Standing::Given(given),
            }
        }
    }

    fn tell_lost(&mut self, lost: Vec<TopicPartition>) {
        if !lost.is_empty() {
            self.events.push_back(Event::Revoked(lost));
        }
    }

    /// Finds out where the group stands in what it was given, after its own past is fenced, and tells
    /// the caller what changed. Does nothing while a step of somebody else is being settled.
    fn settle(&mut self, given: &[TopicPartition]) -> Result<(), Error> {
        for topic in &self.spec.topics {
            self.site.check(
                topic
                    .all_partitions(&self.site.layout)
                    .take(1)
                    .map(|partition| TopicPartition { topic: *topic, partition }),
            )?;
        }
        self.fence_predecessors()?;
        let Some(member) = &self.member else { return Ok(()) };
        let Some(now) = member.places(given)? else { return Ok(()) };
        let change = assignment::change(&self.cursors.places(), &now);
        let mut places = now;
        self.cursors.remove(&change.lost);
        let gained: Vec<Assigned> = change
            .gained
            .iter()
            .map(|of| {
                let place = places.remove(of).flatten();
                let committed = place.as_ref().and_then(super::mark::Place::committed);
                self.cursors.add(*of, place);
                Assigned { partition: *of, committed }
            })
            .collect();
        let stood = member.stand(self.cursors.starts());
        // Told in any case: if the member cannot stand there, the next try sees no change any more.
        let (lost, gained_count) = (change.lost.len(), gained.len());
        self.tell_lost(change.lost);
        if !gained.is_empty() {
            self.events.push_back(Event::Assigned(gained));
        }
        stood?;
        self.standing = Standing::Owner { reading: false };
        tracing::debug!(
            kafka.group = self.spec.group,
            kafka.member = self.spec.member,
            gained = gained_count,
            lost,
            kept = self.cursors.partitions().len() - gained_count,
            "partitions of a consumer group are shared anew"
        );
        ::metrics::counter!(metrics::LOG_REBALANCES_TOTAL, "group" => self.spec.group).increment(1);
        Ok(())
    }

    /// A producer under our name: what an earlier one left is settled.
    fn fence_predecessors(&mut self) -> Result<(), Error> {
        if self.transaction.as_ref().is_some_and(Transaction::is_usable) {
            return Ok(());
        }
        self.transaction = None;
        let (observer, reports) = (self.observer.as_ref(), Reports::Failures);
        let opened = Transaction::open(&self.site, observer, &self.name, reports);
        match opened {
            Ok(transaction) => self.transaction = Some(transaction),
            // Who is the right one is for the group to say.
            Err(Error::Fenced(cause)) => return Err(Error::Transient(cause)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads on from everything that the caller wants.
    fn read_on(&mut self) {
        let Some(member) = &self.member else { return };
        if self.standing == (Standing::Owner { reading: false }) {
            self.restorer = None;
            member.resume(&self.cursors.wanted());
            self.standing = Standing::Owner { reading: true };
        }
        if let Some(transaction) = &self.transaction {
            transaction.listen();
        }
    }

    /// Stands where the cursors are, without reading.
    fn stand(&mut self) {
        if !matches!(self.standing, Standing::Owner { .. }) {
            return;
        }
        self.standing = Standing::Owner { reading: false };
        let stood = self.member.as_ref().map(|member| member.stand(self.cursors.starts()));
        if let Some(Err(error)) = stood {
            // Joining again would take the name back from the right one.
            if self.member.as_ref().is_some_and(Member::is_superseded) {
                self.supersede();
                return;
            }
            tracing::warn!(%error, "a member of a group joins again");
            // What nobody worked on meanwhile is kept.
            self.member = None;
            self.standing = Standing::Between;
        }
    }

    /// Waits for records and sorts what is there.
    fn gather(&mut self, wait: Duration) -> Result<Vec<Arc<Record>>, Error> {
        let ahead = (self.spec.batch_max.saturating_mul(BATCHES_AHEAD)).max(RECORDS_AHEAD);
        let mut ready = self.cursors.ready();
        let mut wait = if ready > 0 { Duration::ZERO } else { wait };
        let mut bytes = 0;
        let mut trouble = None;
        while ready < ahead && bytes < BYTES_AHEAD {
            let Some(member) = &self.member else { return Ok(Vec::new()) };
            match member.poll(wait) {
                Polled::Record(Some(record)) => {
                    trouble = None;
                    bytes += record.key.len() + record.value.as_ref().map_or(0, Vec::len);
                    self.cursors.push(record);
                }
                Polled::Record(None) => {}
                Polled::Nothing => break,
                Polled::OutOfRange => self.find_range()?,
                Polled::Superseded => {
                    self.supersede();
                    return Err(Error::Fenced(self.superseded()));
                }
                // A broker that is away for long says so often. Who takes one of them at a time would
                // hear of it long after it is back.
                Polled::Failed(Error::Transient(cause)) => trouble = Some(cause),
                Polled::Failed(error) => return Err(error),
            }
            wait = Duration::ZERO;
            ready += 1;
        }
        match trouble {
            Some(cause) if self.cursors.ready() == 0 => return Err(Error::Transient(cause)),
            Some(cause) => tracing::debug!(cause, "a member of a group goes on with what it has"),
            None => {}
        }
        if self.member.as_ref().is_some_and(Member::has_notice) {
            // They may be somebody else's by now, and are read again if not.
            self.cursors.forget_waiting();
            return Ok(Vec::new());
        }
        Ok(self.cursors.take(self.spec.batch_max))
    }

    /// Some place is not in the log: expired, or never there.
    fn find_range(&mut self) -> Result<(), Error> {
        // The library says it once and stops reading there. Asked to read on, it says so again, and that
        // is needed if the broker cannot be asked now.
        self.cursors.forget_waiting();
        self.stand();
        for of in self.cursors.partitions() {
            let Some(next) = self.cursors.next(of) else { continue };
            let bounds = self.site.query.written(of)?;
            if next > bounds.end {
                return Err(Error::Fatal(format!(
                    "{of} ends at {}, but the group {} has read it up to {next}: the log was cut",
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
                    "records expired before the group read them; it goes on with the oldest there is"
                );
                self.cursors.skip_to(of, bounds.start);
            }
        }
        self.stand();
        self.read_on();
        Ok(())
    }
}

impl Worker for KafkaWorker {
    fn poll(&mut self, timeout: Duration) -> Result<Event, Error> {
        self.take_back();
        let started = Instant::now();
        let timeout = timeout.min(WAIT_MAX);
        loop {
            if self.standing == Standing::Superseded {
                return Err(Error::Fenced(self.superseded()));
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if self.member.as_ref().is_some_and(Member::is_superseded) {
                self.supersede();
                return Err(Error::Fenced(self.superseded()));
            }
            self.join()?;
            self.take_notices();
            let mut wait = timeout.saturating_sub(started.elapsed());
            if let Standing::Given(given) = &self.standing {
                let given = given.clone();
                self.settle(&given)?;
                wait = wait.min(SETTLE);
            }
            if !self.events.is_empty() {
                continue;
            }
            self.read_on();
            let records = self.gather(wait)?;
            if !records.is_empty() {
                return Ok(Event::Records(records));
            }
            let has_notice = self.member.as_ref().is_some_and(Member::has_notice);
            if !has_notice && started.elapsed() >= timeout {
                return Ok(Event::Idle);
            }
        }
    }

    fn write_ahead(&mut self, records: &mut Vec<NewRecord>) {
        self.begin_with(records);
    }

    fn commit(&mut self, step: Step) -> Result<(), StepError> {
        let made = self.make(step);
        self.take_back();
        made
    }

    fn restore(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        self.take_back();
        self.site.check([changelog])?;
        let mut troubled = false;
        let restored = self.replay(changelog, apply, &mut troubled);
        if troubled {
            self.stand();
        }
        restored
    }

    fn pause(&mut self, partition: TopicPartition) {
        self.cursors.set_paused(partition, true);
        if let (Standing::Owner { reading: true }, Some(member)) = (&self.standing, &self.member) {
            member.pause(&[partition]);
        }
    }

    fn resume(&mut self, partition: TopicPartition) {
        self.cursors.set_paused(partition, false);
        if let (Standing::Owner { reading: true }, Some(member)) = (&self.standing, &self.member) {
            member.resume(&[partition]);
        }
    }
}

impl Drop for KafkaWorker {
    fn drop(&mut self) {
        // Readers of committed records would wait for its end.
        self.take_back();
    }
}

impl KafkaWorker {
    /// Restores. `troubled` if something came for the member meanwhile that is to come again: it was not
    /// answered.
    fn replay(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
        troubled: &mut bool,
    ) -> Result<(), Error> {
        let Self { site, member, cursors, standing, restorer, .. } = self;
        if *standing == (Standing::Owner { reading: true }) {
            if let Some(member) = member {
                member.pause(&cursors.partitions());
            }
            *standing = Standing::Owner { reading: false };
        }
        // A long restore is not silence. What the group decides meanwhile is told by the next poll.
        let mut alive = || match member.as_ref().map(|member| member.poll(Duration::ZERO)) {
            Some(Polled::Record(Some(record))) => cursors.push(record),
            Some(Polled::Record(None) | Polled::Nothing) | None => {}
            Some(Polled::OutOfRange | Polled::Superseded | Polled::Failed(_)) => *troubled = true,
        };
        let end = site.query.settled_end(&site.config, changelog, &mut alive)?;
        if site.query.bounds(changelog)?.start >= end {
            return Ok(());
        }
        let reader = match restorer.take() {
            Some(reader) => reader,
            None => Reader::new(site, Appetite::Whole)?,
        };
        let mut take = |record| {
            apply(record);
            std::ops::ControlFlow::Continue(())
        };
        reader.scan(site, changelog, (Start::Beginning, end), &mut take, &mut alive)?;
        *restorer = Some(reader);
        Ok(())
    }
}
