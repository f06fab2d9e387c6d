//! Positions of the tables, compared with those of the group.

use log::{Assigned, Offset, TopicPartition};
use store::Position;

/// Position in the format of the tables.
pub(crate) fn position(of: TopicPartition, next: Offset) -> Position {
    Position { topic: of.topic, partition: of.partition, next: next.0 }
}

/// Describes rows that the tables lack and that would never be written, as the group's position is past that of the
/// tables.
pub(crate) fn lacking(assigned: &[Assigned], positions: &[Position]) -> Option<String> {
    assigned.iter().find_map(|Assigned { partition: of, committed }| {
        let is_of = |at: &&Position| (at.topic, at.partition) == (of.topic, of.partition);
        let next = positions.iter().find(is_of).map_or(0, |at| at.next);
        let read = committed.as_ref().map_or(0, |committed| committed.offset.0);
        (read > next).then(|| {
            format!(
                "the tables lack rows: {of} was read up to {read}, and they have it up to {next}, so they are older than \
                 the log, or new beside it; stop this process and run `tidemark tables rebuild`"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use log::Committed;
    use schemas::{Partition, Topic};

    use super::*;

    #[test]
    fn tables_that_are_behind_the_group_lack_rows() {
        let of = TopicPartition { topic: Topic::Orders, partition: Partition(1) };
        let assigned = |read: Option<i64>| {
            let committed =
                read.map(|read| Committed { offset: Offset(read), metadata: String::new() });
            [Assigned { partition: of, committed }]
        };
        let there = [position(of, Offset(7))];
        for (read, positions, is_lacking) in [
            (None, &[][..], false),
            (Some(0), &[], false),
            (Some(1), &[], true),
            (Some(7), &there, false),
            (Some(3), &there, false),
            (Some(8), &there, true),
        ] {
            let problem = lacking(&assigned(read), positions);
            assert_eq!(problem.is_some(), is_lacking, "{read:?} {positions:?}: {problem:?}");
        }
        let problem = lacking(&assigned(Some(8)), &there).unwrap();
        assert!(problem.contains("orders/1 was read up to 8, and they have it up to 7"));
        let other = TopicPartition { topic: Topic::Deposits, ..of };
        assert!(lacking(&assigned(Some(7)), &[position(other, Offset(9))]).is_some());
    }
}
