//! Likeliest deposit of a transfer that fits none: a hint for people, on which no money depends.

use schemas::{Address, Amount, Likeness};

use super::wallet_coins::{LEAST, WalletCoin};
use super::{DepositRow, Deposits, Price};
use crate::machine::table::RowNumber;

/// Maximum number of amounts compared on each side, for deposits from any sender and again for those from one.
const SCAN_MAX: usize = 4096;

/// Distance of a deposit from a transfer; the most important criterion comes first.
type Rank = (Likeness, u128);

impl Deposits {
    /// The likeliest deposit that passes `is`, and the best rank of a deposit of another order. The rank shows whether
    /// the likeliest is clearly ahead. If a fee was deducted, less arrives than any deposit asked for, so that the one
    /// with the lowest amount is nearest, even if another customer paid.
    pub(in crate::machine::matching) fn likeliest(
        &self,
        (wallet, stablecoin, sent): Price,
        from: Address,
        is: &dyn Fn(&DepositRow) -> bool,
    ) -> Likeliest {
        let mut found = Likeliest::default();
        let Some(at) = self.0.index.wallet_coins.find(wallet, stablecoin) else { return found };
        for (asked, sender, number) in around(at, sent) {
            let likeness = Likeness::of(asked, sent, sender == Some(from));
            let rank = (likeness, asked.parts().abs_diff(sent.parts()));
            if found.second.is_none_or(|second| rank < second)
                && let Some(row) = self.numbered(number).filter(is)
            {
                found.add(rank, row);
            }
        }
        found
    }
}

/// The likeliest deposit, and the best rank of another order.
#[derive(Debug, Default)]
pub(in crate::machine::matching) struct Likeliest {
    first: Option<(Rank, DepositRow)>,
    second: Option<Rank>,
}

impl Likeliest {
    fn add(&mut self, rank: Rank, row: DepositRow) {
        match self.first {
            Some((first, of)) if of.order == row.order => {
                if rank < first {
                    self.first = Some((rank, row));
                }
            }
            Some((first, _)) if first <= rank => self.second = Some(rank),
            _ => {
                self.second = self.first.map(|(first, _)| first);
                self.first = Some((rank, row));
            }
        }
    }

    /// The likeliest, even if not clearly.
    pub(in crate::machine::matching) fn first(&self) -> Option<&DepositRow> {
        self.first.as_ref().map(|(_, row)| row)
    }

    /// The likeliest, if it clearly is: there is no second, its likeness is better than the second's, or, unless it is
    /// a rounded amount, its distance is less than half of the second's.
    pub(in crate::machine::matching) fn clear(self) -> Option<DepositRow> {
        let ((likeness, distance), row) = self.first?;
        let is_clear = self.second.is_none_or(|(second, other)| {
            likeness < second || (likeness != Likeness::Rounded && distance < other / 2)
        });
        is_clear.then_some(row)
    }
}

/// The nearest reserved amounts below and above a value, with their senders.
fn around(
    at: &WalletCoin,
    value: Amount,
) -> impl Iterator<Item = (Amount, Option<Address>, RowNumber)> {
    let of_any = |(asked, number): (&Amount, &RowNumber)| (*asked, None, *number);
    let of_one = |((asked, sender), number): (&(Amount, Address), &RowNumber)| {
        (*asked, Some(*sender), *number)
    };
    let least = (value, LEAST);
    let below = at.amounts.range(..value).rev().take(SCAN_MAX).map(of_any);
    let above = at.amounts.range(value..).take(SCAN_MAX).map(of_any);
    let named_below = at.named.range(..least).rev().take(SCAN_MAX).map(of_one);
    let named_above = at.named.range(least..).take(SCAN_MAX).map(of_one);
    below.chain(above).chain(named_below).chain(named_above)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use schemas::{DepositId, OrderId, Stablecoin, UnixMicros, UnixSeconds};

    use super::*;
    use crate::machine::matching::deposits::Opening;

    const DEPOSITS: usize = 6 * SCAN_MAX;

    fn amount(number: usize) -> Amount {
        Amount::from_parts(number as u128).unwrap()
    }

    /// One deposit for each amount up to a limit, alternately from any sender and from one.
    fn deposits() -> Deposits {
        let mut deposits = Deposits::default();
        let contracts = deposits.contracts_number(&[]).unwrap();
        for number in 0..DEPOSITS {
            let row = DepositRow {
                id: DepositId(number as i64),
                order: OrderId(uuid::Uuid::nil()),
                slot: i32::try_from(number).unwrap(),
                stablecoin: Stablecoin::Usdc,
                contracts,
                wallet: LEAST,
                user_address: (number % 2 == 1).then_some(LEAST),
                value: amount(number),
                started_at: UnixSeconds(0),
                expires_at: UnixSeconds(900),
                updated_at: UnixMicros(0),
                opening: Opening { above: 0, position: 0 },
                late_window_seconds: 0,
                accepts_late: false,
                closed: None,
            };
            deposits.put(row).unwrap();
        }
        deposits
    }

    /// The number of comparisons is bounded, however many amounts are reserved at a wallet.
    #[test]
    fn only_the_nearest_amounts_are_compared() {
        let (deposits, middle) = (deposits(), DEPOSITS / 2);
        let compared = RefCell::new(Vec::new());
        let price = (LEAST, Stablecoin::Usdc, amount(middle));
        let found = deposits.likeliest(price, LEAST, &|row| {
            compared.borrow_mut().push(row.value);
            false
        });
        assert!(found.first().is_none());
        let mut compared = compared.into_inner();
        compared.sort_unstable();
        let nearest = (middle - 2 * SCAN_MAX..middle + 2 * SCAN_MAX).map(amount);
        assert!(compared.into_iter().eq(nearest), "of both kinds, on both sides");
    }
}
