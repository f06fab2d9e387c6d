//! The orders of a period: those that changed in it, and those that its transfers pay.

use std::collections::{BTreeMap, BTreeSet};

use log::Record;
use reconcile::{Announced, Event};
use schemas::record::Order;
use schemas::{OrderId, OrderStatus, Topic, UnixMicros};

use super::records::{Newest, Reader};

#[derive(Default)]
pub(super) struct Orders {
    /// The newest record of each order.
    pub(super) newest: BTreeMap<OrderId, Newest<Order>>,
    /// Orders with a record of the period.
    changed: BTreeSet<OrderId>,
    /// Orders that were paid in the period.
    pub(super) paid: BTreeSet<OrderId>,
    /// Events of the period to be announced, and the times of their records.
    announced: Vec<(String, OrderId, i64, UnixMicros)>,
}

impl Orders {
    /// Reads the orders that changed in the period, and those of `paying`, even if they changed
    /// only later.
    pub(super) fn read(reader: &mut Reader<'_>, paying: BTreeSet<OrderId>) -> anyhow::Result<Self> {
        let mut orders = Self::default();
        let period = reader.period;
        reader.topic(Topic::Orders, |record: &Record, order: Order| {
            let id = order.order_id;
            if period.contains(order.updated_at.seconds()) {
                orders.changed.insert(id);
                if order.status_changed && order.status == OrderStatus::Paid {
                    orders.paid.insert(id);
                }
                orders
                    .announced
                    .extend(webhooks::decide_order(&order).map(|delivery| {
                        (delivery.event_id, id, order.version, record.appended_at)
                    }));
            }
            let is_of = paying.contains(&id) || orders.changed.contains(&id);
            let known = orders.newest.get(&id);
            if is_of && known.is_none_or(|known| known.value.updated_at < order.updated_at) {
                let Record { from: at, offset, appended_at, .. } = *record;
                orders.newest.insert(id, Newest { value: order, at, offset, appended_at });
            }
        })?;
        Ok(orders)
    }

    /// Returns the newest record of each order.
    pub(super) fn all(&self) -> BTreeMap<OrderId, &Order> {
        self.newest.iter().map(|(id, newest)| (*id, &newest.value)).collect()
    }

    /// The newest record of each order that changed in the period.
    pub(super) fn changed(&self) -> BTreeMap<OrderId, &Order> {
        let changed = self.newest.iter().filter(|(id, _)| self.changed.contains(id));
        changed.map(|(id, newest)| (*id, &newest.value)).collect()
    }

    /// The events of the period that are to be announced.
    pub(super) fn events(&self, fresh_since: UnixMicros) -> Vec<Event> {
        let event = |(id, order, version, at): &(String, OrderId, i64, UnixMicros)| Event {
            id: id.clone(),
            about: Announced::Order(*order, *version),
            is_new: *at >= fresh_since,
        };
        self.announced.iter().map(event).collect()
    }
}
