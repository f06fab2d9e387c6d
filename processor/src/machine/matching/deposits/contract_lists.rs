//! Interned lists of the contracts that pay deposits. They are few: a new one appears only with a new configuration.

use hashbrown::HashMap;
use schemas::Address;

/// Number of a list, valid within its machine only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::machine::matching) struct ContractsNumber(u16);

#[derive(Debug, Clone, Default)]
pub(super) struct ContractLists {
    lists: Vec<Box<[Address]>>,
    numbers: HashMap<Box<[Address]>, ContractsNumber>,
}

impl ContractLists {
    /// Contracts of a list; empty for an unknown number.
    pub(super) fn get(&self, number: ContractsNumber) -> &[Address] {
        self.lists.get(usize::from(number.0)).map_or(&[], |list| list)
    }

    /// The number of a list; none if there are no more numbers.
    pub(super) fn number(&mut self, contracts: &[Address]) -> Option<ContractsNumber> {
        if let Some(number) = self.numbers.get(contracts) {
            return Some(*number);
        }
        let number = ContractsNumber(u16::try_from(self.lists.len()).ok()?);
        self.lists.push(contracts.into());
        self.numbers.insert(contracts.into(), number);
        Some(number)
    }
}
