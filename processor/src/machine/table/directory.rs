//! Finds rows by their keys.

use std::fmt::Debug;
use std::hash::Hash;

use hashbrown::HashMap;
use schemas::{DepositId, OrderId, TransferId};

use super::rows::RowNumber;

/// Number of keys of a page: a page with a single key left costs eight kilobytes.
const PAGE_KEYS: i64 = 1024;

/// Key of rows, with its type of directory.
pub(in crate::machine) trait Key: Copy {
    type Directory: Directory<Self>;
}

pub(in crate::machine) trait Directory<K>: Default + Clone + Debug {
    fn find(&self, key: K) -> Option<RowNumber>;

    /// Adds a key that is not there.
    fn insert(&mut self, key: K, number: RowNumber);

    /// False if the key is not there.
    fn remove(&mut self, key: K) -> bool;
}

impl Key for OrderId {
    type Directory = HashMap<Self, RowNumber>;
}

impl Key for TransferId {
    type Directory = HashMap<Self, RowNumber>;
}

impl<K: Copy + Debug + Eq + Hash> Directory<K> for HashMap<K, RowNumber> {
    fn find(&self, key: K) -> Option<RowNumber> {
        self.get(&key).copied()
    }

    fn insert(&mut self, key: K, number: RowNumber) {
        Self::insert(self, key, number);
    }

    fn remove(&mut self, key: K) -> bool {
        Self::remove(self, &key).is_some()
    }
}

/// Directory of sequential ids in pages, so that neighbours are close in memory. A page is freed with its last key.
#[derive(Debug, Clone, Default)]
pub(in crate::machine) struct Pages(HashMap<i64, Page>);

#[derive(Debug, Clone)]
struct Page {
    numbers: Box<[Option<RowNumber>]>,
    count: u32,
}

impl Pages {
    /// Page of an id, and its index there.
    fn split(DepositId(id): DepositId) -> (i64, usize) {
        let at = usize::try_from(id.rem_euclid(PAGE_KEYS)).unwrap_or_default();
        (id.div_euclid(PAGE_KEYS), at)
    }
}

impl Key for DepositId {
    type Directory = Pages;
}

impl Directory<DepositId> for Pages {
    fn find(&self, id: DepositId) -> Option<RowNumber> {
        let (page, at) = Self::split(id);
        self.0.get(&page)?.numbers[at]
    }

    fn insert(&mut self, id: DepositId, number: RowNumber) {
        let (page, at) = Self::split(id);
        let page = self
            .0
            .entry(page)
            .or_insert_with(|| Page { numbers: vec![None; PAGE_KEYS as usize].into(), count: 0 });
        page.numbers[at] = Some(number);
        page.count += 1;
    }

    fn remove(&mut self, id: DepositId) -> bool {
        let (number, at) = Self::split(id);
        let Some(page) = self.0.get_mut(&number) else { return false };
        let was_there = page.numbers[at].take().is_some();
        page.count -= u32::from(was_there);
        if page.count == 0 {
            self.0.remove(&number);
        }
        was_there
    }
}
