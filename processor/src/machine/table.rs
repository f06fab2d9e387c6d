//! Rows with indexes, which remember what they were before the step, so that it can be undone or
//! written to the changelog.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::hash::Hash;

use hashbrown::HashMap;

use super::Broken;

/// What follows from the rows of a table.
pub(super) trait Index<K, V>: Default {
    /// What a row is called in the text of a broken invariant.
    const ROW: &'static str;
    /// The invariant that an index breaks when it disagrees with the rows.
    const INVARIANT: u8;

    /// Takes the change of one row. `rows` still has the old one.
    fn update(
        &mut self,
        rows: &HashMap<K, V>,
        key: K,
        old: Option<&V>,
        new: Option<&V>,
    ) -> Result<(), Broken>;
}

/// A keyed table with its indexes and the old values of what the current step touched.
#[derive(Debug, Clone)]
pub(super) struct Table<K, V, I> {
    pub(super) rows: HashMap<K, V>,
    pub(super) index: I,
    before: HashMap<K, Option<V>>,
}

impl<K, V, I: Default> Default for Table<K, V, I> {
    fn default() -> Self {
        Self { rows: HashMap::new(), index: I::default(), before: HashMap::new() }
    }
}

impl<K: Hash + Eq + Ord + Copy + Display, V: Clone, I: Index<K, V>> Table<K, V, I> {
    pub(super) fn get(&self, key: K) -> Option<&V> {
        self.rows.get(&key)
    }

    /// The row that an index or another row names: it must be there.
    pub(super) fn named(&self, key: K) -> Result<&V, Broken> {
        self.rows.get(&key).ok_or_else(|| {
            Broken::new(I::INVARIANT, format!("{} {key} is named, but is not there", I::ROW))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Sets or removes a row. The first change in a step is remembered.
    pub(super) fn set(&mut self, key: K, value: Option<V>) -> Result<(), Broken> {
        self.index.update(&self.rows, key, self.rows.get(&key), value.as_ref())?;
        let old = match value {
            Some(value) => self.rows.insert(key, value),
            None => self.rows.remove(&key),
        };
        self.before.entry(key).or_insert(old);
        Ok(())
    }

    /// The rows that the step touched, or none where they are gone, in the order of their keys, so
    /// that outputs do not depend on hashing.
    pub(super) fn touched(&self) -> impl Iterator<Item = (K, Option<&V>)> {
        let mut keys: Vec<K> = self.before.keys().copied().collect();
        keys.sort_unstable();
        keys.into_iter().map(|key| (key, self.rows.get(&key)))
    }

    /// The step is committed: there is no way back.
    pub(super) fn commit(&mut self) {
        self.before.clear();
    }

    /// Undoes the step: first all rows that it touched go, then those that were there come back. In
    /// between no two rows claim the same entry of an index.
    pub(super) fn undo(&mut self) -> Result<(), Broken> {
        let before = std::mem::take(&mut self.before);
        for key in before.keys() {
            self.set(*key, None)?;
        }
        for (key, row) in before.into_iter().filter(|(_, row)| row.is_some()) {
            self.set(key, row)?;
        }
        self.commit();
        Ok(())
    }

    /// All rows, in the order of their keys.
    pub(super) fn sorted(&self) -> Vec<(K, &V)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(key, row)| (*key, row)).collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        rows
    }
}

/// Moves the entry of an index from one place to another. False if it was not where it should have
/// been, or something else is where it goes.
pub(super) fn moved<T: Ord>(index: &mut BTreeSet<T>, from: Option<T>, to: Option<T>) -> bool {
    from == to
        || (from.is_none_or(|from| index.remove(&from)) && to.is_none_or(|to| index.insert(to)))
}
