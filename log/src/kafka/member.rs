//! A consumer as a member of a group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset as Start, TopicPartitionList};

use super::assignment::Places;
use super::context::{MemberContext, Notice};
use super::mark::Place;
use super::{Site, fault, record, settings};
use crate::{Error, Offset, Record, TopicPartition, WorkerSpec};

/// How long one question about the group's offsets may take.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long leaving may take: the partitions are given back, then the group is told.
const LEAVE: Duration = Duration::from_millis(150);
/// How long one look waits meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// What a look brought.
pub(super) enum Polled {
    /// A record, or what needs no answer: a message of a topic that is not ours, trouble that the
    /// library deals with.
    Record(Option<Record>),
    /// Reading cannot go on where it was to.
    OutOfRange,
    /// Another member has the name.
    Superseded,
    /// Something to tell the caller.
    Failed(Error),
    /// There is nothing more now.
    Nothing,
}

/// A member. Leaves its group when dropped.
pub(super) struct Member {
    consumer: BaseConsumer<MemberContext>,
    site: Arc<Site>,
}

impl Member {
    /// Joins the group of a worker as `instance`.
    ///
    /// # Errors
    /// [`Error::Fatal`] if the configuration cannot be used.
    pub(super) fn join(site: &Arc<Site>, spec: &WorkerSpec, instance: &str) -> Result<Self, Error> {
        let group = format!("{}{}", site.config.prefix, spec.group);
        let settings = settings::member(&site.config, &group, instance);
        let context = MemberContext::new(site.names.clone(), spec.group);
        let consumer = BaseConsumer::from_config_and_context(&settings, context);
        let consumer = consumer.map_err(|error| fault::of_client(&error))?;
        let mut topics = Vec::new();
        for topic in &spec.topics {
            topics.push(site.names.topic(*topic)?.full.as_str());
        }
        consumer.subscribe(&topics).map_err(|error| Error::Fatal(error.to_string()))?;
        Ok(Self { consumer, site: site.clone() })
    }

    /// Looks for a record, a notice, or trouble.
    pub(super) fn poll(&self, timeout: Duration) -> Polled {
        match self.consumer.poll(timeout) {
            None => Polled::Nothing,
            Some(Ok(message)) => Polled::Record(record::of_message(&self.site.names, &message)),
            Some(Err(error)) => self.failed(&error),
        }
    }

    fn failed(&self, error: &KafkaError) -> Polled {
        if self.is_superseded() {
            return Polled::Superseded;
        }
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) {
            return Polled::OutOfRange;
        }
        match fault::of_poll(error) {
            Some(Error::Transient(cause)) => Polled::Failed(self.transient(cause)),
            Some(error) => Polled::Failed(error),
            None => {
                tracing::debug!(%error, "a member of a group goes on");
                Polled::Record(None)
            }
        }
    }

    fn transient(&self, error: impl std::fmt::Display) -> Error {
        Error::Transient(self.consumer.context().last.explain(error))
    }

    /// The oldest notice that nobody took.
    pub(super) fn take_notice(&self) -> Option<Notice> {
        self.consumer.context().take_notice()
    }

    /// Whether there is one.
    pub(super) fn has_notice(&self) -> bool {
        self.consumer.context().has_notice()
    }

    /// Whether another one joined under the same name.
    pub(super) fn is_superseded(&self) -> bool {
        let fatal = self.consumer.client().fatal_error();
        fatal.is_some_and(|(code, _)| code == RDKafkaErrorCode::FencedInstanceId)
    }

    /// Whether the group went on without this member.
    pub(super) fn is_lost(&self) -> bool {
        self.consumer.assignment_lost()
    }

    /// Who this member is now, for the broker to check.
    pub(super) fn identity(&self) -> Option<ConsumerGroupMetadata> {
        self.consumer.group_metadata()
    }

    /// Where the group stands; none while a step of somebody else is being settled.
    ///
    /// # Errors
    /// [`Error::Transient`] if the group's broker cannot be reached.
    pub(super) fn places(&self, of: &[TopicPartition]) -> Result<Option<Places>, Error> {
        let list = self.site.names.list(of.iter().map(|of| (*of, Start::Invalid)))?;
        let answer = self.consumer.committed_offsets(list, QUESTION_TIMEOUT);
        let unstable = |error: &KafkaError| {
            error.rdkafka_error_code() == Some(RDKafkaErrorCode::UnstableOffsetCommit)
        };
        let list = match answer {
            Ok(list) => list,
            Err(error) if unstable(&error) => return Ok(None),
            Err(error) => return Err(self.transient(error)),
        };
        let mut places = Places::new();
        for element in list.elements() {
            match element.error() {
                Ok(()) => {}
                Err(error) if unstable(&error) => return Ok(None),
                Err(error) => return Err(self.transient(error)),
            }
            let Some(of) = self.site.names.parse(element.topic(), element.partition()) else {
                continue;
            };
            let place = match element.offset() {
                Start::Offset(offset) => {
                    let text = element.metadata().to_owned();
                    Some(Place { offset: Offset(offset), text })
                }
                _ => None,
            };
            places.insert(of, place);
        }
        Ok(Some(places))
    }

    /// Stands at these places, without reading yet.
    ///
    /// # Errors
    /// [`Error::Transient`] if the library does not take them.
    pub(super) fn stand(&self, at: Vec<(TopicPartition, Start)>) -> Result<(), Error> {
        let list = self.site.names.list(at)?;
        let stood = self.consumer.assign(&list).and_then(|()| self.consumer.pause(&list));
        stood.map_err(|error| self.transient(error))
    }

    /// Brings no records of these until [`Member::resume`].
    pub(super) fn pause(&self, of: &[TopicPartition]) {
        self.switch(of, "paused", |list| self.consumer.pause(list));
    }

    /// Brings records of these.
    pub(super) fn resume(&self, of: &[TopicPartition]) {
        self.switch(of, "resumed", |list| self.consumer.resume(list));
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
        let Ok(list) = self.site.names.list(of.iter().map(|of| (*of, Start::Invalid))) else {
            return;
        };
        // It fails for what was just taken away, and then there is nothing to do.
        if let Err(error) = call(&list) {
            tracing::debug!(%error, "partitions could not be {what}");
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.consumer.context().leave();
        if self.consumer.client().fatal_error().is_none() {
            self.consumer.unsubscribe();
            let started = Instant::now();
            while started.elapsed() < LEAVE {
                // Records do not matter any more; the call serves what the group asks for.
                drop(self.consumer.poll(LOOK));
            }
        }
        if let Err(error) = self.consumer.unassign() {
            tracing::debug!(%error, "partitions could not be given back");
        }
    }
}
