//! Any period that agrees has no difference, and one planted difference is the only one found.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Announced, Book, Deliveries, Event, Inclusion, Kind, Row, RowState, compare_books,
    compare_chain, compare_orders, compare_rows, compare_verdicts, compare_webhooks,
};
use proptest::prelude::*;
use schemas::record::{Observation, Order, Transfer, example};
use schemas::{Amount, Blockchain, Hash, OrderId, OrderStatus, TransferId, TransferStatus};

/// The contents of each place.
#[derive(Debug, Default)]
struct World {
    chain: Vec<Inclusion>,
    raw: Vec<Inclusion>,
    transfers: Vec<Transfer>,
    orders: BTreeMap<OrderId, Order>,
    rows: Vec<Row>,
    events: Vec<Event>,
    deliveries: Deliveries,
    books: Vec<Book>,
}

/// Creates one transfer for each payment. Those with `true` pay an order.
fn world(payments: &[(u32, bool)]) -> World {
    let mut world = World::default();
    for (number, (units, is_matched)) in (1_u8..).zip(payments) {
        let value = Amount::from_parts(u128::from(*units) + 1).unwrap();
        let tx_hash = Hash([number; 32]);
        let seen = Observation { tx_hash, value, ..example::transfer().observation };
        let inclusion = Inclusion { number: i64::from(number), hash: Hash([1; 32]), seen };
        world.chain.push(inclusion);
        world.raw.push(inclusion);
        let id = TransferId(i64::from(number));
        let order_id = OrderId(uuid::Uuid::from_u128(number.into()));
        let status =
            if *is_matched { TransferStatus::Matched } else { TransferStatus::NoMatchedDeposit };
        world.transfers.push(Transfer {
            transfer_id: id,
            observation: seen,
            status,
            order_id: is_matched.then_some(order_id),
            ..example::transfer()
        });
        world.rows.push(Row { table: "transfers", id: id.to_string(), state: RowState::Same });
        let mut about = Announced::Transfer(id);
        if *is_matched {
            about = Announced::Order(order_id, 4);
            let order = Order {
                order_id,
                status: OrderStatus::Paid,
                paid_by: Some(id),
                paid_value: Some(value),
                merchant_order_id: format!("A-{number}"),
                ..example::order()
            };
            let (status, amount) = (order.status, order.amount);
            let (order_id, transaction_hash) = (order.merchant_order_id.clone(), Some(tx_hash));
            world.books.push(Book { order_id, status, amount, transaction_hash });
            world.orders.insert(order.order_id, order);
        }
        let event = Event { id: format!("{number}.event"), about, is_new: false };
        world.deliveries.delivered.insert(event.id.clone());
        world.events.push(event);
    }
    world
}

impl World {
    fn kinds(&self) -> Vec<Kind> {
        let eth = Blockchain::Eth;
        let transfers: Vec<_> = self.transfers.iter().collect();
        let transactions =
            transfers.iter().map(|one| (one.transfer_id, one.observation.tx_hash)).collect();
        let orders = self.orders.iter().map(|(id, order)| (*id, order)).collect();
        let paid = self.orders.keys().copied().collect();
        let all = [
            compare_chain(eth, &self.chain, &self.raw),
            compare_verdicts(eth, &self.raw, &transfers, &BTreeSet::new(), &BTreeSet::new()),
            compare_orders(eth, &transfers, &orders, |_| false),
            compare_rows(self.rows.clone(), |_| "rebuild"),
            compare_webhooks(&self.events, &self.deliveries),
            compare_books(&self.books, &orders, &paid, &transactions),
        ];
        all.iter().flat_map(|joined| &joined.differences).map(|one| one.kind).collect()
    }

    /// Damages one place. `None` if it has nothing of the kind.
    fn damage(&mut self, which: u8, at: usize) -> Option<Kind> {
        let event = at % self.events.len();
        let order = self.orders.len().checked_sub(1).map(|last| at % (last + 1));
        Some(match which {
            0 => {
                // The log lost the transfer before the processor read it.
                let gone = self.raw.remove(at % self.raw.len());
                self.transfers.retain(|one| one.observation.tx_hash != gone.seen.tx_hash);
                Kind::NotInLog
            }
            1 => {
                self.chain.remove(at % self.chain.len());
                Kind::NotOnChain
            }
            2 => {
                let one = self.transfers.iter_mut().find(|one| one.order_id.is_none())?;
                one.status = TransferStatus::WaitingForMatch;
                Kind::NoVerdict
            }
            3 => {
                self.orders.values_mut().nth(order?)?.paid_value = Amount::from_parts(0);
                Kind::OtherValue
            }
            4 => {
                let at = at % self.rows.len();
                self.rows[at].state = RowState::Missing;
                Kind::RowMissing
            }
            5 => {
                self.deliveries.delivered.remove(&self.events[event].id);
                Kind::NotAnnounced
            }
            6 => {
                let id = self.events[event].id.clone();
                self.deliveries.delivered.remove(&id);
                self.deliveries.dead.insert(id);
                Kind::Dead
            }
            7 => {
                self.books.remove(order?);
                Kind::NotInBooks
            }
            8 => {
                let at = order?;
                self.books[at].amount = Amount::from_parts(1)?;
                Kind::BooksAmount
            }
            _ => {
                let at = order?;
                self.books[at].status = OrderStatus::Expired;
                Kind::BooksStatus
            }
        })
    }
}

proptest! {
    #[test]
    fn a_planted_difference_is_the_only_one_found(
        payments in prop::collection::vec((any::<u32>(), any::<bool>()), 1..40),
        which in 0_u8..10,
        at in any::<usize>(),
    ) {
        let mut world = world(&payments);
        prop_assert_eq!(world.kinds(), []);
        // An order whose transfer is lost would be a second difference.
        let is_matched_gone = which == 0 && world.transfers[at % payments.len()].order_id.is_some();
        prop_assume!(!is_matched_gone);
        if let Some(kind) = world.damage(which, at) {
            prop_assert_eq!(world.kinds(), [kind]);
        }
    }
}
