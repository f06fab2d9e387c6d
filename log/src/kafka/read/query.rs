//! Queries to the brokers: topics and their partitions' bounds.
//!
//! Two clients, because the end of a partition depends on the client's isolation: one counts what open
//! transactions wrote, the other does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use schemas::Topic;

use crate::config::KafkaConfig;
use crate::kafka::client::context::PlainContext;
use crate::kafka::client::name::{Names, number};
use crate::kafka::client::{PlainConsumer, open, settings};
use crate::{Bounds, Error, Offset, TopicPartition};

pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of queued library callbacks that are served after a failed query.
const CALLBACKS_MAX: usize = 50;
const STABLE_POLL_INTERVAL: Duration = Duration::from_millis(3);
const LEADER_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Extra time beyond its time-out that a transaction may stay open: the broker checks for late ones
/// periodically.
const ABORT_MARGIN: Duration = Duration::from_secs(20);

pub(crate) struct Query {
    names: Arc<Names>,
    written: PlainConsumer,
    committed: PlainConsumer,
    transaction_timeout: Duration,
}

impl Query {
    pub(crate) fn new(config: &KafkaConfig, names: Arc<Names>) -> Result<Self, Error> {
        let client = |committed| open(&settings::query(config, committed), PlainContext::default());
        let (written, committed) = (client(false)?, client(true)?);
        Ok(Self { names, written, committed, transaction_timeout: config.transaction_timeout })
    }

    /// Checks that a topic has the partitions that the layout gives it.
    ///
    /// # Errors
    /// [`Error::Transient`] if it is missing; [`Error::Fatal`] if it has another number of partitions:
    /// ids depend on it.
    pub(crate) fn verify(&self, topic: Topic) -> Result<(), Error> {
        let name = self.names.topic(topic)?;
        let metadata = self.committed.fetch_metadata(Some(&name.full), QUERY_TIMEOUT);
        let metadata = metadata.map_err(|error| transient(&self.committed, error))?;
        let found = metadata.topics().iter().find(|found| found.name() == name.full);
        let count =
            found.filter(|found| found.error().is_none()).map_or(0, |t| t.partitions().len());
        if count == 0 {
            return Err(Error::transient(format!(
                "topic {} does not exist; run `tidemark topics create`",
                name.full
            )));
        }
        if u32::try_from(count).ok() != Some(name.partitions) {
            return Err(Error::fatal(format!(
                "topic {} has {count} partitions, the configuration says {}; partition counts never \
                 change: correct the configuration",
                name.full, name.partitions
            )));
        }
        name.set_verified();
        Ok(())
    }

    /// The id that the brokers gave their cluster when it was made.
    ///
    /// # Errors
    /// [`Error::Transient`] if no broker reports it in time.
    pub(crate) fn cluster(&self) -> Result<String, Error> {
        let id = self.committed.client().fetch_cluster_id(QUERY_TIMEOUT);
        let id = id.filter(|id| !id.is_empty());
        id.ok_or_else(|| Error::transient("the brokers have not reported the id of their cluster"))
    }

    /// The offset before which no record is kept, and the end of committed records.
    pub(crate) fn bounds(&self, of: TopicPartition) -> Result<Bounds, Error> {
        self.watermarks(&self.committed, of)
    }

    /// The offset before which no record is kept, and the end of what is written, committed or not.
    pub(crate) fn written(&self, of: TopicPartition) -> Result<Bounds, Error> {
        self.watermarks(&self.written, of)
    }

    /// Waits until every transaction that wrote to the partition before now has ended, and returns
    /// the end that the partition had at the call. Reading up to it misses nothing committed before
    /// the call. The wait is needed because the markers of a commit reach the partitions only after
    /// the producer's response. `alive` is called periodically.
    ///
    /// # Errors
    /// [`Error::Transient`] if a transaction stays open, or the broker cannot be reached.
    pub(crate) fn stable_end(
        &self,
        of: TopicPartition,
        alive: &mut dyn FnMut(),
    ) -> Result<Offset, Error> {
        let end = self.written(of)?.end;
        let deadline = Instant::now() + self.transaction_timeout + ABORT_MARGIN;
        while self.bounds(of)?.end < end {
            if Instant::now() > deadline {
                return Err(Error::transient(format!("a transaction on {of} does not end")));
            }
            alive();
            serve_callbacks(&self.committed, STABLE_POLL_INTERVAL);
        }
        Ok(end)
    }

    fn watermarks(&self, client: &PlainConsumer, of: TopicPartition) -> Result<Bounds, Error> {
        let name = self.names.partition(of)?;
        let started = Instant::now();
        loop {
            let left = QUERY_TIMEOUT.saturating_sub(started.elapsed());
            match client.fetch_watermarks(&name.full, number(of.partition), left) {
                Ok((start, end)) => {
                    serve_callbacks(client, Duration::ZERO);
                    return Ok(Bounds { start: Offset(start), end: Offset(end) });
                }
                // A new leader is being elected; the library finds it.
                Err(error) if has_no_leader(&error) && !left.is_zero() => {
                    serve_callbacks(client, LEADER_RETRY_DELAY);
                }
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

fn transient(client: &PlainConsumer, error: KafkaError) -> Error {
    // The reason may be queued behind other callbacks; each poll serves one.
    (0..CALLBACKS_MAX).for_each(|_| serve_callbacks(client, Duration::ZERO));
    Error::Transient(client.context().last.explain(error))
}

fn serve_callbacks(client: &PlainConsumer, timeout: Duration) {
    // There is nothing to read: such a client is assigned nothing.
    drop(client.poll(timeout));
}
