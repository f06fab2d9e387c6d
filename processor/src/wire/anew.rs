//! Changelog entries that keep a restored installation from reusing ids. They are written while no processor runs.

use log::NewRecord;
use schemas::record::{MatchingEntry, OrdersEntry};
use schemas::{CodecError, Incarnation, Partition, Topic};

use crate::machine::matching::{LANE_KEY, lane_anew};

/// `true` if this is the key of a lane's own entry.
#[must_use]
pub fn is_lane(key: &[u8]) -> bool {
    key == LANE_KEY.as_bytes()
}

/// The entry of a lane, made by [`lane_anew`]. `newest` is the value of its last entry.
///
/// # Errors
/// [`CodecError`] if `newest` cannot be read.
pub fn lane(
    partition: Partition,
    newest: Option<&[u8]>,
    incarnation: Incarnation,
) -> Result<NewRecord, CodecError> {
    let lane = match newest.map(schemas::decode).transpose()? {
        Some(MatchingEntry::Lane(lane)) => Some(lane),
        _ => None,
    };
    let (key, entry) = lane_anew(lane, incarnation);
    NewRecord::encode(Topic::MatchingChangelog, partition, key, &entry)
}

/// The entry of an order, with a version of at least the incarnation: no version given after the backup is reused, nor
/// the id of a webhook derived from it. `newest` is the value of its last entry.
///
/// # Errors
/// [`CodecError`] if `newest` cannot be read.
pub fn order(
    partition: Partition,
    key: &[u8],
    newest: &[u8],
    incarnation: Incarnation,
) -> Result<NewRecord, CodecError> {
    let mut entry: OrdersEntry = schemas::decode(newest)?;
    entry.order.version = entry.order.version.max(incarnation.0);
    NewRecord::encode(Topic::OrdersChangelog, partition, key, &entry)
}
