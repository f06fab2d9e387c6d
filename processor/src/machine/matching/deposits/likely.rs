//! The deposit that a transfer was meant for which fits none: a hint for people, on which no money depends.

use schemas::{Address, Amount, Likeness};

use super::wallet_coins::{LEAST, WalletCoin};
use super::{DepositRow, Deposits, Price};
use crate::machine::table::RowNumber;

/// How many amounts on each side are compared.
const SCAN_MAX: usize = 4096;

/// How far a deposit is from a transfer: what counts most comes first.
type Rank = (Likeness, u128);

impl Deposits {
    /// The deposit of this kind that is clearly likelier than those of all other orders; none if none is. A fee makes the
    /// lowest amount the nearest, also where another customer paid.
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

/// The likeliest deposit, and how likely that of another order is.
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

    /// The likeliest, also where it is not clearly so.
    pub(in crate::machine::matching) fn first(&self) -> Option<&DepositRow> {
        self.first.as_ref().map(|(_, row)| row)
    }

    /// The first, if it says more than the second, or is less than half as far.
    pub(in crate::machine::matching) fn clear(self) -> Option<DepositRow> {
        let ((likeness, distance), row) = self.first?;
        let is_clear = self.second.is_none_or(|(second, other)| {
            likeness < second || (likeness != Likeness::Rounded && distance < other / 2)
        });
        is_clear.then_some(row)
    }
}

/// The amounts around one, with their senders.
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
