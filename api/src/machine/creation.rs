//! What a request to create an order fixes, and whether it is a repetition.

use schemas::record::{CreateOrder, Order};

use super::catalog::Choice;
use crate::error::{Answer, Invalid, Refusal};

/// Most characters of an idempotency key.
const KEY_CHARS_MAX: usize = 255;

/// The chain and stablecoin of an order that leaves no choice to its customer.
pub(crate) fn fixed(create: &CreateOrder) -> Option<Choice> {
    let (blockchain, stablecoin) = create.blockchain.zip(create.stablecoin)?;
    Some(Choice { blockchain, stablecoin })
}

/// Refuses a repeated request whose order was created from another body.
pub(crate) fn repeat(new: &CreateOrder, order: &Order) -> Answer<()> {
    let is_same = new.merchant_order_id == order.merchant_order_id
        && (new.amount, &new.amount_text) == (order.amount, &order.amount_text)
        && new.webhook_url == order.webhook_url
        && new.expecting_wallet_address == order.expecting_wallet_address
        && (new.blockchain, new.stablecoin) == (order.blockchain, order.stablecoin);
    if is_same { Ok(()) } else { Err(Refusal::KeyReused) }
}

/// The text of an `Idempotency-Key`, if its length and characters are valid.
pub(crate) fn check_key(key: &[u8]) -> Result<&str, Invalid> {
    let visible = key.iter().all(u8::is_ascii_graphic) && (1..=KEY_CHARS_MAX).contains(&key.len());
    std::str::from_utf8(key).ok().filter(|_| visible).ok_or_else(|| {
        let problem = format!("must be 1 to {KEY_CHARS_MAX} visible characters");
        Invalid::new("Idempotency-Key", problem)
    })
}
