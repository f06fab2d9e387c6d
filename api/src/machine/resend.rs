//! Webhooks that an operator sends again (spec 4.2).

use schemas::record::{Delivery, Order, Transfer};
use schemas::{
    DeliveryKind, OrderStatus, OrderStatusChanged, TransferStatus, UnixMicros, UnknownTransfer,
};
use uuid::Uuid;

use crate::error::{Answer, Refusal};

/// The one attempt to send the order's status.
///
/// # Errors
/// The order is pending: its status has not changed yet.
pub(crate) fn of_order(order: &Order, event: Uuid, now: UnixMicros) -> Answer<Delivery> {
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
    let (kind, url) = (DeliveryKind::OrderStatusChanged, &order.webhook_url);
    Ok(Delivery { order_id: Some(order.order_id), ..manual(event, kind, url, body.body(), now) })
}

/// The one attempt to send the webhook of a transfer that pays nothing.
///
/// # Errors
/// The transfer pays something, or may still; or no URL is configured.
pub(crate) fn of_transfer(
    transfer: &Transfer,
    url: Option<&str>,
    event: Uuid,
    now: UnixMicros,
) -> Answer<Delivery> {
    if transfer.status != TransferStatus::NoMatchedDeposit {
        return Err(Refusal::TransferKnown(transfer.status));
    }
    let body = UnknownTransfer {
        transfer_id: transfer.transfer_id,
        blockchain: transfer.blockchain,
        timestamp: now.seconds(),
    };
    let (kind, url) = (DeliveryKind::UnknownTransfer, url.ok_or(Refusal::UnknownUrlMissing)?);
    let transfer_id = Some(transfer.transfer_id);
    Ok(Delivery { transfer_id, ..manual(event, kind, url, body.body(), now) })
}

/// Its id never equals that of an event of the pipeline, so that the attempts of both are counted.
fn manual(event: Uuid, kind: DeliveryKind, url: &str, body: String, now: UnixMicros) -> Delivery {
    Delivery {
        event_id: format!("manual/{event}"),
        kind,
        order_id: None,
        transfer_id: None,
        url: url.to_owned(),
        body,
        attempt: 1,
        manual: true,
        emitted_at: now,
    }
}
