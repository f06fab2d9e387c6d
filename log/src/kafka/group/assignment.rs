//! Changes that a rebalance made for a member. Pure.
//!
//! The group revokes everything from all members and then assigns anew. A member that gets a partition
//! back keeps its state if no other member worked on it in between, which the marks of the positions show.

use std::collections::BTreeSet;

use schemas::Partition;

use super::position::Positions;
use crate::TopicPartition;

#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Change {
    /// Partitions that other members own, or worked on in between.
    pub(super) lost: Vec<TopicPartition>,
    /// Newly assigned: their state is to be restored.
    pub(super) gained: Vec<TopicPartition>,
}

/// Change from the positions that a member `held` to those that the broker has `now`. Partitions
/// with the same number share their state, so they change together.
pub(super) fn change(held: &Positions, now: &Positions) -> Change {
    let differs = |of: &TopicPartition| held.get(of) != now.get(of);
    let changed: BTreeSet<Partition> =
        held.keys().chain(now.keys()).filter(|of| differs(of)).map(|of| of.partition).collect();
    let of_changed = |positions: &Positions| {
        positions.keys().filter(|of| changed.contains(&of.partition)).copied().collect()
    };
    Change { lost: of_changed(held), gained: of_changed(now) }
}

/// Returns partitions in `held` that are not `assigned`, and other held ones of the same numbers.
pub(super) fn lost(held: &[TopicPartition], assigned: &[TopicPartition]) -> Vec<TopicPartition> {
    let gone: BTreeSet<Partition> =
        held.iter().filter(|of| !assigned.contains(of)).map(|of| of.partition).collect();
    held.iter().filter(|of| gone.contains(&of.partition)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::group::position::GroupPosition;
    use crate::{Committed, Offset};
    use schemas::Topic;

    const RAW: Topic = Topic::TransfersRaw;
    const COMMANDS: Topic = Topic::DepositsCommands;

    fn of(topic: Topic, partition: u32) -> TopicPartition {
        TopicPartition { topic, partition: Partition(partition) }
    }

    fn position(offset: i64, mark: &str) -> Option<GroupPosition> {
        let committed = Committed { offset: Offset(offset), metadata: String::new() };
        Some(GroupPosition::new(&committed, mark))
    }

    fn both(partitions: &[u32]) -> Positions {
        let pair = |p: &u32| [(of(RAW, *p), position(7, "a")), (of(COMMANDS, *p), None)];
        partitions.iter().flat_map(pair).collect()
    }

    #[test]
    fn the_difference_is_reported() {
        let cases: [[&[u32]; 4]; 5] = [
            // held, now, lost, gained
            [&[], &[0, 1], &[], &[0, 1]],
            [&[0, 1], &[0, 1], &[], &[]],
            [&[0, 1], &[], &[0, 1], &[]],
            [&[0, 1], &[1, 2], &[0], &[2]],
            [&[0], &[1], &[0], &[1]],
        ];
        for [held, now, lost, gained] in cases {
            let sorted = |partitions: &[u32]| both(partitions).into_keys().collect::<Vec<_>>();
            let expected = Change { lost: sorted(lost), gained: sorted(gained) };
            assert_eq!(change(&both(held), &both(now)), expected, "from {held:?} to {now:?}");
        }
    }

    #[test]
    fn lost_partition_takes_others_of_its_number_along() {
        let pair = |partition| [of(RAW, partition), of(COMMANDS, partition)];
        let held = [pair(0), pair(1)].concat();
        assert_eq!(lost(&held, &[pair(1), pair(2)].concat()), pair(0));
        assert_eq!(lost(&held, &[of(RAW, 0), of(RAW, 1), of(COMMANDS, 1)]), pair(0));
        assert_eq!(lost(&held, &held), []);
        assert_eq!(lost(&[], &held), []);
    }

    #[test]
    fn partition_another_worked_on_is_lost_and_gained() {
        let held = both(&[0, 1]);
        for foreign in [position(8, "a"), position(7, "b"), None] {
            let mut now = held.clone();
            now.insert(of(RAW, 1), foreign);
            let pair = vec![of(RAW, 1), of(COMMANDS, 1)];
            assert_eq!(change(&held, &now), Change { lost: pair.clone(), gained: pair });
        }
    }
}
