//! Finds rows by a value in them.

use std::hash::{BuildHasher, Hash};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::rows::RowNumber;

/// Unique index of rows by a hashed value. The value stays in the row, half of its hash is here: a search reads one
/// row, growth reads none.
#[derive(Debug, Clone, Default)]
pub(in crate::machine) struct Lookup {
    rows: HashTable<(u32, RowNumber)>,
    hasher: DefaultHashBuilder,
}

impl Lookup {
    fn hash(&self, of: &impl Hash) -> u32 {
        (self.hasher.hash_one(of) >> 32) as u32
    }

    /// Row with this value, as confirmed by `has` for rows of its hash.
    pub(in crate::machine) fn find(
        &self,
        this: &impl Hash,
        has: impl Fn(RowNumber) -> bool,
    ) -> Option<RowNumber> {
        let hash = self.hash(this);
        let same = |(other, row): &(u32, RowNumber)| *other == hash && has(*row);
        self.rows.find(spread(hash), same).map(|(_, row)| *row)
    }

    /// Adds a row with this value, or returns the row that has it.
    pub(in crate::machine) fn insert(
        &mut self,
        this: &impl Hash,
        row: RowNumber,
        has: impl Fn(RowNumber) -> bool,
    ) -> Result<(), RowNumber> {
        let hash = self.hash(this);
        let same = |(other, row): &(u32, RowNumber)| *other == hash && has(*row);
        match self.rows.entry(spread(hash), same, |(hash, _)| spread(*hash)) {
            Entry::Occupied(entry) => Err(entry.get().1),
            Entry::Vacant(entry) => {
                entry.insert((hash, row));
                Ok(())
            }
        }
    }

    /// Removes a row with this value. False if it is not there.
    pub(in crate::machine) fn remove(&mut self, this: &impl Hash, row: RowNumber) -> bool {
        let same = |(_, other): &(u32, RowNumber)| *other == row;
        let found = self.rows.find_entry(spread(self.hash(this)), same);
        found.map(|entry| entry.remove()).is_ok()
    }
}

/// Widens a hash: the table probes by the low bits and compares the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
