//! The pairs of wallet and coin that deposits wait at, each written down once.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use schemas::{Address, Amount, Stablecoin};

use crate::machine::table::RowNumber;

/// The number of a wallet and coin, for as long as an amount is reserved there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WalletCoinNumber(u32);

#[derive(Debug, Clone)]
pub(super) struct WalletCoin {
    pub(super) wallet: Address,
    pub(super) stablecoin: Stablecoin,
    /// Which deposit reserves which amount: only to find the nearest. Changed where one is reserved or
    /// released, not where one is paid.
    pub(super) amounts: BTreeMap<Amount, RowNumber>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct WalletCoins {
    list: Vec<WalletCoin>,
    vacant: Vec<WalletCoinNumber>,
    numbers: HashMap<(Address, Stablecoin), WalletCoinNumber>,
    /// Those that the step left without an amount. Rows that it removed name them until it is over.
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
        let new = WalletCoin { wallet, stablecoin, amounts: BTreeMap::new() };
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

    /// Reserves an amount for a deposit.
    pub(super) fn reserve(&mut self, at: WalletCoinNumber, value: Amount, row: RowNumber) {
        self.list[at.0 as usize].amounts.insert(value, row);
    }

    /// Releases an amount. False if another deposit or none has it.
    pub(super) fn release(&mut self, at: WalletCoinNumber, value: Amount, row: RowNumber) -> bool {
        let amounts = &mut self.list[at.0 as usize].amounts;
        let was_there = amounts.remove(&value) == Some(row);
        if amounts.is_empty() {
            self.emptied.push(at);
        }
        was_there
    }

    /// Lets go of those without an amount: no row names them any more.
    pub(super) fn step_over(&mut self) {
        for number in self.emptied.drain(..) {
            let WalletCoin { wallet, stablecoin, ref amounts } = self.list[number.0 as usize];
            // An amount may have come since, or it may be here twice.
            if amounts.is_empty() && self.numbers.remove(&(wallet, stablecoin)).is_some() {
                self.vacant.push(number);
            }
        }
    }
}
