//! What a rebalance changed for a member, pure.
//!
//! The group takes everything from everyone and then shares it out anew. A member that gets a partition
//! back keeps its state if nobody else worked on it in between; the marks of the offsets tell.

use std::collections::{BTreeMap, BTreeSet};

use schemas::Partition;

use super::mark::Place;
use crate::TopicPartition;

/// Where the group stands in each partition; none where nobody ever committed.
pub(super) type Places = BTreeMap<TopicPartition, Option<Place>>;

/// What is gone, and what is new.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Change {
    /// The member does not have these any more, or others worked on them.
    pub(super) lost: Vec<TopicPartition>,
    /// The member has these, and must build their state.
    pub(super) gained: Vec<TopicPartition>,
}

/// The change from what a member `held`, as it left it, to what it has `now`, as the broker has it.
/// Partitions of one number share their state, so they change together.
pub(super) fn change(held: &Places, now: &Places) -> Change {
    let differs = |of: &TopicPartition| held.get(of) != now.get(of);
    let changed: BTreeSet<Partition> =
        held.keys().chain(now.keys()).filter(|of| differs(of)).map(|of| of.partition).collect();
    let of_changed = |places: &Places| {
        places.keys().filter(|of| changed.contains(&of.partition)).copied().collect()
    };
    Change { lost: of_changed(held), gained: of_changed(now) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Committed, Offset};
    use schemas::Topic;

    const RAW: Topic = Topic::TransfersRaw;
    const COMMANDS: Topic = Topic::DepositsCommands;

    fn of(topic: Topic, partition: u32) -> TopicPartition {
        TopicPartition { topic, partition: Partition(partition) }
    }

    fn place(offset: i64, mark: &str) -> Option<Place> {
        let committed = Committed { offset: Offset(offset), metadata: String::new() };
        Some(Place::new(&committed, mark))
    }

    fn both(partitions: &[u32]) -> Places {
        let pair = |p: &u32| [(of(RAW, *p), place(7, "a")), (of(COMMANDS, *p), None)];
        partitions.iter().flat_map(pair).collect()
    }

    #[test]
    fn the_difference_is_what_is_told() {
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
    fn a_partition_that_somebody_else_worked_on_is_lost_and_gained() {
        let held = both(&[0, 1]);
        for foreign in [place(8, "a"), place(7, "b"), None] {
            let mut now = held.clone();
            now.insert(of(RAW, 1), foreign);
            let pair = vec![of(RAW, 1), of(COMMANDS, 1)];
            assert_eq!(change(&held, &now), Change { lost: pair.clone(), gained: pair });
        }
    }
}
