//! A writer of steps without input.
//!
//! No group decides which of two writers of a name continues; the claim does. A writer that needs another
//! producer checks that the claim is still its own before and after it fences other producers.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use schemas::{Partition, Topic};

use super::claim::Claim;
use super::client::settings::{Appetite, Reports};
use super::read::reader::{Extent, Reader};
use super::shared::Shared;
use super::step::named::NamedProducer;
use super::step::outcome::{Outcome, StepFailure};
use crate::{Cause, Error, NewRecord, Offset, StepError, TopicPartition, Writer};

#[cfg(test)]
mod tests;

const CLAIMS: TopicPartition =
    TopicPartition { topic: Topic::TransfersRaw, partition: Partition(0) };
/// Maximum time to read the outcome of a step.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(120);
const OUTCOME_RETRY_DELAY: Duration = Duration::from_millis(200);

pub(super) struct KafkaWriter {
    shared: Arc<Shared>,
    name: String,
    claim: Claim,
    producer: NamedProducer,
    is_fenced: bool,
}

impl KafkaWriter {
    /// Fences earlier writers of the name.
    ///
    /// # Errors
    /// [`Error::Transient`] if the log cannot be reached, or another writer of the name is opened right now;
    /// [`Error::Fenced`] if that writer has the newer claim.
    pub(super) fn open(shared: Arc<Shared>, name: &str) -> Result<Self, Error> {
        shared.verify([CLAIMS])?;
        let name = format!("{}{name}", shared.config.prefix);
        let mut claim = Claim::new(&name, CLAIMS);
        claim.hold(&shared)?;
        let mut producer = NamedProducer::new(shared.clone(), name.clone(), Reports::All);
        producer.renew()?;
        // Of two concurrent opens the older claim yields, even if its producer is newer.
        claim.hold(&shared)?;
        Ok(Self { shared, name, claim, producer, is_fenced: false })
    }

    /// Opens another producer if this one is unusable and the name is still this writer's.
    fn renew(&mut self) -> Result<(), Error> {
        if self.producer.is_usable() {
            return Ok(());
        }
        self.producer.close();
        self.claim.hold(&self.shared)?;
        self.producer.renew()?;
        // A writer that claimed the name after the first check was fenced by this producer's start:
        // by this check the older claim yields.
        self.claim.hold(&self.shared).inspect_err(|_| self.producer.close())
    }

    fn fence(&mut self, cause: Cause) -> StepError {
        self.is_fenced = true;
        self.producer.close();
        StepError::Fenced(cause)
    }

    /// Reads whether a step was committed: its first record, at `written`, is then in the log.
    fn resolve_unknown_outcome(
        &mut self,
        first: TopicPartition,
        written: Option<Offset>,
        cause: Cause,
    ) -> Result<(), StepError> {
        tracing::warn!(
            %cause,
            kafka.writer = self.name,
            "the outcome of a step is unknown; reading its first record"
        );
        let started = Instant::now();
        while started.elapsed() < OUTCOME_TIMEOUT {
            let found = self.renew().and_then(|()| match written {
                // A step is not committed before all of it is written.
                None => Ok(false),
                Some(at) => self.is_committed(first, at),
            });
            match found {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(StepError::Aborted(cause)),
                Err(Error::Fenced(cause)) => return Err(self.fence(cause)),
                Err(error) => tracing::debug!(%error, "cannot read the outcome of a step yet"),
            }
            std::thread::park_timeout(OUTCOME_RETRY_DELAY);
        }
        // The next writer of the name ends the transaction, and readers of the log see its outcome.
        Err(self.fence(cause))
    }

    fn is_committed(&self, of: TopicPartition, at: Offset) -> Result<bool, Error> {
        let shared = &self.shared;
        let end = shared.query.stable_end(of, &mut || {})?;
        let mut found = None;
        if at < end {
            let reader = Reader::new(shared, Appetite::Page)?;
            let mut take = |record: crate::Record| {
                found = Some(record.offset);
                ControlFlow::Break(())
            };
            let from = rdkafka::Offset::Offset(at.0);
            reader.scan(shared, of, (from, end), Extent::Whole, &mut take, &mut || {})?;
        }
        Ok(found == Some(at))
    }
}

impl Writer for KafkaWriter {
    fn commit(&mut self, records: Vec<NewRecord>) -> Result<(), StepError> {
        let Some(first) = records.first().map(|record| record.to) else { return Ok(()) };
        if self.is_fenced {
            return Err(StepError::Fenced(format!("another {} was opened", self.name).into()));
        }
        match self.shared.verify(records.iter().map(|record| record.to)) {
            Ok(()) => {}
            Err(Error::Fatal(cause)) => return Err(StepError::Fatal(cause)),
            Err(Error::Fenced(cause) | Error::Transient(cause)) => {
                return Err(StepError::Aborted(cause));
            }
        }
        match self.renew() {
            Ok(()) => {}
            Err(Error::Fenced(cause)) => return Err(self.fence(cause)),
            // Fatal: the client could not be created, perhaps for lack of file descriptors. A retry
            // may succeed.
            Err(Error::Fatal(cause) | Error::Transient(cause)) => {
                return Err(StepError::Aborted(cause));
            }
        }
        let Some(producer) = self.producer.get_mut() else {
            return Err(StepError::Aborted("there is no producer".into()));
        };
        let Err(StepFailure { outcome, cause, .. }) = producer.run(&records, None) else {
            return Ok(());
        };
        match outcome {
            Outcome::Aborted | Outcome::MembershipLost => Err(StepError::Aborted(cause)),
            Outcome::Rejected => Err(StepError::Fatal(cause)),
            // The broker also fences a producer whose transaction timed out. Such a writer may
            // continue, so the outcome is read.
            Outcome::ProducerFenced | Outcome::Unknown => {
                let written = producer.delivered();
                self.resolve_unknown_outcome(first, written, cause)
            }
        }
    }
}
