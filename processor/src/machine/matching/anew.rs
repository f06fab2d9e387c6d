//! A lane whose state was restored from a backup.

use schemas::Incarnation;
use schemas::record::{LaneEntry, MatchingEntry};

use super::entry::Key;
use super::heads::fresh_lane;

/// The lane's changelog entry, with its key. Its sequence skips the ids of deposits and fulfillments that were given
/// after the backup. Ids of transfers are derived from their payments.
#[must_use]
pub fn lane_anew(lane: Option<LaneEntry>, incarnation: Incarnation) -> (String, MatchingEntry) {
    let mut lane = lane.unwrap_or_else(fresh_lane);
    lane.sequence = lane.sequence.max(incarnation.sequence());
    (Key::Lane.to_string(), MatchingEntry::Lane(lane))
}
