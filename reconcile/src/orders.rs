//! Matched transfers against the orders that they pay.

use std::collections::BTreeMap;

use schemas::record::{Order, Transfer};
use schemas::{Blockchain, OrderId, OrderStatus, TransferId, TransferStatus};

use crate::difference::DEFECT;
use crate::sum::Sums;
use crate::{Difference, Join, Joined, Kind};

/// Compares the newest records of transfers and of orders, both ways. The transfers were read before the orders:
/// `is_new` is true for an order that may have changed since.
#[must_use]
pub fn compare_orders(
    chain: Blockchain,
    transfers: &[&Transfer],
    orders: &BTreeMap<OrderId, &Order>,
    is_new: impl Fn(&Order) -> bool,
) -> Joined {
    let (mut sums, mut differences) = (Sums::default(), Vec::new());
    let mut paid: BTreeMap<OrderId, TransferId> = BTreeMap::new();
    let mut differ = |kind, what| {
        let (join, cure) = (Join::Orders, DEFECT.to_owned());
        differences.push(Difference { join, kind, blockchain: Some(chain), what, cure });
    };
    for transfer in transfers.iter().filter(|one| one.status == TransferStatus::Matched) {
        let (id, value) = (transfer.transfer_id, transfer.observation.value);
        let Some(order_id) = transfer.order_id else {
            differ(Kind::NotPaidByIt, format!("{chain}: transfer {id} is matched to no order"));
            continue;
        };
        if let Some(other) = paid.insert(order_id, id) {
            let what = format!("{chain}: the transfers {other} and {id} both pay order {order_id}");
            differ(Kind::PaidTwice, what);
            continue;
        }
        let order = orders.get(&order_id).filter(|order| order.status == OrderStatus::Paid);
        match order.map(|order| (order.paid_by, order.paid_value)) {
            Some((Some(by), found)) if by == id && found == Some(value) => {
                sums.add(Some(transfer.observation.stablecoin), "orders", value);
            }
            Some((Some(by), found)) if by == id => {
                let found = found.map_or_else(|| "no value".to_owned(), |found| found.to_string());
                let what =
                    format!("{chain}: transfer {id} has {value}, and its order {order_id} {found}");
                differ(Kind::OtherValue, what);
            }
            other => {
                let by = other.and_then(|(by, _)| by);
                let by = by.map_or_else(|| "nothing".to_owned(), |by| format!("transfer {by}"));
                let what = format!(
                    "{chain}: transfer {id} is matched to order {order_id}, which is paid by {by}"
                );
                differ(Kind::NotPaidByIt, what);
            }
        }
    }
    let known: BTreeMap<TransferId, &Transfer> =
        transfers.iter().map(|transfer| (transfer.transfer_id, *transfer)).collect();
    for order in orders.values().filter(|order| !is_new(order)) {
        let Some(transfer) = order.paid_by.and_then(|by| known.get(&by)) else { continue };
        // The transfer is matched to another order, or not at all. A transfer matched to this order was compared above.
        if transfer.status != TransferStatus::Matched
            || transfer.order_id.is_some_and(|of| of != order.order_id)
        {
            let (id, status) = (transfer.transfer_id, transfer.status);
            let order_id = order.order_id;
            let what =
                format!("{chain}: order {order_id} is paid by transfer {id}, which is {status}");
            differ(Kind::NotPaidByIt, what);
        }
    }
    Joined { totals: sums.totals(Join::Orders, Some(chain)), differences, waiting: 0 }
}

#[cfg(test)]
mod tests {
    use schemas::Amount;
    use schemas::record::example;

    use super::*;

    fn matched(id: i64) -> Transfer {
        let status = TransferStatus::Matched;
        let order_id = Some(example::order().order_id);
        Transfer { transfer_id: TransferId(id), status, order_id, ..example::transfer() }
    }

    fn paid(by: Option<i64>, value: Option<Amount>) -> Order {
        let paid_by = by.map(TransferId);
        Order { status: OrderStatus::Paid, paid_by, paid_value: value, ..example::order() }
    }

    fn kinds(transfers: &[Transfer], order: Option<Order>) -> Vec<Kind> {
        let transfers: Vec<_> = transfers.iter().collect();
        let orders = order.iter().map(|order| (order.order_id, order)).collect();
        let is_new = |order: &Order| order.merchant_order_id == "new";
        let joined = compare_orders(Blockchain::Eth, &transfers, &orders, is_new);
        joined.differences.iter().map(|difference| difference.kind).collect()
    }

    #[test]
    fn each_matched_transfer_pays_its_order_alone() {
        let value = Some(matched(7).observation.value);
        assert_eq!(kinds(&[matched(7)], Some(paid(Some(7), value))), []);
        assert_eq!(kinds(&[matched(7)], None), [Kind::NotPaidByIt]);
        assert_eq!(kinds(&[matched(7)], Some(paid(None, None))), [Kind::NotPaidByIt]);
        let less = Amount::parse("1").ok();
        assert_eq!(kinds(&[matched(7)], Some(paid(Some(7), less))), [Kind::OtherValue]);
        let twice = [matched(7), matched(8)];
        assert_eq!(kinds(&twice, Some(paid(Some(7), value))), [Kind::PaidTwice]);
        let pending = Order { status: OrderStatus::Pending, ..paid(Some(7), value) };
        assert_eq!(kinds(&[matched(7)], Some(pending)), [Kind::NotPaidByIt]);
        let nobody = Transfer { order_id: None, ..matched(7) };
        assert_eq!(kinds(&[nobody], None), [Kind::NotPaidByIt]);
        let status = TransferStatus::NoMatchedDeposit;
        let unknown = Transfer { status, order_id: None, ..matched(7) };
        let attached = paid(Some(7), value);
        let is_new = Order { merchant_order_id: "new".to_owned(), ..attached.clone() };
        assert_eq!(kinds(std::slice::from_ref(&unknown), Some(attached)), [Kind::NotPaidByIt]);
        assert_eq!(kinds(&[unknown], Some(is_new)), []);
        assert_eq!(kinds(&[], Some(paid(Some(7), value))), [], "of another period");
    }
}
