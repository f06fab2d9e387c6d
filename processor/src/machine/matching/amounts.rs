//! Choice of a deposit's amount.
//!
//! The amount alone identifies the order that a transfer pays. So an amount that a payer may send by mistake (the plain
//! price, or a rounded one) is assigned only where a rule requires it. Every other deposit gets unpredictable digits,
//! if its rule allows digits below a cent, so that nobody can request the amount of a payment seen on the chain.

use schemas::record::{AmountRule, DepositCommand, OpenDeposit};
use schemas::{Address, Amount, CloseReason, Draws};

use super::State;
use super::deposits::{DepositRow, Holder, Price};

/// Maximum number of amounts tried of each kind: with digits alone, and with cents.
const TRIES: u64 = 64;
/// Minimum chain time between a deposit's close and the reuse of its amount by another order. A shorter late window
/// frees the amount earlier.
const REUSE_AFTER_SECONDS: i64 = 3600;
/// One cent, in parts of an [`Amount`] (10^-18).
const CENT: u128 = 10_u128.pow(16);

/// An amount for a deposit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    pub(super) value: Amount,
    /// Deposit that reserved the amount until now.
    pub(super) from: Option<DepositRow>,
}

/// Estimate of the share of amounts in use, from the raised amounts that were tried last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Share {
    pub taken: u32,
    pub tried: u32,
}

impl Share {
    /// Number of tries after which the counts are halved, so that older tries weigh less.
    const TRIED: u32 = 256;

    fn count(&mut self, taken: bool) {
        if self.tried >= Self::TRIED {
            (self.taken, self.tried) = (self.taken / 2, self.tried / 2);
        }
        self.taken += u32::from(taken);
        self.tried += 1;
    }
}

impl State {
    /// Chooses the first amount that no waiting transfer has and that is free or the order's own. If there is none,
    /// reuses that of a deposit closed at least [`REUSE_AFTER_SECONDS`] ago: paid ones first, then the earliest closed.
    pub(super) fn give_amount(
        &mut self,
        command: &DepositCommand,
        open: &OpenDeposit,
    ) -> Option<Given> {
        let mut reused: Option<DepositRow> = None;
        for raise in raises(&open.amounts) {
            let Some(value) = raised(open.value, raise) else { break };
            let price = (command.wallet_address, open.stablecoin, value);
            let holder = self.deposits.holder(price, open.user_address);
            if raise > 0 {
                let share = self.shares.entry(open.stablecoin).or_default();
                share.count(holder != Holder::Nobody);
            }
            if self.waits_for(price, open) {
                continue;
            }
            match holder {
                Holder::Nobody => return Some(Given { value, from: None }),
                Holder::One(row) if self.is_own(&row, command, open) => {
                    return Some(Given { value, from: Some(row) });
                }
                Holder::One(row) if self.may_reuse(&row) => {
                    let age = |row: &DepositRow| {
                        let closed = row.closed.map(|closed| closed.reason);
                        (closed != Some(CloseReason::Settled), row.closed_at())
                    };
                    if reused.is_none_or(|best| age(&row) < age(&best)) {
                        reused = Some(row);
                    }
                }
                Holder::One(_) | Holder::Named => {}
            }
        }
        reused.map(|row| Given { value: row.value, from: Some(row) })
    }

    /// `true` if this deposit would match a waiting transfer that has none. That transfer was sent before the amount
    /// was assigned, so it is meant for something else.
    fn waits_for(&self, price: Price, open: &OpenDeposit) -> bool {
        let sender = |from: Address| open.user_address.is_none_or(|only| only == from);
        let loose = self.transfers.loose(price).into_iter();
        let mut loose = loose.filter_map(|id| self.transfers.get(id));
        loose
            .any(|row| open.contracts.contains(&row.seen.contract) && sender(row.seen.from_address))
    }

    /// `true` if the row is a deposit of the same order whose amount may be taken over: a replaced one without a
    /// waiting transfer, whose contracts the new deposit accepts too; or, if the command is a duplicate, a later one.
    fn is_own(&self, row: &DepositRow, command: &DepositCommand, open: &OpenDeposit) -> bool {
        let pay_still = self.deposits.contracts(row).iter().all(|of| open.contracts.contains(of));
        let gave_back = row.is_replaced() && !self.transfers.holds(row.id) && pay_still;
        row.order == command.order_id && (gave_back || row.slot > command.slot)
    }

    fn may_reuse(&self, row: &DepositRow) -> bool {
        let closed_at = row.closed_at().filter(|_| !self.transfers.holds(row.id));
        let now = self.chain_time();
        closed_at.zip(now).is_some_and(|(at, now)| at.plus(REUSE_AFTER_SECONDS) <= now)
    }
}

fn raised(value: Amount, raise: u128) -> Option<Amount> {
    value.checked_add(Amount::from_parts(raise)?)
}

/// Raises of the order's amount that a rule allows, in the order of tries.
fn raises(rule: &AmountRule) -> impl Iterator<Item = u128> {
    let digits = rule.digits.clamp(2, 6).unsigned_abs();
    let unit = 10_u128.pow(18 - digits);
    let limit = rule.limit.parts();
    let finest = (CENT / unit - 1).min(limit / unit);
    // The last digit is never zero, so that no order has a rounded amount.
    let below = u64::try_from(finest - finest / 10).unwrap_or_default();
    let fine = move |at: u64| u128::from(at / 9 * 10 + at % 9 + 1) * unit;
    let cents = u64::try_from(limit.saturating_sub(finest * unit) / CENT).unwrap_or(u64::MAX);
    let draws = rule.draws;
    let exact = (rule.exact_first || below == 0).then_some(0);
    let tries = below.min(TRIES);
    let digits = (0..tries).map(move |number| fine(drawn(&draws, number, below)));
    // From the least cents upwards, with drawn digits if the rule has any.
    let tries = if below == 0 { cents.min(TRIES) } else { TRIES.min(cents.saturating_mul(below)) };
    let with_cents = (0..tries).map(move |number| {
        let cent = if cents <= tries { number * cents / tries } else { number };
        let digits = if below == 0 { 0 } else { fine(drawn(&draws, number, below)) };
        u128::from(cent + 1) * CENT + digits
    });
    exact.into_iter().chain(digits).chain(with_cents)
}

/// Draws a number below `count`. If `count` is at most [`TRIES`], successive calls draw each number in turn.
fn drawn(draws: &Draws, number: u64, count: u64) -> u64 {
    let round = number / Draws::COUNT as u64;
    let draw = |at: u64| u64::from(draws.get(at as usize));
    let (start, next) = if count <= TRIES { (draw(0), number) } else { (draw(number), round) };
    (start + next) % count
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// No raise exceeds the limit. If the rule has digits below a cent, every raise has them and none ends in zero.
    /// Short lists have no duplicates.
    #[test]
    fn raises_are_within_their_rule() {
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(at * 37 % 251).unwrap();
        }
        let draws = Draws(bytes);
        for digits in 2..=6 {
            for limit in ["0", "0.000001", "0.0005", "0.01", "0.0999", "0.10", "5.00", "9999999"] {
                let limit = Amount::parse(limit).unwrap();
                let rule = AmountRule { exact_first: false, digits, limit, draws };
                let all: Vec<_> = raises(&rule).collect();
                let unit = 10_u128.pow(18 - digits.unsigned_abs());
                let distinct: BTreeSet<_> = all.iter().copied().collect();
                let fine = all.iter().filter(|raise| *raise % CENT > 0).count();
                assert!(all.iter().all(|raise| *raise <= limit.parts()), "{rule:?}: {all:?}");
                assert!(all.iter().all(|raise| raise % unit == 0), "{rule:?}: {all:?}");
                if fine > 0 {
                    assert_eq!(fine, all.len(), "{rule:?}: a plain amount");
                    let is_round = |raise: &u128| (raise / unit).is_multiple_of(10);
                    assert!(!all.iter().any(is_round), "{rule:?}: {all:?}");
                } else {
                    assert_eq!(all[0], 0, "{rule:?}");
                }
                assert!(all.len() <= 2 * 64 + 1, "{rule:?}");
                if all.len() < 64 {
                    assert_eq!(distinct.len(), all.len(), "{rule:?}: {all:?}");
                }
            }
        }
    }
}
