//! A step of a worker, and what becomes of the worker if it fails.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use rdkafka::topic_partition_list::{Offset as Start, TopicPartitionList};
use schemas::{Cleanup, Partition};

use super::{KafkaWorker, Standing};
use crate::kafka::fault::Lost;
use crate::kafka::mark::Place;
use crate::kafka::member::Member;
use crate::kafka::name::number;
use crate::kafka::settings;
use crate::kafka::transaction::{Failure, Offsets, Transaction};
use crate::{Error, NewRecord, Step, StepError, TopicPartition};

/// Bytes of the text that a group keeps with an offset.
const METADATA_BYTES_MAX: usize = 4000;
/// How long one look at the group waits.
const LOOK: Duration = Duration::from_millis(10);
/// How long to wait before an unknown outcome is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

type Places = BTreeMap<TopicPartition, Place>;

/// The partitions of the changelogs that records are for.
fn changelogs(records: &[NewRecord]) -> impl Iterator<Item = Partition> {
    let is_state = |record: &&NewRecord| record.to.topic.spec().cleanup == Cleanup::Compact;
    records.iter().filter(is_state).map(|record| record.to.partition)
}

impl KafkaWorker {
    /// Makes a step.
    pub(super) fn make(&mut self, step: Step) -> Result<(), StepError> {
        let is_begun = self.is_begun();
        if step.records.is_empty() && step.offsets.is_empty() && !is_begun {
            return Ok(());
        }
        if let Some((of, _)) =
            step.offsets.iter().find(|(_, c)| c.metadata.len() > METADATA_BYTES_MAX)
        {
            let text = format!("the metadata for {of} is longer than {METADATA_BYTES_MAX} bytes");
            return Err(StepError::Fatal(text));
        }
        self.check_standing()?;
        if step.offsets.iter().any(|(of, _)| !self.cursors.has(*of)) {
            return Err(self.leave(format!("{} does not own the partitions", self.spec.member)));
        }
        let places = self.places_after(&step);
        if places.is_empty() {
            return Err(self.abort(format!("{} owns no partition", self.spec.member)));
        }
        match self.site.check(step.records.iter().map(|record| record.to)) {
            Ok(()) => {}
            Err(Error::Fatal(cause)) => return Err(StepError::Fatal(cause)),
            Err(error) => return Err(self.abort(error.to_string())),
        }
        if let Err(error) = self.fence_predecessors() {
            return Err(self.abort(error.to_string()));
        }
        if is_begun && !self.is_begun() {
            return Err(self.abort("another producer took the place of the step's".to_owned()));
        }
        match self.run(&step, &places) {
            Ok(()) => {
                self.happened(places);
                Ok(())
            }
            Err(Failure::Aborted(cause)) => Err(self.abort(cause)),
            Err(Failure::Lost(Lost::Superseded, _)) => {
                self.supersede();
                Err(StepError::Fenced(self.superseded()))
            }
            Err(Failure::Lost(Lost::Evicted, cause)) => Err(self.leave(cause)),
            Err(Failure::Fenced(cause)) => Err(self.fenced(cause)),
            Err(Failure::Refused(cause)) => Err(StepError::Fatal(cause)),
            Err(Failure::Unknown(cause)) => self.find_out(places, cause),
        }
    }

    /// Begins the next step with these records, if there is nothing to be found out before.
    pub(super) fn begin_with(&mut self, records: &mut Vec<NewRecord>) {
        let Some(member) = &self.member else { return };
        let stands = matches!(self.standing, Standing::Owner { .. });
        if !stands || member.has_notice() || member.is_superseded() || member.is_lost() {
            return;
        }
        if self.site.check(records.iter().map(|record| record.to)).is_err() {
            return;
        }
        let Some(transaction) = self.transaction.as_mut().filter(|t| t.is_usable()) else { return };
        self.ahead.extend(changelogs(records));
        transaction.ahead(records);
        records.clear();
    }

    fn is_begun(&self) -> bool {
        self.transaction.as_ref().is_some_and(Transaction::is_begun)
    }

    /// What was written ahead and has no step never happens.
    pub(super) fn take_back(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.take_back();
        }
        self.ahead.clear();
    }

    /// Whether the worker may make steps now.
    fn check_standing(&mut self) -> Result<(), StepError> {
        let has_notice = self.member.as_ref().is_some_and(Member::has_notice);
        match self.standing {
            Standing::Superseded => Err(StepError::Fenced(self.superseded())),
            _ if self.member.as_ref().is_some_and(Member::is_superseded) => {
                self.supersede();
                Err(StepError::Fenced(self.superseded()))
            }
            _ if self.member.as_ref().is_some_and(Member::is_lost) => {
                self.cursors.clear();
                self.events.clear();
                self.standing = Standing::Between;
                Err(StepError::Fenced(format!("{} was silent for too long", self.spec.member)))
            }
            Standing::Owner { .. } if !has_notice => Ok(()),
            _ if self.cursors.partitions().is_empty() => {
                Err(StepError::Fenced(format!("{} owns no partition", self.spec.member)))
            }
            _ => Err(self.abort("the group is sharing its partitions anew".to_owned())),
        }
    }

    /// Where the group will stand. Besides what was read, this names every partition whose changelog the
    /// step writes, or any at all: by it the broker checks that the worker still owns it, the next owner
    /// waits for the step, and both can tell later that it happened.
    fn places_after(&mut self, step: &Step) -> Places {
        let mark = self.marks.next();
        let places = step.offsets.iter().map(|(of, committed)| (*of, Place::new(committed, &mark)));
        let mut places: Places = places.collect();
        let mut covered: HashSet<Partition> = places.keys().map(|of| of.partition).collect();
        for partition in self.ahead.iter().copied().chain(changelogs(&step.records)) {
            if !covered.insert(partition) {
                continue;
            }
            let inputs = self.spec.topics.iter();
            let mut inputs = inputs.map(|topic| TopicPartition { topic: *topic, partition });
            if let Some(of) = inputs.find(|of| self.cursors.has(*of)) {
                places.insert(of, Place::again(self.cursors.place(of), &mark));
            }
        }
        if places.is_empty() {
            let any = self.cursors.partitions().into_iter().next();
            places.extend(any.map(|of| (of, Place::again(self.cursors.place(of), &mark))));
        }
        places
    }

    fn run(&mut self, step: &Step, places: &Places) -> Result<(), Failure> {
        let broken = |what: &str| Failure::Aborted(what.to_owned());
        let Some(member) = &self.member else { return Err(broken("not a member")) };
        // Asked for now: it tells the generation of the group.
        let identity =
            member.identity().ok_or_else(|| broken("the group does not know the member"))?;
        let mut list = TopicPartitionList::with_capacity(places.len());
        for (of, place) in places {
            let name = self.site.names.partition(*of);
            let name = name.map_err(|error| Failure::Aborted(error.to_string()))?;
            let mut element = list.add_partition(&name.full, number(of.partition));
            element
                .set_offset(Start::Offset(place.offset.0))
                .map_err(|error| Failure::Aborted(format!("{of}: {error}")))?;
            element.set_metadata(&place.text);
        }
        let Some(transaction) = &mut self.transaction else { return Err(broken("no producer")) };
        transaction.run(&step.records, Some(&Offsets { places: &list, member: &identity }))
    }

    fn happened(&mut self, places: Places) {
        for (of, place) in places {
            self.cursors.set_place(of, place);
        }
    }

    /// The step did not happen: everything is read again from where the group stands.
    fn abort(&mut self, cause: String) -> StepError {
        self.cursors.rewind();
        self.stand();
        StepError::Aborted(cause)
    }

    /// Everything is lost. The next poll joins again.
    fn leave(&mut self, cause: String) -> StepError {
        self.take_back();
        self.member = None;
        self.transaction = None;
        self.standing = Standing::Between;
        self.cursors.clear();
        self.events.clear();
        StepError::Fenced(cause)
    }

    /// Another producer has the name, or the broker gave ours up after a time-out. Who has the name is
    /// what the next heartbeats tell.
    fn fenced(&mut self, cause: String) -> StepError {
        let patience = settings::heartbeat(&self.site.config) * 2 + LOOK;
        let started = Instant::now();
        while let Some(member) = &self.member {
            if member.is_superseded() {
                self.supersede();
                return StepError::Fenced(self.superseded());
            }
            if started.elapsed() > patience {
                break;
            }
            // Nothing that comes now is ours to take.
            drop(member.poll(LOOK));
        }
        self.leave(cause)
    }

    /// Finds out whether a step happened, by its mark. A new producer settles it first: whatever the
    /// last one asked for is decided by then.
    fn find_out(&mut self, places: Places, cause: String) -> Result<(), StepError> {
        let Some(sample) = places.keys().next().copied() else { return Err(self.abort(cause)) };
        tracing::warn!(
            cause,
            kafka.group = self.spec.group,
            "it is not known whether a step happened"
        );
        let started = Instant::now();
        while started.elapsed() < self.site.config.session_timeout {
            let answer = self.fence_predecessors().and_then(|()| match &self.member {
                Some(member) => member.places(&[sample]),
                None => Ok(None),
            });
            match answer {
                Ok(Some(mut found)) => {
                    if found.remove(&sample).flatten().as_ref() == places.get(&sample) {
                        self.happened(places);
                        return Ok(());
                    }
                    return Err(self.abort(cause));
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "the outcome of a step is asked for again"),
            }
            std::thread::park_timeout(ASK_AGAIN);
        }
        // Whatever happened, who restores from the log has it.
        Err(self.leave(cause))
    }
}
