//! Short names: orders are letters; wallets, senders, commands and transfers are numbers.

use schemas::record::AmountRule;
use schemas::{Address, AddressFamily, Amount, OrderId};
use uuid::Uuid;

/// The order with this letter.
pub(crate) fn order(letter: char) -> OrderId {
    OrderId(Uuid::from_u128(u128::from(u32::from(letter))))
}

pub(crate) fn letter(order: OrderId) -> char {
    u32::try_from(order.0.as_u128()).ok().and_then(char::from_u32).unwrap_or('?')
}

/// The address with this number.
pub(crate) fn wallet(number: u8) -> Address {
    Address::new(AddressFamily::Evm, [number; 20])
}

/// The contract of every stablecoin.
pub(crate) const CONTRACT: Address = Address::new(AddressFamily::Evm, [0xda; 20]);

/// A second contract of every stablecoin.
pub(crate) const OTHER_CONTRACT: Address = Address::new(AddressFamily::Evm, [0xdb; 20]);

pub(crate) fn amount(text: &str) -> Amount {
    let parsed = Amount::parse(text);
    assert!(parsed.is_ok(), "{text} is an amount");
    parsed.unwrap_or_default()
}

/// Rule for the order's own amount, or up to three cents more.
pub(crate) fn three_cents() -> AmountRule {
    AmountRule { limit: amount("0.03"), ..AmountRule::EXACT }
}
