//! Parts of the creation of an order: a fixed choice, repeated requests, ids, idempotency keys.

use schemas::UnixMicros;
use schemas::record::{CreateOrder, Order};
use uuid::{NoContext, Timestamp, Uuid};

use super::catalog::Choice;
use crate::error::{Answer, Invalid, Refusal};

const KEY_CHARS_MAX: usize = 255;

/// The outcome of a request to create an order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Created {
    pub(crate) order: Order,
    /// `true` if an earlier request with the same key created it.
    pub(crate) is_repeated: bool,
}

impl Created {
    pub(crate) fn now(order: Order) -> Self {
        Self { order, is_repeated: false }
    }

    pub(crate) fn before(order: Order) -> Self {
        Self { order, is_repeated: true }
    }
}

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

/// A new UUIDv7 with this time.
pub(crate) fn fresh_id(now: UnixMicros) -> Uuid {
    let seconds = u64::try_from(now.seconds().0).unwrap_or_default();
    let nanos = u32::try_from(now.0.rem_euclid(1_000_000) * 1_000).unwrap_or_default();
    Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, nanos))
}

/// The text of an `Idempotency-Key`, if its length and characters are valid.
pub(crate) fn check_key(key: &[u8]) -> Result<&str, Invalid> {
    let visible = key.iter().all(u8::is_ascii_graphic) && (1..=KEY_CHARS_MAX).contains(&key.len());
    std::str::from_utf8(key).ok().filter(|_| visible).ok_or_else(|| {
        let problem = format!("must be 1 to {KEY_CHARS_MAX} visible characters");
        Invalid::new("Idempotency-Key", problem)
    })
}
