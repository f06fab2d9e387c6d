//! Newest versions on the topics against the rows of the tables.

use crate::sum::Sums;
use crate::{Difference, Join, Joined, Kind};
use schemas::Amount;

/// A row compared with the newest record of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowState {
    Same,
    Missing,
    /// The row has an earlier version.
    Older,
    /// The row has a version that no record has.
    Newer,
    /// The row has the version of the record, but other content.
    Other,
    /// The projector has not read the record yet.
    NotYet,
}

/// Result of the comparison of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `orders` or `transfers`.
    pub table: &'static str,
    /// The row's key.
    pub id: String,
    pub state: RowState,
}

/// Collects the results of rows. `cure` is the command that rebuilds a row in this state.
#[must_use]
pub fn compare_rows(
    rows: impl IntoIterator<Item = Row>,
    cure: impl Fn(RowState) -> &'static str,
) -> Joined {
    let (mut sums, mut joined) = (Sums::default(), Joined::default());
    for Row { table, id, state } in rows {
        let (kind, words) = match state {
            RowState::Same => {
                sums.add(None, table, Amount::ZERO);
                continue;
            }
            RowState::NotYet => {
                joined.waiting = joined.waiting.saturating_add(1);
                continue;
            }
            RowState::Missing => (Kind::RowMissing, "on the topics, not in the tables"),
            RowState::Older => (Kind::RowDiffers, "the row is older than its newest record"),
            RowState::Newer => (Kind::RowDiffers, "the row has a version that no record has"),
            RowState::Other => (Kind::RowDiffers, "the row does not say what its record says"),
        };
        let (what, cure) = (format!("{table} {id}: {words}"), cure(state).to_owned());
        let difference = Difference { join: Join::Tables, kind, blockchain: None, what, cure };
        joined.differences.push(difference);
    }
    Joined { totals: sums.totals(Join::Tables, None), ..joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_the_newest_version() {
        use RowState::{Missing, Newer, NotYet, Older, Other, Same};
        for (state, kind, waiting) in [
            (Same, None, 0),
            (Missing, Some(Kind::RowMissing), 0),
            (Older, Some(Kind::RowDiffers), 0),
            (Newer, Some(Kind::RowDiffers), 0),
            (Other, Some(Kind::RowDiffers), 0),
            (NotYet, None, 1),
        ] {
            let row = Row { table: "orders", id: "A".to_owned(), state };
            let joined = compare_rows([row], |_| "tidemark tables rebuild");
            let found = joined.differences.first().map(|difference| difference.kind);
            assert_eq!((found, joined.waiting), (kind, waiting), "{state:?}");
            assert_eq!(joined.totals.len(), usize::from(state == Same));
        }
    }
}
