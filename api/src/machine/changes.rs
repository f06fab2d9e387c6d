//! Changes of orders that a shop can read, and a reader's cursor.

use log::{Bounds, Offset};
use schemas::record::Order;
use schemas::{Incarnation, OrderCause, UnixSeconds};

use super::query::number;
use crate::error::Invalid;

/// Problem of a cursor that is of another installation, or from before a restore.
const OTHER: &str = "is not of this installation";

/// Position of a reader: the next record of each partition of `orders`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position(pub(crate) Vec<Offset>);

/// Start position of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the oldest retained change.
    Oldest,
    /// At about this time.
    Since(UnixSeconds),
    After(Position),
}

impl Position {
    /// Parses a result of [`Position::text`]. Refuses one for another number of partitions or another copy of the log:
    /// after a restore, the same offsets name other records.
    pub(crate) fn parse(text: &str, partitions: usize, of: Incarnation) -> Result<Self, Invalid> {
        let (incarnation, text) = text.split_once('-').unwrap_or(("0", text));
        let offsets: Option<Vec<_>> =
            text.split('.').map(|part| number(part).map(Offset)).collect();
        let offsets = offsets.filter(|offsets| offsets.len() == partitions);
        let foreign = || Invalid::new("cursor", "must be the cursor of an earlier answer");
        let position = offsets.map(Self).ok_or_else(foreign)?;
        if incarnation.parse::<i64>().map_err(|_| foreign())? != of.0 {
            return Err(Invalid::new("cursor", OTHER));
        }
        Ok(position)
    }

    pub(crate) fn text(&self, of: Incarnation) -> String {
        let offsets = self.0.iter().map(Offset::to_string).collect::<Vec<_>>().join(".");
        if of == Incarnation::default() { offsets } else { format!("{}-{offsets}", of.0) }
    }

    /// Checks that no record after the position is missing.
    ///
    /// # Errors
    /// Records after it were removed, or it is past the end.
    pub(crate) fn check(&self, bounds: &[Bounds]) -> Result<(), Invalid> {
        let problem = |(from, bounds): (&Offset, &Bounds)| {
            if *from > bounds.end {
                Some(OTHER)
            } else if *from < bounds.start {
                Some("is older than what is kept; list the orders anew, or give since")
            } else {
                None
            }
        };
        match self.0.iter().zip(bounds).find_map(problem) {
            Some(problem) => Err(Invalid::new("cursor", problem)),
            None => Ok(()),
        }
    }
}

/// `true` if a record is a change: the order was created, or its status changed.
pub(crate) fn is_change(order: &Order) -> bool {
    order.cause == OrderCause::Created || order.status_changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_as_it_was_written() {
        let position = Position(vec![Offset(12), Offset(0), Offset(7)]);
        let (none, restored) = (Incarnation::default(), Incarnation(1_790_000_000));
        assert_eq!(position.text(none), "12.0.7");
        assert_eq!(Position::parse("12.0.7", 3, none).as_ref(), Ok(&position));
        assert_eq!(position.text(restored), "1790000000-12.0.7");
        assert_eq!(Position::parse("1790000000-12.0.7", 3, restored), Ok(position));
        for (text, of) in [("12.0.7", restored), ("1790000000-12.0.7", none)] {
            let other = Position::parse(text, 3, of).unwrap_err().to_string();
            assert_eq!(other, format!("cursor: {OTHER}"));
        }
        for text in ["", "12", "12.0", "12.0.7.", "12.0.7.1", "a.0.7", "-1.0.7", "1.0.+7", "1..7"] {
            let invalid = Position::parse(text, 3, none).unwrap_err();
            assert_eq!(
                invalid.to_string(),
                "cursor: must be the cursor of an earlier answer",
                "{text}"
            );
        }
    }

    #[test]
    fn nothing_may_be_missing_behind_a_position() {
        let bounds = Bounds { start: Offset(5), end: Offset(9) };
        let check = |offset| Position(vec![Offset(9), Offset(offset)]).check(&[bounds, bounds]);
        assert_eq!((check(5), check(9)), (Ok(()), Ok(())));
        assert!(check(4).unwrap_err().to_string().starts_with("cursor: is older"));
        assert!(check(10).unwrap_err().to_string().starts_with("cursor: is not of"));
    }
}
