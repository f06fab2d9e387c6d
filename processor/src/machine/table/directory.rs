//! Finds rows by their keys.

use std::fmt::Debug;

use hashbrown::HashMap;
use schemas::{DepositId, OrderId, TransferId};

use super::rows::RowNumber;

/// Number of keys of a page: a page with a single key left costs four kilobytes.
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

macro_rules! scattered {
    ($($id:ident)+) => {$(
        impl Key for $id {
            type Directory = HashMap<Self, RowNumber>;
        }

        impl Directory<$id> for HashMap<$id, RowNumber> {
            fn find(&self, key: $id) -> Option<RowNumber> {
                self.get(&key).copied()
            }

            fn insert(&mut self, key: $id, number: RowNumber) {
                Self::insert(self, key, number);
            }

            fn remove(&mut self, key: $id) -> bool {
                Self::remove(self, &key).is_some()
            }
        }
    )+};
}

scattered! { OrderId TransferId }

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
    fn split(id: i64) -> (i64, usize) {
        let at = usize::try_from(id.rem_euclid(PAGE_KEYS)).unwrap_or_default();
        (id.div_euclid(PAGE_KEYS), at)
    }

    fn find(&self, id: i64) -> Option<RowNumber> {
        let (page, at) = Self::split(id);
        self.0.get(&page)?.numbers[at]
    }

    fn insert(&mut self, id: i64, number: RowNumber) {
        let (page, at) = Self::split(id);
        let page = self
            .0
            .entry(page)
            .or_insert_with(|| Page { numbers: vec![None; PAGE_KEYS as usize].into(), count: 0 });
        page.numbers[at] = Some(number);
        page.count += 1;
    }

    fn remove(&mut self, id: i64) -> bool {
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

impl Key for DepositId {
    type Directory = Pages;
}

impl Directory<DepositId> for Pages {
    fn find(&self, key: DepositId) -> Option<RowNumber> {
        self.find(key.0)
    }

    fn insert(&mut self, key: DepositId, number: RowNumber) {
        self.insert(key.0, number);
    }

    fn remove(&mut self, key: DepositId) -> bool {
        self.remove(key.0)
    }
}
