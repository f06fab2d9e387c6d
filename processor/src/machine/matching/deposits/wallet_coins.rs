//! Interned pairs of wallet and coin of deposits.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use schemas::{Address, AddressFamily, Amount, Stablecoin};

use crate::machine::table::RowNumber;

/// Lowest address: start of a range.
pub(super) const LEAST: Address = Address::new(AddressFamily::Evm, [0; 20]);

/// The number of a wallet and coin, for as long as an amount is reserved there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WalletCoinNumber(u32);

#[derive(Debug, Clone)]
pub(super) struct WalletCoin {
    pub(super) wallet: Address,
    pub(super) stablecoin: Stablecoin,
    /// Deposit that reserves each amount from any sender.
    pub(super) amounts: BTreeMap<Amount, RowNumber>,
    /// Deposit that reserves each amount from one sender.
    pub(super) named: BTreeMap<(Amount, Address), RowNumber>,
}

impl WalletCoin {
    fn is_empty(&self) -> bool {
        self.amounts.is_empty() && self.named.is_empty()
    }

    /// The deposits that reserve an amount from one sender each.
    pub(super) fn named_at(&self, value: Amount) -> impl Iterator<Item = RowNumber> {
        let from = self.named.range((value, LEAST)..);
        from.take_while(move |((amount, _), _)| *amount == value).map(|(_, number)| *number)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct WalletCoins {
    list: Vec<WalletCoin>,
    vacant: Vec<WalletCoinNumber>,
    numbers: HashMap<(Address, Stablecoin), WalletCoinNumber>,
    /// Pairs that the step left without an amount. Its removed rows reference them until it ends.
    emptied: Vec<WalletCoinNumber>,
}

impl WalletCoins {
    pub(super) fn find(&self, wallet: Address, stablecoin: Stablecoin) -> Option<&WalletCoin> {
        self.numbers.get(&(wallet, stablecoin)).map(|number| self.get(*number))
    }

    pub(super) fn get(&self, number: WalletCoinNumber) -> &WalletCoin {
        &self.list[number.0 as usize]
    }

    /// The number of a wallet and coin; none if there are no more numbers.
    pub(super) fn number(
        &mut self,
        wallet: Address,
        stablecoin: Stablecoin,
    ) -> Option<WalletCoinNumber> {
        if let Some(number) = self.numbers.get(&(wallet, stablecoin)) {
            return Some(*number);
        }
        let (amounts, named) = (BTreeMap::new(), BTreeMap::new());
        let new = WalletCoin { wallet, stablecoin, amounts, named };
        let number = match self.vacant.pop() {
            Some(number) => {
                self.list[number.0 as usize] = new;
                number
            }
            None => {
                let number = WalletCoinNumber(u32::try_from(self.list.len()).ok()?);
                self.list.push(new);
                number
            }
        };
        self.numbers.insert((wallet, stablecoin), number);
        Some(number)
    }

    /// Reserves an amount for a deposit, from any sender or from one. False if another deposit has it.
    pub(super) fn reserve(
        &mut self,
        at: WalletCoinNumber,
        value: Amount,
        sender: Option<Address>,
        row: RowNumber,
    ) -> bool {
        let kept = &mut self.list[at.0 as usize];
        match sender {
            None => {
                kept.named_at(value).next().is_none() && kept.amounts.insert(value, row).is_none()
            }
            Some(sender) => {
                !kept.amounts.contains_key(&value)
                    && kept.named.insert((value, sender), row).is_none()
            }
        }
    }

    /// Releases an amount. False if another deposit or none has it.
    pub(super) fn release(
        &mut self,
        at: WalletCoinNumber,
        value: Amount,
        sender: Option<Address>,
        row: RowNumber,
    ) -> bool {
        let kept = &mut self.list[at.0 as usize];
        let removed = match sender {
            None => kept.amounts.remove(&value),
            Some(sender) => kept.named.remove(&(value, sender)),
        };
        if kept.is_empty() {
            self.emptied.push(at);
        }
        removed == Some(row)
    }

    /// Frees the numbers of pairs without an amount at the end of the step: no row has them any more.
    pub(super) fn step_over(&mut self) {
        for number in self.emptied.drain(..) {
            let kept = &self.list[number.0 as usize];
            let (wallet, stablecoin) = (kept.wallet, kept.stablecoin);
            // The pair may have got an amount since, or be in the list twice.
            if kept.is_empty() && self.numbers.remove(&(wallet, stablecoin)).is_some() {
                self.vacant.push(number);
            }
        }
    }
}
