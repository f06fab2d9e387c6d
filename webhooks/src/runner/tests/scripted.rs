//! A scripted log of one worker, and the deliveries that tests put on it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use log::{
    Assigned, Committed, Error as LogError, Event, NewRecord, Offset, Record, Step, StepError,
    TopicPartition, Worker,
};
use runtime::{Clock, ManualClock};
use schemas::record::{Attempt, Delivery, example};
use schemas::{AttemptOutcome, DeliveryKind, Layout, Partition, ReceiverPolicy, Topic, UnixMicros};

use crate::config::Config;
use crate::machine::tracker::Tracker;

pub(super) const LAYOUT: Layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
pub(super) const START: UnixMicros = UnixMicros(1_790_000_000_000_000);

/// The defaults, except for a long time-out, requests to every address, and few at once.
pub(super) fn config() -> Config {
    Config {
        timeout: Duration::from_secs(30),
        receivers: ReceiverPolicy::anywhere(),
        concurrency: 64,
        concurrency_per_host: 8,
        unknown_transfer_webhook_url: None,
        ..crate::config::tests::read("").0
    }
}

pub(in crate::runner) fn at(topic: Topic) -> TopicPartition {
    TopicPartition { topic, partition: Partition(0) }
}

/// A delivery named `name` to `url`; its key is its name.
pub(super) fn delivery(name: &str, url: &str) -> Delivery {
    let (kind, body) = (DeliveryKind::OrderStatusChanged, example::delivery().body);
    Delivery::first(kind, name.to_owned(), url.to_owned(), body, START)
}

/// Event of a version of the order; version 5 is the first, later ones follow it.
pub(super) fn event(version: i64, url: &str) -> Delivery {
    let order = example::order().order_id;
    Delivery {
        order_id: Some(order),
        version: Some(version),
        follows: version > 5,
        ..delivery(&format!("v{version}"), url)
    }
}

pub(super) fn put<R: schemas::record::Record>(topic: Topic, key: &str, record: &R) -> NewRecord {
    NewRecord::encode(topic, Partition(0), key, record).unwrap()
}

#[derive(Default)]
struct State {
    records: BTreeMap<TopicPartition, Vec<Arc<Record>>>,
    committed: BTreeMap<TopicPartition, Committed>,
    positions: HashMap<TopicPartition, usize>,
    paused: BTreeSet<TopicPartition>,
    events: VecDeque<Event>,
    commits: VecDeque<StepError>,
    /// Number of polls that fail.
    failing_polls: usize,
    /// Lead of the log's clock, in microseconds.
    skew: i64,
}

/// One partition of each topic, in memory.
#[derive(Clone)]
pub(super) struct Scripted {
    state: Arc<Mutex<State>>,
    clock: Arc<ManualClock>,
}

impl Scripted {
    pub(super) fn new() -> Self {
        Self { state: Arc::default(), clock: Arc::new(ManualClock::new(START)) }
    }

    pub(super) fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    /// Sets the skew between the clocks of log and workers.
    pub(super) fn skew(&self, seconds: i64) {
        self.state.lock().unwrap().skew = seconds * 1_000_000;
    }

    /// A worker that takes over `topics`, as after a start.
    pub(super) fn worker(&self, topics: &[Topic]) -> Box<dyn Worker> {
        let mut state = self.state.lock().unwrap();
        state.paused.clear();
        state.events.clear();
        drop(state);
        self.assign(topics);
        Box::new(self.clone())
    }

    pub(super) fn assign(&self, topics: &[Topic]) {
        let mut state = self.state.lock().unwrap();
        let assigned = topics.iter().map(|topic| {
            let committed = state.committed.get(&at(*topic)).cloned();
            Assigned { partition: at(*topic), committed }
        });
        let assigned: Vec<_> = assigned.collect();
        state.rewind(topics.iter().map(|topic| at(*topic)).collect());
        state.events.push_back(Event::Assigned(assigned));
    }

    pub(super) fn revoke(&self, topic: Topic) {
        let mut state = self.state.lock().unwrap();
        state.positions.remove(&at(topic));
        state.paused.remove(&at(topic));
        state.events.push_back(Event::Revoked(vec![at(topic)]));
    }

    /// Sets the errors of the next commits; later ones succeed.
    pub(super) fn fail_commits(&self, errors: impl IntoIterator<Item = StepError>) {
        self.state.lock().unwrap().commits.extend(errors);
    }

    /// Lets the next polls fail.
    pub(super) fn fail_polls(&self, count: usize) {
        self.state.lock().unwrap().failing_polls = count;
    }

    /// Number of errors of [`Scripted::fail_commits`] still to be returned.
    pub(super) fn failures_left(&self) -> usize {
        self.state.lock().unwrap().commits.len()
    }

    /// `true` if assignments or revocations were not polled yet.
    pub(super) fn has_events(&self) -> bool {
        !self.state.lock().unwrap().events.is_empty()
    }

    pub(super) fn append(&self, records: Vec<NewRecord>) {
        self.state.lock().unwrap().append(records, self.clock.now());
    }

    pub(super) fn committed(&self, topic: Topic) -> Option<Committed> {
        self.state.lock().unwrap().committed.get(&at(topic)).cloned()
    }

    pub(super) fn read<R: schemas::record::Record>(&self, topic: Topic) -> Vec<R> {
        let state = self.state.lock().unwrap();
        let records = state.records.get(&at(topic)).into_iter().flatten();
        records.map(|r| schemas::decode(r.value.as_deref().unwrap()).unwrap()).collect()
    }

    /// The deliveries of a topic that are not complete.
    pub(super) fn open(&self, topic: Topic) -> Vec<Delivery> {
        let committed = self.committed(topic);
        let done = committed.as_ref().map_or(0, |committed| committed.offset.0);
        let mut tracker = Tracker::restore(committed.as_ref());
        let state = self.state.lock().unwrap();
        let records = state.records.get(&at(topic)).into_iter().flatten();
        let left = records.skip(usize::try_from(done).unwrap());
        let open = left.filter(|record| tracker.receive(record.offset));
        open.map(|record| schemas::decode(record.value.as_deref().unwrap()).unwrap()).collect()
    }

    /// Event, number and outcome of each attempt committed so far.
    pub(super) fn outcomes(&self) -> Vec<(String, i32, AttemptOutcome)> {
        let attempts: Vec<Attempt> = self.read(Topic::WebhooksAttempts);
        attempts.into_iter().map(|a| (a.event_id, a.attempt, a.outcome)).collect()
    }

    /// Event and number of each attempt committed so far.
    pub(super) fn attempts(&self) -> Vec<(String, i32)> {
        self.outcomes().into_iter().map(|(event, number, _)| (event, number)).collect()
    }
}

impl State {
    fn append(&mut self, records: Vec<NewRecord>, appended_at: UnixMicros) {
        for new in records {
            let list = self.records.entry(new.to).or_default();
            list.push(Arc::new(Record {
                from: new.to,
                offset: Offset(i64::try_from(list.len()).unwrap()),
                appended_at: UnixMicros(appended_at.0 + self.skew),
                key: new.key,
                value: new.value,
                headers: new.headers,
            }));
        }
    }

    fn rewind(&mut self, partitions: Vec<TopicPartition>) {
        for partition in partitions {
            let committed = self.committed.get(&partition).map_or(0, |c| c.offset.0);
            self.positions.insert(partition, usize::try_from(committed).unwrap());
        }
    }
}

impl Worker for Scripted {
    fn write_ahead(&mut self, _records: &mut Vec<NewRecord>) {}

    fn poll(&mut self, timeout: Duration) -> Result<Event, LogError> {
        let mut state = self.state.lock().unwrap();
        if let Some(left) = state.failing_polls.checked_sub(1) {
            state.failing_polls = left;
            return Err(LogError::Transient("its broker is away".into()));
        }
        if let Some(event) = state.events.pop_front() {
            return Ok(event);
        }
        let State { records, positions, paused, .. } = &mut *state;
        let mut batch = Vec::new();
        for (partition, position) in positions {
            let list = records.get(partition).map(Vec::as_slice).unwrap_or_default();
            if !paused.contains(partition) && *position < list.len() {
                batch.extend_from_slice(&list[*position..]);
                *position = list.len();
            }
        }
        drop(state);
        if batch.is_empty() {
            std::thread::park_timeout(timeout.min(Duration::from_millis(2)));
            return Ok(Event::Idle);
        }
        Ok(Event::Records(batch))
    }

    fn commit(&mut self, step: Step) -> Result<(), StepError> {
        let mut state = self.state.lock().unwrap();
        match state.commits.pop_front() {
            Some(StepError::Aborted(cause)) => {
                let owned = state.positions.keys().copied().collect();
                state.rewind(owned);
                return Err(StepError::Aborted(cause));
            }
            Some(StepError::Fenced(cause)) => {
                state.positions.clear();
                state.paused.clear();
                return Err(StepError::Fenced(cause));
            }
            Some(fatal) => return Err(fatal),
            None => {}
        }
        for (partition, committed) in step.offsets {
            assert!(state.positions.contains_key(&partition), "{partition} is not owned");
            assert!(committed.metadata.len() <= 4000);
            state.committed.insert(partition, committed);
        }
        let now = self.clock.now();
        state.append(step.records, now);
        Ok(())
    }

    fn restore(
        &mut self,
        changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), LogError> {
        let records = self.state.lock().unwrap().records.get(&changelog).cloned();
        records.iter().flatten().for_each(|record| apply(Record::clone(record)));
        Ok(())
    }

    fn pause(&mut self, partition: TopicPartition) {
        self.state.lock().unwrap().paused.insert(partition);
    }

    fn resume(&mut self, partition: TopicPartition) {
        self.state.lock().unwrap().paused.remove(&partition);
    }
}
