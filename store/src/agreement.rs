//! A row, compared with the newest record of its object.

use std::cmp::Ordering;

use crate::Change;

/// Relation of a row to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    Same,
    Missing,
    /// An earlier version.
    Older,
    /// A later version.
    Newer,
    /// The same version, with another content.
    Other,
}

impl Agreement {
    /// Compares a record with the one of its row.
    #[must_use]
    pub fn of(record: &Change, row: Option<&Change>) -> Self {
        let Some(row) = row else { return Self::Missing };
        match row.written_at().cmp(&record.written_at()) {
            Ordering::Less => Self::Older,
            Ordering::Greater => Self::Newer,
            Ordering::Equal if record == row => Self::Same,
            Ordering::Equal => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::UnixMicros;
    use schemas::record::{Order, example};

    use super::*;

    #[test]
    fn rows_are_compared_by_version_then_content() {
        let order = example::order();
        let at = |micros: i64, amount_text: &str| {
            let updated_at = UnixMicros(order.updated_at.0 + micros);
            Change::Order(Order { updated_at, amount_text: amount_text.into(), ..order.clone() })
        };
        let record = at(0, "1");
        for (row, expected) in [
            (None, Agreement::Missing),
            (Some(at(0, "1")), Agreement::Same),
            (Some(at(0, "2")), Agreement::Other),
            (Some(at(-1, "1")), Agreement::Older),
            (Some(at(1, "1")), Agreement::Newer),
        ] {
            assert_eq!(Agreement::of(&record, row.as_ref()), expected);
        }
    }
}
