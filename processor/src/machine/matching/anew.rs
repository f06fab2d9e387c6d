//! A lane whose state is that of an earlier moment: its installation was restored from a backup.

use schemas::Incarnation;
use schemas::record::{LaneEntry, MatchingEntry};

use super::entry::Key;
use super::heads::fresh_lane;

/// The lane's entry in the changelog, with its key, so that no id of a deposit or a fulfillment is given twice that it
/// gave after that moment. Ids of transfers follow from their payments.
#[must_use]
pub fn lane_anew(lane: Option<LaneEntry>, incarnation: Incarnation) -> (String, MatchingEntry) {
    let mut lane = lane.unwrap_or_else(fresh_lane);
    lane.sequence = lane.sequence.max(incarnation.sequence());
    (Key::Lane.to_string(), MatchingEntry::Lane(lane))
}
