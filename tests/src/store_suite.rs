//! What every store must do, whatever is below it: the cases, a reference in memory to compare with,
//! and random rows.
//!
//! `tests/store_conformance.rs` runs each case on each back end.

#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

mod case;
mod reference;
mod sample;

pub use case::{
    attempts_are_counted_once, concurrent_calls_all_count,
    deposits_show_the_last_scan_of_their_chain, each_filter_gives_its_rows,
    lists_are_those_of_the_reference, newer_versions_win_in_any_order, rows_read_back_exactly,
    rows_survive_a_restart, the_order_of_changes_does_not_matter, write_until_killed,
};
pub use reference::Snapshot;

use std::path::Path;
use std::sync::Arc;

use store::Store;
use tempfile::TempDir;

/// A store to test.
#[derive(Debug, Clone, Copy)]
pub struct BackEnd {
    /// Its name, to tell failures apart.
    pub name: &'static str,
    /// Opens the tables in a folder; again, after they were closed, with what they held.
    pub open: fn(&Path) -> Arc<dyn Store>,
}

/// Tables of a back end in a folder of their own, which goes with this value.
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

    /// Where they are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Opens them.
    #[must_use]
    pub fn open(&self) -> Arc<dyn Store> {
        (self.back_end.open)(self.dir.path())
    }

    /// Other tables of the same back end, empty.
    #[must_use]
    pub fn others(&self) -> Self {
        Self::new(self.back_end)
    }
}
