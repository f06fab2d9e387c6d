//! The rows of a table in one list, with the old values of what the current step touched.

use std::fmt::{Debug, Display};

/// Row of a table.
pub(in crate::machine) trait Row: Clone {
    type Key: Copy + Ord + Debug + Display;

    fn key(&self) -> Self::Key;
}

/// Number of a row in its table, until it is removed. Indexes hold it instead of the key: it is at most half as long,
/// and needs no search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::machine) struct RowNumber(u32);

impl RowNumber {
    fn at(self) -> usize {
        self.0 as usize
    }
}

/// Rows of a table. Numbers of removed rows are reused.
#[derive(Debug, Clone)]
pub(in crate::machine) struct Rows<V: Row> {
    list: Vec<Numbered<V>>,
    vacant: Vec<RowNumber>,
    count: usize,
    journal: Vec<Before<V>>,
}

#[derive(Debug, Clone)]
struct Numbered<V> {
    row: Option<V>,
    /// Index of its previous value in the journal, if the entry there has this number.
    touched: u32,
}

/// State of a row before the step.
#[derive(Debug, Clone)]
pub(super) struct Before<V: Row> {
    pub(super) key: V::Key,
    pub(super) number: RowNumber,
    pub(super) row: Option<V>,
}

impl<V: Row> Default for Rows<V> {
    fn default() -> Self {
        Self { list: Vec::new(), vacant: Vec::new(), count: 0, journal: Vec::new() }
    }
}

impl<V: Row> Rows<V> {
    pub(in crate::machine) fn get(&self, number: RowNumber) -> Option<&V> {
        self.list[number.at()].row.as_ref()
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        self.list.iter().filter_map(|numbered| numbered.row.as_ref())
    }

    /// A number without a row; none if there are no more numbers.
    pub(super) fn give_number(&mut self) -> Option<RowNumber> {
        if let Some(number) = self.vacant.pop() {
            return Some(number);
        }
        let number = RowNumber(u32::try_from(self.list.len()).ok()?);
        self.list.push(Numbered { row: None, touched: 0 });
        Some(number)
    }

    /// Releases a number without a row.
    pub(super) fn take_number(&mut self, number: RowNumber) {
        self.vacant.push(number);
    }

    /// Sets or removes a row. Its value before the step is journaled.
    pub(super) fn set(&mut self, key: V::Key, number: RowNumber, row: Option<V>) {
        let next = u32::try_from(self.journal.len()).unwrap_or(u32::MAX);
        let numbered = &mut self.list[number.at()];
        self.count += usize::from(row.is_some());
        self.count -= usize::from(numbered.row.is_some());
        let old = std::mem::replace(&mut numbered.row, row);
        let known = self.journal.get(numbered.touched as usize);
        if known.is_none_or(|before| before.number != number) {
            numbered.touched = next;
            self.journal.push(Before { key, number, row: old });
        }
    }

    pub(super) fn journal(&self) -> &[Before<V>] {
        &self.journal
    }

    /// Empties the journal: the step is final.
    pub(super) fn forget(&mut self) {
        self.journal.clear();
    }

    /// Takes the journal for an undo.
    pub(super) fn take_journal(&mut self) -> Vec<Before<V>> {
        std::mem::take(&mut self.journal)
    }
}
