//! A producer of steps. A step is: begin, send, offsets, drain, commit. A long step is sent in
//! parts while the rest of it is decided.
//!
//! A step is drained before it is committed: the binding's own wait takes 100 ms at least. After any
//! uncertain outcome, and after any that a broken connection may still change, a new producer is opened:
//! its `init_transactions` completes or aborts the old transaction.

#[cfg(test)]
mod tests;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::util::Timeout;

use super::outcome::{Outcome, StepEnd, StepFailure, is_retriable};
use crate::kafka::client::context::StepContext;
use crate::kafka::client::name::number;
use crate::kafka::client::open;
use crate::kafka::client::record::native_headers;
use crate::kafka::client::settings::{self, Reports};
use crate::kafka::client::watchdog::Watched;
use crate::kafka::observer::Phase;
use crate::kafka::shared::Shared;
use crate::metrics;
use crate::{Cause, Error, NewRecord, Offset};

/// Interval of polls for delivery reports: the binding itself cannot wait less than a millisecond
/// without spinning.
const DELIVERY_POLL_INTERVAL: Duration = Duration::from_micros(250);
const CALL_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Maximum number of library events that may wait when a step ends; each poll serves one.
const EVENTS_MAX: usize = 1000;

pub(crate) struct StepProducer {
    producer: Arc<BaseProducer<StepContext>>,
    shared: Arc<Shared>,
    timeout: Duration,
    begun: Option<Begun>,
    usable: bool,
    /// Watches the close of `producer`, which is dropped before this field.
    closing: Option<Watched>,
}

impl Drop for StepProducer {
    fn drop(&mut self) {
        self.closing = Some(self.shared.watchdog.watch("close a producer"));
    }
}

/// A step that has begun.
struct Begun {
    deadline: Instant,
    /// Number of its records that were sent.
    sent: usize,
    /// Failure after which the step can only be aborted.
    failed: Option<StepFailure>,
}

/// The offsets of a step, and the member of the group that commits them.
pub(crate) struct Offsets {
    pub(crate) list: TopicPartitionList,
    pub(crate) member: Arc<ConsumerGroupMetadata>,
}

impl StepProducer {
    /// Opens a producer with the transactional id `id`. When this returns, the transaction of an
    /// earlier producer has ended.
    ///
    /// # Errors
    /// [`Error::Transient`] if the broker cannot be reached, or another producer of the id was
    /// opened meanwhile.
    pub(crate) fn open(shared: &Arc<Shared>, id: &str, reports: Reports) -> Result<Self, Error> {
        let timeout = shared.config.transaction_timeout;
        let settings = settings::transactional_producer(&shared.config, id, reports);
        let this = Self {
            producer: Arc::new(open(&settings, StepContext::default())?),
            shared: shared.clone(),
            timeout,
            begun: None,
            usable: true,
            closing: None,
        };
        let deadline = Instant::now() + timeout;
        let begun = this
            .call("init_transactions", deadline, || this.producer.init_transactions(timeout))
            .map_err(|error| {
                this.serve_callbacks();
                Error::Transient(this.explain(error))
            });
        begun.map(|()| this)
    }

    /// `true` if this producer can make another step.
    pub(crate) const fn is_usable(&self) -> bool {
        self.usable
    }

    /// Offset of the first record of the last step, with [`Reports::All`].
    pub(crate) fn delivered(&self) -> Option<Offset> {
        self.producer.context().kind.first()
    }

    pub(crate) fn serve_callbacks(&self) {
        self.producer.poll(Duration::ZERO);
    }

    /// Begins a step before all of it is known. A failure is returned by [`StepProducer::run`].
    pub(crate) fn write_ahead(&mut self, records: &[NewRecord]) {
        if self.begun.as_ref().is_some_and(|begun| begun.failed.is_some()) {
            return;
        }
        if let Err(failure) = self.begin().and_then(|()| self.send(records)) {
            let deadline = Instant::now();
            let begun = self.begun.get_or_insert(Begun { deadline, sent: 0, failed: None });
            begun.failed = Some(failure);
        }
    }

    pub(crate) const fn is_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Aborts a step that was begun and not committed.
    pub(crate) fn abort_begun(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        if let Some(StepFailure { cause, .. }) = begun.failed {
            tracing::debug!(%cause, "records written ahead of a step had failed");
        }
        let end = self.abort();
        self.end("aborted", end);
    }

    /// Counts an ended step, serves its last delivery reports, and updates `usable`.
    fn end(&mut self, outcome: &'static str, end: StepEnd) {
        ::metrics::counter!(metrics::LOG_STEPS_TOTAL, "outcome" => outcome).increment(1);
        for _ in 0..EVENTS_MAX {
            if self.producer.in_flight_count() == 0 {
                break;
            }
            self.serve_callbacks();
        }
        self.usable &= end.leaves_usable(self.producer.context().kind.was_disturbed());
    }

    /// Makes a step, or the rest of one that was begun.
    pub(crate) fn run(
        &mut self,
        records: &[NewRecord],
        offsets: Option<Offsets>,
    ) -> Result<(), StepFailure> {
        let result = self.attempt(records, offsets);
        self.begun = None;
        let end = match &result {
            Ok(commit) => StepEnd::Committed(*commit),
            Err(failure) if failure.producer_usable => self.abort(),
            Err(_) => StepEnd::Uncertain,
        };
        self.end(
            result.as_ref().err().map_or("committed", |failure| failure.outcome.as_str()),
            end,
        );
        result.map(drop)
    }

    /// Makes a step, and returns how long its commit took.
    fn attempt(
        &mut self,
        records: &[NewRecord],
        offsets: Option<Offsets>,
    ) -> Result<Duration, StepFailure> {
        if let Some(failure) = self.begun.as_mut().and_then(|begun| begun.failed.take()) {
            return Err(failure);
        }
        self.begin()?;
        self.send(records)?;
        let deadline = self.deadline();
        if let Some(offsets) = offsets {
            self.phase(Phase::OFFSETS, || self.send_offsets(offsets, deadline))?;
        }
        self.phase(Phase::DRAIN, || self.drain(deadline))?;
        if self.shared.take_failure() {
            return Err(StepFailure::aborted("made to fail by a test"));
        }
        let asked = Instant::now();
        self.phase(Phase::COMMIT, || {
            self.call_apart("commit_transaction", asked + self.timeout, |producer| {
                producer.commit_transaction(Timeout::Never)
            })
            .map_err(StepFailure::once_asked_to_commit)
        })?;
        Ok(asked.elapsed())
    }

    fn send_offsets(&self, offsets: Offsets, deadline: Instant) -> Result<(), StepFailure> {
        let Offsets { list, member } = offsets;
        self.call_apart("send_offsets_to_transaction", deadline, move |producer| {
            producer.send_offsets_to_transaction(&list, &member, Timeout::Never)
        })
    }

    /// Makes a call on another thread: without a broker the library's call ignores its time-out.
    /// After the deadline the thread is abandoned with this producer, and ends when a broker is
    /// back. If its request comes before the next producer's start, that start completes or aborts
    /// the transaction; a later request is fenced.
    fn call_apart(
        &self,
        name: &'static str,
        deadline: Instant,
        make: impl Fn(&BaseProducer<StepContext>) -> KafkaResult<()> + Send + 'static,
    ) -> Result<(), StepFailure> {
        let (answer, answered) = mpsc::channel();
        let producer = self.producer.clone();
        let run = move || {
            let result = call(&producer, name, deadline, || make(&producer));
            // Dropped before the reply, so that the owner drops the last handle.
            drop(producer);
            // Nobody receives it after the deadline.
            drop(answer.send(result));
        };
        let thread = std::thread::Builder::new().name("log-step-call".to_owned());
        thread.spawn(run).map_err(|error| StepFailure::stuck(error.to_string()))?;
        match answered.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(result) => result.map_err(|error| self.call_failed(error)),
            Err(_) => Err(StepFailure::stuck(format!("{name} did not return in time"))),
        }
    }

    fn call_failed(&self, error: KafkaError) -> StepFailure {
        let failure = StepFailure::of_call(&error, self.explain(error.clone()));
        if failure.producer_usable { self.or_fenced(failure) } else { failure }
    }

    /// Returns the fencing that caused a failure, if there was one: the library reports the records
    /// that it discarded before it reports the fencing.
    fn or_fenced(&self, failure: StepFailure) -> StepFailure {
        match self.producer.client().fatal_error() {
            Some((_, fatal)) => StepFailure {
                outcome: Outcome::ProducerFenced,
                producer_usable: false,
                cause: failure.cause.because(&fatal),
            },
            None => failure,
        }
    }

    fn explain(&self, error: impl Into<Cause>) -> Cause {
        self.producer.context().last.explain(error)
    }

    /// Begins a step, unless it is begun.
    fn begin(&mut self) -> Result<(), StepFailure> {
        if self.begun.is_some() {
            return Ok(());
        }
        let deadline = Instant::now() + self.timeout;
        self.producer.context().kind.begin();
        self.phase(Phase::BEGIN, || {
            self.producer.begin_transaction().map_err(|error| self.call_failed(error))
        })?;
        self.begun = Some(Begun { deadline, sent: 0, failed: None });
        Ok(())
    }

    fn deadline(&self) -> Instant {
        self.begun.as_ref().map_or_else(Instant::now, |begun| begun.deadline)
    }

    fn send(&mut self, records: &[NewRecord]) -> Result<(), StepFailure> {
        let sent = self.begun.as_ref().map_or(0, |begun| begun.sent);
        self.phase(Phase::SEND, || self.send_after(sent, records))?;
        if let Some(begun) = &mut self.begun {
            begun.sent = sent.saturating_add(records.len());
        }
        Ok(())
    }

    /// Sends records of a step of which `sent` were sent before, one partition after the other: the
    /// library batches the records that a partition gets within `linger.ms`.
    fn send_after(&self, sent: usize, records: &[NewRecord]) -> Result<(), StepFailure> {
        let deadline = self.deadline();
        let mut order: Vec<usize> = (0..records.len()).collect();
        order.sort_by_key(|position| records[*position].to);
        for run in order.chunk_by(|a, b| records[*a].to == records[*b].to) {
            let to = records[run[0]].to;
            let name = self.shared.names.partition(to);
            let name = name.map_err(|error| StepFailure::aborted(error.to_string()))?;
            for position in run {
                let is_first = sent + position == 0;
                self.hand_over(&name.full, &records[*position], is_first, deadline)?;
            }
        }
        Ok(())
    }

    fn hand_over(
        &self,
        topic: &str,
        record: &NewRecord,
        is_first: bool,
        deadline: Instant,
    ) -> Result<(), StepFailure> {
        let mut native =
            BaseRecord::<[u8], [u8], usize>::with_opaque_to(topic, usize::from(is_first))
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
                    let text = format!("a record for {} is too large", record.to);
                    return Err(StepFailure::rejected(Cause::new(text, error)));
                }
                return Err(self.or_fenced(StepFailure::aborted(self.explain(error))));
            }
            native = returned;
            self.poll_deliveries();
        }
        Ok(())
    }

    /// Waits until the broker has every record.
    fn drain(&self, deadline: Instant) -> Result<(), StepFailure> {
        let failure = || self.producer.context().kind.failure();
        while self.producer.in_flight_count() > 0 && failure().is_none() {
            if Instant::now() > deadline {
                return Err(StepFailure::stuck("the records were not written in time"));
            }
            self.poll_deliveries();
        }
        let Some(error) = failure() else { return Ok(()) };
        ::metrics::counter!(metrics::LOG_PRODUCE_ERRORS_TOTAL).increment(1);
        Err(self.or_fenced(StepFailure::aborted(self.explain(error))))
    }

    /// Serves delivery reports, and waits a little if there was none.
    fn poll_deliveries(&self) {
        let before = self.producer.in_flight_count();
        self.serve_callbacks();
        if self.producer.in_flight_count() == before {
            std::thread::park_timeout(DELIVERY_POLL_INTERVAL);
        }
    }

    /// Aborts the step. If that fails, the next producer's start does it.
    fn abort(&self) -> StepEnd {
        let deadline = Instant::now() + self.timeout;
        let aborted = self.phase(Phase::ABORT, || {
            std::thread::scope(|scope| {
                let (over, is_over) = mpsc::channel::<()>();
                // The call returns only once all delivery reports are served, which takes polls.
                scope.spawn(move || {
                    use mpsc::TryRecvError;
                    while is_over.try_recv() == Err(TryRecvError::Empty) {
                        self.poll_deliveries();
                    }
                });
                let aborted = self.call("abort_transaction", deadline, || {
                    self.producer.abort_transaction(self.timeout)
                });
                drop(over);
                aborted
            })
        });
        match aborted {
            Ok(()) => StepEnd::Aborted,
            Err(error) => {
                tracing::warn!(%error, "cannot abort a step; the next producer's start aborts it");
                StepEnd::Uncertain
            }
        }
    }

    /// Makes a call as [`call`] does, under the watchdog.
    fn call(
        &self,
        name: &'static str,
        deadline: Instant,
        call: impl FnMut() -> KafkaResult<()>,
    ) -> KafkaResult<()> {
        let _watched = self.shared.watchdog.watch(name);
        self::call(&self.producer, name, deadline, call)
    }

    /// Runs a part of a step, measured and observed.
    fn phase<T, E>(&self, phase: Phase, part: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let Phase(label, before, after) = phase;
        let observer = self.shared.observer.get();
        if let Some(observer) = observer {
            observer.reached(before);
        }
        let started = Instant::now();
        let result = part()?;
        ::metrics::histogram!(metrics::LOG_STEP_SECONDS, "phase" => label)
            .record(started.elapsed());
        if let Some(observer) = observer {
            observer.reached(after);
        }
        Ok(result)
    }
}

/// Makes a call, and repeats it after retriable errors until the deadline.
fn call(
    producer: &BaseProducer<StepContext>,
    name: &'static str,
    deadline: Instant,
    mut call: impl FnMut() -> KafkaResult<()>,
) -> KafkaResult<()> {
    loop {
        let Err(error) = call() else { return Ok(()) };
        if !is_retriable(&error) || Instant::now() > deadline {
            return Err(error);
        }
        tracing::debug!(%error, kafka.call = name, "retrying a call of a transaction");
        producer.poll(CALL_RETRY_DELAY);
    }
}
