//! Which of many changes need writing. Pure.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use schemas::{Blockchain, DepositId, OrderId, TransferId, UnixMicros};

use crate::Change;

/// What makes two changes changes of one row.
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

/// Of the changes of each row, the newest. The tables end as if all had been applied.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::test_runner::{Config, TestRunner};

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

    #[test]
    fn coalesced_changes_make_the_same_tables_with_one_change_for_each_row() {
        let config = Config { source_file: Some(file!()), ..Config::default() };
        let result = TestRunner::new(config).run(&sample::changes(), |changes| {
            let all = tables(&changes);
            let coalesced = coalesce(changes);
            assert_eq!(tables(&coalesced), all);
            assert_eq!(coalesced.len(), all.len());
            Ok(())
        });
        result.unwrap();
    }
}
