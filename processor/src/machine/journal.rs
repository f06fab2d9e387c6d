//! Rows that remember what they were before the step, so that it can be undone or written down.

use std::collections::BTreeSet;
use std::hash::Hash;

use hashbrown::HashMap;

/// A keyed table with the old values of what the current step touched.
#[derive(Debug, Clone)]
pub(crate) struct Journal<K, V> {
    rows: HashMap<K, V>,
    before: HashMap<K, Option<V>>,
}

impl<K, V> Default for Journal<K, V> {
    fn default() -> Self {
        Self { rows: HashMap::new(), before: HashMap::new() }
    }
}

impl<K: Hash + Eq + Ord + Copy, V: Clone> Journal<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Sets or removes a row and returns what it was. The first change in a step is remembered.
    pub(crate) fn set(&mut self, key: K, value: Option<V>) -> Option<V> {
        let old = match value {
            Some(value) => self.rows.insert(key, value),
            None => self.rows.remove(&key),
        };
        self.before.entry(key).or_insert_with(|| old.clone());
        old
    }

    /// The keys that the step touched, in order, so that outputs do not depend on hashing.
    pub(crate) fn touched(&self) -> Vec<K> {
        let mut keys: Vec<K> = self.before.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// The step is committed: there is no way back.
    pub(crate) fn commit(&mut self) {
        self.before.clear();
    }

    /// The changes that undo the step, for the owner to set in turn before [`Self::commit`]: first all
    /// rows that it touched are gone, then those that were there come back. In between no two rows claim
    /// the same place in an index.
    pub(crate) fn way_back(&mut self) -> Vec<(K, Option<V>)> {
        let before = std::mem::take(&mut self.before);
        let mut changes: Vec<_> = before.keys().map(|key| (*key, None)).collect();
        changes.extend(before.into_iter().filter(|(_, row)| row.is_some()));
        changes
    }

    /// All rows, in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<(&K, &V)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_unstable_by_key(|(key, _)| **key);
        rows
    }
}

/// Moves an index entry that follows from a row, if the row's change moves it.
pub(crate) fn move_entry<T: Ord>(index: &mut BTreeSet<T>, from: Option<T>, to: Option<T>) {
    if from == to {
        return;
    }
    if let Some(from) = from {
        index.remove(&from);
    }
    if let Some(to) = to {
        index.insert(to);
    }
}
