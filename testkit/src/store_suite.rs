//! What every store must do, whatever is below it: the cases, a reference in memory to compare with,
//! and random rows.
//!
//! `tests/back_ends/store_conformance.rs` runs each case on each back end.

#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

mod case;
mod reference;
mod sample;

pub use case::{
    attempts_are_counted_once, concurrent_calls_all_count,
    deposits_show_the_last_scan_of_their_chain, each_filter_gives_its_rows,
    lists_are_those_of_the_reference, lists_go_by_time_across_statuses_and_days,
    newer_versions_win_in_any_order, rows_read_back_exactly, rows_survive_a_restart,
    the_order_of_changes_does_not_matter, write_until_killed,
};
pub use reference::Snapshot;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use store::Store;
use tempfile::TempDir;

/// A store that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send>>;

/// A store to test.
#[derive(Debug, Clone, Copy)]
pub struct BackEnd {
    /// Its name, to tell failures apart.
    pub name: &'static str,
    /// How many random cases to try: where tables take seconds to make, few long ones.
    pub cases: u32,
    /// Opens the tables that belong to a folder, making them if there are none; again, after they were
    /// closed, with what they held.
    pub open: fn(PathBuf) -> Opening,
    /// Makes empty tables for the second folder, perhaps out of those of the first, which nobody
    /// uses any more. Blocks.
    pub renew: fn(&Path, &Path),
    /// Removes what of them is not in the folder. Blocks.
    pub remove: fn(&Path),
}

/// Tables of a back end that belong to a folder of their own, and go with this value.
#[derive(Debug)]
pub struct Tables {
    back_end: BackEnd,
    dir: TempDir,
}

impl Tables {
    /// No tables yet.
    #[must_use]
    pub fn new(back_end: BackEnd) -> Self {
        Self { back_end, dir: tempfile::tempdir().unwrap() }
    }

    /// What keeps them.
    #[must_use]
    pub fn back_end(&self) -> BackEnd {
        self.back_end
    }

    /// Where they are, or what names them.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Opens them.
    pub async fn open(&self) -> Arc<dyn Store> {
        (self.back_end.open)(self.dir.path().to_owned()).await
    }

    /// Empties them. Nobody may have them open.
    pub fn renew(&mut self) {
        let dir = tempfile::tempdir().unwrap();
        (self.back_end.renew)(self.dir.path(), dir.path());
        self.dir = dir;
    }

    /// Other tables of the same back end, empty.
    #[must_use]
    pub fn others(&self) -> Self {
        Self::new(self.back_end)
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        (self.back_end.remove)(self.dir.path());
    }
}
