//! A writer of steps without input.
//!
//! No group says whether a writer is still the right one, so each leaves a claim when it starts: an
//! offset with a mark, in a group that nobody joins. A writer that needs another producer looks whether
//! the claim is still its own, before it would fence whoever took its name.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset as Start, TopicPartitionList};
use schemas::{Partition, Topic};

use super::context::PlainContext;
use super::mark::Marks;
use super::observer::StepObserver;
use super::query::QUESTION_TIMEOUT;
use super::settings::Reports;
use super::transaction::{Failure, Offsets, Transaction};
use super::{Site, fault, settings};
use crate::{Error, NewRecord, Offset, StepError, TopicPartition, Writer};

/// Where claims are kept. Any partition would do: nobody reads it for that.
const CLAIMS: TopicPartition =
    TopicPartition { topic: Topic::TransfersRaw, partition: Partition(0) };
/// For how long the outcome of a step is asked for.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long to wait before it is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// A writer.
pub(super) struct KafkaWriter {
    site: Arc<Site>,
    observer: Option<Arc<dyn StepObserver>>,
    name: String,
    claim: Claim,
    transaction: Option<Transaction>,
    fenced: bool,
}

/// What a writer says about itself.
struct Claim {
    group: String,
    mark: String,
}

impl KafkaWriter {
    /// Fences earlier writers of the name.
    ///
    /// # Errors
    /// [`Error::Transient`] if the log cannot be reached, or somebody else does the same right now.
    pub(super) fn open(
        site: Arc<Site>,
        observer: Option<Arc<dyn StepObserver>>,
        name: &str,
    ) -> Result<Self, Error> {
        site.check([CLAIMS])?;
        let name = format!("{}{name}", site.config.prefix);
        let claim = Claim { group: format!("{name}.claim"), mark: Marks::new().next() };
        let mut transaction = Transaction::open(&site, observer.as_ref(), &name, Reports::All)?;
        claim.leave(&site, &mut transaction)?;
        Ok(Self { site, observer, name, claim, transaction: Some(transaction), fenced: false })
    }

    /// Another producer under our name, if it is still ours.
    fn renew(&mut self) -> Result<(), Error> {
        if self.transaction.as_ref().is_some_and(Transaction::is_usable) {
            return Ok(());
        }
        self.transaction = None;
        self.claim.check(&self.site)?;
        let opened =
            Transaction::open(&self.site, self.observer.as_ref(), &self.name, Reports::All);
        let transaction = match opened {
            Ok(transaction) => transaction,
            Err(Error::Fenced(cause)) => return Err(Error::Transient(cause)),
            Err(error) => return Err(error),
        };
        // Who came between the two saw nothing of us, and we must see it.
        self.claim.check(&self.site)?;
        self.transaction = Some(transaction);
        Ok(())
    }

    fn fence(&mut self, cause: String) -> StepError {
        self.fenced = true;
        self.transaction = None;
        StepError::Fenced(cause)
    }

    /// Finds out whether a step happened: whether its first record, which was written at `written`, is
    /// there to be read.
    fn find_out(
        &mut self,
        first: TopicPartition,
        written: Option<Offset>,
        cause: String,
    ) -> Result<(), StepError> {
        tracing::warn!(cause, kafka.writer = self.name, "it is not known whether a step happened");
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let answer = self.renew().and_then(|()| match written {
                // A step is not committed before all of it is written.
                None => Ok(false),
                Some(at) => self.is_there(first, at),
            });
            match answer {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(StepError::Aborted(cause)),
                Err(Error::Fenced(cause)) => return Err(self.fence(cause)),
                Err(error) => tracing::debug!(%error, "the outcome of a step is asked for again"),
            }
            std::thread::park_timeout(ASK_AGAIN);
        }
        // Whatever happened, the next writer of the name settles it, and who reads the log has it.
        Err(self.fence(cause))
    }

    fn is_there(&self, of: TopicPartition, at: Offset) -> Result<bool, Error> {
        let end = self.site.query.settled_end(&self.site.config, of, &mut || {})?;
        let mut found = None;
        if at < end {
            self.site.readers.scan(&self.site, of, at..end, &mut |record| {
                found = Some(record.offset);
                ControlFlow::Break(())
            })?;
        }
        Ok(found == Some(at))
    }
}

impl Writer for KafkaWriter {
    fn commit(&mut self, records: Vec<NewRecord>) -> Result<(), StepError> {
        let Some(first) = records.first().map(|record| record.to) else { return Ok(()) };
        if self.fenced {
            return Err(StepError::Fenced(format!("another {} came", self.name)));
        }
        match self.site.check(records.iter().map(|record| record.to)) {
            Ok(()) => {}
            Err(Error::Fatal(cause)) => return Err(StepError::Fatal(cause)),
            Err(error) => return Err(StepError::Aborted(error.to_string())),
        }
        match self.renew() {
            Ok(()) => {}
            Err(Error::Fenced(cause)) => return Err(self.fence(cause)),
            Err(error) => return Err(StepError::Aborted(error.to_string())),
        }
        let Some(transaction) = &mut self.transaction else {
            return Err(StepError::Aborted("no producer".to_owned()));
        };
        match transaction.run(&records, None) {
            Ok(()) => Ok(()),
            Err(Failure::Aborted(cause) | Failure::Lost(_, cause)) => {
                Err(StepError::Aborted(cause))
            }
            Err(Failure::Refused(cause)) => Err(StepError::Fatal(cause)),
            // The broker also gives up who takes too long, and that one may go on.
            Err(Failure::Fenced(cause) | Failure::Unknown(cause)) => {
                let written = transaction.delivered();
                self.find_out(first, written, cause)
            }
        }
    }
}

impl Claim {
    fn keeper(&self, site: &Site) -> Result<BaseConsumer<PlainContext>, Error> {
        let settings = settings::keeper(&site.config, &self.group);
        BaseConsumer::from_config_and_context(&settings, PlainContext::default())
            .map_err(|error| fault::of_client(&error))
    }

    fn list(site: &Site) -> Result<TopicPartitionList, Error> {
        site.names.list([(CLAIMS, Start::Offset(0))])
    }

    /// Says that the name is taken.
    fn leave(&self, site: &Site, transaction: &mut Transaction) -> Result<(), Error> {
        let keeper = self.keeper(site)?;
        let none = || Error::Transient("the claim of a writer has no group".to_owned());
        let member = keeper.group_metadata().ok_or_else(none)?;
        let list = Self::list(site)?;
        for mut element in list.elements() {
            element.set_metadata(&self.mark);
        }
        let left = transaction.mark(&Offsets { places: &list, member: &member });
        left.map_err(|failure| match failure {
            Failure::Aborted(cause)
            | Failure::Lost(_, cause)
            | Failure::Fenced(cause)
            | Failure::Refused(cause)
            | Failure::Unknown(cause) => Error::Transient(cause),
        })
    }

    /// Checks that nobody else took the name. A claim that expired, because nobody renewed it for days,
    /// is nobody else's.
    fn check(&self, site: &Site) -> Result<(), Error> {
        let keeper = self.keeper(site)?;
        let answer = keeper.committed_offsets(Self::list(site)?, QUESTION_TIMEOUT);
        let answer =
            answer.map_err(|error| Error::Transient(keeper.context().last.explain(error)))?;
        for element in answer.elements() {
            element.error().map_err(|error| Error::Transient(error.to_string()))?;
            if element.offset() != Start::Invalid && element.metadata() != self.mark {
                return Err(Error::Fenced(format!("another one took {}", self.group)));
            }
        }
        Ok(())
    }
}
