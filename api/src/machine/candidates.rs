//! The orders that a transfer was probably meant for, the likeliest first: for a person, who alone decides.

use schemas::record::{Order, OrderDeposit, Transfer};
use schemas::{Amount, Likeness, OrderId, TransferStatus, UnknownReason};

use super::arrival::is_near;

/// Maximum candidates of a transfer.
const CANDIDATES_MAX: usize = 10;

/// Order, and its deposit nearest to the transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) order: Order,
    pub(crate) deposit: OrderDeposit,
    /// Amount asked of its customer.
    pub(crate) asked: Amount,
    /// Amount that arrived.
    pub(crate) sent: Amount,
}

/// Distance between an order and a transfer; the most important field comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Distance {
    /// Matching did not name this order, or named it although the amount differs.
    is_not_named: bool,
    is_other_coin: bool,
    likeness: Likeness,
    parts: u128,
    /// Created after the payment, with clock tolerance.
    is_later: bool,
    seconds: u64,
    /// Tie-breaker: makes the list independent of the order of the search.
    order_id: OrderId,
}

impl Candidate {
    /// Excess over the amount asked; negative for a shortfall.
    pub(crate) fn difference(&self) -> String {
        let parts = self.sent.parts().abs_diff(self.asked.parts());
        let sign = if self.sent.parts() < self.asked.parts() { "-" } else { "" };
        format!("{sign}{}", Amount::from_parts(parts).unwrap_or(Amount::ZERO))
    }

    /// Candidate with the order's likeliest deposit at the transfer's wallet; `None` if matching did not name the
    /// order, and no deposit there has similar digits or a near amount.
    fn of(transfer: &Transfer, order: &Order) -> Option<(Distance, Self)> {
        let wallet = transfer.observation.to_address;
        let here = order.deposits.iter().filter(|deposit| deposit.wallet_address == wallet);
        let all = here.filter_map(|deposit| {
            let (asked, sent) = (deposit.value?, transfer.observation.value);
            let distance = distance(transfer, order, deposit, asked);
            let has_digits = distance.likeness == Likeness::Digits;
            let is_likely = !distance.is_not_named || has_digits || is_near(asked, sent);
            is_likely.then(|| {
                let (order, deposit) = (order.clone(), deposit.clone());
                (distance, Self { order, deposit, asked, sent })
            })
        });
        all.min_by_key(|(distance, _)| *distance)
    }
}

fn distance(transfer: &Transfer, order: &Order, deposit: &OrderDeposit, asked: Amount) -> Distance {
    let seen = &transfer.observation;
    let by_its_sender = order.expecting_wallet_address == Some(seen.from_address);
    Distance {
        is_not_named: transfer.candidate_order_id != Some(order.order_id)
            || transfer.reason == Some(UnknownReason::AmountMismatch)
            || (transfer.reason.is_some_and(may_differ) && seen.value != asked),
        is_other_coin: (deposit.blockchain, deposit.stablecoin)
            != (transfer.blockchain, seen.stablecoin),
        likeness: Likeness::of(asked, seen.value, by_its_sender),
        parts: seen.value.parts().abs_diff(asked.parts()),
        is_later: order.created_at.0 > transfer.block.timestamp.0.saturating_add(60),
        seconds: order.created_at.0.abs_diff(transfer.block.timestamp.0),
        order_id: order.order_id,
    }
}

/// `true` if matching may give this reason to a transfer of another amount than its candidate's.
fn may_differ(reason: UnknownReason) -> bool {
    matches!(reason, UnknownReason::OtherContract | UnknownReason::Stopped)
}

/// `true` for an unknown transfer that is in the chain and not from an own wallet: money came, and it pays nothing.
pub(crate) fn is_stray(transfer: &Transfer) -> bool {
    transfer.status == TransferStatus::NoMatchedDeposit
        && transfer.orphaned_at.is_none()
        && transfer.reason != Some(UnknownReason::OwnWallet)
}

/// The likeliest of `orders` for a transfer that [`is_stray`].
pub(crate) fn rank(transfer: &Transfer, orders: &[Order]) -> Vec<Candidate> {
    let mut found: Vec<_> =
        orders.iter().filter_map(|order| Candidate::of(transfer, order)).collect();
    found.sort_by_key(|(distance, _)| *distance);
    found.dedup_by_key(|(distance, _)| distance.order_id);
    found.truncate(CANDIDATES_MAX);
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use schemas::record::{Observation, example};
    use schemas::{Address, AddressFamily, Blockchain, Stablecoin, UnixSeconds};
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> OrderId {
        OrderId(Uuid::from_u128(number))
    }

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    fn sent(value: &str) -> Transfer {
        let observation = Observation { value: amount(value), ..example::transfer().observation };
        let status = TransferStatus::NoMatchedDeposit;
        Transfer { observation, status, ..example::transfer() }
    }

    /// Order with this amount at the transfer's wallet, created `ago` seconds before its block.
    fn order(number: u128, value: &str, ago: i64) -> Order {
        let deposit =
            OrderDeposit { value: Some(amount(value)), ..example::order().deposits[0].clone() };
        Order {
            order_id: id(number),
            expecting_wallet_address: None,
            created_at: example::transfer().block.timestamp.plus(-ago),
            deposits: vec![deposit],
            ..example::order()
        }
    }

    fn ranked(transfer: &Transfer, orders: &[Order]) -> Vec<u128> {
        rank(transfer, orders).iter().map(|found| found.order.order_id.0.as_u128()).collect()
    }

    #[test]
    fn nearest_amount_first_then_nearest_time() {
        let orders = [
            order(1, "20", 60),
            order(2, "10.01", 900),
            order(3, "10.01", 60),
            order(4, "9", 60),
            order(5, "21", 60),
            order(6, "5.01", 60),
        ];
        assert_eq!(ranked(&sent("10"), &orders), [3, 2, 4, 6, 1]);
        let reversed: Vec<_> = orders.iter().rev().cloned().collect();
        assert_eq!(ranked(&sent("10"), &reversed), [3, 2, 4, 6, 1]);
    }

    #[test]
    fn what_matching_or_the_sender_names_is_first() {
        let mut by_sender = order(2, "14", 60);
        by_sender.expecting_wallet_address = Some(sent("1").observation.from_address);
        let mut often = order(4, "500", 60);
        often.expecting_wallet_address = by_sender.expecting_wallet_address;
        let orders = [order(1, "10", 60), by_sender, order(3, "900", 60), often];
        let candidate_order_id = Some(id(3));
        let late = Transfer { candidate_order_id, reason: Some(UnknownReason::Late), ..sent("10") };
        assert_eq!(ranked(&late, &orders), [3, 2, 1], "whatever arrived");
        let reason = Some(UnknownReason::AmountMismatch);
        assert_eq!(ranked(&Transfer { reason, ..late }, &orders), [2, 1], "its amount is why");
    }

    /// A fee of 1.00 was deducted: the nearest amount is another order's.
    #[test]
    fn digits_below_a_cent_distinguish_payers() {
        let asked = ["20.009248", "20.000411", "20.005797", "20.007675"];
        let orders: Vec<_> = (1..).zip(asked).map(|(n, value)| order(n, value, 60)).collect();
        let sent = sent("19.009248");
        assert_eq!(ranked(&sent, &orders), [1, 2, 3, 4]);
    }

    #[test]
    fn order_older_than_the_payment_is_first() {
        let orders = [order(1, "10", -61), order(2, "10", 3_000), order(3, "10", -60)];
        assert_eq!(ranked(&sent("10"), &orders), [3, 2, 1]);
    }

    #[test]
    fn other_chain_or_coin_comes_after_its_own() {
        let (mut chain, mut coin) = (order(1, "10", 60), order(2, "10.5", 60));
        chain.deposits[0].blockchain = Blockchain::Polygon;
        coin.deposits[0].stablecoin = Stablecoin::Dai;
        let orders = [chain, coin, order(3, "14", 60)];
        assert_eq!(ranked(&sent("10"), &orders), [3, 1, 2]);
    }

    #[test]
    fn an_order_is_there_once_by_its_nearest_deposit() {
        let mut two = order(1, "10", 60);
        let mut other = two.deposits[0].clone();
        other.stablecoin = Stablecoin::Dai;
        two.deposits.insert(0, other);
        let found = rank(&sent("10"), &[two.clone(), order(2, "10", 60), two.clone()]);
        let deposits: Vec<_> = found.iter().map(|found| &found.deposit).collect();
        assert_eq!(deposits, [&two.deposits[1], &order(2, "10", 60).deposits[0]]);
    }

    #[test]
    fn other_wallets_and_unopened_deposits_are_left_out() {
        let (mut elsewhere, mut never) = (order(1, "10", 60), order(2, "10", 60));
        elsewhere.deposits[0].wallet_address = Address::new(AddressFamily::Evm, [9; 20]);
        never.deposits[0].value = None;
        let orders = [elsewhere, never, order(3, "10", 60)];
        assert_eq!(ranked(&sent("10"), &orders), [3]);
    }

    #[test]
    fn what_brought_no_money_to_credit_is_no_stray() {
        for status in TransferStatus::ALL {
            let of = Transfer { status: *status, ..sent("10") };
            assert_eq!(is_stray(&of), *status == TransferStatus::NoMatchedDeposit, "{status}");
        }
        assert!(!is_stray(&Transfer { orphaned_at: Some(UnixSeconds(1)), ..sent("10") }));
        assert!(!is_stray(&Transfer { reason: Some(UnknownReason::OwnWallet), ..sent("10") }));
    }

    #[test]
    fn the_difference_has_a_sign() {
        let of = |value: &str| rank(&sent(value), &[order(1, "10", 60)])[0].difference();
        assert_eq!([of("9.5"), of("10"), of("10.25")], ["-0.50", "0.00", "0.25"]);
    }

    #[test]
    fn few_are_shown() {
        let orders: Vec<_> = (0..50).map(|number| order(number, "10", 60)).collect();
        assert_eq!(rank(&sent("10"), &orders).len(), CANDIDATES_MAX);
    }
}
