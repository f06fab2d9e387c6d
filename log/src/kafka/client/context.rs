//! Callbacks of the client library: log lines, errors, rebalances, deliveries.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::ClientContext;
use rdkafka::Message;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::statistics::{self, Statistics};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;
use schemas::Topic;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::name::Names;
use crate::metrics;
use crate::{Cause, Offset, TopicPartition};

/// The facility of the library's log lines about connections that broke.
const DISCONNECTED: &str = "FAIL";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs a line of the library. Its "error" lines become warnings, as it may recover.
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

/// The last background error: the likely reason of a time-out in the foreground.
#[derive(Debug, Default)]
pub(crate) struct LastError(Mutex<Option<String>>);

impl LastError {
    fn note(&self, error: &KafkaError, reason: &str) {
        tracing::debug!(%error, "kafka's client: {reason}");
        let text = if reason.is_empty() { error.to_string() } else { reason.to_owned() };
        let mut last = lock(&self.0);
        // "All brokers are down" only follows from an error that was reported before.
        let follows = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
        if !follows || last.is_none() {
            *last = Some(text);
        }
    }

    /// Adds the last background error, if there is one, as the reason, and forgets it.
    pub(crate) fn explain(&self, error: impl Into<Cause>) -> Cause {
        match lock(&self.0).take() {
            Some(reason) => error.into().because(&reason),
            None => error.into(),
        }
    }
}

/// Callbacks of a client; `kind` adds those of its kind.
#[derive(Debug, Default)]
pub(crate) struct Context<K> {
    pub(crate) last: LastError,
    pub(crate) kind: K,
}

/// A kind of client.
pub(crate) trait Kind: Send + Sync + 'static {
    /// A connection broke, or the library reported a background error.
    fn disconnected(&self) {}

    fn measured(&self, _statistics: &Statistics) {}
}

impl<K: Kind> ClientContext for Context<K> {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, log_message: &str) {
        // The library only logs that the peer closed a connection, and does not call `error`.
        if fac == DISCONNECTED {
            self.kind.disconnected();
        }
        report(level, fac, log_message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.kind.disconnected();
        self.last.note(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        self.kind.measured(&statistics);
    }
}

/// Context of clients that only read, query or administer.
pub(crate) type PlainContext = Context<()>;

impl Kind for () {}

impl ConsumerContext for PlainContext {}

/// A rebalance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The member has no partitions until the next notice. If `lost`, other members may have had them.
    Revoked {
        lost: bool,
    },
    Assigned(Vec<TopicPartition>),
}

pub(crate) type MemberContext = Context<Membership>;

/// State of a group's member.
pub(crate) struct Membership {
    names: Arc<Names>,
    group: &'static str,
    notices: Mutex<VecDeque<Notice>>,
    leaving: AtomicBool,
    /// Positions of the group in the partitions of the member.
    positions: Mutex<HashMap<TopicPartition, Offset>>,
    /// `true` if all records delivered to the member are committed.
    is_at_rest: AtomicBool,
    /// This member's part of the metric of the lag.
    lags: Mutex<HashMap<Topic, u32>>,
}

impl MemberContext {
    pub(crate) fn new(names: Arc<Names>, group: &'static str) -> Self {
        let (notices, positions, lags) = Default::default();
        let (leaving, is_at_rest) = Default::default();
        let kind = Membership { names, group, notices, leaving, positions, is_at_rest, lags };
        Self { last: LastError::default(), kind }
    }

    pub(crate) fn take_notice(&self) -> Option<Notice> {
        lock(&self.kind.notices).pop_front()
    }

    pub(crate) fn has_notice(&self) -> bool {
        !lock(&self.kind.notices).is_empty()
    }

    pub(crate) fn note_positions(&self, positions: impl Iterator<Item = (TopicPartition, Offset)>) {
        lock(&self.kind.positions).extend(positions);
    }

    pub(crate) fn note_rest(&self, is_at_rest: bool) {
        self.kind.is_at_rest.store(is_at_rest, Ordering::SeqCst);
    }

    /// Refuses all later assignments.
    pub(crate) fn leave(&self) {
        self.kind.leaving.store(true, Ordering::SeqCst);
    }
}

impl Kind for Membership {
    fn measured(&self, statistics: &Statistics) {
        let is_at_rest = self.is_at_rest.load(Ordering::SeqCst);
        let positions = lock(&self.positions);
        for (name, topic) in &statistics.topics {
            let Some(of) = self.names.parse(name, 0) else { continue };
            let lag = |partition: &statistics::Partition| {
                let of = self.names.parse(name, partition.partition)?;
                Some(lag(*positions.get(&of)?, is_at_rest, partition))
            };
            let lags = topic.partitions.values().filter_map(lag);
            self.show_lag(of.topic, u32::try_from(lags.sum::<i64>()).unwrap_or(u32::MAX));
        }
    }
}

impl Membership {
    /// Replaces this member's part of the gauge, which the workers of a process share: a set value would be that of
    /// the last one alone.
    fn show_lag(&self, topic: Topic, lag: u32) {
        let before = lock(&self.lags).insert(topic, lag).unwrap_or_default();
        let labels = [("group", self.group), ("topic", topic.name())];
        let gauge = ::metrics::gauge!(metrics::LOG_LAG_RECORDS, &labels);
        gauge.increment(f64::from(lag.saturating_sub(before)));
        gauge.decrement(f64::from(before.saturating_sub(lag)));
    }
}

/// Withdraws the member's part of the gauge: others read its partitions.
impl Drop for Membership {
    fn drop(&mut self) {
        let topics: Vec<_> = lock(&self.lags).keys().copied().collect();
        topics.into_iter().for_each(|topic| self.show_lag(topic, 0));
    }
}

/// Returns the lag: the number of offsets from a position to the last stable one. Fetched records
/// that are in no committed step count, and so do transaction markers. At rest the client's
/// position is used instead: it is after the markers, and no record before it is uncommitted.
fn lag(position: Offset, is_at_rest: bool, partition: &statistics::Partition) -> i64 {
    let position = if is_at_rest { position.0.max(partition.app_offset) } else { position.0 };
    (partition.ls_offset - position.max(partition.lo_offset)).max(0)
}

impl ConsumerContext for MemberContext {
    // The default would assign at once. The worker assigns after it has fenced its predecessors and has
    // read the group's offsets.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        lock(&self.kind.positions).clear();
        let assigned = what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        let leaving = self.kind.leaving.load(Ordering::SeqCst);
        if assigned && !leaving {
            let elements = partitions.elements();
            let known =
                elements.iter().filter_map(|e| self.kind.names.parse(e.topic(), e.partition()));
            lock(&self.kind.notices).push_back(Notice::Assigned(known.collect()));
            return;
        }
        let lost = consumer.assignment_lost();
        if let Err(error) = consumer.unassign() {
            tracing::warn!(%error, kafka.group = self.kind.group, "cannot give revoked partitions back; the library retries");
        }
        lock(&self.kind.notices).push_back(Notice::Revoked { lost });
    }
}

pub(crate) type StepContext = Context<Deliveries>;

/// Delivery reports of the records in a producer's current step.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    disturbed: AtomicBool,
    reports: Mutex<Reports>,
}

#[derive(Debug, Default)]
struct Reports {
    failed: Option<KafkaError>,
    first: Option<Offset>,
}

impl Kind for Deliveries {
    fn disconnected(&self) {
        self.disturbed.store(true, Ordering::SeqCst);
    }
}

impl Deliveries {
    /// Forgets the reports of the last step.
    pub(crate) fn begin(&self) {
        *lock(&self.reports) = Reports::default();
    }

    /// Error of a record of the step that was not written, if there is one.
    pub(crate) fn failure(&self) -> Option<KafkaError> {
        lock(&self.reports).failed.clone()
    }

    /// Offset of the first record of the step.
    pub(crate) fn first(&self) -> Option<Offset> {
        lock(&self.reports).first
    }

    /// `true` after any broken connection or background error: a duplicate request may still arrive.
    pub(crate) fn was_disturbed(&self) -> bool {
        self.disturbed.load(Ordering::SeqCst)
    }
}

impl ProducerContext for StepContext {
    /// 1 for the record by which the step is looked up again, 0 for the others.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, is_first: usize) {
        match result {
            Ok(message) if is_first == 1 => {
                lock(&self.kind.reports).first = Some(Offset(message.offset()));
            }
            Ok(_) => {}
            Err((error, _)) => {
                lock(&self.kind.reports).failed.get_or_insert_with(|| error.clone());
            }
        }
    }
}

/// The records of one call that are not written yet.
#[derive(Debug)]
pub(crate) struct Delivery(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    left: usize,
    failed: Option<KafkaError>,
    /// The call's reply, and the permit held until then.
    done: Option<(oneshot::Sender<Result<(), KafkaError>>, OwnedSemaphorePermit)>,
}

impl Delivery {
    /// Replies to `done` and frees `room` once `count` records were written or have failed.
    pub(crate) fn new(
        count: usize,
        done: oneshot::Sender<Result<(), KafkaError>>,
        room: OwnedSemaphorePermit,
    ) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Waiting { left: count, failed: None, done: Some((done, room)) })))
    }

    /// Notes that `count` records were written or have failed.
    pub(crate) fn ended(&self, count: usize, failed: Option<&KafkaError>) {
        let mut waiting = lock(&self.0);
        waiting.left = waiting.left.saturating_sub(count);
        if waiting.failed.is_none() {
            waiting.failed = failed.cloned();
        }
        if waiting.left > 0 {
            return;
        }
        let result = waiting.failed.take().map_or(Ok(()), Err);
        if let Some((done, _room)) = waiting.done.take() {
            // The caller may have been dropped.
            drop(done.send(result));
        }
    }
}

/// Context of the shared producer.
pub(crate) type ProduceContext = Context<()>;

impl ProducerContext for ProduceContext {
    type DeliveryOpaque = Arc<Delivery>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Arc<Delivery>) {
        delivery.ended(1, result.as_ref().err().map(|(error, _)| error));
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use schemas::{Layout, Partition};

    use super::*;

    #[test]
    fn a_call_is_answered_once_all_its_records_ended() {
        let (done, mut answer) = oneshot::channel();
        let room = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
        let delivery = Delivery::new(3, done, room);
        delivery.ended(2, None);
        assert!(answer.try_recv().is_err());
        let error = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        delivery.ended(1, Some(&error));
        assert_eq!(answer.try_recv(), Ok(Err(error)));
    }

    #[test]
    fn fetched_but_uncommitted_records_are_lag() {
        let mut partition = statistics::Partition::default();
        (partition.lo_offset, partition.ls_offset, partition.hi_offset) = (5, 90, 95);
        (partition.consumer_lag_stored, partition.app_offset) = (3, 87);
        assert_eq!(lag(Offset(60), false, &partition), 30);
        assert_eq!(lag(Offset(0), false, &partition), 85, "expired records do not count");
        // Nothing was fetched yet.
        partition.ls_offset = -1001;
        assert_eq!(lag(Offset(60), false, &partition), 0);
    }

    #[test]
    fn the_lag_is_that_of_all_workers_of_a_process() {
        let names = Arc::new(Names::new("", &Layout { lanes: 1, orders: 2, webhooks: 1 }));
        let member = |number| {
            let member = MemberContext::new(names.clone(), "g");
            let of = TopicPartition { topic: Topic::Orders, partition: Partition(number) };
            member.note_positions(std::iter::once((of, Offset(0))));
            member
        };
        let measured = |member: &MemberContext, number: i32, end: i64| {
            let mut partition = statistics::Partition::default();
            (partition.partition, partition.ls_offset) = (number, end);
            let mut topic = statistics::Topic::default();
            topic.partitions.insert(number, partition);
            let mut statistics = Statistics::default();
            statistics.topics.insert(Topic::Orders.name().to_owned(), topic);
            member.kind.measured(&statistics);
        };
        let recorder = PrometheusBuilder::new().build_recorder();
        let assert_shown = |lag: &str| {
            let text = recorder.handle().render();
            let line = format!("tidemark_log_lag_records{{group=\"g\",topic=\"orders\"}} {lag}");
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        };
        ::metrics::with_local_recorder(&recorder, || {
            let (one, other) = (member(0), member(1));
            for (member, number, end, sum) in
                [(&one, 0, 5, "5"), (&other, 1, 0, "5"), (&other, 1, 2, "7"), (&one, 0, 1, "3")]
            {
                measured(member, number, end);
                assert_shown(sum);
            }
            drop(one);
            assert_shown("2");
        });
    }

    #[test]
    fn markers_of_transactions_are_no_lag() {
        let mut partition = statistics::Partition::default();
        (partition.ls_offset, partition.app_offset) = (91, 91);
        assert_eq!(lag(Offset(90), true, &partition), 0);
        assert_eq!(lag(Offset(89), false, &partition), 2, "a record waits for its step");
        partition.ls_offset = 95;
        assert_eq!(lag(Offset(90), true, &partition), 4, "more is to be fetched");
        // Nothing was delivered since the start.
        partition.app_offset = -1001;
        assert_eq!(lag(Offset(90), true, &partition), 5);
    }

    #[test]
    fn the_cause_of_a_time_out_is_reported_once() {
        let last = LastError::default();
        assert_eq!(last.explain("timed out").to_string(), "timed out");
        last.note(&KafkaError::Global(RDKafkaErrorCode::Authentication), "wrong password");
        last.note(&KafkaError::Global(RDKafkaErrorCode::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(last.explain("timed out").to_string(), "timed out (wrong password)");
        assert_eq!(last.explain("timed out").to_string(), "timed out");
    }

    #[test]
    fn step_remembers_its_first_record_until_the_next() {
        let context = StepContext::default();
        lock(&context.kind.reports).first = Some(Offset(7));
        context.kind.begin();
        assert_eq!((context.kind.first(), context.kind.failure()), (None, None));
    }

    #[test]
    fn a_broken_connection_is_remembered_for_good() {
        let (failed, closed) = (StepContext::default(), StepContext::default());
        failed.error(KafkaError::Global(RDKafkaErrorCode::BrokerTransportFailure), "");
        closed.log(RDKafkaLogLevel::Notice, "COORD", "");
        assert!(!closed.kind.was_disturbed());
        closed.log(RDKafkaLogLevel::Info, DISCONNECTED, "");
        for context in [failed, closed] {
            context.kind.begin();
            assert!(context.kind.was_disturbed());
        }
    }
}
