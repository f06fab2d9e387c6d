//! Payments of customers and strangers.

use alloy_primitives::{Address, U256};
use devnet::{BlockId, TransferCall};
use schemas::record::Deposit;
use testkit::Dice;
use testkit::faults::invented;

use super::chain::{COUNTERFEIT, PAYER, TOKEN};
use super::shop::{text, units};

/// A transfer that is not to us.
pub(crate) fn stranger() -> TransferCall {
    let (to, value) = (Address::repeat_byte(0x99), U256::from(5));
    TransferCall { token: TOKEN, from: PAYER, to, value }
}

/// The payment of a deposit.
pub(crate) fn exact(deposit: &Deposit) -> TransferCall {
    let to = Address::from(*deposit.wallet_address.bytes());
    TransferCall { token: TOKEN, from: PAYER, to, value: U256::from(units(deposit.value)) }
}

/// Log of an invented payment of a deposit, as if in the newest block; `number` makes its transaction unique.
pub(crate) fn forged(head: BlockId, deposit: &Deposit, number: usize) -> serde_json::Value {
    let transaction = format!("0x{:064x}", 0xf0_0000 + number);
    let (hash, to) = (head.hash.to_string(), text(&deposit.wallet_address));
    let parties = [&TOKEN.to_string(), &PAYER.to_string(), to.as_str()];
    invented((head.number, &hash), &transaction, parties, units(deposit.value))
}

/// Returns the payments of a deposit's customer, each with its time.
pub(super) fn pay(dice: &mut Dice, now: u64, deposit: &Deposit) -> Vec<(u64, Vec<TransferCall>)> {
    let call = |value| TransferCall { value, ..exact(deposit) };
    let exact = exact(deposit).value;
    let left = u64::try_from(deposit.expires_at.0).unwrap().saturating_sub(now);
    let mut payments = match dice.below(10) {
        0 => vec![(now + left + 2, vec![call(exact)])],
        1 => vec![(now + left.saturating_sub(dice.below(6) as u64), vec![call(exact)])],
        2 => vec![(now, vec![call(exact - U256::from(1))])],
        3 => vec![(now, vec![call(exact)]), (now + 4, vec![call(exact)])],
        // Twice in one transaction.
        4 => vec![(now, vec![call(exact); 2])],
        5 => vec![],
        _ => vec![(now + dice.below(12) as u64, vec![call(exact)])],
    };
    if dice.below(3) == 0 {
        for (_, calls) in &mut payments {
            calls.push(stranger());
            calls.push(TransferCall { token: COUNTERFEIT, ..call(exact) });
            calls.push(call(U256::ZERO));
            calls.push(call(U256::from(1 + dice.below(5))));
        }
    }
    payments
}
