//! Events to be announced, against their webhooks.

use std::collections::{BTreeMap, BTreeSet};

use schemas::{Amount, OrderId, TransferId};

use crate::sum::Sums;
use crate::{Difference, Join, Joined, Kind};

/// The subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    /// This version of an order.
    Order(OrderId, i64),
    /// A transfer that pays nothing.
    Transfer(TransferId),
}

/// A change that a webhook has to announce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Event id in webhooks.
    pub id: String,
    pub about: Announced,
    /// `true` if the dispatcher may not have read it yet.
    pub is_new: bool,
}

/// Events by the state of their webhooks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// Events that were acknowledged, or replaced by a newer event of their order.
    pub delivered: BTreeSet<String>,
    /// The newest acknowledged version of each order: it supersedes earlier ones.
    pub newest: BTreeMap<OrderId, i64>,
    /// Events that were given up.
    pub dead: BTreeSet<String>,
    /// Events that were dispatched.
    pub dispatched: BTreeSet<String>,
}

impl Deliveries {
    fn has_delivered(&self, event: &Event) -> bool {
        let is_newer = match event.about {
            Announced::Order(order, version) => {
                self.newest.get(&order).is_some_and(|newest| *newest >= version)
            }
            Announced::Transfer(_) => false,
        };
        is_newer || self.delivered.contains(&event.id)
    }
}

/// Compares events with deliveries.
#[must_use]
pub fn compare_webhooks(events: &[Event], deliveries: &Deliveries) -> Joined {
    let (mut sums, mut joined) = (Sums::default(), Joined::default());
    for event in events {
        if deliveries.has_delivered(event) {
            sums.add(None, "delivered", Amount::ZERO);
        } else if deliveries.dead.contains(&event.id) {
            joined.differences.push(dead(event));
        } else if deliveries.dispatched.contains(&event.id) {
            sums.add(None, "waiting", Amount::ZERO);
        } else if event.is_new {
            joined.waiting = joined.waiting.saturating_add(1);
        } else {
            joined.differences.push(not_announced(event));
        }
    }
    Joined { totals: sums.totals(Join::Webhooks, None), ..joined }
}

fn dead(event: &Event) -> Difference {
    let (subject, selection) = match event.about {
        Announced::Order(order, _) => (format!("order {order}"), format!("--order {order}")),
        Announced::Transfer(id) => (format!("transfer {id}"), "--kind unknown_transfer".to_owned()),
    };
    let what = format!("{subject}: its webhook was given up, no attempt was acknowledged");
    let cure = format!("tidemark webhook dead redrive {selection}");
    Difference { join: Join::Webhooks, kind: Kind::Dead, blockchain: None, what, cure }
}

fn not_announced(event: &Event) -> Difference {
    let (kind, id) = match event.about {
        Announced::Order(order, _) => ("order", order.to_string()),
        Announced::Transfer(transfer) => ("transfer", transfer.to_string()),
    };
    let what = format!("{kind} {id}: event {} was not dispatched as a webhook", event.id);
    let cure = format!("POST /api/v1/admin/{kind}s/{id}/resend-webhook");
    Difference { join: Join::Webhooks, kind: Kind::NotAnnounced, blockchain: None, what, cure }
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    fn set(id: &str) -> BTreeSet<String> {
        BTreeSet::from([id.to_owned()])
    }

    #[test]
    fn each_event_is_delivered_waits_or_is_dead() {
        let order = example::order().order_id;
        let event = |about| Event { id: "e".to_owned(), about, is_new: false };
        let orders = event(Announced::Order(order, 3));
        let transfers = event(Announced::Transfer(TransferId(7)));
        let kind = |deliveries: &Deliveries, event: &Event| {
            let joined = compare_webhooks(std::slice::from_ref(event), deliveries);
            assert_eq!(joined.totals.len() + joined.differences.len(), 1, "{joined:?}");
            joined.differences.first().map(|difference| difference.kind)
        };
        for event in [&orders, &transfers] {
            let none = Deliveries::default();
            assert_eq!(kind(&none, event), Some(Kind::NotAnnounced));
            let delivered = Deliveries { delivered: set("e"), ..none.clone() };
            assert_eq!(kind(&delivered, event), None);
            let waiting = Deliveries { dispatched: set("e"), ..none.clone() };
            assert_eq!(kind(&waiting, event), None);
            let dead = Deliveries { dead: set("e"), ..waiting.clone() };
            assert_eq!(kind(&dead, event), Some(Kind::Dead));
            let since = Deliveries { delivered: set("e"), ..dead };
            assert_eq!(kind(&since, event), None);
        }
        for (newest, expected) in [(2, Some(Kind::Dead)), (3, None), (4, None)] {
            let newest = BTreeMap::from([(order, newest)]);
            let deliveries = Deliveries { newest, dead: set("e"), ..Deliveries::default() };
            assert_eq!(kind(&deliveries, &orders), expected);
        }
        let new = Event { is_new: true, ..orders };
        let joined = compare_webhooks(&[new], &Deliveries::default());
        assert_eq!((joined.waiting, joined.differences.len()), (1, 0));
    }
}
