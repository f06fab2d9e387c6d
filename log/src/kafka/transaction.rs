//! One producer of atomic steps, and one step of it: begin, send, offsets, drain, commit. A long step is
//! sent in parts while the rest of it is decided.
//!
//! A step is drained before it is committed: the binding's own wait takes 100 ms at least. Whatever is
//! not known for certain, and whatever may still be under way on a connection that broke, is answered by
//! another producer: its start settles what the last one left.

mod stop;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::util::Timeout;

use super::Site;
use super::fault::{self, Class, Lost};
use super::name::{Names, number};
use super::observer::{Phase, StepObserver};
use super::record::native_headers;
use super::settings::Reports;
use super::{context::StepContext, settings};
use crate::metrics;
use crate::{Error, NewRecord, Offset};
pub(super) use stop::Failure;
use stop::Stop;

/// How often deliveries are looked at. The binding cannot wait less than a millisecond without working all
/// the while.
const LOOK: Duration = Duration::from_micros(250);
/// How long to wait before a call that asks for it is made again.
const AGAIN: Duration = Duration::from_millis(20);
/// A step whose commit takes longer than this gets a new producer after it: the library may have asked
/// twice, and what is still under way must not meet the next transaction (KIP-890).
const SLOW: Duration = Duration::from_secs(1);

/// A producer with a name of its own.
pub(super) struct Transaction {
    producer: BaseProducer<StepContext>,
    site: Arc<Site>,
    observer: Option<Arc<dyn StepObserver>>,
    timeout: Duration,
    /// The step under way.
    begun: Option<Begun>,
    usable: bool,
    /// Whether tests may make it fail.
    may_fail: bool,
}

/// A step under way.
struct Begun {
    /// When it must have ended.
    deadline: Instant,
    /// How many of its records are handed over.
    sent: usize,
    /// Why it can only be aborted.
    stopped: Option<Stop>,
}

/// The part of a step that is about input.
pub(super) struct Offsets<'a> {
    /// Where the group goes on.
    pub(super) places: &'a TopicPartitionList,
    /// Who says so.
    pub(super) member: &'a ConsumerGroupMetadata,
}

impl Transaction {
    /// A producer under `id`. What an earlier one of this name left is settled when this returns.
    ///
    /// # Errors
    /// [`Error::Fenced`] if yet another one came; [`Error::Transient`] if the log cannot be reached.
    pub(super) fn open(
        site: &Arc<Site>,
        observer: Option<&Arc<dyn StepObserver>>,
        id: &str,
        reports: Reports,
    ) -> Result<Self, Error> {
        let settings = settings::transactional_producer(&site.config, id, reports);
        let producer = BaseProducer::from_config_and_context(&settings, StepContext::default());
        let producer = producer.map_err(|error| fault::of_client(&error))?;
        let timeout = site.config.transaction_timeout;
        let deadline = Instant::now() + timeout;
        let observer = observer.cloned();
        let transaction = Self {
            producer,
            site: site.clone(),
            observer,
            timeout,
            begun: None,
            usable: true,
            may_fail: true,
        };
        let begun = transaction.insist("init_transactions", deadline, || {
            transaction.producer.init_transactions(timeout)
        });
        match begun {
            Ok(()) => Ok(transaction),
            Err((class, error)) => {
                transaction.producer.poll(Duration::ZERO);
                let cause = transaction.explain(&error);
                let code = error.rdkafka_error_code();
                let fenced = matches!(
                    code,
                    Some(RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced)
                );
                if class == Class::Fenced && fenced {
                    Err(Error::Fenced(cause))
                } else {
                    Err(Error::Transient(cause))
                }
            }
        }
    }

    /// Whether another step can be made with this one.
    pub(super) const fn is_usable(&self) -> bool {
        self.usable
    }

    /// Commits offsets that are no step: they are not observed, and not made to fail.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) fn mark(&mut self, offsets: &Offsets<'_>) -> Result<(), Failure> {
        let observer = self.observer.take();
        self.may_fail = false;
        let marked = self.run(&[], Some(offsets));
        self.observer = observer;
        self.may_fail = true;
        marked
    }

    /// Where the first record of the last step was written, with [`Reports::All`].
    pub(super) fn delivered(&self) -> Option<Offset> {
        self.producer.context().delivered()
    }

    /// Lets the library tell what it has to tell.
    pub(super) fn listen(&self) {
        self.producer.poll(Duration::ZERO);
    }

    /// Begins a step before all of it is known. Whatever goes wrong is told at its end.
    pub(super) fn ahead(&mut self, records: &[NewRecord]) {
        if self.begun.as_ref().is_some_and(|begun| begun.stopped.is_some()) {
            return;
        }
        let sent = self.begin().and_then(|()| self.send(records));
        if let Err(stop) = sent {
            let now = Instant::now();
            let begun = self.begun.get_or_insert(Begun { deadline: now, sent: 0, stopped: None });
            begun.stopped = Some(stop);
        }
    }

    /// Whether a step is begun.
    pub(super) const fn is_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Aborts what was begun and has no end.
    pub(super) fn take_back(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        if let Some(stop) = begun.stopped {
            tracing::debug!(cause = stop.cause(), "what was written of a step had failed");
        }
        self.usable &= self.abort();
        self.end("aborted");
    }

    /// A step is over. What may still be under way of it must not meet the next one.
    fn end(&mut self, outcome: &'static str) {
        ::metrics::counter!(metrics::LOG_STEPS_TOTAL, "outcome" => outcome).increment(1);
        self.listen();
        if self.producer.context().was_disturbed() {
            self.usable = false;
        }
    }

    /// Makes a step, or the rest of one that was begun ahead.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) fn run(
        &mut self,
        records: &[NewRecord],
        offsets: Option<&Offsets<'_>>,
    ) -> Result<(), Failure> {
        let attempt = self.attempt(records, offsets);
        self.begun = None;
        let (outcome, result) = match attempt {
            Ok(()) => ("committed", Ok(())),
            Err(Stop::Abort(cause, lost)) => {
                self.usable &= self.abort();
                let failure = match lost {
                    Some(lost) => Failure::Lost(lost, cause),
                    None => Failure::Aborted(cause),
                };
                ("aborted", Err(failure))
            }
            Err(Stop::Refused(cause)) => {
                self.usable &= self.abort();
                ("aborted", Err(Failure::Refused(cause)))
            }
            Err(Stop::Broken(cause)) => {
                self.usable = false;
                ("aborted", Err(Failure::Aborted(cause)))
            }
            Err(Stop::Fenced(cause)) => {
                self.usable = false;
                ("fenced", Err(Failure::Fenced(cause)))
            }
            Err(Stop::Unknown(cause)) => {
                self.usable = false;
                ("unknown", Err(Failure::Unknown(cause)))
            }
        };
        self.end(outcome);
        result
    }

    fn attempt(
        &mut self,
        records: &[NewRecord],
        offsets: Option<&Offsets<'_>>,
    ) -> Result<(), Stop> {
        if let Some(stop) = self.begun.as_mut().and_then(|begun| begun.stopped.take()) {
            return Err(stop);
        }
        self.begin()?;
        self.send(records)?;
        let deadline = self.deadline();
        if let Some(Offsets { places, member }) = offsets {
            self.phase(Phase::Offsets, || {
                self.insist("send_offsets_to_transaction", deadline, || {
                    self.producer.send_offsets_to_transaction(places, member, Timeout::Never)
                })
                .map_err(|(class, error)| self.stop(class, &error))
            })?;
        }
        self.phase(Phase::Drain, || self.drain(deadline))?;
        if self.may_fail && self.site.take_failure() {
            return Err(Stop::Abort("it was made to fail".to_owned(), None));
        }
        let asked = Instant::now();
        self.phase(Phase::Commit, || {
            // Without a time of our own: the library allows what is left of the transaction's.
            self.insist("commit_transaction", deadline, || {
                self.producer.commit_transaction(Timeout::Never)
            })
            .map_err(|(class, error)| self.stop(class, &error).once_asked_to_commit())
        })?;
        if asked.elapsed() > SLOW {
            self.usable = false;
        }
        Ok(())
    }

    /// What an error before the commit means.
    fn stop(&self, class: Class, error: &KafkaError) -> Stop {
        let cause = self.explain(error);
        match class {
            Class::Fenced => Stop::Fenced(cause),
            Class::Abort => self.failed(cause, fault::lost(error)),
            Class::Again | Class::Renew => Stop::Broken(cause),
        }
    }

    /// What it means that a part of the step failed for good.
    fn failed(&self, cause: String, lost: Option<Lost>) -> Stop {
        // Being fenced may first show in the records, which are then thrown away.
        match self.producer.client().fatal_error() {
            Some((_, fatal)) => Stop::Fenced(format!("{cause}: {fatal}")),
            None => Stop::Abort(cause, lost),
        }
    }

    fn explain(&self, error: &KafkaError) -> String {
        self.producer.context().last.explain(error)
    }

    /// Begins a step, unless it is begun.
    fn begin(&mut self) -> Result<(), Stop> {
        if self.begun.is_some() {
            return Ok(());
        }
        let deadline = Instant::now() + self.timeout;
        self.producer.context().begin();
        self.phase(Phase::Begin, || {
            self.producer
                .begin_transaction()
                .map_err(|error| self.stop(fault::class(&error), &error))
        })?;
        self.begun = Some(Begun { deadline, sent: 0, stopped: None });
        Ok(())
    }

    /// When the step under way must have ended.
    fn deadline(&self) -> Instant {
        self.begun.as_ref().map_or_else(Instant::now, |begun| begun.deadline)
    }

    /// Hands records over.
    fn send(&mut self, records: &[NewRecord]) -> Result<(), Stop> {
        let sent = self.begun.as_ref().map_or(0, |begun| begun.sent);
        self.phase(Phase::Send, || self.send_after(sent, records))?;
        if let Some(begun) = &mut self.begun {
            begun.sent = sent.saturating_add(records.len());
        }
        Ok(())
    }

    /// Hands records over behind so many others.
    fn send_after(&self, sent: usize, records: &[NewRecord]) -> Result<(), Stop> {
        let names: &Names = &self.site.names;
        let deadline = self.deadline();
        for (position, record) in (sent..).zip(records) {
            let name = names.partition(record.to);
            let name = name.map_err(|error| Stop::Abort(error.to_string(), None))?;
            let mut native = BaseRecord::<[u8], [u8], usize>::with_opaque_to(
                &name.full,
                usize::from(position == 0),
            )
            .partition(number(record.to.partition))
            .key(&record.key);
            native.payload = record.value.as_deref();
            native.headers = native_headers(&record.headers);
            while let Err((error, returned)) = self.producer.send(native) {
                let code = error.rdkafka_error_code();
                let full = code == Some(RDKafkaErrorCode::QueueFull);
                if !full || Instant::now() > deadline {
                    ::metrics::counter!(metrics::LOG_PRODUCE_ERRORS_TOTAL).increment(1);
                    if code == Some(RDKafkaErrorCode::MessageSizeTooLarge) {
                        let cause = format!("a record for {} is too large", record.to);
                        return Err(Stop::Refused(cause));
                    }
                    return Err(self.failed(self.explain(&error), None));
                }
                native = returned;
                self.look();
            }
        }
        Ok(())
    }

    /// Waits until the broker has every record.
    fn drain(&self, deadline: Instant) -> Result<(), Stop> {
        let failed = || self.producer.context().failed();
        while self.producer.in_flight_count() > 0 && failed().is_none() {
            if Instant::now() > deadline {
                return Err(Stop::Broken("the records were not written in time".to_owned()));
            }
            self.look();
        }
        match failed() {
            None => Ok(()),
            Some(cause) => {
                ::metrics::counter!(metrics::LOG_PRODUCE_ERRORS_TOTAL).increment(1);
                Err(self.failed(self.producer.context().last.explain(cause), None))
            }
        }
    }

    /// Takes what the library has to tell of deliveries, and waits a little if that was nothing.
    fn look(&self) {
        let before = self.producer.in_flight_count();
        self.producer.poll(Duration::ZERO);
        if self.producer.in_flight_count() == before {
            std::thread::park_timeout(LOOK);
        }
    }

    /// Aborts the step under way. False: this producer is of no more use, and the broker aborts it.
    fn abort(&self) -> bool {
        let deadline = Instant::now() + self.timeout;
        let aborted = self.phase(Phase::Abort, || {
            std::thread::scope(|scope| {
                let (over, is_over) = std::sync::mpsc::channel::<()>();
                // The library waits until all deliveries were told, and tells them to who polls.
                scope.spawn(move || {
                    use std::sync::mpsc::TryRecvError;
                    while is_over.try_recv() == Err(TryRecvError::Empty) {
                        self.look();
                    }
                });
                let aborted = self.insist("abort_transaction", deadline, || {
                    self.producer.abort_transaction(self.timeout)
                });
                drop(over);
                aborted
            })
        });
        aborted
            .inspect_err(|(_, error)| tracing::warn!(%error, "a step could not be aborted"))
            .is_ok()
    }

    /// Makes a call until it does not ask to be made again, or until the deadline.
    fn insist(
        &self,
        name: &'static str,
        deadline: Instant,
        mut call: impl FnMut() -> KafkaResult<()>,
    ) -> Result<(), (Class, KafkaError)> {
        let _watched = self.site.watchdog.watch(name);
        loop {
            let Err(error) = call() else { return Ok(()) };
            let class = fault::class(&error);
            if class != Class::Again || Instant::now() > deadline {
                return Err((class, error));
            }
            tracing::debug!(%error, kafka.call = name, "a call of a transaction is made again");
            self.producer.poll(AGAIN);
        }
    }

    /// Runs a part of a step, measured and observed.
    fn phase<T, E>(&self, phase: Phase, part: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let (before, after) = phase.points();
        if let Some(observer) = &self.observer {
            observer.reached(before);
        }
        let started = Instant::now();
        let result = part()?;
        ::metrics::histogram!(metrics::LOG_STEP_SECONDS, "phase" => phase.as_str())
            .record(started.elapsed());
        if let Some(observer) = &self.observer {
            observer.reached(after);
        }
        Ok(result)
    }
}
