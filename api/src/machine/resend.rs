//! Webhook of a transfer, resent by an operator (spec 4.2). The webhook of an order is resent by the processor, because
//! only the writer of the status knows the present one.

use schemas::record::{Delivery, Transfer};
use schemas::{DeliveryKind, TransferStatus, UnixMicros, UnknownTransfer};
use uuid::Uuid;

use crate::error::{Answer, Refusal};

/// New delivery for an unknown transfer.
///
/// # Errors
/// The transfer is not `no_matched_deposit`, or no URL is configured.
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
    // An id distinct from the first event's, so that attempts of both are counted.
    let event_id = format!("{}.unknown.{event}", transfer.transfer_id);
    let url = url.ok_or(Refusal::UnknownUrlMissing)?.to_owned();
    let first = Delivery::first(DeliveryKind::UnknownTransfer, event_id, url, body.body(), now);
    Ok(Delivery { transfer_id: Some(transfer.transfer_id), manual: true, ..first })
}
