//! Records of topics without a table, newest first; and the audit.

use log::{Log, Offset, TopicPartition};
use schemas::record::{AuditEntry, Record};
use schemas::{OrderId, Partition, Topic, TransferId};

use super::Page;
use super::markup::{actions, button, foreign, head, hint, link, or_none, table, time};
use crate::error::Answer;
use crate::machine::survey::Subject;
use crate::page::Html;

/// Records per page.
pub(super) const RECORDS: usize = 50;

/// A page of the records of a topic with one partition.
pub(crate) struct Newest<T> {
    /// Each with its offset in the topic.
    pub(super) records: Vec<(i64, T)>,
    /// Cursor of the next, older page.
    before: Option<i64>,
}

/// Newest records, before an offset if given. Unreadable records are left out. Blocks.
pub(crate) fn newest<T: Record>(
    log: &dyn Log,
    topic: Topic,
    before: Option<i64>,
) -> Answer<Newest<T>> {
    let of = TopicPartition { topic, partition: Partition(0) };
    let bounds = log.bounds(of)?;
    let end = before.map_or(bounds.end, |before| bounds.end.min(Offset(before)));
    let count = i64::try_from(RECORDS).unwrap_or(i64::MAX);
    let start = bounds.start.max(Offset(end.0.saturating_sub(count)));
    let page = if start < end { log.read(of, start, RECORDS)? } else { Vec::new() };
    let found = page.iter().filter(|record| record.offset < end).rev();
    let found = found.filter_map(|record| {
        let value = record.value.as_deref()?;
        Some((record.offset.0, schemas::decode(value).ok()?))
    });
    Ok(Newest { records: found.collect(), before: (start > bounds.start).then_some(start.0) })
}

impl<T> Newest<T> {
    /// The links below the list: older records, and all records as CSV.
    pub(super) fn around(&self, name: &str) -> Html {
        let older =
            self.before.map(|before| button(format!("/console/{name}?before={before}"), "Older"));
        let file = button(format!("/console/export/{name}"), "All as CSV");
        actions(older.unwrap_or_default().then(file))
    }
}

/// The links to an order, to a transfer, or to both.
pub(super) fn subject(of: (Option<OrderId>, Option<TransferId>)) -> Html {
    joined(links(of))
}

fn links(of: (Option<OrderId>, Option<TransferId>)) -> impl Iterator<Item = Html> {
    let both = [of.0.map(Subject::Order), of.1.map(Subject::Transfer)];
    both.into_iter().flatten().map(of_subject)
}

fn joined(parts: impl Iterator<Item = Html>) -> Html {
    or_none(parts.reduce(|one, other| one.then(" ").then(other)))
}

pub(super) fn of_subject(of: Subject) -> Html {
    match of {
        Subject::Order(id) => link(format!("/console/orders/{id}"), format!("order {id}")),
        Subject::Transfer(id) => link(format!("/console/transfers/{id}"), format!("transfer {id}")),
    }
}

/// Page of the operators' actions.
pub(crate) fn audit(found: &Newest<AuditEntry>) -> Page {
    let row = |(_, entry): &(i64, AuditEntry)| {
        let what = entry.subject.as_deref().map(foreign).into_iter();
        vec![
            time(entry.requested_at.seconds()),
            foreign(entry.operator.as_str()),
            or_none(entry.client.as_deref().map(foreign)),
            entry.action.as_str().replace('_', " ").into(),
            joined(what.chain(links((entry.order_id, entry.transfer_id)))),
        ]
    };
    let names = ["Time", "Operator", "From", "Action", "Subject"];
    let listed = table(&names, found.records.iter().map(row), "No operator has done anything.");
    let lead = hint("What operators asked for, written before it was done.");
    Page::new("Audit", head("Audit", lead.then(listed).then(found.around("audit"))))
        .at("/console/audit")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use log::NewRecord;
    use log::embedded::EmbeddedLog;
    use runtime::ManualClock;
    use schemas::Layout;
    use schemas::record::{Alert, example};

    use super::*;

    #[tokio::test]
    async fn pages_of_records_have_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
        let log = EmbeddedLog::open(dir.path(), layout, Arc::new(ManualClock::default())).unwrap();
        let message = |number: usize| number.to_string();
        let alert = |number| {
            let alert = Alert { message: message(number), ..example::alert() };
            NewRecord::encode(Topic::Alerts, Partition(0), "", &alert).unwrap()
        };
        let garbage = NewRecord { value: Some(vec![0]), ..alert(0) };
        let records = [garbage].into_iter().chain((1..=2 * RECORDS).map(alert)).collect();
        log.produce(records).await.unwrap();
        let (mut before, mut found, mut pages) = (None, Vec::new(), 0);
        loop {
            let page = newest::<Alert>(&log, Topic::Alerts, before).unwrap();
            found.extend(page.records.into_iter().map(|(_, alert): (_, Alert)| alert.message));
            pages += 1;
            before = page.before;
            if before.is_none() {
                break;
            }
        }
        let expected: Vec<_> = (1..=2 * RECORDS).rev().map(message).collect();
        assert_eq!((found, pages), (expected, 3), "what cannot be read is left out");
        let empty = newest::<AuditEntry>(&log, Topic::Audit, Some(-1)).unwrap();
        assert!(empty.records.is_empty() && empty.before.is_none());
    }
}
