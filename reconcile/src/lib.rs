//! Compares the records of a period in all places: on the chains, on the topics, in the tables, in webhooks, in the
//! shop's books.
//!
//! Each join takes two lists of plain data and gives totals, differences, and the number of items that cannot be judged
//! yet. A difference names the places, the missing part, and the command that mends it.
//!
//! Deliberately not here: where the lists come from, and how a report is printed.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod books;
mod chain;
mod difference;
mod orders;
mod period;
mod statement;
mod sum;
mod tables;
#[cfg(test)]
mod tests;
mod verdicts;
mod webhooks;

pub use books::{Book, BooksError, compare_books, read_books};
pub use chain::{Inclusion, compare_chain};
pub use difference::{Difference, Join, Kind};
pub use orders::compare_orders;
pub use period::{Period, rfc3339};
pub use statement::{Line, Statement};
pub use sum::{Joined, Sum, Total};
pub use tables::{Row, RowState, compare_rows};
pub use verdicts::compare_verdicts;
pub use webhooks::{Announced, Deliveries, Event, compare_webhooks};
