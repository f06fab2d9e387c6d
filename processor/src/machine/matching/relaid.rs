//! Entries of lanes that continue from a backup, or that move to another number of lanes. A wallet moves as a whole, so
//! rows that are matched with each other stay in one lane.

use schemas::record::{LaneEntry, MatchingEntry, StopScope};
use schemas::{Address, Incarnation, Partition};

use super::entry::Key;
use super::heads::fresh_lane;

/// The lane's changelog entry after a restore from a backup, with its key. Its sequence skips the ids of deposits and
/// fulfillments that were given after the backup. Ids of transfers are derived from their payments.
#[must_use]
pub fn lane_anew(lane: Option<LaneEntry>, incarnation: Incarnation) -> (String, MatchingEntry) {
    let mut lane = lane.unwrap_or_else(fresh_lane);
    lane.sequence = lane.sequence.max(incarnation.sequence());
    (Key::Lane.to_string(), MatchingEntry::Lane(lane))
}

/// The wallet that an entry is about; none for a lane's own.
#[must_use]
pub fn wallet_of(entry: &MatchingEntry) -> Option<Address> {
    match entry {
        MatchingEntry::Lane(_) => None,
        MatchingEntry::Deposit(deposit) => Some(deposit.wallet_address),
        MatchingEntry::Transfer(transfer) => Some(transfer.to_address),
        MatchingEntry::Watch(watch) => Some(watch.wallet_address),
    }
}

/// The entry, with its key, of a lane that continues these lanes of its chain: their common head, and the stops of all.
/// Its ids have an unused partition, and a sequence that none of them passed.
///
/// # Errors
/// Heads or epochs differ.
pub fn lane_of(
    lanes: &[LaneEntry],
    ids: Partition,
    sequence: i64,
) -> Result<(String, MatchingEntry), String> {
    let mut lane = lanes.first().cloned().unwrap_or_else(fresh_lane);
    for other in lanes {
        if (other.epoch, other.head) != (lane.epoch, lane.head) {
            let height = |lane: &LaneEntry| lane.head.map_or(-1, |head| head.number);
            return Err(format!(
                "one of its lanes is at block {} and another at {}",
                height(&lane),
                height(other)
            ));
        }
        lane.finalized = lane.finalized.max(other.finalized);
        lane.went_back_at = lane.went_back_at.max(other.went_back_at);
        lane.too_far_at = lane.too_far_at.max(other.too_far_at);
        lane.progress_at = lane.progress_at.max(other.progress_at);
        lane.has_gap |= other.has_gap;
        lane.newest = lane.newest.max(other.newest);
        let is_new = |scope: &&StopScope| !lane.stopped.contains(scope);
        let more: Vec<_> = other.stopped.iter().filter(is_new).copied().collect();
        lane.stopped.extend(more);
    }
    // The next head publishes a `ChainProgress` at once: it gives readers the watches of the new lane.
    (lane.progress_time, lane.progress_due) = (None, true);
    lane.sequence = lane.sequence.max(sequence);
    lane.id_partition = Some(ids.0.cast_signed());
    Ok((Key::Lane.to_string(), MatchingEntry::Lane(lane)))
}

#[cfg(test)]
mod tests {
    use schemas::record::example;
    use schemas::{Epoch, UnixMicros};

    use super::*;

    fn lane(number: i64) -> LaneEntry {
        let head = example::chain_head().block;
        LaneEntry {
            epoch: Epoch(2),
            head: Some(schemas::record::Block { number, ..head }),
            sequence: number,
            ..fresh_lane()
        }
    }

    #[test]
    fn lanes_that_are_equally_far_become_one() {
        let stopped = vec![StopScope { blockchain: None, stablecoin: None, address: None }];
        let other = LaneEntry {
            progress_at: Some(UnixMicros(7)),
            has_gap: true,
            stopped: stopped.clone(),
            ..lane(5)
        };
        let (key, entry) = lane_of(&[lane(5), other.clone(), other], Partition(24), 90).unwrap();
        let MatchingEntry::Lane(merged) = entry else { panic!("{key}") };
        assert_eq!((key.as_str(), merged.id_partition, merged.sequence), ("lane", Some(24), 90));
        assert_eq!((merged.progress_at, merged.progress_due), (Some(UnixMicros(7)), true));
        assert_eq!((merged.stopped, merged.has_gap), (stopped, true));
        assert_eq!((merged.epoch, merged.head), (Epoch(2), lane(5).head));
        let refused = lane_of(&[lane(5), lane(6)], Partition(24), 90).unwrap_err();
        assert!(refused.contains("at block 5 and another at 6"), "{refused}");
        let (_, fresh) = lane_of(&[], Partition(25), 90).unwrap();
        let MatchingEntry::Lane(fresh) = fresh else { panic!() };
        assert_eq!((fresh.head, fresh.id_partition), (None, Some(25)));
    }
}
