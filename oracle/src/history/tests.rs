//! Properties of the machines' records that the lists of the tables rely on.

use std::collections::{BTreeMap, BTreeSet};

use schemas::record::{Attempt, Deposit, Order, Transfer};
use schemas::{OrderCause, OrderStatus, TransferStatus, UnixMicros};
use store::Change;

use super::history;

/// Newest version of each row, and its fields that must never change.
#[derive(Default)]
struct Promises {
    fixed: BTreeMap<String, String>,
    versions: BTreeMap<String, UnixMicros>,
    orders: BTreeMap<String, (OrderStatus, bool)>,
    transfers: BTreeMap<String, TransferStatus>,
}

impl Promises {
    fn take(&mut self, change: &Change) {
        match change {
            Change::Order(order) => self.order(order),
            Change::Deposit(deposit) => self.deposit(deposit),
            Change::Transfer(transfer) => self.transfer(transfer),
            Change::Attempt(attempt) => self.attempt(attempt),
            Change::Chain(chain) => {
                self.version(format!("{} {:?}", chain.blockchain, chain.lane), chain.updated_at)
            }
        }
    }

    fn version(&mut self, row: String, version: UnixMicros) {
        let last = self.versions.insert(row.clone(), version);
        assert!(last.is_none_or(|last| last < version), "the version of {row} does not grow");
    }

    fn fixed(&mut self, row: &str, value: String) {
        let known = self.fixed.entry(row.to_owned()).or_insert_with(|| value.clone());
        assert_eq!(*known, value, "of {row} something changed that lists go by");
    }

    fn order(&mut self, order: &Order) {
        let row = format!("order {}", order.order_id);
        self.version(row.clone(), order.updated_at);
        self.fixed(&row, format!("{:?} {}", order.created_at, order.merchant_order_id));
        let now = (order.status, order.paid_by.is_some());
        let before = self.orders.insert(row.clone(), now).unwrap_or((OrderStatus::Pending, false));
        let by_transfer = matches!(order.cause, OrderCause::PaidLate | OrderCause::Attached);
        let is_paid_again = now == (OrderStatus::Paid, by_transfer);
        let allowed = before == now || before.0 == OrderStatus::Pending || is_paid_again;
        assert!(allowed, "{row} went from {before:?} to {now:?}");
    }

    fn deposit(&mut self, deposit: &Deposit) {
        let row = format!("deposit {}", deposit.deposit_id);
        self.version(row.clone(), deposit.updated_at);
        let Deposit { started_at, order_id, blockchain, stablecoin, .. } = deposit;
        self.fixed(&row, format!("{started_at:?} {order_id} {blockchain} {stablecoin}"));
    }

    fn transfer(&mut self, transfer: &Transfer) {
        let row = format!("transfer {}", transfer.transfer_id);
        self.version(row.clone(), transfer.updated_at);
        let seen = &transfer.observation;
        let place = (transfer.created_at, seen.to_address, transfer.blockchain, seen.stablecoin);
        self.fixed(&row, format!("{place:?}"));
        let before = self.transfers.insert(row.clone(), transfer.status);
        let is_final = |status: &TransferStatus| {
            matches!(status, TransferStatus::Matched | TransferStatus::NoMatchedDeposit)
        };
        if let Some(before) = before.filter(is_final) {
            let was_unknown = (before, transfer.status)
                == (TransferStatus::NoMatchedDeposit, TransferStatus::Matched);
            let is_attached = was_unknown && transfer.deposit_id.is_none();
            assert!(before == transfer.status || is_attached, "{row}: {before} then {transfer:?}");
        }
    }

    fn attempt(&mut self, attempt: &Attempt) {
        let row = format!("{} {} {}", attempt.event_id, attempt.attempt, attempt.manual);
        self.fixed(&row, format!("{attempt:?}"));
    }
}

/// Tables in CQL compute the list position of a row from some of its fields, so these must not change.
#[test]
fn the_machines_keep_what_lists_rely_on() {
    let mut causes = BTreeSet::new();
    for seed in 0..40 {
        let mut promises = Promises::default();
        for change in history(seed) {
            promises.take(&change);
            if let Change::Order(order) = change {
                causes.insert(order.cause);
            }
        }
    }
    // The history has orders that are paid after their end: by a late payment, and by an attach.
    assert!([OrderCause::PaidLate, OrderCause::Attached].iter().all(|of| causes.contains(of)));
}
