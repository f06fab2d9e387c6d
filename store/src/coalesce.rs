//! Reduction of many changes to those that need writing. Pure.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use schemas::{Blockchain, DepositId, OrderId, TransferId, UnixMicros};

use crate::Change;

/// Identity of a row: changes with the same key are versions of one row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RowKey {
    Order(OrderId),
    Deposit(DepositId),
    Transfer(TransferId),
    Attempt(String, i32, bool),
    Chain(Blockchain, Option<i32>),
}

/// The row of a change and its version clock. Attempts have no versions: the first is the only one.
fn row(change: &Change) -> (RowKey, UnixMicros) {
    match change {
        Change::Order(order) => (RowKey::Order(order.order_id), order.updated_at),
        Change::Deposit(deposit) => (RowKey::Deposit(deposit.deposit_id), deposit.updated_at),
        Change::Transfer(transfer) => (RowKey::Transfer(transfer.transfer_id), transfer.updated_at),
        Change::Attempt(attempt) => {
            let key = RowKey::Attempt(attempt.event_id.clone(), attempt.attempt, attempt.manual);
            (key, UnixMicros(0))
        }
        Change::Chain(chain) => (RowKey::Chain(chain.blockchain, chain.lane), chain.updated_at),
    }
}

/// Keeps the newest change of each row. The tables end as if all had been applied.
#[must_use]
pub fn coalesce(changes: Vec<Change>) -> Vec<Change> {
    let mut newest = Vec::with_capacity(changes.len());
    let mut positions: HashMap<RowKey, (usize, UnixMicros)> = HashMap::with_capacity(changes.len());
    for change in changes {
        let (key, version) = row(&change);
        match positions.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert((newest.len(), version));
                newest.push(change);
            }
            Entry::Occupied(mut entry) => {
                let (position, best) = *entry.get();
                if version > best {
                    newest[position] = change;
                    entry.insert((position, version));
                }
            }
        }
    }
    newest
}

/// The newest version of each row, among more changes than fit into memory: they are given twice,
/// first to [`Newest::note`], then to [`Newest::take`]. Rows are partitioned by hash over several
/// passes, each of which handles only its own.
#[derive(Debug)]
pub struct Newest {
    versions: HashMap<RowKey, UnixMicros>,
    pass: u64,
    passes: u64,
}

impl Newest {
    /// Starts pass `pass` of `passes`, counted from 0.
    #[must_use]
    pub fn new(pass: u64, passes: u64) -> Self {
        Self { versions: HashMap::new(), pass, passes: passes.max(1) }
    }

    /// Notes the version of a change, if its row is of this pass.
    pub fn note(&mut self, change: &Change) {
        if let Some((key, version)) = self.row(change) {
            let newest = self.versions.entry(key).or_insert(version);
            *newest = version.max(*newest);
        }
    }

    /// Returns `true` if a change is the newest one of a row of this pass; once for each row.
    pub fn take(&mut self, change: &Change) -> bool {
        let Some((key, version)) = self.row(change) else { return false };
        match self.versions.entry(key) {
            Entry::Occupied(entry) if *entry.get() == version => {
                entry.remove();
                true
            }
            Entry::Occupied(_) | Entry::Vacant(_) => false,
        }
    }

    /// The row of a change and its version, if the row is of this pass.
    fn row(&self, change: &Change) -> Option<(RowKey, UnixMicros)> {
        let (key, version) = row(change);
        // A hash that is equal in every pass: the map's own hasher has random keys.
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&key);
        (hash % self.passes == self.pass).then_some((key, version))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::sample;

    /// A table as every back end keeps it.
    fn tables(changes: &[Change]) -> BTreeMap<String, Change> {
        let mut rows: BTreeMap<String, Change> = BTreeMap::new();
        for change in changes {
            let (key, version) = row(change);
            let kept = rows.entry(format!("{key:?}")).or_insert_with(|| change.clone());
            if version > row(kept).1 {
                *kept = change.clone();
            }
        }
        rows
    }

    proptest! {
        #[test]
        fn coalesced_changes_make_the_same_tables(changes in sample::changes()) {
            let all = tables(&changes);
            let coalesced = coalesce(changes);
            assert_eq!(tables(&coalesced), all);
            assert_eq!(coalesced.len(), all.len());
        }

        #[test]
        fn each_row_is_taken_with_its_newest_version(
            changes in sample::changes(),
            passes in 1..4_u64,
        ) {
            let mut taken = Vec::new();
            for pass in 0..passes {
                let mut newest = Newest::new(pass, passes);
                changes.iter().for_each(|change| newest.note(change));
                taken.extend(changes.iter().filter(|change| newest.take(change)).cloned());
            }
            assert_eq!(taken.len(), coalesce(changes.clone()).len());
            assert_eq!(tables(&taken), tables(&changes));
        }
    }
}
