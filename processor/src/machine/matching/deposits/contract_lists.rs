//! The lists of contracts that pay deposits, each written down once: there are as many as configurations.

use hashbrown::HashMap;
use schemas::Address;

/// The number of a list. It names nothing outside of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::machine::matching) struct ContractsNumber(u16);

#[derive(Debug, Clone, Default)]
pub(super) struct ContractLists {
    lists: Vec<Box<[Address]>>,
    numbers: HashMap<Box<[Address]>, ContractsNumber>,
}

impl ContractLists {
    /// The contracts of a number; none of one that was never given.
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
