//! Serialization of an order's events: one is sent only once each older one has ended, or is recorded on the log as
//! overtaken. So no crash sends an older one after a newer one.
//!
//! An order's first event needs no entry on the log, for nothing is older. A later event is marked
//! ([`Turn::follows`]), is first written to `webhooks.changelog`, and is sent once that is
//! committed. From then on no older event of the order is retried.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use schemas::record::{Delivery, WebhookEntry};
use schemas::{OrderId, UnixMicros};

const HOUR_MICROS: i64 = 3600 * 1_000_000;
/// Retention of an entry: longer than the log keeps a delivery, which is a week.
const KEPT_MICROS: i64 = 10 * 24 * HOUR_MICROS;
/// Grace period, in microseconds, in which a new owner keeps even expired entries: enough to read the backlog.
const GRACE_MICROS: i64 = HOUR_MICROS;

/// Position of a delivery in the events of its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) order: OrderId,
    pub(crate) version: i64,
    /// An earlier event of the order may be in flight.
    pub(crate) follows: bool,
}

impl Turn {
    /// `None` for a delivery that does not belong to an order.
    pub(crate) fn of(delivery: &Delivery) -> Option<Self> {
        let (order, version) = (delivery.order_id?, delivery.version?);
        Some(Self { order, version, follows: delivery.follows })
    }
}

/// Result of admitting a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admitted<J> {
    Start(J),
    /// The delivery waits. [`Sequence::committed`] returns it, unless a newer event of the order replaces it first.
    Wait {
        /// To be written with the next step, unless the event needs none or has one.
        entry: Option<WebhookEntry>,
        /// Older waiting event that this one replaces.
        overtaken: Option<J>,
    },
    /// A newer event of the order replaces the delivery.
    Overtaken(J),
    /// A delivery of the same event waits already.
    Repeated(J),
}

/// An order with a delivery under work.
#[derive(Debug)]
struct Work<J> {
    /// Version being sent, until the step with its outcome is committed.
    running: Option<i64>,
    has_ended: bool,
    /// Newest event that waits, for `running` to end or for its own entry to be committed.
    waiting: Option<(i64, J)>,
}

/// The orders of one partition. Holds the deliveries in work, and a small entry for each order with several events in
/// the last days.
#[derive(Debug)]
pub(crate) struct Sequence<J> {
    newest: HashMap<OrderId, WebhookEntry>,
    /// The orders of `newest`, by the time of their entries.
    by_age: BTreeSet<(UnixMicros, OrderId)>,
    kept_until: UnixMicros,
    works: HashMap<OrderId, Work<J>>,
    /// Orders with an entry or an outcome in the next step.
    changed: Vec<OrderId>,
}

impl<J> Sequence<J> {
    /// Sequence of a new owner, without entries.
    pub(crate) fn new(now: UnixMicros) -> Self {
        Self {
            newest: HashMap::new(),
            by_age: BTreeSet::new(),
            kept_until: UnixMicros(now.0.saturating_add(GRACE_MICROS)),
            works: HashMap::new(),
            changed: Vec::new(),
        }
    }

    /// Restores an entry, the newest of its order so far.
    pub(crate) fn restore(&mut self, entry: WebhookEntry) {
        self.forget(entry.order_id);
        self.by_age.insert((entry.dispatched_at, entry.order_id));
        self.newest.insert(entry.order_id, entry);
    }

    /// Removes an order's entry.
    pub(crate) fn forget(&mut self, order: OrderId) {
        if let Some(entry) = self.newest.remove(&order) {
            self.by_age.remove(&(entry.dispatched_at, order));
        }
    }

    /// Admits a due delivery.
    pub(crate) fn admit(&mut self, turn: Turn, job: J, now: UnixMicros) -> Admitted<J> {
        let Turn { order, version, follows } = turn;
        if self.is_overtaken(turn)
            || self.works.get(&order).is_some_and(|work| work.running > Some(version))
        {
            return Admitted::Overtaken(job);
        }
        let waiting = self.works.get(&order).and_then(|work| work.waiting.as_ref());
        if waiting.is_some_and(|(waiting, _)| *waiting == version) {
            return Admitted::Repeated(job);
        }
        let is_known = self.newest.get(&order).is_some_and(|entry| entry.version >= version);
        let entry = (follows && !is_known).then_some(WebhookEntry {
            order_id: order,
            version,
            dispatched_at: now,
        });
        if let Some(entry) = &entry {
            self.restore(entry.clone());
            self.changed.push(order);
        }
        let must_wait = entry.is_some() || self.works.contains_key(&order);
        let work = self.works.entry(order).or_insert(Work {
            running: None,
            has_ended: false,
            waiting: None,
        });
        if must_wait {
            let overtaken = work.waiting.replace((version, job)).map(|(_, older)| older);
            return Admitted::Wait { entry, overtaken };
        }
        work.running = Some(version);
        Admitted::Start(job)
    }

    /// `true` if a newer event of the order waits or is announced, so that this one is not retried.
    pub(crate) fn is_overtaken(&self, turn: Turn) -> bool {
        let waiting = self.works.get(&turn.order).and_then(|work| work.waiting.as_ref());
        let announced = self.newest.get(&turn.order).map(|entry| entry.version);
        announced.max(waiting.map(|(version, _)| *version)) > Some(turn.version)
    }

    /// Marks a running delivery as ended; the next step has its outcome.
    pub(crate) fn ended(&mut self, turn: Turn) {
        let Some(work) = self.works.get_mut(&turn.order) else { return };
        if work.running == Some(turn.version) {
            work.has_ended = true;
            self.changed.push(turn.order);
        }
    }

    /// `true` if an event waits for the next step.
    pub(crate) fn is_awaited(&self) -> bool {
        let waits = |order| self.works.get(order).is_some_and(|work| work.waiting.is_some());
        self.changed.iter().any(waits)
    }

    /// Called once the step is durable; returns the deliveries to send now.
    pub(crate) fn committed(&mut self) -> Vec<J> {
        let mut ready = Vec::new();
        for order in std::mem::take(&mut self.changed) {
            let Entry::Occupied(mut entry) = self.works.entry(order) else { continue };
            let work = entry.get_mut();
            if std::mem::take(&mut work.has_ended) {
                work.running = None;
            }
            if work.running.is_some() {
                continue;
            }
            match work.waiting.take() {
                Some((version, job)) => {
                    work.running = Some(version);
                    ready.push(job);
                }
                None => drop(entry.remove()),
            }
        }
        ready
    }

    /// Forgets at most `max` expired entries of orders without a delivery in work; none in the grace period. No older
    /// delivery of these orders is left on the log. The caller removes the entries from `webhooks.changelog`.
    pub(crate) fn expire(&mut self, now: UnixMicros, max: usize) -> Vec<OrderId> {
        if now < self.kept_until {
            return Vec::new();
        }
        let is_old = |at: &UnixMicros| now.0.saturating_sub(at.0) > KEPT_MICROS;
        let old = self.by_age.iter().take_while(|(at, _)| is_old(at));
        let old = old.filter(|(_, order)| !self.works.contains_key(order)).take(max);
        let orders: Vec<_> = old.map(|(_, order)| *order).collect();
        orders.iter().for_each(|order| self.forget(*order));
        orders
    }
}

#[cfg(test)]
mod tests;
