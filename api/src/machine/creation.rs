//! The command that creates an order, and the first record of the order.

use schemas::record::{CreateOrder, Order, OrderCommand, OrderCommandBody};
use schemas::{CommandId, OrderId, UnixMicros};

use super::catalog::{Catalog, Choice};
use crate::error::{Invalid, Refusal};

/// Most characters of an idempotency key.
const KEY_CHARS_MAX: usize = 255;

/// The command that creates an order, and the order's first record, word for word as the processor will
/// write it: so the row can be written before, with the same version clock and content.
///
/// # Errors
/// The merchant fixed a chain and stablecoin that cannot be paid.
pub(crate) fn create(
    mut create: CreateOrder,
    order_id: OrderId,
    command_id: CommandId,
    now: UnixMicros,
    catalog: &Catalog,
) -> Result<(OrderCommand, Order), Refusal> {
    if let (Some(blockchain), Some(stablecoin)) = (create.blockchain, create.stablecoin) {
        let choice = Choice { blockchain, stablecoin };
        let payment = catalog.payment(order_id, choice, create.amount);
        create.payment = Some(payment.map_err(|why| why.for_merchant(choice))?);
    }
    let body = OrderCommandBody::Create(create.clone());
    let command = OrderCommand { order_id, command_id: Some(command_id), issued_at: now, body };
    let order = Order::created(&command, &create);
    Ok((command, order))
}

/// Whether a repeated request may be answered with an existing order.
///
/// # Errors
/// The order was made from another body.
pub(crate) fn repeat(new: &CreateOrder, order: &Order) -> Result<(), Refusal> {
    let is_same = new.merchant_order_id == order.merchant_order_id
        && (new.amount, &new.amount_text) == (order.amount, &order.amount_text)
        && new.webhook_url == order.webhook_url
        && new.expecting_wallet_address == order.expecting_wallet_address
        && (new.blockchain, new.stablecoin) == (order.blockchain, order.stablecoin);
    if is_same { Ok(()) } else { Err(Refusal::KeyReused) }
}

/// Checks an `Idempotency-Key`.
///
/// # Errors
/// Its length or its characters.
pub(crate) fn check_key(key: &[u8]) -> Result<&str, Invalid> {
    let visible = key.iter().all(u8::is_ascii_graphic) && (1..=KEY_CHARS_MAX).contains(&key.len());
    std::str::from_utf8(key).ok().filter(|_| visible).ok_or_else(|| {
        let problem = format!("must be 1 to {KEY_CHARS_MAX} visible characters");
        Invalid::new("Idempotency-Key", problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_visible_and_short() {
        assert_eq!(check_key(b"a-1~!"), Ok("a-1~!"));
        assert!(check_key(&[b'x'; 255]).is_ok());
        for key in [&b""[..], b"a b", b"\xc3\xa9", b"a\t", &[b'x'; 256]] {
            assert_eq!(
                check_key(key).unwrap_err().to_string(),
                "Idempotency-Key: must be 1 to 255 visible characters"
            );
        }
    }
}
