//! `alerts` and `dead-letters` -> the sinks of alerts, and one alert for each topic with dead letters.
//!
//! One process has both partitions. The position of each sink is kept in the metadata of the group's offset, which is
//! that of the sink farthest behind. So no sink waits for another, and a restart repeats nothing before a sink's
//! position.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::consumer::{Handler, Member, Plan};
use log::{
    ALERTS, Assigned, Bounds, Committed, NewRecord, Offset, OpenAlerts, Record, StageContext, Step,
    TopicPartition, dead_letter, retry,
};
use schemas::record::{Alert, DeadLetter};
use schemas::{AlertKind, CodecError, Partition, Topic};
use tokio::task::JoinHandle;

use crate::alerts::SinkReport;
use crate::alerts::config::AlertsConfig;
use crate::alerts::courier::Courier;
use crate::config::Config;
use crate::error::Error;
use crate::machine::outbox::{Outbox, is_old};
use crate::metrics;

/// Maximum length of a dead letter's reason in its alert.
pub(super) const REASON_CHARS_MAX: usize = 300;
/// Maximum lag, in records, of a sink that this process does not have. A sink farther behind counts as removed from the
/// configuration, and no longer holds back the group's offset.
pub(super) const ABSENT_RECORDS_MAX: i64 = 1_000;
/// Time for the last commit, after the last request has timed out. A mail may take longer: then the next run sends it
/// again.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);

/// Sends alerts to the sinks until the process stops. Blocks: runs on a thread of its own.
///
/// # Errors
/// [`Error`] if the log failed for good; what was not committed is sent again by the next run.
pub fn run_herald(
    alerts: &AlertsConfig,
    config: &Config,
    context: &StageContext,
) -> Result<(), Error> {
    log::consumer::run(context, Herald::new(alerts, config, context)?)
}

struct Inbox {
    courier: Arc<Courier>,
    outbox: Outbox,
    flight: Option<JoinHandle<SinkReport>>,
    /// The last cause that was logged, while messages fail.
    failing: Option<String>,
}

pub(super) struct Herald {
    context: StageContext,
    /// `true` if this member has the topic `alerts`.
    is_owner: bool,
    /// Open alerts as far as they were received: what the sinks are sent follows from them.
    open: OpenAlerts,
    /// Open alerts up to the end of the topic, as of the last dead letter. Received ones may be behind: an alert that
    /// was resolved since must not hide a letter.
    latest: OpenAlerts,
    inboxes: Vec<Inbox>,
    /// Positions of sinks that only other processes have, whose configuration is older or newer.
    absent: BTreeMap<String, Offset>,
    /// Dead letters that no step has committed yet. They are kept after an abort, because received records are skipped
    /// when they are read again.
    letters: Vec<NewRecord>,
    /// Offset before which all was received.
    next: Offset,
    /// Committed position of the group, and the one that the step under way commits.
    kept: Option<Committed>,
    keeping: Option<Committed>,
    drain_max: Duration,
    drain_until: Option<Instant>,
}

impl Handler for Herald {
    const GROUP: &'static str = "webhooks.alerts";
    type Error = Error;

    fn topics(&self) -> Vec<Topic> {
        vec![Topic::Alerts, Topic::DeadLetters]
    }

    fn assigned(&mut self, assigned: Vec<Assigned>, _member: &mut Member<'_>) -> Result<(), Error> {
        let Some(assigned) = assigned.into_iter().find(|one| one.partition == ALERTS) else {
            return Ok(());
        };
        let committed = assigned.committed.unwrap_or_default();
        let log = self.context.log.clone();
        let read = retry(&self.context.stop, Self::GROUP, || {
            let (mut open, bounds) = (OpenAlerts::default(), log.bounds(ALERTS)?);
            let next = committed.offset.max(bounds.start);
            open.refresh_by(Bounds { end: next, ..bounds }, |of, from, max| {
                log.read_ended(of, from, max)
            })?;
            Ok((open, next))
        })?;
        // `None`: the process stops.
        let Some((open, next)) = read else { return Ok(()) };
        let mut positions = sinks_of(&committed.metadata);
        // A new sink gets no alerts from before it was added.
        let newest = positions.values().copied().max().unwrap_or(next);
        for inbox in &mut self.inboxes {
            let from = positions.get(&inbox.courier.name).copied().unwrap_or(newest);
            inbox.outbox = Outbox::from(from.max(next));
            positions.remove(&inbox.courier.name);
        }
        self.absent = positions;
        (self.open, self.next, self.kept, self.is_owner) = (open, next, Some(committed), true);
        Ok(())
    }

    fn revoked(&mut self, lost: &[TopicPartition]) -> Result<(), Error> {
        if lost.contains(&ALERTS) {
            self.is_owner = false;
            self.letters.clear();
            for inbox in &mut self.inboxes {
                inbox.outbox = Outbox::default();
                inbox.flight.take().inspect(JoinHandle::abort);
            }
            metrics::no_alerts(self.inboxes.iter().map(|inbox| inbox.courier.name.as_str()));
        }
        Ok(())
    }

    fn step(&mut self, records: &[Arc<Record>], _member: &mut Member<'_>) -> Result<Plan, Error> {
        let (mut step, mut raised) = (Step::default(), BTreeSet::new());
        let has_letters = records.iter().any(|record| record.from != ALERTS);
        // If the process stops before the alerts are read, letters are left to the next run.
        let takes_letters = has_letters && self.read_latest()?;
        for record in records {
            if record.from == ALERTS {
                let letter = self.receive(record)?;
                self.letters.extend(letter);
            } else if takes_letters {
                step.records.extend(self.raise_of(record, &mut raised)?);
                step.take(record);
            }
        }
        if !self.is_owner {
            return Ok(Plan::commit(step));
        }
        step.records.extend(self.letters.iter().cloned());
        self.land()?;
        self.launch();
        self.measure();
        let keeping = self.position();
        if self.kept.as_ref() != Some(&keeping) {
            step.offsets.push((ALERTS, keeping.clone()));
            self.keeping = Some(keeping);
        }
        Ok(Plan::commit(step))
    }

    fn committed(&mut self) {
        self.letters.clear();
        if let Some(keeping) = self.keeping.take() {
            self.kept = Some(keeping);
        }
    }

    /// Forgets the step's commit only. Received records remain known, and are skipped when they are read again.
    fn aborted(&mut self) -> Result<(), Error> {
        self.keeping = None;
        Ok(())
    }

    /// `true` once no message is under way and the positions are committed, or the time for that has passed.
    fn is_drained(&mut self) -> bool {
        let until = *self.drain_until.get_or_insert_with(|| Instant::now() + self.drain_max);
        let is_idle = self.inboxes.iter().all(|inbox| inbox.flight.is_none());
        let is_kept = !self.is_owner || self.kept.as_ref() == Some(&self.position());
        (is_idle && is_kept) || Instant::now() >= until
    }
}

impl Herald {
    pub(super) fn new(
        alerts: &AlertsConfig,
        config: &Config,
        context: &StageContext,
    ) -> Result<Self, Error> {
        let inbox = |sink| {
            let courier = Arc::new(Courier::new(sink, config, context.clock.clone())?);
            Ok::<_, Error>(Inbox {
                courier,
                outbox: Outbox::default(),
                flight: None,
                failing: None,
            })
        };
        Ok(Self {
            context: context.clone(),
            is_owner: false,
            open: OpenAlerts::default(),
            latest: OpenAlerts::default(),
            inboxes: alerts.sinks.iter().map(inbox).collect::<Result<_, _>>()?,
            absent: BTreeMap::new(),
            letters: Vec::new(),
            next: Offset(0),
            kept: None,
            keeping: None,
            drain_max: config.timeout + DRAIN_MARGIN,
            drain_until: None,
        })
    }

    /// Takes a record of `alerts`: queues a recent change of an alert for each sink of its kind. Returns a dead letter
    /// if it is garbage.
    fn receive(&mut self, record: &Record) -> Result<Option<NewRecord>, Error> {
        if record.offset < self.next {
            return Ok(None);
        }
        self.next = record.offset.next();
        let alert: Alert = match record.read() {
            Ok(alert) => alert,
            Err(unreadable) => {
                let reason = unreadable.garbage(record)?;
                return Ok(Some(dead_letter(record, Self::GROUP, &reason)?));
            }
        };
        let now = self.context.clock.now();
        if !self.open.apply(alert.clone()) || is_old(record.appended_at, now) {
            return Ok(None);
        }
        for inbox in self.inboxes.iter_mut().filter(|inbox| inbox.courier.wants(alert.kind)) {
            let dropped = inbox.outbox.push(record.offset, &alert, record.appended_at);
            inbox.report_dropped(dropped);
        }
        Ok(None)
    }

    /// Reads alerts up to the end of the topic. Returns `false` if the process stops first.
    fn read_latest(&mut self) -> Result<bool, Error> {
        let StageContext { log, stop, .. } = &self.context;
        let latest = &mut self.latest;
        Ok(retry(stop, Self::GROUP, || latest.refresh(&**log))?.is_some())
    }

    /// Raises the alert of a topic with dead letters, unless it is open or in `raised`.
    fn raise_of(
        &self,
        record: &Record,
        raised: &mut BTreeSet<String>,
    ) -> Result<Option<NewRecord>, CodecError> {
        // An unreadable letter raises the alert, too.
        let letter: Option<DeadLetter> = record.read().ok();
        let topic = letter.as_ref().map_or("unknown", |letter| letter.topic.as_str());
        let why = letter.as_ref().map_or_else(String::new, |letter| {
            let DeadLetter { topic, partition, offset, group, reason, .. } = letter;
            let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
            format!("{group} could not process {topic}/{partition}@{offset}: {reason}. ")
        });
        let message = format!(
            "{why}`tidemark dead-letters list` has all such records of {topic}, and `tidemark alerts resolve` ends this"
        );
        let at = record.appended_at;
        let alert = Alert::raise(AlertKind::DeadLetter, None, &topic, message, at);
        let is_known = self.latest.get(&alert.alert_id).is_some();
        if is_known || !raised.insert(alert.alert_id.clone()) {
            return Ok(None);
        }
        NewRecord::encode(Topic::Alerts, Partition(0), topic, &alert).map(Some)
    }

    /// Takes outcomes of messages.
    fn land(&mut self) -> Result<(), Error> {
        let now = self.context.clock.now();
        for inbox in &mut self.inboxes {
            if let Some(flight) = inbox.flight.take_if(|flight| flight.is_finished()) {
                let report = self.context.handle.block_on(flight)?;
                inbox.outbox.ended(report.is_delivered, now);
                inbox.report(&report);
            }
            let dropped = inbox.outbox.expire(now);
            inbox.report_dropped(dropped);
        }
        Ok(())
    }

    /// Starts the next message to each idle sink.
    fn launch(&mut self) {
        if self.drain_until.is_some() {
            return;
        }
        let now = self.context.clock.now();
        for inbox in &mut self.inboxes {
            let Some(alert) = inbox.outbox.take(now) else { continue };
            let courier = inbox.courier.clone();
            let flight = async move { courier.deliver(&alert).await };
            inbox.flight = Some(self.context.handle.spawn(flight));
        }
    }

    fn measure(&self) {
        let of = |kind| self.open.iter().filter(|alert| alert.kind == kind).count();
        metrics::alerts_open(of);
        for inbox in &self.inboxes {
            metrics::alerts_waiting(&inbox.courier.name, inbox.outbox.waiting());
        }
    }

    /// Position for the group to commit.
    fn position(&self) -> Committed {
        let own = self.inboxes.iter();
        let own = own.map(|inbox| (inbox.courier.name.clone(), inbox.outbox.position(self.next)));
        let is_near =
            |(_, at): &(&String, &Offset)| self.next.0.saturating_sub(at.0) <= ABSENT_RECORDS_MAX;
        let absent = self.absent.iter().filter(is_near).map(|(name, at)| (name.clone(), *at));
        let all: BTreeMap<_, _> = absent.chain(own).collect();
        let offset = all.values().copied().min().unwrap_or(self.next).min(self.next);
        Committed { offset, metadata: sinks_text(all) }
    }
}

impl Inbox {
    fn report(&mut self, report: &SinkReport) {
        let sink = &self.courier.name;
        if report.is_delivered {
            metrics::alert_message("delivered", 1);
            if self.failing.take().is_some() {
                tracing::info!(sink, "alerts are delivered to a sink again");
            }
            return;
        }
        metrics::alert_message("failed", 1);
        if self.failing.is_none() {
            let cause = &report.text;
            tracing::error!(sink, cause, "an alert is not delivered to a sink; will retry");
            self.failing = Some(cause.clone());
        }
    }

    fn report_dropped(&self, count: u64) {
        if count > 0 {
            metrics::alert_message("dropped", count);
            let sink = &self.courier.name;
            tracing::error!(
                sink,
                count,
                "alerts were never delivered to a sink: `tidemark alerts list` has those that are open"
            );
        }
    }
}

/// Commit metadata with the position of each sink.
pub fn sinks_text(positions: impl IntoIterator<Item = (String, Offset)>) -> String {
    let all = positions.into_iter().map(|(sink, at)| (sink, at.0.into()));
    serde_json::Value::Object(all.collect()).to_string()
}

/// Position of each sink, from the commit metadata.
#[must_use]
pub fn sinks_of(metadata: &str) -> BTreeMap<String, Offset> {
    let all: BTreeMap<String, i64> = serde_json::from_str(metadata).unwrap_or_default();
    all.into_iter().map(|(sink, at)| (sink, Offset(at))).collect()
}
