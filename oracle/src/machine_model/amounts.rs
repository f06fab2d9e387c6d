//! The amount that a deposit must get.

use schemas::record::{AmountRule, PaymentRequest};
use schemas::{Address, Amount, CloseReason, UnixSeconds};

use super::shop::{ModelDeposit, ModelOrder, Shop};

/// Seconds for which a closed deposit keeps its amount from other orders, unless its late window is shorter.
const KEPT_SECONDS: i64 = 3600;

/// All raises of a rule, in order. Only for rules of at most 64.
fn additions(rule: &AmountRule) -> Vec<u128> {
    let cent = 10_u128.pow(16);
    let unit = cent / 10_u128.pow(u32::try_from(rule.digits).unwrap() - 2);
    let mut fine: Vec<_> = (1..cent / unit)
        .map(|number| number * unit)
        .filter(|fine| fine % (unit * 10) != 0 && *fine <= rule.limit.parts())
        .collect();
    let mut all = Vec::new();
    if rule.exact_first || fine.is_empty() {
        all.push(0);
    }
    if !fine.is_empty() {
        let first = usize::from(rule.draws.get(0)) % fine.len();
        fine.rotate_left(first);
        all.extend(&fine);
    }
    let finest = (cent - unit).min(rule.limit.parts());
    for cents in 1..=(rule.limit.parts() - finest) / cent {
        match fine.as_slice() {
            [] => all.push(cents * cent),
            fine => all.extend(fine.iter().map(|fine| cents * cent + fine)),
        }
    }
    assert!(all.len() <= 64, "a rule of more amounts than this model knows the order of");
    all
}

impl Shop {
    /// Amount of an order's new deposit at this wallet, and the index of the closed deposit that loses it, if any.
    /// If no amount is free, the deposit that closed first loses its own, a paid one if possible.
    pub(super) fn amount_at(
        &self,
        order: &ModelOrder,
        request: &PaymentRequest,
        wallet: Address,
    ) -> Option<(Address, Amount, Option<usize>)> {
        let mut best: Option<(bool, UnixSeconds, Amount, usize)> = None;
        for added in additions(&request.amounts) {
            let value = Amount::from_parts(order.amount.parts() + added).unwrap();
            let at_value = |d: &ModelDeposit| {
                let place = (d.blockchain, d.wallet, d.stablecoin)
                    == (request.blockchain, wallet, request.stablecoin);
                let other_sender =
                    d.sender.zip(order.sender).is_some_and(|(one, other)| one != other);
                !d.released && place && d.value == value && !other_sender
            };
            let holders: Vec<usize> =
                (0..self.deposits.len()).filter(|i| at_value(&self.deposits[*i])).collect();
            // A new deposit must not claim a waiting payment, which is meant for something else.
            let claimed = self.transfers.iter().any(|t| {
                let same = (t.blockchain, t.payment.to, t.payment.stablecoin, t.payment.value)
                    == (request.blockchain, wallet, request.stablecoin, value);
                let sender = order.sender.is_none_or(|only| only == t.payment.from);
                let is_taken = request.contracts.contains(&t.payment.contract);
                same && is_taken && sender && t.is_waiting() && !t.is_sweep()
            });
            if claimed {
                continue;
            }
            let [holder] = holders.as_slice() else {
                if holders.is_empty() {
                    return Some((wallet, value, None));
                }
                continue;
            };
            let held = &self.deposits[*holder];
            let Some((reason, closed_at)) = held.closed else { continue };
            let mut contracts = held.contracts.iter();
            let pay_still = contracts.all(|of| request.contracts.contains(of));
            if held.order == order.id && reason == CloseReason::Replaced && pay_still {
                return Some((wallet, value, Some(*holder)));
            }
            // A deposit for any sender does not reuse the amount of one for a single sender.
            let is_named = held.sender.is_some() && order.sender.is_none();
            let unpaid = reason != CloseReason::Settled;
            let is_better = best.is_none_or(|(is, at, ..)| (unpaid, closed_at) < (is, at));
            if reason != CloseReason::Replaced
                && closed_at.plus(KEPT_SECONDS) <= self.time_of(request.blockchain)
                && !(held.takes() && self.has_payment_for(held))
                && !is_named
                && is_better
            {
                best = Some((unpaid, closed_at, value, *holder));
            }
        }
        best.map(|(_, _, value, holder)| (wallet, value, Some(holder)))
    }
}
