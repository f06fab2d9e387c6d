//! Compares the records of a period in all places: on the chains, on the topics, in the tables, in webhooks, in the
//! shop's books.
//!
//! Each join takes two lists of plain data and gives totals, differences, and the number of items that cannot be judged
//! yet. A difference names the places, the missing part, and the command that mends it.
//!
//! Deliberately not here: where the lists come from, and how a report is printed.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod difference;
mod join;
mod period;
mod statement;
mod sum;
#[cfg(test)]
mod tests;

pub use difference::{Difference, Join, Kind};
pub use join::books::{Book, BooksError, compare_books, read_books};
pub use join::chain::{Inclusion, compare_chain};
pub use join::orders::compare_orders;
pub use join::tables::{Row, RowState, compare_rows};
pub use join::verdicts::compare_verdicts;
pub use join::webhooks::{Announced, Deliveries, Event, compare_webhooks};
pub use period::{Period, PeriodError, rfc3339};
pub use statement::{Line, Statement};
pub use sum::{Joined, Sum, Total};
