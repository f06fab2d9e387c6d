//! Transfers that the customer of an order sees on the page, and in how much detail (decision 79).
//! Wallets are shared: a transfer that may be another customer's is mentioned without details.

use schemas::record::{Order, OrderDeposit, Transfer};
use schemas::{
    Amount, Likeness, OrderStatus, TransferId, TransferStatus, UnixSeconds, UnknownReason,
};

/// One cent, in parts of an amount. Digits below it are drawn for each order; some wallets and exchanges hide them.
pub(super) const ONE_CENT: u128 = 10_u128.pow(16);
/// 0.0001 in parts of an amount. A raise that is a multiple of it has at most four decimals: too
/// few to identify an order.
const FEW_DIGITS: u128 = 10_u128.pow(14);
/// Clock tolerance: a block may be dated this many seconds before the order or the deposit that it pays.
const CLOCKS_SECONDS: i64 = 60;
/// Seconds after the order's deadline up to which a transfer counts as possible by its amount. A transfer that matching
/// has named for the order has no such limit.
const AFTERWARDS_SECONDS: i64 = 3600;

/// Certainty that a transfer is meant for an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Named by the order, tied to its deposit, or identified by drawn digits or by sender: shown in detail.
    Own,
    /// Perhaps of another customer: its arrival is mentioned, without any detail.
    Possible,
}

/// Claim of an order's customer to a transfer; `None` if it must not be shown.
pub(crate) fn claim(order: &Order, transfer: &Transfer) -> Option<Claim> {
    if named(order).any(|id| id == transfer.transfer_id) {
        return Some(Claim::Own);
    }
    if !is_money(transfer) || is_of_another(order, transfer) {
        return None;
    }
    let mut asked = order.deposits.iter().filter_map(|of| fits_place(of, transfer)).peekable();
    let is_meant = transfer.candidate_order_id == Some(order.order_id);
    let is_tied = transfer.deposit_id.is_some();
    if is_tied || asked.clone().any(|(_, value)| is_own(order, transfer, value)) {
        return Some(Claim::Own);
    }
    let is_possible = asked.peek().is_some() && is_meant
        || asked.any(|(deposit, value)| is_possible(order, transfer, deposit, value));
    is_possible.then_some(Claim::Possible)
}

/// The transfers that the order itself names.
pub(crate) fn named(order: &Order) -> impl Iterator<Item = TransferId> {
    order.paid_by.into_iter().chain(order.candidates.iter().copied())
}

/// `true` if the transfer awaits its verdict.
pub(crate) fn is_waiting(transfer: &Transfer) -> bool {
    matches!(
        transfer.status,
        TransferStatus::WaitingForConfirmation | TransferStatus::WaitingForMatch
    )
}

/// `true` if the transfer pays another order, fits its deposit, or was probably meant for it. A mere likeness of the
/// amounts does not count.
pub(crate) fn is_of_another(order: &Order, transfer: &Transfer) -> bool {
    let is_ours = |id| order.deposits.iter().any(|deposit| deposit.deposit_id == Some(id));
    let is_nearest = transfer.reason == Some(UnknownReason::AmountMismatch);
    let others = |id| id != order.order_id;
    transfer.deposit_id.is_some_and(|id| !is_ours(id))
        || transfer.order_id.is_some_and(others)
        || transfer.candidate_order_id.is_some_and(|id| !is_nearest && others(id))
}

/// `true` if the transfer awaits its verdict, or is unknown and in the chain. The merchant's own ones do not count.
fn is_money(transfer: &Transfer) -> bool {
    let is_unknown =
        transfer.status == TransferStatus::NoMatchedDeposit && transfer.orphaned_at.is_none();
    let is_merchants =
        transfer.observation.from_own_wallet || transfer.reason == Some(UnknownReason::OwnWallet);
    (is_waiting(transfer) || is_unknown) && !is_merchants
}

/// The deposit and its amount, if it has one and the transfer came to its wallet, on its chain and in its coin.
fn fits_place<'a>(
    deposit: &'a OrderDeposit,
    transfer: &Transfer,
) -> Option<(&'a OrderDeposit, Amount)> {
    let seen = &transfer.observation;
    let is_here = deposit.blockchain == transfer.blockchain
        && deposit.stablecoin == seen.stablecoin
        && deposit.wallet_address == seen.to_address;
    Some((deposit, deposit.value.filter(|_| is_here)?))
}

/// `true` if the transfer has the order's named sender or its drawn digits, brings a near amount, and is not older than
/// the order. Few digits do not count: they match by chance.
fn is_own(order: &Order, transfer: &Transfer, asked: Amount) -> bool {
    let seen = &transfer.observation;
    let below = |of: Amount| of.parts() % ONE_CENT;
    let drawn = asked.parts().abs_diff(order.amount.parts());
    let is_drawn = !drawn.is_multiple_of(FEW_DIGITS);
    let has_digits = is_drawn && below(asked) == below(seen.value);
    let has_sender = order.expecting_wallet_address == Some(seen.from_address);
    let since = order.created_at.plus(-CLOCKS_SECONDS);
    (has_digits || has_sender) && is_near(asked, seen.value) && transfer.block.timestamp >= since
}

/// `true` if a transfer in time and of an accepted sender brings the price, or the asked amount as rounded by a wallet.
/// Never for a paid order.
fn is_possible(order: &Order, transfer: &Transfer, deposit: &OrderDeposit, asked: Amount) -> bool {
    let value = transfer.observation.value;
    let from = deposit.started_at.plus(-CLOCKS_SECONDS);
    let until = order.expires_at.plus(AFTERWARDS_SECONDS);
    let is_in_time = (from..=until).contains(&transfer.block.timestamp);
    let is_sender = order.expecting_wallet_address.is_none_or(|of| {
        // A transfer from another sender is another customer's, unless it has exactly the asked amount:
        // then the customer probably used a wrong wallet.
        of == transfer.observation.from_address || value == asked
    });
    let is_amount = value == order.amount || Likeness::is_rounded(asked, value);
    order.status != OrderStatus::Paid && is_in_time && is_sender && is_amount
}

/// `true` if the amount sent is between half and twice the amount asked for.
pub(super) fn is_near(asked: Amount, sent: Amount) -> bool {
    sent.parts() >= asked.parts() / 2 && sent.parts() / 2 <= asked.parts()
}

/// Deadline for the verdict on a waiting transfer that fits no deposit; `None` for others.
pub(crate) fn checked_by(transfer: &Transfer, match_window_seconds: i64) -> Option<UnixSeconds> {
    let is_checked = is_waiting(transfer) && transfer.deposit_id.is_none();
    is_checked.then(|| transfer.block.timestamp.plus(match_window_seconds))
}

#[cfg(test)]
mod tests {
    use schemas::record::example;
    use schemas::{Address, AddressFamily, DepositId, OrderId};
    use uuid::Uuid;

    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    /// An order that costs 25.00 and awaits 25.006899.
    fn order() -> Order {
        let deposit = OrderDeposit {
            value: Some(amount("25.006899")),
            deposit_id: Some(DepositId(9)),
            ..example::order().deposits[0].clone()
        };
        Order {
            amount: amount("25.00"),
            expecting_wallet_address: None,
            candidates: Vec::new(),
            deposits: vec![deposit],
            ..example::order()
        }
    }

    /// A waiting transfer to the wallet of the order, in its coin, a minute after its start.
    fn sent(value: &str) -> Transfer {
        let mut transfer = Transfer {
            status: TransferStatus::WaitingForConfirmation,
            fulfillment_id: None,
            order_id: None,
            deposit_id: None,
            ..example::transfer()
        };
        transfer.block.timestamp = order().created_at.plus(60);
        transfer.observation.value = amount(value);
        transfer
    }

    #[test]
    fn drawn_digits_are_shown_from_half_to_twice() {
        for (value, expected) in [
            ("25.006899", Some(Claim::Own)),
            ("24.006899", Some(Claim::Own)),
            ("12.506899", Some(Claim::Own)),
            ("50.006899", Some(Claim::Own)),
            ("12.496899", None),
            ("50.026899", None),
            ("25.006898", None),
            ("25.016812", None),
        ] {
            assert_eq!(claim(&order(), &sent(value)), expected, "{value}");
        }
    }

    #[test]
    fn price_and_rounded_amounts_are_possible() {
        let possible = ["25", "25.01", "25.006", "25.007", "25.0069", "25.00689", "25.0068"];
        for value in possible {
            assert_eq!(claim(&order(), &sent(value)), Some(Claim::Possible), "{value}");
        }
        for value in ["24", "25.1", "25.02", "26", "25.008", "20.00"] {
            assert_eq!(claim(&order(), &sent(value)), None, "{value}");
        }
    }

    /// A stranger's amount may have the same few drawn digits, or those of the price itself.
    #[test]
    fn few_digits_are_nobodys() {
        for (price, asked, value) in
            [("25.00", "25.0113", "30.4413"), ("25.0015", "25.0115", "30.0015")]
        {
            let mut of = order();
            of.amount = amount(price);
            of.deposits[0].value = Some(amount(asked));
            assert_eq!(claim(&of, &sent(value)), None, "{value} where {asked} is asked");
        }
    }

    /// Many orders ask for the plain price, so a transfer of exactly that amount is only mentioned.
    #[test]
    fn invariant_16_possible_payments_name_nobody() {
        let mut of = order();
        of.amount = amount("0.001500");
        of.deposits[0].value = Some(of.amount);
        assert_eq!(claim(&of, &sent("0.0015")), Some(Claim::Possible));
        let late = Transfer {
            status: TransferStatus::NoMatchedDeposit,
            reason: Some(UnknownReason::Late),
            candidate_order_id: Some(of.order_id),
            ..sent("0.0015")
        };
        assert_eq!(claim(&of, &late), Some(Claim::Possible));
    }

    #[test]
    fn named_sender_is_shown_with_any_near_amount() {
        let mut of = order();
        of.expecting_wallet_address = Some(sent("1").observation.from_address);
        for (value, expected) in [("20", Some(Claim::Own)), ("25", Some(Claim::Own)), ("60", None)]
        {
            assert_eq!(claim(&of, &sent(value)), expected, "{value}");
        }
        of.expecting_wallet_address = Some(Address::new(AddressFamily::Evm, [9; 20]));
        assert_eq!(claim(&of, &sent("25.00")), None, "of somebody else");
        assert_eq!(claim(&of, &sent("25.006899")), Some(Claim::Own), "who has the digits");
    }

    #[test]
    fn what_is_of_another_order_is_never_shown() {
        let other = Some(OrderId(Uuid::from_u128(1)));
        let unknown = |reason, candidate_order_id| Transfer {
            status: TransferStatus::NoMatchedDeposit,
            reason: Some(reason),
            candidate_order_id,
            ..sent("25.00")
        };
        let of = order();
        for (transfer, expected) in [
            (Transfer { deposit_id: Some(DepositId(8)), ..sent("25.00") }, None),
            (Transfer { deposit_id: Some(DepositId(9)), ..sent("25.00") }, Some(Claim::Own)),
            (Transfer { order_id: other, ..sent("25.00") }, None),
            (unknown(UnknownReason::Late, other), None),
            (unknown(UnknownReason::AmountMismatch, other), Some(Claim::Possible)),
            (unknown(UnknownReason::AmountMismatch, Some(of.order_id)), Some(Claim::Possible)),
            (unknown(UnknownReason::OwnWallet, Some(of.order_id)), None),
            (unknown(UnknownReason::NoDeposit, None), Some(Claim::Possible)),
        ] {
            assert_eq!(claim(&of, &transfer), expected, "{transfer:?}");
        }
    }

    #[test]
    fn other_places_and_what_is_no_money_are_not_shown() {
        let mut elsewhere = sent("25.006899");
        elsewhere.observation.to_address = Address::new(AddressFamily::Evm, [9; 20]);
        let mut own = sent("25.006899");
        own.observation.from_own_wallet = true;
        let failed = Transfer { status: TransferStatus::FailedToConfirm, ..sent("25.006899") };
        let gone = Transfer {
            status: TransferStatus::NoMatchedDeposit,
            orphaned_at: Some(UnixSeconds(1)),
            ..sent("25.006899")
        };
        for transfer in [elsewhere, own, failed, gone] {
            assert_eq!(claim(&order(), &transfer), None, "{transfer:?}");
        }
    }

    #[test]
    fn possible_is_mentioned_until_an_hour_after_the_end() {
        let of = order();
        for (after, expected) in [
            (-61, None),
            (-60, Some(Claim::Possible)),
            (1800 + 3600, Some(Claim::Possible)),
            (1800 + 3601, None),
        ] {
            let mut transfer = sent("25.00");
            transfer.block.timestamp = of.created_at.plus(after);
            assert_eq!(claim(&of, &transfer), expected, "{after} s after the start");
        }
        let paid = Order { status: OrderStatus::Paid, ..of };
        assert_eq!(claim(&paid, &sent("25.00")), None);
        assert_eq!(claim(&paid, &sent("25.006899")), Some(Claim::Own), "paid twice");
    }

    #[test]
    fn wait_ends_a_window_after_the_block() {
        let of = sent("25.00");
        assert_eq!(checked_by(&of, 600), Some(of.block.timestamp.plus(600)));
        let tied = Transfer { deposit_id: Some(DepositId(9)), ..of.clone() };
        let unknown = Transfer { status: TransferStatus::NoMatchedDeposit, ..of };
        assert_eq!((checked_by(&tied, 600), checked_by(&unknown, 600)), (None, None));
    }
}
