//! Webhooks that an operator sends again (spec 4.2).

use schemas::record::{Delivery, Order, Transfer};
use schemas::{
    DeliveryKind, OrderStatus, OrderStatusChanged, TransferStatus, UnixMicros, UnknownTransfer,
};
use uuid::Uuid;

use crate::error::Refusal;

/// One attempt to tell the order's status.
///
/// # Errors
/// The order is pending: nothing happened that could be told.
pub(crate) fn of_order(order: &Order, event: Uuid, now: UnixMicros) -> Result<Delivery, Refusal> {
    if order.status == OrderStatus::Pending {
        return Err(Refusal::OrderPending);
    }
    let body = OrderStatusChanged {
        order_id: order.order_id,
        merchant_order_id: &order.merchant_order_id,
        status: order.status,
        amount: &order.amount_text,
        timestamp: now.seconds(),
    };
    Ok(Delivery {
        event_id: event_id(event),
        kind: DeliveryKind::OrderStatusChanged,
        order_id: Some(order.order_id),
        transfer_id: None,
        url: order.webhook_url.clone(),
        body: body.body(),
        attempt: 1,
        manual: true,
        emitted_at: now,
    })
}

/// One attempt to tell of a transfer that pays nothing.
///
/// # Errors
/// The transfer pays something, or may still; or there is nowhere to tell it.
pub(crate) fn of_transfer(
    transfer: &Transfer,
    url: Option<&str>,
    event: Uuid,
    now: UnixMicros,
) -> Result<Delivery, Refusal> {
    if transfer.status != TransferStatus::NoMatchedDeposit {
        return Err(Refusal::TransferKnown(transfer.status));
    }
    let body = UnknownTransfer {
        transfer_id: transfer.transfer_id,
        blockchain: transfer.blockchain,
        timestamp: now.seconds(),
    };
    Ok(Delivery {
        event_id: event_id(event),
        kind: DeliveryKind::UnknownTransfer,
        order_id: None,
        transfer_id: Some(transfer.transfer_id),
        url: url.ok_or(Refusal::UnknownUrlMissing)?.to_owned(),
        body: body.body(),
        attempt: 1,
        manual: true,
        emitted_at: now,
    })
}

/// Never the id of an event of the pipeline, so that both are counted.
fn event_id(event: Uuid) -> String {
    format!("manual/{event}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::record::example;

    const NOW: UnixMicros = UnixMicros(5_000_000);

    #[test]
    fn every_status_but_pending_can_be_told_again() {
        for status in OrderStatus::ALL {
            let order = Order { status: *status, ..example::order() };
            let delivery = of_order(&order, Uuid::from_u128(1), NOW);
            if *status == OrderStatus::Pending {
                assert_eq!(delivery, Err(Refusal::OrderPending));
                continue;
            }
            let delivery = delivery.unwrap();
            assert_eq!(delivery.event_id, "manual/00000000-0000-0000-0000-000000000001");
            assert!(delivery.body.contains(&format!("\"status\":\"{status}\"")));
            assert!(delivery.body.ends_with("\"timestamp\":5}"), "{}", delivery.body);
            assert_eq!((delivery.attempt, delivery.manual), (1, true));
            assert_eq!(delivery.url, order.webhook_url);
        }
    }

    #[test]
    fn only_unmatched_transfers_can_be_told_and_only_somewhere() {
        for status in TransferStatus::ALL {
            let transfer = Transfer { status: *status, ..example::transfer() };
            let delivery = of_transfer(&transfer, Some("http://x"), Uuid::nil(), NOW);
            if *status == TransferStatus::NoMatchedDeposit {
                assert_eq!(delivery.unwrap().url, "http://x");
                let refusal = of_transfer(&transfer, None, Uuid::nil(), NOW).unwrap_err();
                assert_eq!(refusal, Refusal::UnknownUrlMissing);
            } else {
                assert_eq!(
                    delivery.unwrap_err().to_string(),
                    format!("transfer is {status}: there is no unknown-transfer event to send")
                );
            }
        }
    }
}
