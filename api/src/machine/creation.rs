//! The command that creates an order, and the first record of the order.

use schemas::record::{CreateOrder, Order, OrderCommand, OrderCommandBody};
use schemas::{CommandId, OrderId, UnixMicros};

use super::catalog::{Catalog, Choice};
use super::new_order::NewOrder;
use crate::error::{Invalid, Refusal};

/// Most characters of an idempotency key.
const KEY_CHARS_MAX: usize = 255;

/// A new order on its way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    /// For the processor.
    pub(crate) command: OrderCommand,
    /// Word for word the first record that the processor will write, so that the row can be written
    /// before it: the same version clock with the same content.
    pub(crate) order: Order,
}

/// Makes a valid request an order.
///
/// # Errors
/// The merchant fixed a chain and stablecoin that cannot be paid.
pub(crate) fn create(
    new: NewOrder,
    order_id: OrderId,
    command_id: CommandId,
    now: UnixMicros,
    catalog: &Catalog,
) -> Result<Creation, Refusal> {
    let payment = match (new.blockchain, new.stablecoin) {
        (Some(blockchain), Some(stablecoin)) => {
            let choice = Choice { blockchain, stablecoin };
            let payment = catalog.payment(order_id, choice, new.amount);
            Some(payment.map_err(|why| why.for_merchant(choice))?)
        }
        _ => None,
    };
    let create = CreateOrder {
        merchant_order_id: new.merchant_order_id,
        amount: new.amount,
        amount_text: new.amount_text,
        webhook_url: new.webhook_url,
        expecting_wallet_address: new.expecting_wallet_address,
        blockchain: new.blockchain,
        stablecoin: new.stablecoin,
        expires_at: now.seconds().plus(catalog.ttl_seconds()),
        payment,
    };
    let command = OrderCommand {
        order_id,
        command_id: Some(command_id),
        issued_at: now,
        body: OrderCommandBody::Create(create.clone()),
    };
    let order = Order::created(&command, &create);
    Ok(Creation { command, order })
}

/// Answers a repeated request with an existing order.
///
/// # Errors
/// The order was made from another body.
pub(crate) fn repeat(new: &NewOrder, order: &Order) -> Result<(), Refusal> {
    let made_from = NewOrder {
        merchant_order_id: order.merchant_order_id.clone(),
        amount: order.amount,
        amount_text: order.amount_text.clone(),
        webhook_url: order.webhook_url.clone(),
        expecting_wallet_address: order.expecting_wallet_address,
        blockchain: order.blockchain,
        stablecoin: order.stablecoin,
    };
    if *new == made_from { Ok(()) } else { Err(Refusal::KeyReused) }
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
