//! A consumer as a member of a group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset as KafkaOffset, TopicPartitionList};

use super::position::{self, GroupPosition, Positions};
use crate::kafka::client::context::{MemberContext, Notice};
use crate::kafka::client::watchdog::Watched;
use crate::kafka::client::{fault, open, record, settings, wake};
use crate::kafka::shared::Shared;
use crate::{Cause, Error, Offset, Record, TopicPartition, WorkerSpec};

const POSITIONS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a leaving member is polled: the library first releases its partitions, then
/// leaves the group.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(150);
const LEAVE_POLL_TIMEOUT: Duration = Duration::from_millis(10);

pub(super) enum Polled {
    Record(Record),
    /// A message of a topic that this installation does not have, or an error that the library recovers
    /// from.
    Ignored,
    /// The position to read from is not in the log.
    OutOfRange,
    /// The group has another member id under this member's name.
    Fenced,
    Failed(Error),
    /// There is nothing more now.
    Nothing,
}

/// A member. Leaves its group when dropped, unless a fatal error ended it before.
pub(super) struct Member {
    consumer: BaseConsumer<MemberContext>,
    shared: Arc<Shared>,
    /// Group metadata of the last noted assignment.
    identity: Option<Arc<ConsumerGroupMetadata>>,
    /// Watches the close of `consumer`, which is dropped before this field.
    closing: Option<Watched>,
}

impl Member {
    /// Joins the group of a worker as `instance`.
    pub(super) fn join(
        shared: &Arc<Shared>,
        spec: &WorkerSpec,
        instance: &str,
    ) -> Result<Self, Error> {
        let group = format!("{}{}", shared.config.prefix, spec.group);
        let settings = settings::member(&shared.config, &group, instance);
        let context = MemberContext::new(shared.names.clone(), spec.group);
        let consumer: BaseConsumer<_> = open(&settings, context)?;
        let mut topics = Vec::new();
        for topic in &spec.topics {
            topics.push(shared.names.topic(*topic)?.full.as_str());
        }
        consumer.subscribe(&topics).map_err(Error::fatal)?;
        Ok(Self { consumer, shared: shared.clone(), identity: None, closing: None })
    }

    pub(super) fn poll(&self, timeout: Duration) -> Polled {
        match self.consumer.poll(timeout) {
            None => Polled::Nothing,
            Some(Ok(message)) => {
                self.note_rest(false);
                record::of_message(&self.shared.names, &message)
                    .map_or(Polled::Ignored, Polled::Record)
            }
            Some(Err(error)) => self.failed(error),
        }
    }

    fn failed(&self, error: KafkaError) -> Polled {
        if self.is_fenced() {
            return Polled::Fenced;
        }
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) {
            return Polled::OutOfRange;
        }
        tracing::debug!(%error, "a member of a group got an error");
        match fault::of_poll(error) {
            Some(Error::Transient(cause)) => Polled::Failed(self.transient(cause)),
            Some(error) => Polled::Failed(error),
            None => Polled::Ignored,
        }
    }

    fn transient(&self, error: impl Into<Cause>) -> Error {
        Error::Transient(self.consumer.context().last.explain(error))
    }

    /// Notes the group's positions in these partitions, for the metric of its lag.
    pub(super) fn note_positions(&self, positions: impl Iterator<Item = (TopicPartition, Offset)>) {
        self.consumer.context().note_positions(positions);
    }

    /// Notes whether all delivered records are committed, for the metric of the lag.
    pub(super) fn note_rest(&self, is_at_rest: bool) {
        self.consumer.context().note_rest(is_at_rest);
    }

    pub(super) fn take_notice(&mut self) -> Option<Notice> {
        let notice = self.consumer.context().take_notice();
        if let Some(Notice::Assigned(_)) = notice {
            self.identity = self.consumer.group_metadata().map(Arc::new);
        }
        notice
    }

    pub(super) fn has_notice(&self) -> bool {
        self.consumer.context().has_notice()
    }

    /// `true` if the group has another member id under this member's name: another instance joined,
    /// or the group's broker was restarted and lost the newest member id.
    pub(super) fn is_fenced(&self) -> bool {
        let fatal = self.consumer.client().fatal_error();
        fatal.is_some_and(|(code, _)| code == RDKafkaErrorCode::FencedInstanceId)
    }

    /// `true` if the member lost its assignment, as after an eviction or a late poll.
    pub(super) fn is_lost(&self) -> bool {
        self.consumer.assignment_lost()
    }

    /// Member id and generation, which the broker checks with every step. The generation is that of the
    /// assignment: the library may join the next one by itself, in which others own the partitions.
    pub(super) fn identity(&self) -> Option<Arc<ConsumerGroupMetadata>> {
        self.identity.clone()
    }

    /// The group's positions. While a transaction with offsets of these partitions is open the
    /// library retries, until the time-out.
    pub(super) fn positions(&self, of: &[TopicPartition]) -> Result<Positions, Error> {
        let list = self.shared.names.list(of.iter().map(|of| (*of, KafkaOffset::Invalid)))?;
        let failed = |error: KafkaError| {
            let text = "cannot read the group's positions; a transaction with offsets may be open";
            self.transient(Cause::new(format!("{text}: {error}"), error))
        };
        let list = self.consumer.committed_offsets(list, POSITIONS_TIMEOUT).map_err(failed)?;
        let mut positions = Positions::new();
        for element in list.elements() {
            element.error().map_err(failed)?;
            let Some(of) = self.shared.names.parse(element.topic(), element.partition()) else {
                continue;
            };
            let position = if let KafkaOffset::Offset(offset) = element.offset() {
                let text = element.metadata().to_owned();
                Some(GroupPosition { offset: Offset(offset), text })
            } else {
                None
            };
            positions.insert(of, position);
        }
        Ok(positions)
    }

    /// Commits positions outside of a step.
    pub(super) fn commit(&self, positions: &Positions) -> Result<(), Error> {
        let known = positions.iter().filter_map(|(of, position)| Some((*of, position.as_ref()?)));
        let list = position::list(&self.shared.names, known)?;
        self.consumer.commit(&list, CommitMode::Sync).map_err(|error| self.transient(error))
    }

    /// Assigns these positions to the consumer, which reads nothing until [`Member::resume`].
    pub(super) fn assign_paused(
        &self,
        at: Vec<(TopicPartition, KafkaOffset)>,
    ) -> Result<(), Error> {
        let list = self.shared.names.list(at)?;
        let assigned = self.consumer.assign(&list).and_then(|()| self.consumer.pause(&list));
        assigned.map_err(|error| self.transient(error))
    }

    pub(super) fn pause(&self, of: &[TopicPartition]) {
        self.switch(of, "paused", |list| self.consumer.pause(list));
    }

    pub(super) fn resume(&self, of: &[TopicPartition]) {
        self.switch(of, "resumed", |list| self.consumer.resume(list));
    }

    pub(super) fn wake(&self) {
        wake(&self.consumer);
    }

    fn switch(
        &self,
        of: &[TopicPartition],
        what: &str,
        call: impl Fn(&TopicPartitionList) -> KafkaResult<()>,
    ) {
        if of.is_empty() {
            return;
        }
        let Ok(list) = self.shared.names.list(of.iter().map(|of| (*of, KafkaOffset::Invalid)))
        else {
            return;
        };
        // Fails for partitions that were just revoked; ignored.
        if let Err(error) = call(&list) {
            tracing::debug!(%error, "partitions could not be {what}");
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.closing = Some(self.shared.watchdog.watch("close a consumer"));
        self.consumer.context().leave();
        if self.consumer.client().fatal_error().is_none() {
            self.consumer.unsubscribe();
            let started = Instant::now();
            while started.elapsed() < LEAVE_TIMEOUT {
                // Records do not matter any more; the call serves the callbacks of the group.
                drop(self.consumer.poll(LEAVE_POLL_TIMEOUT));
            }
        }
        if let Err(error) = self.consumer.unassign() {
            tracing::debug!(%error, "cannot give partitions back");
        }
    }
}
