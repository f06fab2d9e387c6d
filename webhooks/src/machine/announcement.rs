//! The dispatcher's decision: which records of `orders` and `transfers.unknown` are webhooks.

use std::collections::BTreeMap;

use schemas::record::{Delivery, Order, Transfer};
use schemas::{
    Amount, DeliveryKind, OrderCause, OrderStatus, OrderStatusChanged, Stablecoin, UnknownReason,
    UnknownTransfer,
};

/// The webhook of a change of an order that is not pending: one if the change made it paid, expired or cancelled, or is
/// a resend that an operator requested (spec 6.1). The event id is derived from the change, so that a replay on any log
/// gives the same id. Only resends, and payments of ended orders, follow an earlier event of their order (invariant 4).
#[must_use]
pub fn decide_order(order: &Order) -> Option<Delivery> {
    let manual = order.cause == OrderCause::WebhookResent;
    let had_ended =
        matches!(order.cause, OrderCause::MarkedPaid | OrderCause::PaidLate | OrderCause::Attached);
    if !(order.status_changed || manual) || order.status == OrderStatus::Pending {
        return None;
    }
    let event = OrderStatusChanged {
        order_id: order.order_id,
        merchant_order_id: &order.merchant_order_id,
        status: order.status,
        amount: &order.amount_text,
        timestamp: order.updated_at.seconds(),
    };
    let event_id = format!("{}.{}", order.order_id, order.version);
    let (kind, url) = (DeliveryKind::OrderStatusChanged, order.webhook_url.clone());
    Some(Delivery {
        order_id: Some(order.order_id),
        version: Some(order.version),
        follows: manual || had_ended,
        manual,
        ..Delivery::first(kind, event_id, url, event.body(), order.updated_at)
    })
}

/// The webhook of a transfer that pays nothing (spec 6.2); none without a configured `url`.
#[must_use]
pub fn decide_transfer(transfer: &Transfer, url: Option<&str>) -> Option<Delivery> {
    let event = UnknownTransfer {
        transfer_id: transfer.transfer_id,
        blockchain: transfer.blockchain,
        timestamp: transfer.updated_at.seconds(),
    };
    let event_id = format!("{}.unknown", transfer.transfer_id);
    let (kind, url) = (DeliveryKind::UnknownTransfer, url?.to_owned());
    let first = Delivery::first(kind, event_id, url, event.body(), transfer.updated_at);
    Some(Delivery { transfer_id: Some(transfer.transfer_id), ..first })
}

/// `true` if an unknown transfer is below its coin's threshold and is not announced. A transfer
/// with the amount of a deposit that its lane still knows is always announced, unless its sender is
/// an own wallet or its contract does not pay that deposit.
#[must_use]
pub fn is_dust(transfer: &Transfer, threshold: &BTreeMap<Stablecoin, Amount>) -> bool {
    use UnknownReason as Reason;
    let is_below = |threshold: &Amount| transfer.observation.value < *threshold;
    threshold.get(&transfer.observation.stablecoin).is_some_and(is_below)
        && match transfer.reason {
            Some(
                Reason::NoDeposit
                | Reason::AmountMismatch
                | Reason::OwnWallet
                | Reason::OtherContract,
            ) => true,
            Some(
                Reason::SenderMismatch
                | Reason::BeforeDeposit
                | Reason::Late
                | Reason::AlreadyPaid
                | Reason::OrderCancelled
                | Reason::Stopped,
            )
            | None => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::UnixMicros;
    use schemas::record::example;

    #[test]
    fn every_changed_status_but_pending_is_announced() {
        for status in OrderStatus::ALL {
            for status_changed in [false, true] {
                let order = Order { status: *status, status_changed, ..example::order() };
                let found = decide_order(&order);
                let wanted = status_changed && *status != OrderStatus::Pending;
                assert_eq!(found.is_some(), wanted, "spec 6.1: {status}, {status_changed}");
            }
        }
    }

    #[test]
    fn only_resends_and_payments_after_an_end_follow() {
        use OrderCause::{Attached, MarkedPaid, PaidLate, WebhookResent};
        for cause in OrderCause::ALL {
            let changed = Order {
                status: OrderStatus::Paid,
                status_changed: *cause != WebhookResent,
                cause: *cause,
                ..example::order()
            };
            let found = decide_order(&changed).unwrap();
            let follows = [WebhookResent, MarkedPaid, PaidLate, Attached].contains(cause);
            assert_eq!(found.follows, follows, "{cause}");
            assert_eq!(found.manual, *cause == WebhookResent);
        }
    }

    #[test]
    fn an_announced_order_has_the_body_of_the_interface() {
        let order = Order { status: OrderStatus::Paid, status_changed: true, ..example::order() };
        let found = decide_order(&order).unwrap();
        let body = format!(
            r#"{{"event_type":"order_status_changed","order_id":"{}","merchant_order_id":"A-1001","status":"paid","amount":"10.50","timestamp":1790000012}}"#,
            order.order_id
        );
        assert_eq!(
            found,
            Delivery {
                event_id: format!("{}.{}", order.order_id, order.version),
                kind: DeliveryKind::OrderStatusChanged,
                order_id: Some(order.order_id),
                transfer_id: None,
                url: "https://shop.example/hooks".into(),
                body,
                attempt: 1,
                manual: false,
                emitted_at: order.updated_at,
                due_at: UnixMicros(0),
                version: Some(order.version),
                follows: false,
                deferrals: 0,
                requests: 0,
                last_outcome: None,
                last_status: None,
            }
        );
    }

    #[test]
    fn unknown_transfer_is_announced_if_there_is_a_url() {
        let transfer = example::transfer();
        assert_eq!(decide_transfer(&transfer, None), None);
        let url = "https://shop.example/unknown";
        let found = decide_transfer(&transfer, Some(url)).unwrap();
        assert_eq!(found.url, url);
        assert_eq!(found.transfer_id, Some(transfer.transfer_id));
        assert_eq!((found.kind, found.order_id), (DeliveryKind::UnknownTransfer, None));
        let wanted = UnknownTransfer {
            transfer_id: transfer.transfer_id,
            blockchain: transfer.blockchain,
            timestamp: transfer.updated_at.seconds(),
        };
        assert_eq!(found.body, wanted.body(), "spec 6.2");
        assert_eq!((found.attempt, found.manual), (1, false));
    }

    #[test]
    fn dust_is_below_its_threshold_and_fits_no_deposit() {
        let cent = Amount::parse("0.01").unwrap();
        let threshold = BTreeMap::from([(Stablecoin::Usdc, cent), (Stablecoin::Dai, Amount::ZERO)]);
        for reason in UnknownReason::ALL {
            let fits_none = ["no_deposit", "amount_mismatch", "own_wallet", "other_contract"];
            let has_no_deposit = fits_none.contains(&reason.as_str());
            for (stablecoin, value, is_small) in [
                (Stablecoin::Usdc, "0.009999", true),
                (Stablecoin::Usdc, "0.01", false),
                (Stablecoin::Usdt, "0.000001", false),
                (Stablecoin::Dai, "0.000001", false),
            ] {
                let mut transfer = Transfer { reason: Some(*reason), ..example::transfer() };
                transfer.observation.stablecoin = stablecoin;
                transfer.observation.value = Amount::parse(value).unwrap();
                let found = is_dust(&transfer, &threshold);
                assert_eq!(found, is_small && has_no_deposit, "{reason}: {value} {stablecoin}");
            }
        }
    }
}
