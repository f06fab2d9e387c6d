//! Gathers the records about an order or a transfer: its story.

use std::collections::BTreeSet;

use schemas::record::{
    Alert, Attempt, AuditEntry, ChainRecord, Delivery, Deposit, Order, Transfer,
};
use schemas::{AlertKind, OrderId, Partition, Topic, TransferId, TransferStatus, UnixMicros};
use store::Page;

use super::reader::{Pages, Reader};
use super::search::{Subject, TRANSFERS};
use super::survey::open_alerts;
use crate::machine::story::{Confirmation, Event, Story};
use crate::machine::survey::id_of;

/// Maximum webhook attempts that are read: the latest ones.
const ATTEMPTS: Page = Page { limit: 50, offset: 0 };
/// Search period before the creation of an order or a transfer. A payment shortly before its order is reported as too
/// early, and is part of the story.
const BEFORE_SECONDS: i64 = 3600;

/// The story of an order, or of a transfer. It names the order that the transfer pays, but does not describe it. `since`
/// bounds the search of topics for data missing from the tables.
pub fn story<P: Pages>(
    reader: &mut Reader<P>,
    subject: Subject,
    since: UnixMicros,
) -> Result<Story, P::Error> {
    match subject {
        Subject::Order(id) => of_order(reader, id, since),
        Subject::Transfer(id) => of_transfer(reader, id, since),
    }
}

fn of_order<P: Pages>(
    reader: &mut Reader<P>,
    id: OrderId,
    since: UnixMicros,
) -> Result<Story, P::Error> {
    let row = reader.table(async |tables| tables.order_record(id).await)?;
    let from = row.as_ref().map_or(since, |order| order.created_at.plus(-BEFORE_SECONDS).micros());
    let mut orders: Vec<Order> = Vec::new();
    let (key, partition) = (id.to_string(), reader.layout.order(&id.to_string()));
    reader.scan(Topic::Orders, [partition], (from, Some(&key)), |_, order| orders.push(order))?;
    // The topic may lack the row's version, because retention removed it. A row that lags is in the topic already.
    let has = |order: &Order| orders.iter().any(|known| known.version == order.version);
    let only_row = row.filter(|order| !has(order));
    orders.extend(only_row);
    let lanes: BTreeSet<Partition> = orders
        .iter()
        .flat_map(|order| &order.deposits)
        .map(|deposit| reader.layout.lane(deposit.blockchain, &deposit.wallet_address))
        .collect();
    let mut named: BTreeSet<TransferId> = orders
        .iter()
        .flat_map(|order| order.candidates.iter().copied().chain(order.paid_by))
        .collect();
    let mut transfers = Vec::new();
    for topic in TRANSFERS {
        reader.scan(topic, lanes.clone(), (from, None), |_, transfer: Transfer| {
            let ids = [transfer.order_id, transfer.candidate_order_id];
            if ids.contains(&Some(id)) || named.contains(&transfer.transfer_id) {
                // Its later states count too: it may pay another order by now, and then names only that one.
                named.insert(transfer.transfer_id);
                transfers.push(transfer);
            }
        })?;
    }
    for transfer in named {
        let row = reader.table(async |tables| tables.transfer(transfer).await)?;
        transfers.extend(row);
    }
    let mut events: Vec<Event> = orders.into_iter().map(Event::Order).collect();
    reader.scan(Topic::Deposits, lanes, (from, None), |_, deposit: Deposit| {
        if deposit.order_id == id {
            events.push(Event::Deposit(deposit));
        }
    })?;
    webhooks(reader, Subject::Order(id), from, &mut events)?;
    around(reader, (Some(id), transfers), from, events)
}

fn of_transfer<P: Pages>(
    reader: &mut Reader<P>,
    id: TransferId,
    since: UnixMicros,
) -> Result<Story, P::Error> {
    let row = reader.table(async |tables| tables.transfer(id).await)?;
    let from = row.as_ref().map_or(since, |found| found.created_at.plus(-BEFORE_SECONDS).micros());
    let lane_of = |row: &Transfer| reader.layout.lane(row.blockchain, &row.observation.to_address);
    let lane = row.as_ref().map_or(id.partition(), lane_of);
    let mut transfers: Vec<Transfer> = row.into_iter().collect();
    for topic in TRANSFERS {
        reader.scan(topic, [lane], (from, None), |_, transfer: Transfer| {
            if transfer.transfer_id == id {
                transfers.push(transfer);
            }
        })?;
    }
    let mut events = Vec::new();
    // The meaning of a transfer that pays nothing depends on the order that it was probably meant for.
    let newest = transfers.iter().max_by_key(|state| state.updated_at);
    let pays_nothing = newest.filter(|state| state.status != TransferStatus::Matched);
    let meant = pays_nothing.and_then(|state| state.candidate_order_id);
    if let Some(order) = meant {
        let row = reader.table(async |tables| tables.order_record(order).await)?;
        events.extend(row.map(Event::Order));
    }
    webhooks(reader, Subject::Transfer(id), from, &mut events)?;
    around(reader, (None, transfers), from, events)
}

pub(crate) fn webhooks<P: Pages>(
    reader: &mut Reader<P>,
    of: Subject,
    from: UnixMicros,
    events: &mut Vec<Event>,
) -> Result<(), P::Error> {
    let attempts = reader.table(async |tables| tables.attempts(of, ATTEMPTS).await)?;
    events.extend(attempts.into_iter().map(Event::Attempt));
    let key = id_of(of);
    let partition = reader.layout.webhook(&key);
    let place = (from, Some(key.as_str()));
    reader.scan(Topic::WebhooksDead, [partition], place, |record, delivery: Delivery| {
        events.push(Event::Dead(delivery, record.appended_at));
    })?;
    let attempted = events.iter().any(|event| matches!(event, Event::Attempt(_)));
    if attempted {
        return Ok(());
    }
    // The tables may lag or be missing.
    reader.scan(Topic::WebhooksAttempts, [partition], place, |_, attempt: Attempt| {
        events.push(Event::Attempt(attempt));
    })
}

/// Adds the transfers and their confirmations, and the alerts and audit entries that name the order or a transfer.
/// Notes an open alert of a restore.
fn around<P: Pages>(
    reader: &mut Reader<P>,
    (order, transfers): (Option<OrderId>, Vec<Transfer>),
    from: UnixMicros,
    mut events: Vec<Event>,
) -> Result<Story, P::Error> {
    let ids: BTreeSet<TransferId> = transfers.iter().map(|found| found.transfer_id).collect();
    let names = |of: Option<OrderId>, transfer: Option<TransferId>| {
        (order.is_some() && of == order) || transfer.is_some_and(|id| ids.contains(&id))
    };
    for id in &ids {
        let states = transfers.iter().filter(|state| state.transfer_id == *id);
        let confirmed = states.filter(|state| state.blockchain_confirmed);
        if let Some(transfer) = confirmed.min_by_key(|state| state.updated_at) {
            events.extend(confirmation(reader, transfer, from)?.map(Event::Confirmed));
        }
    }
    events.extend(transfers.into_iter().map(Event::Transfer));
    reader.scan(Topic::Alerts, [Partition(0)], (from, None), |_, alert: Alert| {
        if names(alert.order_id, alert.transfer_id) {
            events.push(Event::Alert(alert));
        }
    })?;
    reader.scan(Topic::Audit, [Partition(0)], (from, None), |_, entry: AuditEntry| {
        if names(entry.order_id, entry.transfer_id) {
            events.push(Event::Operator(entry));
        }
    })?;
    let is_restored =
        open_alerts(reader.source())?.iter().any(|alert| alert.kind == AlertKind::Restored);
    Ok(Story { is_restored, ..Story::new(events) })
}

/// First head of a transfer's lane that confirms the transfer, if the log still has that head.
fn confirmation<P: Pages>(
    reader: &mut Reader<P>,
    transfer: &Transfer,
    from: UnixMicros,
) -> Result<Option<Confirmation>, P::Error> {
    let lane = reader.layout.lane(transfer.blockchain, &transfer.observation.to_address);
    reader.find(Topic::TransfersRaw, lane, (from, None), |_, record: ChainRecord| {
        Confirmation::by(&record, transfer)
    })
}
