//! Words that the page's view and its notices share: amounts, times, transactions.

use schemas::{Amount, Stablecoin, UnixSeconds};

use super::html::{Html, Template};
use super::language::Language;
use crate::machine::seen_transfer::SeenTransfer;

/// Displayed amount, with its coin.
pub(super) fn money(value: Amount, stablecoin: Stablecoin) -> String {
    format!("{value} {stablecoin}")
}

/// Hours and minutes of a time, in UTC.
pub(super) fn time_of_day(time: UnixSeconds) -> String {
    let minutes = time.0.div_euclid(60).rem_euclid(24 * 60);
    format!("{:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// A transaction's hash, and its label.
pub(super) fn tx(language: Language, seen: &SeenTransfer) -> Html {
    let hash = seen.transfer.observation.tx_hash.to_string();
    Template(include_str!("templates/tx.html")).fill(language, &[("hash", hash.into())])
}
