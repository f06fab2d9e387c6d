//! Open alerts of the topic `alerts`, where the newest record of each name counts. They are kept in
//! the topic alone: a starting process reads the alerts of earlier ones, and resolves those that
//! are obsolete.

use std::collections::BTreeMap;

use schemas::record::Alert;
use schemas::{AlertState, Partition, Topic};

use crate::{Bounds, Error, Log, Offset, Records, TopicPartition};

/// Maximum number of newest records that the first read covers; an alert raised only before is not seen.
const RECORDS_MAX: i64 = 20_000;
/// Maximum number of alerts kept; events are evicted before conditions (`AlertKind::is_condition`), the oldest first.
const OPEN_MAX: usize = 2_000;
const PAGE: usize = 500;
/// The partition that holds the alerts.
pub const ALERTS: TopicPartition = TopicPartition { topic: Topic::Alerts, partition: Partition(0) };

/// The open alerts, as far as the topic was read.
#[derive(Debug, Clone, Default)]
pub struct OpenAlerts {
    /// None before anything was read.
    next: Option<Offset>,
    open: BTreeMap<String, Alert>,
}

impl OpenAlerts {
    /// Reads records since the last call, up to the first open transaction: later ones come with a
    /// later call. Blocks.
    ///
    /// # Errors
    /// [`Error`] of the log; the records read before it are applied.
    pub fn refresh(&mut self, log: &dyn Log) -> Result<(), Error> {
        self.refresh_by(log.bounds(ALERTS)?, |of, from, max| log.read_ended(of, from, max))
    }

    /// Refreshes through `read`, up to the end of `bounds`.
    pub fn refresh_by<E>(
        &mut self,
        bounds: Bounds,
        read: impl Fn(TopicPartition, Offset, usize) -> Result<Records, E>,
    ) -> Result<(), E> {
        let first = Offset(bounds.end.0.saturating_sub(RECORDS_MAX)).max(bounds.start);
        let mut next = self.next.unwrap_or(first);
        while next < bounds.end {
            let page = read(ALERTS, next, PAGE)?;
            let Some(last) = page.last() else { break };
            next = last.offset.next().min(bounds.end);
            self.next = Some(next);
            for record in page.iter().take_while(|record| record.offset < bounds.end) {
                // An unreadable record is skipped: its kind may be of a newer version.
                if let Ok(alert) = record.read() {
                    self.apply(alert);
                }
            }
        }
        Ok(())
    }

    /// Applies a record. Returns `true` if it opens or resolves its alert.
    pub fn apply(&mut self, alert: Alert) -> bool {
        match (alert.state, self.open.get_mut(&alert.alert_id)) {
            (AlertState::Resolved, _) => self.open.remove(&alert.alert_id).is_some(),
            (AlertState::Raised, Some(known)) => {
                let raised_at = known.raised_at;
                *known = Alert { raised_at, ..alert };
                false
            }
            (AlertState::Raised, None) => {
                self.open.insert(alert.alert_id.clone(), alert);
                if self.open.len() > OPEN_MAX {
                    // Events are evicted first: an evicted condition would never be resolved.
                    let rank = |alert: &Alert| (alert.kind.is_condition(), alert.raised_at);
                    let oldest = self.open.iter().min_by_key(|(_, alert)| rank(alert));
                    let oldest = oldest.map(|(id, _)| id.clone());
                    oldest.and_then(|id| self.open.remove(&id));
                }
                true
            }
        }
    }

    /// The open alert of a name, with its start and its newest message.
    #[must_use]
    pub fn get(&self, alert_id: &str) -> Option<&Alert> {
        self.open.get(alert_id)
    }

    /// `true` if no alert is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// All open alerts, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Alert> {
        self.open.values()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schemas::{AlertKind, Blockchain, UnixMicros};

    use super::*;
    use crate::Record;

    fn alert(subject: i64, at: i64) -> Alert {
        let (kind, chain) = (AlertKind::LateFind, Some(Blockchain::Eth));
        Alert::raise(kind, chain, &subject, format!("at {at}"), UnixMicros(at))
    }

    fn record(offset: i64, alert: &Alert) -> Arc<Record> {
        let value = Some(schemas::encode(alert).unwrap());
        Arc::new(Record { value, ..Record::of(ALERTS, offset) })
    }

    #[test]
    fn the_newest_record_of_a_name_counts() {
        let mut open = OpenAlerts::default();
        assert!(open.apply(alert(1, 10)));
        assert!(!open.apply(alert(1, 20)), "it is open");
        let known = open.get("late_find/eth/1").unwrap();
        assert_eq!((known.raised_at, known.message.as_str()), (UnixMicros(10), "at 20"));
        let end = alert(1, 30).resolve("over".to_owned(), UnixMicros(30));
        assert!(open.apply(end.clone()));
        assert!(!open.apply(end), "it has ended");
        assert_eq!(open.iter().count(), 0);
        assert!(open.apply(alert(1, 40)), "it begins again");
    }

    #[test]
    fn what_is_read_and_kept_is_bounded() {
        let end = Offset(RECORDS_MAX + 30_000);
        let bounds = Bounds { start: Offset(0), end };
        let mut open = OpenAlerts::default();
        let (kind, chain) = (AlertKind::ChainHalted, Some(Blockchain::Eth));
        let halt = Alert::raise(kind, chain, &"", String::new(), UnixMicros(0));
        assert!(open.apply(halt.clone()));
        let first = std::cell::Cell::new(None);
        let page = |_, from: Offset, max: usize| {
            first.set(first.get().or(Some(from)));
            let to = end.0.min(from.0 + i64::try_from(max).unwrap());
            Ok::<_, Error>((from.0..to).map(|at| record(at, &alert(at, at))).collect())
        };
        open.refresh_by(bounds, page).unwrap();
        assert_eq!(first.get(), Some(Offset(30_000)));
        assert_eq!(open.iter().count(), OPEN_MAX);
        assert!(open.get(&format!("late_find/eth/{}", end.0 - 1)).is_some(), "the newest stay");
        assert!(open.get(&halt.alert_id).is_some(), "what ends by itself stays");
        open.refresh_by(bounds, |_, _, _| -> Result<_, Error> { panic!("there is nothing new") })
            .unwrap();
    }

    #[test]
    fn what_nobody_can_read_hides_no_other() {
        let garbage = Arc::new(Record { value: Some(vec![9]), ..Record::of(ALERTS, 0) });
        let records = [garbage, record(1, &alert(7, 1))];
        let bounds = Bounds { start: Offset(0), end: Offset(2) };
        let mut open = OpenAlerts::default();
        open.refresh_by(bounds, |_, _, _| Ok::<_, Error>(records.to_vec())).unwrap();
        assert_eq!(open.iter().count(), 1);
        let mut before = OpenAlerts::default();
        let bounds = Bounds { start: Offset(0), end: Offset(1) };
        before.refresh_by(bounds, |_, _, _| Ok::<_, Error>(records.to_vec())).unwrap();
        assert_eq!(before.iter().count(), 0, "what is beyond the end is not known yet");
    }
}
