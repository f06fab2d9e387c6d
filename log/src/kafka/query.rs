//! Questions to the brokers: which topics there are, where partitions begin and end.
//!
//! Two clients, because the answer to "where is the end" depends on the client: one counts what open
//! transactions wrote, the other does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use schemas::Topic;

use super::context::PlainContext;
use super::name::{Names, number};
use super::{fault, settings};
use crate::config::KafkaConfig;
use crate::{Bounds, Error, Offset, TopicPartition};

/// How long one question may take.
pub(super) const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How many things the library may have to tell after a failure.
const TOLD_MAX: usize = 50;
/// How long to wait before the end is looked at again.
const LOOK: Duration = Duration::from_millis(3);
/// How long to wait before a leader is asked for again.
const AGAIN: Duration = Duration::from_millis(50);
/// What a transaction may take to end beyond its time-out: the broker looks for late ones now and then.
const ABORT_MARGIN: Duration = Duration::from_secs(20);

type Client = BaseConsumer<PlainContext>;

/// Asks the brokers.
pub(super) struct Query {
    names: Arc<Names>,
    written: Client,
    committed: Client,
}

impl Query {
    /// # Errors
    /// [`Error::Fatal`] if the configuration cannot be used.
    pub(super) fn new(config: &KafkaConfig, names: Arc<Names>) -> Result<Self, Error> {
        let client = |committed| {
            let settings = settings::query(config, committed);
            Client::from_config_and_context(&settings, PlainContext::default())
                .map_err(|error| fault::of_client(&error))
        };
        Ok(Self { names, written: client(false)?, committed: client(true)? })
    }

    /// Checks that a topic has the partitions that the layout gives it.
    ///
    /// # Errors
    /// [`Error::Transient`] if it is missing; [`Error::Fatal`] if it has another number of partitions:
    /// ids depend on it.
    pub(super) fn verify(&self, topic: Topic) -> Result<(), Error> {
        let name = self.names.topic(topic)?;
        let metadata = self.committed.fetch_metadata(Some(&name.full), QUESTION_TIMEOUT);
        let metadata = metadata.map_err(|error| transient(&self.committed, error))?;
        let found = metadata.topics().iter().find(|found| found.name() == name.full);
        let count =
            found.filter(|found| found.error().is_none()).map_or(0, |t| t.partitions().len());
        if count == 0 {
            let what =
                format!("there is no topic {}: `tidemark topics create` makes it", name.full);
            return Err(Error::Transient(what));
        }
        if u32::try_from(count).ok() != Some(name.partitions) {
            return Err(Error::Fatal(format!(
                "the topic {} has {count} partitions, the configuration says {}",
                name.full, name.partitions
            )));
        }
        name.set_verified();
        Ok(())
    }

    /// The oldest record, and the end of what is committed.
    ///
    /// # Errors
    /// [`Error::Transient`] if the partition's broker cannot be reached.
    pub(super) fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        self.ask(&self.committed, of)
    }

    /// The oldest record, and the end of what is written, committed or not.
    ///
    /// # Errors
    /// As [`Query::bounds`].
    pub(super) fn written(&self, of: TopicPartition) -> Result<Bounds, Error> {
        self.ask(&self.written, of)
    }

    /// Waits until every transaction that wrote to the partition before now has ended, and tells where
    /// the partition ended before. Reading to there misses nothing that was committed before now: a
    /// transaction's end reaches its partitions a little later than whoever committed it. `alive` is
    /// called now and then.
    ///
    /// # Errors
    /// [`Error::Transient`] if a transaction stays open, or the broker cannot be reached.
    pub(super) fn settled_end(
        &self,
        config: &KafkaConfig,
        of: TopicPartition,
        alive: &mut dyn FnMut(),
    ) -> Result<Offset, Error> {
        let end = self.written(of)?.end;
        let deadline = Instant::now() + config.transaction_timeout + ABORT_MARGIN;
        while self.bounds(of)?.end < end {
            if Instant::now() > deadline {
                return Err(Error::Transient(format!("a transaction on {of} does not end")));
            }
            alive();
            listen(&self.committed, LOOK);
        }
        Ok(end)
    }

    fn ask(&self, client: &Client, of: TopicPartition) -> Result<Bounds, Error> {
        let name = self.names.partition(of)?;
        let started = Instant::now();
        loop {
            let left = QUESTION_TIMEOUT.saturating_sub(started.elapsed());
            match client.fetch_watermarks(&name.full, number(of.partition), left) {
                Ok((start, end)) => {
                    listen(client, Duration::ZERO);
                    return Ok(Bounds { start: Offset(start), end: Offset(end) });
                }
                // Its leader moves, or is just there: the library finds the new one.
                Err(error) if has_no_leader(&error) && !left.is_zero() => listen(client, AGAIN),
                Err(error) => return Err(transient(client, error)),
            }
        }
    }
}

fn has_no_leader(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::UnknownTopicOrPartition
        )
    )
}

fn transient(client: &Client, error: impl std::fmt::Display) -> Error {
    // The cause waits behind other things to tell, one for each look.
    (0..TOLD_MAX).for_each(|_| listen(client, Duration::ZERO));
    Error::Transient(client.context().last.explain(error))
}

/// Lets the library tell what it has to tell.
fn listen(client: &Client, timeout: Duration) {
    // There is nothing to read: such a client is assigned nothing.
    drop(client.poll(timeout));
}
