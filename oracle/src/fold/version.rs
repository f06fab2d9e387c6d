//! How far a row of a changelog is in its history.

use schemas::Topic;
use schemas::record::MatchingEntry;

/// How far a row is. A lane has two counts, each of which only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// By its head and by the ids that it gave.
    Lane([i64; 2]),
    /// By its version clock, and whether it asks an order.
    Row(i64, bool),
    /// It is gone.
    Gone,
}

impl Version {
    pub(super) fn of(changelog: Topic, value: Option<&[u8]>) -> Self {
        if changelog != Topic::MatchingChangelog {
            // Its inputs are in one order: there is nothing to find out.
            return value.map_or(Self::Gone, |_| Self::Lane([0, 0]));
        }
        let Some(Ok(entry)) = value.map(schemas::decode) else { return Self::Gone };
        match entry {
            MatchingEntry::Lane(lane) => {
                let number = lane.head.map_or(-1, |head| head.number);
                Self::Lane([(lane.epoch.0 << 40) + number, lane.sequence])
            }
            MatchingEntry::Deposit(entry) => Self::Row(entry.deposit.updated_at.0, false),
            MatchingEntry::Transfer(entry) => {
                Self::Row(entry.transfer.updated_at.0, entry.settling)
            }
        }
    }

    /// Whether a row in this version may become one in that version.
    pub(super) fn is_up_to(&self, that: &Self) -> bool {
        match (self, that) {
            (Self::Lane(these), Self::Lane(those)) => {
                these.iter().zip(those).all(|(this, that)| this <= that)
            }
            (Self::Row(clock, asks), Self::Row(later, asks_later)) => {
                (clock, asks) <= (later, asks_later)
            }
            (_, Self::Gone) => true,
            _ => false,
        }
    }

    /// Whether there is one value of this version.
    pub(super) fn is_whole(&self) -> bool {
        !matches!(self, Self::Lane(_))
    }
}
