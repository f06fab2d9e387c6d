//! A group's position in a partition, with a mark of the step that wrote it last.
//!
//! Every step appends a unique mark to the metadata of at least one offset. It shows whether a step
//! was committed, and whether another member worked on a partition in between, even without
//! consuming records.

use std::collections::BTreeMap;

use rdkafka::{Offset as KafkaOffset, TopicPartitionList};
use uuid::Uuid;

use crate::kafka::client::name::{Names, number};
use crate::{Committed, Error, Offset, TopicPartition};

/// Separates the metadata from the mark.
const SEPARATOR: char = '\u{1f}';
/// Prefix of the mark if the group has read nothing in the partition.
const NEVER: char = '-';

/// The group's position in each partition; none where it never committed.
pub(in crate::kafka) type Positions = BTreeMap<TopicPartition, Option<GroupPosition>>;

/// The position of a group as the broker keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kafka) struct GroupPosition {
    pub(in crate::kafka) offset: Offset,
    /// Metadata and mark.
    pub(in crate::kafka) text: String,
}

impl GroupPosition {
    /// The position after the step of `mark`.
    pub(in crate::kafka) fn new(committed: &Committed, mark: &str) -> Self {
        let text = format!("{}{SEPARATOR}{mark}", committed.metadata);
        Self { offset: committed.offset, text }
    }

    /// The same position after a step that read nothing there.
    pub(in crate::kafka) fn marked(position: Option<&Self>, mark: &str) -> Self {
        match position.and_then(Self::committed) {
            Some(committed) => Self::new(&committed, mark),
            None => Self { offset: Offset(0), text: format!("{SEPARATOR}{NEVER}{mark}") },
        }
    }

    /// Position that the stage committed; none if the group never read here.
    pub(in crate::kafka) fn committed(&self) -> Option<Committed> {
        let (metadata, mark) = self.text.rsplit_once(SEPARATOR).unwrap_or((&self.text, ""));
        let committed = Committed { offset: self.offset, metadata: metadata.to_owned() };
        (!mark.starts_with(NEVER)).then_some(committed)
    }
}

/// Positions as the client library takes them.
pub(in crate::kafka) fn list<'a>(
    names: &Names,
    positions: impl IntoIterator<Item = (TopicPartition, &'a GroupPosition)>,
) -> Result<TopicPartitionList, Error> {
    let mut list = TopicPartitionList::new();
    for (of, position) in positions {
        let name = names.partition(of)?;
        let mut element = list.add_partition(&name.full, number(of.partition));
        let offset = KafkaOffset::Offset(position.offset.0);
        element.set_offset(offset).map_err(Error::fatal)?;
        element.set_metadata(&position.text);
    }
    Ok(list)
}

#[derive(Debug)]
pub(in crate::kafka) struct Marks {
    maker: Uuid,
    count: u64,
}

impl Marks {
    pub(in crate::kafka) fn new() -> Self {
        Self { maker: Uuid::now_v7(), count: 0 }
    }

    pub(in crate::kafka) fn next(&mut self) -> String {
        self.count += 1;
        format!("{}.{:x}", self.maker.simple(), self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_comes_back_without_the_mark() {
        let mut marks = Marks::new();
        for metadata in ["", "{\"done\":[7]} ä", "a\u{1f}b", "-"] {
            let committed = Committed { offset: Offset(7), metadata: metadata.to_owned() };
            let position = GroupPosition::new(&committed, &marks.next());
            assert_eq!(position.committed(), Some(committed.clone()));
            let marked = GroupPosition::marked(Some(&position), &marks.next());
            assert_ne!(marked, position);
            assert_eq!(marked.committed(), Some(committed));
        }
    }

    #[test]
    fn a_partition_never_read_stays_so() {
        let mut marks = Marks::new();
        let position = GroupPosition::marked(None, &marks.next());
        assert_eq!(position.committed(), None);
        assert_eq!(GroupPosition::marked(Some(&position), &marks.next()).committed(), None);
    }

    #[test]
    fn what_other_tools_committed_is_metadata() {
        let position = GroupPosition { offset: Offset(3), text: "reset by hand".to_owned() };
        assert_eq!(position.committed().unwrap().metadata, "reset by hand");
    }

    #[test]
    fn longest_metadata_fits_the_brokers_limit() {
        let committed = Committed { offset: Offset(0), metadata: "x".repeat(4000) };
        let mut marks = Marks { maker: Uuid::max(), count: u64::MAX - 1 };
        assert!(GroupPosition::new(&committed, &marks.next()).text.len() <= 4096);
    }
}
