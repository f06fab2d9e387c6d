//! What the client library tells on its own: log lines, errors, rebalances, deliveries.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::ClientContext;
use rdkafka::Message;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;

use super::name::Names;
use crate::metrics;
use crate::{Offset, TopicPartition};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A log line of the library. It says "error" for what it deals with itself.
fn report(level: RDKafkaLogLevel, kind: &str, text: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(kafka.event = kind, "kafka's client: {text}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            tracing::warn!(kafka.event = kind, "kafka's client: {text}");
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::debug!(kafka.event = kind, "kafka's client: {text}");
        }
        RDKafkaLogLevel::Debug => tracing::trace!(kafka.event = kind, "kafka's client: {text}"),
    }
}

/// The last thing that went wrong in the background: the cause of a time-out in the foreground.
#[derive(Debug, Default)]
pub(super) struct LastError(Mutex<Option<String>>);

impl LastError {
    fn note(&self, error: &KafkaError, reason: &str) {
        tracing::debug!(%error, "kafka's client: {reason}");
        let text = if reason.is_empty() { error.to_string() } else { reason.to_owned() };
        let mut last = lock(&self.0);
        // That no broker is left only follows from what was told before.
        let follows = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
        if !follows || last.is_none() {
            *last = Some(text);
        }
    }

    /// `error`, and why it may be.
    pub(super) fn explain(&self, error: impl std::fmt::Display) -> String {
        match lock(&self.0).take() {
            Some(cause) => format!("{error} ({cause})"),
            None => error.to_string(),
        }
    }
}

/// Of clients that only read, ask or administer.
#[derive(Debug, Default)]
pub(super) struct PlainContext {
    /// What went wrong last.
    pub(super) last: LastError,
}

impl ClientContext for PlainContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, log_message: &str) {
        report(level, fac, log_message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.last.note(&error, reason);
    }
}

impl ConsumerContext for PlainContext {}

/// What happened to a member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// It has nothing until the next notice. If `lost`, others may have had it for a while.
    Revoked {
        /// The group went on without this member.
        lost: bool,
    },
    /// It has these.
    Assigned(Vec<TopicPartition>),
}

/// Of members of groups.
pub(super) struct MemberContext {
    /// What went wrong last.
    pub(super) last: LastError,
    names: Arc<Names>,
    group: &'static str,
    notices: Mutex<VecDeque<Notice>>,
    leaving: AtomicBool,
}

impl MemberContext {
    pub(super) fn new(names: Arc<Names>, group: &'static str) -> Self {
        let leaving = AtomicBool::new(false);
        Self { last: LastError::default(), names, group, notices: Mutex::default(), leaving }
    }

    /// The oldest notice that nobody took.
    pub(super) fn take_notice(&self) -> Option<Notice> {
        lock(&self.notices).pop_front()
    }

    /// Whether there is one.
    pub(super) fn has_notice(&self) -> bool {
        !lock(&self.notices).is_empty()
    }

    /// From now on nothing is taken any more.
    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }
}

impl ClientContext for MemberContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, log_message: &str) {
        report(level, fac, log_message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.last.note(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        for (name, topic) in &statistics.topics {
            let Some(of) = self.names.parse(name, 0) else { continue };
            let lags = topic.partitions.values().map(|p| p.consumer_lag_stored.max(0));
            let lag = u32::try_from(lags.sum::<i64>()).unwrap_or(u32::MAX);
            let labels = [("group", self.group), ("topic", of.topic.name())];
            ::metrics::gauge!(metrics::LOG_LAG_RECORDS, &labels).set(f64::from(lag));
        }
    }
}

impl ConsumerContext for MemberContext {
    // Both parts of the default would assign at once. Here the worker decides when and where from: its
    // producer and the offsets come first.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let assigned = what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        let leaving = self.leaving.load(Ordering::SeqCst);
        if assigned && !leaving {
            let elements = partitions.elements();
            let known = elements.iter().filter_map(|e| self.names.parse(e.topic(), e.partition()));
            lock(&self.notices).push_back(Notice::Assigned(known.collect()));
            return;
        }
        let lost = consumer.assignment_lost();
        if let Err(error) = consumer.unassign() {
            tracing::warn!(%error, kafka.group = self.group, "partitions could not be given back");
        }
        lock(&self.notices).push_back(Notice::Revoked { lost });
    }
}

/// Of producers of atomic steps: what became of the records of the step under way.
#[derive(Debug, Default)]
pub(super) struct StepContext {
    /// What went wrong last.
    pub(super) last: LastError,
    disturbed: AtomicBool,
    deliveries: Mutex<Deliveries>,
}

#[derive(Debug, Default)]
struct Deliveries {
    failed: Option<String>,
    delivered: Option<Offset>,
}

impl StepContext {
    /// A step begins.
    pub(super) fn begin(&self) {
        self.disturbed.store(false, Ordering::SeqCst);
        *lock(&self.deliveries) = Deliveries::default();
    }

    /// Why a record of the step was not written, if one was not.
    pub(super) fn failed(&self) -> Option<String> {
        lock(&self.deliveries).failed.clone()
    }

    /// Where the first record of the step is.
    pub(super) fn delivered(&self) -> Option<Offset> {
        lock(&self.deliveries).delivered
    }

    /// Whether anything went wrong with a connection since the step began. Something that was sent twice
    /// may then still be under way.
    pub(super) fn was_disturbed(&self) -> bool {
        self.disturbed.load(Ordering::SeqCst)
    }
}

impl ClientContext for StepContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, log_message: &str) {
        report(level, fac, log_message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.disturbed.store(true, Ordering::SeqCst);
        self.last.note(&error, reason);
    }
}

impl ProducerContext for StepContext {
    /// 1 for the record by which the step is looked up again, 0 for the others.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, is_first: usize) {
        match result {
            Ok(message) if is_first == 1 => {
                lock(&self.deliveries).delivered = Some(Offset(message.offset()));
            }
            Ok(_) => {}
            Err((error, _)) => {
                lock(&self.deliveries).failed.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

/// The records of one call that are not written yet.
#[derive(Debug)]
pub(super) struct Delivery {
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    left: usize,
    failed: Option<KafkaError>,
    done: Option<tokio::sync::oneshot::Sender<Result<(), KafkaError>>>,
}

impl Delivery {
    /// Waits for `count` records and then tells `done`.
    pub(super) fn new(
        count: usize,
        done: tokio::sync::oneshot::Sender<Result<(), KafkaError>>,
    ) -> Arc<Self> {
        let waiting = Waiting { left: count, failed: None, done: Some(done) };
        Arc::new(Self { waiting: Mutex::new(waiting) })
    }

    /// So many of them came to an end.
    pub(super) fn ended(&self, count: usize, failed: Option<&KafkaError>) {
        let mut waiting = lock(&self.waiting);
        waiting.left = waiting.left.saturating_sub(count);
        if waiting.failed.is_none() {
            waiting.failed = failed.cloned();
        }
        if waiting.left > 0 {
            return;
        }
        let result = waiting.failed.take().map_or(Ok(()), Err);
        if let Some(done) = waiting.done.take() {
            // Whoever asked may have gone away.
            drop(done.send(result));
        }
    }
}

/// Of the shared producer.
#[derive(Debug, Default)]
pub(super) struct ProduceContext {
    /// What went wrong last.
    pub(super) last: LastError,
}

impl ClientContext for ProduceContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, log_message: &str) {
        report(level, fac, log_message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.last.note(&error, reason);
    }
}

impl ProducerContext for ProduceContext {
    type DeliveryOpaque = Arc<Delivery>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Arc<Delivery>) {
        delivery.ended(1, result.as_ref().err().map(|(error, _)| error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_answered_once_all_its_records_ended() {
        let (done, mut answer) = tokio::sync::oneshot::channel();
        let delivery = Delivery::new(3, done);
        delivery.ended(2, None);
        assert!(answer.try_recv().is_err());
        let error = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        delivery.ended(1, Some(&error));
        assert_eq!(answer.try_recv(), Ok(Err(error)));
    }

    #[test]
    fn the_cause_of_a_time_out_is_told_once() {
        let last = LastError::default();
        assert_eq!(last.explain("timed out"), "timed out");
        last.note(&KafkaError::Global(RDKafkaErrorCode::Authentication), "wrong password");
        last.note(&KafkaError::Global(RDKafkaErrorCode::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(last.explain("timed out"), "timed out (wrong password)");
        assert_eq!(last.explain("timed out"), "timed out");
    }

    #[test]
    fn a_step_remembers_where_its_first_record_is_until_the_next_begins() {
        let context = StepContext::default();
        lock(&context.deliveries).delivered = Some(Offset(7));
        context.error(KafkaError::Global(RDKafkaErrorCode::BrokerTransportFailure), "");
        assert!(context.was_disturbed());
        context.begin();
        assert!(!context.was_disturbed());
        assert_eq!((context.delivered(), context.failed()), (None, None));
    }
}
