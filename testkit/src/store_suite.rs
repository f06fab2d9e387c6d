//! Conformance suite of stores: the cases, a reference in memory to compare with, and random rows.

#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

mod case;
mod kill;
mod prune;
mod reference;
mod replay;
mod sample;

pub use kill::{acknowledged_rows_survive_sigkill, write_until_killed};
pub use replay::{replays_change_nothing, versions_matter};

use tokio::runtime::Runtime;

use crate::tables::{BackEnd, Tables};

pub(crate) type Case = fn(&Tables, &Runtime);

/// Every case, by name.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("lists are those of the reference", case::lists_are_those_of_the_reference),
    ("the order of changes does not matter", case::the_order_of_changes_does_not_matter),
    ("rows read back exactly", |t, r| r.block_on(case::rows_read_back_exactly(t))),
    ("each filter gives its rows", |t, r| r.block_on(case::each_filter_gives_its_rows(t))),
    ("lists go by time across statuses and days", |t, r| {
        r.block_on(case::lists_go_by_time_across_statuses_and_days(t));
    }),
    ("a list continues behind a row", |t, r| {
        r.block_on(case::a_list_continues_behind_a_row(t));
    }),
    ("newer versions win in any order", |t, r| {
        r.block_on(case::newer_versions_win_in_any_order(t))
    }),
    ("attempts are counted once", |t, r| r.block_on(case::attempts_are_counted_once(t))),
    ("attempts are listed by page", |t, r| r.block_on(case::attempts_are_listed_by_page(t))),
    ("deposits show the last scan of their chain", |t, r| {
        r.block_on(case::deposits_show_the_last_scan_of_their_chain(t));
    }),
    ("rows survive a restart", |t, r| r.block_on(case::rows_survive_a_restart(t))),
    ("concurrent calls all count", |t, r| r.block_on(case::concurrent_calls_all_count(t))),
    ("tables know their log", |t, r| r.block_on(case::tables_know_their_log(t))),
    ("what goes is what the reference says", prune::what_goes_is_what_the_reference_says),
    ("what waits stays with all of its own", |t, r| {
        r.block_on(prune::what_waits_stays_with_all_of_its_own(t));
    }),
    ("lists are read while rows go", |t, r| r.block_on(prune::lists_are_read_while_rows_go(t))),
    ("a prune that was cut off is repeated", |t, r| {
        r.block_on(prune::a_prune_that_was_cut_off_is_repeated(t));
    }),
    ("what waited goes when it has ended", |t, r| {
        r.block_on(prune::what_waited_goes_when_it_has_ended(t));
    }),
];

/// Cases whose outcome depends on which replicas respond. The other cases run alike with one replica and with three.
const OF_COPIES: [&str; 8] = [
    "lists are those of the reference",
    "rows read back exactly",
    "newer versions win in any order",
    "attempts are counted once",
    "concurrent calls all count",
    "tables know their log",
    "lists are read while rows go",
    "a prune that was cut off is repeated",
];

/// Runs `OF_COPIES` on several nodes, one case at a time: nodes need seconds to agree on schema changes.
pub fn run_on_copies(back_end: BackEnd) {
    let runtime = Runtime::new().unwrap();
    let of_copies = |(name, _): &&(&str, Case)| OF_COPIES.contains(name);
    let cases: Vec<_> = CASES.iter().filter(of_copies).copied().collect();
    assert_eq!(cases.len(), OF_COPIES.len());
    crate::run_checks(&cases, 1, |case| case(&Tables::new(back_end), &runtime));
}

/// Runs every case on separate tables, some at a time.
pub fn run(back_end: BackEnd, at_a_time: usize) {
    let runtime = Runtime::new().unwrap();
    crate::run_checks(CASES, at_a_time, |case| case(&Tables::new(back_end), &runtime));
}
