//! Rows with indexes, and a journal of the step's old values, from which it is undone or written to
//! the changelog.

mod directory;
mod lookup;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::Broken;
use directory::{Directory, Key};
pub(super) use lookup::Lookup;
pub(super) use rows::{Row, RowNumber, Rows};

/// Data derived from the rows of a table.
pub(super) trait Index<V: Row>: Default {
    /// Name of a row in the text of a broken invariant.
    const ROW: &'static str;
    /// The invariant that an index breaks when it disagrees with the rows.
    const INVARIANT: u8;

    /// Applies the change of one row. `rows` still has the old row.
    fn update(
        &mut self,
        rows: &Rows<V>,
        number: RowNumber,
        old: Option<&V>,
        new: Option<&V>,
    ) -> Result<(), Broken>;

    /// Ends the step: drops what was kept to undo it.
    fn step_over(&mut self) {}
}

/// A keyed table with its indexes and the old values of what the current step touched.
#[derive(Debug, Clone)]
pub(super) struct Table<V: Row<Key: Key>, I> {
    pub(super) rows: Rows<V>,
    pub(super) index: I,
    directory: <V::Key as Key>::Directory,
    /// Rows that the step removed: they keep their numbers until the step is over.
    removed: Vec<(V::Key, RowNumber)>,
}

impl<V: Row<Key: Key>, I: Default> Default for Table<V, I> {
    fn default() -> Self {
        let (index, directory) = (I::default(), Default::default());
        Self { rows: Rows::default(), index, directory, removed: Vec::new() }
    }
}

impl<V: Row<Key: Key>, I: Index<V>> Table<V, I> {
    pub(super) fn get(&self, key: V::Key) -> Option<&V> {
        self.rows.get(self.directory.find(key)?)
    }

    /// The row that an index or another row names; an error if it does not exist.
    pub(super) fn named(&self, key: V::Key) -> Result<&V, Broken> {
        self.get(key).ok_or_else(|| {
            Broken::new(I::INVARIANT, format!("{} {key} is named, but is not there", I::ROW))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.rows.count()
    }

    /// Adds a row or replaces it.
    pub(super) fn put(&mut self, row: V) -> Result<(), Broken> {
        let key = row.key();
        let number = match self.directory.find(key) {
            Some(number) => number,
            None => self.number(key)?,
        };
        self.index.update(&self.rows, number, self.rows.get(number), Some(&row))?;
        self.rows.set(key, number, Some(row));
        Ok(())
    }

    fn number(&mut self, key: V::Key) -> Result<RowNumber, Broken> {
        let number = self.rows.give_number().ok_or_else(|| {
            Broken::new(I::INVARIANT, format!("{} {key} is one too many to be numbered", I::ROW))
        })?;
        self.directory.insert(key, number);
        Ok(number)
    }

    /// Removes a row, if it is there.
    pub(super) fn remove(&mut self, key: V::Key) -> Result<(), Broken> {
        let Some(number) = self.directory.find(key) else { return Ok(()) };
        self.index.update(&self.rows, number, self.rows.get(number), None)?;
        self.rows.set(key, number, None);
        self.removed.push((key, number));
        Ok(())
    }

    /// Rows that the step touched, or none if removed, in the order of their keys, so that outputs
    /// do not depend on hashing.
    pub(super) fn touched(&self) -> impl Iterator<Item = (V::Key, Option<&V>)> {
        let journal = self.rows.journal().iter();
        let mut touched: Vec<_> = journal.map(|before| (before.key, before.number)).collect();
        touched.sort_unstable_by_key(|(key, _)| *key);
        touched.into_iter().map(|(key, number)| (key, self.rows.get(number)))
    }

    /// Ends the step as committed: it can be undone no more.
    pub(super) fn commit(&mut self) {
        self.rows.forget();
        self.step_over();
    }

    /// Undoes the step: removes all rows that it touched, then restores the old ones, so that no
    /// two rows claim the same entry of an index.
    pub(super) fn undo(&mut self) -> Result<(), Broken> {
        let journal = self.rows.take_journal();
        for before in &journal {
            self.index.update(&self.rows, before.number, self.rows.get(before.number), None)?;
            self.rows.set(before.key, before.number, None);
        }
        for before in journal {
            let (key, number) = (before.key, before.number);
            match before.row {
                Some(_) => self.index.update(&self.rows, number, None, before.row.as_ref())?,
                None => self.removed.push((key, number)),
            }
            self.rows.set(key, number, before.row);
        }
        self.commit();
        Ok(())
    }

    fn step_over(&mut self) {
        for (key, number) in self.removed.drain(..) {
            // The row may have been added again since, or be in the list twice.
            if self.rows.get(number).is_none() && self.directory.remove(key) {
                self.rows.take_number(number);
            }
        }
        self.index.step_over();
    }

    /// All rows, in the order of their keys.
    pub(super) fn sorted(&self) -> Vec<&V> {
        self.filtered(|_| true)
    }

    /// Rows that pass a test, in the order of their keys.
    pub(super) fn filtered(&self, is: impl Fn(&V) -> bool) -> Vec<&V> {
        let mut rows: Vec<_> = self.rows.iter().filter(|row| is(row)).collect();
        rows.sort_unstable_by_key(|row| row.key());
        rows
    }
}

/// Moves an index entry, if it changed. False if the old entry is missing or the new one is taken.
pub(super) fn moved<T: Ord>(index: &mut BTreeSet<T>, from: Option<T>, to: Option<T>) -> bool {
    from == to
        || (from.is_none_or(|from| index.remove(&from)) && to.is_none_or(|to| index.insert(to)))
}
