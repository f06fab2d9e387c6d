//! Parts of a survey, read from the log and the tables.

use std::collections::BTreeMap;

use log::{ALERTS, Offset, OpenAlerts, TopicPartition};
use schemas::record::{Alert, Attempt, ChainBody, ChainRecord, DeadLetter, Delivery, Head};
use schemas::{
    AlertKind, AttemptOutcome, Blockchain, OrderStatus, Partition, Topic, UnixMicros, UnixSeconds,
};
use store::{OrderFilter, Page, Within};

use super::reader::{Pages, Reader};
use crate::machine::judge::OVERDUE_SECONDS;
use crate::machine::survey::{Orders, Subject};
use crate::redrive::{self, Filter};

/// Number of the last records of a lane that are searched for its newest head.
const LAST_RECORDS: i64 = 400;
/// Maximum pending orders that are counted.
const ORDERS_MAX: usize = 10_000;
const ORDERS: Page = Page { limit: 1000, offset: 0 };
/// Maximum age of dead webhooks that are read, and maximum number compared with later attempts.
const DEAD_SECONDS: i64 = 30 * 24 * 3600;
const DEAD_MAX: usize = 200;
const ATTEMPTS: Page = Page { limit: 50, offset: 0 };

/// The newest head of a lane, if it is among the last records.
pub fn last_head<P: Pages>(source: &P, partition: Partition) -> Result<Option<Head>, P::Error> {
    let of = TopicPartition { topic: Topic::TransfersRaw, partition };
    let bounds = source.bounds(of)?;
    let mut next = bounds.start.max(Offset(bounds.end.0.saturating_sub(LAST_RECORDS)));
    let mut head = None;
    loop {
        let page = source.page(of, next, 500)?;
        let Some(last) = page.last() else { return Ok(head) };
        next = last.offset.next();
        for value in page.iter().filter_map(|record| record.value.as_deref()) {
            if let Ok(ChainRecord { body: ChainBody::Head(newer), .. }) = schemas::decode(value) {
                head = Some(newer);
            }
        }
    }
}

/// Counts the pending orders, up to `ORDERS_MAX` and until the reader's deadline.
pub fn orders<P: Pages>(reader: &mut Reader<P>, now: UnixMicros) -> Result<Orders, P::Error> {
    let mut orders = Orders::default();
    let mut before = None;
    loop {
        let within = Within { before, ..Within::default() };
        let status = Some(OrderStatus::Pending);
        let filter = OrderFilter { status, within, ..OrderFilter::default() };
        let rows = reader.table_in_time(async |tables| tables.orders(filter, ORDERS).await)?;
        let Some(rows) = rows else { return Ok(Orders { is_more: true, oldest: None, ..orders }) };
        orders.pending = orders.pending.saturating_add(rows.len());
        let deadline = now.seconds().plus(-OVERDUE_SECONDS);
        for row in rows.iter().filter(|row| row.order.expires_at < deadline) {
            let (id, count) = orders.overdue.unwrap_or((row.order.order_id, 0));
            orders.overdue = Some((id, count.saturating_add(1)));
        }
        let Some(last) = rows.last() else { return Ok(orders) };
        (before, orders.oldest) = (Some(last.cursor()), Some(last.order.created_at));
        if !ORDERS.is_full(&rows) {
            return Ok(orders);
        }
        if orders.pending >= ORDERS_MAX {
            return Ok(Orders { is_more: true, oldest: None, ..orders });
        }
    }
}

/// Orders and transfers whose webhooks were given up and not delivered since.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dead {
    /// With the time at which it was given up, newest first.
    pub subjects: Vec<(Subject, UnixMicros)>,
    /// Number of the newest subjects that were compared with later attempts.
    pub considered: usize,
    /// Number of subjects whose webhook was given up, including those delivered since.
    pub given_up: usize,
}

/// Matching webhooks that were given up and not delivered since.
pub fn dead<P: Pages>(
    reader: &mut Reader<P>,
    filter: &Filter,
    now: UnixMicros,
) -> Result<Dead, P::Error> {
    let since = now.seconds().plus(-DEAD_SECONDS).micros();
    let mut given_up: BTreeMap<Subject, UnixMicros> = BTreeMap::new();
    let partitions = Topic::WebhooksDead.all_partitions(&reader.layout);
    reader.scan(Topic::WebhooksDead, partitions, (since, None), |record, of: Delivery| {
        if filter.fits(record.appended_at, &of) {
            given_up.extend(redrive::subject_of(&of).map(|subject| (subject, record.appended_at)));
        }
    })?;
    let mut newest: Vec<_> = given_up.into_iter().collect();
    newest.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
    let mut dead = Dead { given_up: newest.len(), ..Dead::default() };
    newest.truncate(DEAD_MAX);
    for (subject, at) in newest {
        match is_delivered(reader, subject, at)? {
            Some(true) => {}
            Some(false) => dead.subjects.push((subject, at)),
            None => break,
        }
        dead.considered = dead.considered.saturating_add(1);
    }
    Ok(dead)
}

/// `true` if a subject's newest attempts include a delivery since a time; `None` if the tables do not answer in time.
pub(crate) fn is_delivered<P: Pages>(
    reader: &mut Reader<P>,
    subject: Subject,
    since: UnixMicros,
) -> Result<Option<bool>, P::Error> {
    let attempts = reader.table_in_time(async |tables| tables.attempts(subject, ATTEMPTS).await)?;
    let is_it = |attempt: &Attempt| {
        attempt.attempted_at >= since && attempt.outcome == AttemptOutcome::Delivered
    };
    Ok(attempts.map(|attempts| attempts.iter().any(is_it)))
}

/// The number of readable records on `dead-letters`, counted until the reader's deadline.
pub fn dead_letters<P: Pages>(reader: &mut Reader<P>) -> Result<usize, P::Error> {
    let mut all = 0_usize;
    let place = (UnixMicros(0), None);
    reader.scan(Topic::DeadLetters, [Partition(0)], place, |_, _: DeadLetter| {
        all = all.saturating_add(1);
    })?;
    Ok(all)
}

/// Open alerts of a read-only log.
pub fn open_alerts<P: Pages>(source: &P) -> Result<OpenAlerts, P::Error> {
    let mut open = OpenAlerts::default();
    open.refresh_by(source.bounds(ALERTS)?, |of, from, max| source.page(of, from, max))?;
    Ok(open)
}

/// The open halt of a chain, if it is halted.
pub fn halt_of(alerts: &OpenAlerts, blockchain: Blockchain) -> Option<&Alert> {
    alerts
        .iter()
        .find(|alert| (alert.kind, alert.blockchain) == (AlertKind::ChainHalted, Some(blockchain)))
}

/// Time of the newest block in which some amount is confirmed.
pub fn confirmed_at(head: &Head) -> Option<UnixSeconds> {
    head.confirmed.iter().filter_map(|tier| tier.timestamp).max()
}

/// The open alerts that no other part of a survey shows, the oldest first.
pub fn open(alerts: &OpenAlerts) -> Vec<Alert> {
    let mut open: Vec<_> = alerts.iter().filter(|alert| !is_seen(alert.kind)).cloned().collect();
    open.sort_by_key(|alert| alert.raised_at);
    open
}

/// `true` if another part of a survey shows alerts of this kind.
const fn is_seen(kind: AlertKind) -> bool {
    match kind {
        AlertKind::ChainHalted
        | AlertKind::DisputedTransfer
        | AlertKind::PrunedHistory
        | AlertKind::PaymentsStopped => true,
        AlertKind::ConfirmedTransferRetracted
        | AlertKind::StaleTransfer
        | AlertKind::AmountsTaken
        | AlertKind::EndpointFailing
        | AlertKind::ConfirmingAlone
        | AlertKind::HeadWentBack
        | AlertKind::HeadTooFar
        | AlertKind::LateFind
        | AlertKind::ForgedTransfer
        | AlertKind::Restored
        | AlertKind::DeadLetter
        | AlertKind::DeadWebhook => false,
    }
}
