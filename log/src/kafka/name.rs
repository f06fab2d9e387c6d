//! What topics are called on the broker, and whether they are there as the layout wants them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::topic_partition_list::{Offset as Place, TopicPartitionList};
use schemas::{Layout, Partition, Topic};

use crate::{Error, TopicPartition};

/// Every topic by both of its names.
#[derive(Debug)]
pub(super) struct Names {
    by_topic: BTreeMap<Topic, Name>,
    by_name: HashMap<String, Topic>,
}

/// One topic on the broker.
#[derive(Debug)]
pub(super) struct Name {
    /// With the prefix.
    pub(super) full: String,
    /// How many partitions the layout gives it.
    pub(super) partitions: u32,
    /// Whether the broker was seen to agree.
    verified: AtomicBool,
}

impl Name {
    /// Whether the broker was seen to have the topic as the layout wants it.
    pub(super) fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Relaxed)
    }

    /// Notes that it has.
    pub(super) fn set_verified(&self) {
        self.verified.store(true, Ordering::Relaxed);
    }
}

impl Names {
    /// The names in an installation.
    pub(super) fn new(prefix: &str, layout: &Layout) -> Self {
        let full = |topic: Topic| format!("{prefix}{}", topic.name());
        let name = |topic: Topic| Name {
            full: full(topic),
            partitions: topic.partitions(layout),
            verified: AtomicBool::new(false),
        };
        Self {
            by_topic: Topic::ALL.into_iter().map(|topic| (topic, name(topic))).collect(),
            by_name: Topic::ALL.into_iter().map(|topic| (full(topic), topic)).collect(),
        }
    }

    /// The topic on the broker.
    ///
    /// # Errors
    /// [`Error::Fatal`] if there is no such topic, which no caller can make happen.
    pub(super) fn topic(&self, topic: Topic) -> Result<&Name, Error> {
        self.by_topic.get(&topic).ok_or_else(|| Error::Fatal(format!("there is no topic {topic}")))
    }

    /// The name of a partition's topic.
    ///
    /// # Errors
    /// [`Error::Fatal`] if the layout has no such partition.
    pub(super) fn partition(&self, of: TopicPartition) -> Result<&Name, Error> {
        let name = self.topic(of.topic)?;
        if of.partition.0 < name.partitions {
            Ok(name)
        } else {
            Err(Error::Fatal(format!("there is no partition {of}")))
        }
    }

    /// What the broker calls `name`, and its partition.
    pub(super) fn parse(&self, name: &str, partition: i32) -> Option<TopicPartition> {
        let topic = *self.by_name.get(name)?;
        Some(TopicPartition { topic, partition: Partition(u32::try_from(partition).ok()?) })
    }

    /// A list as the client library takes it.
    ///
    /// # Errors
    /// [`Error::Fatal`] if the layout has no such partition.
    pub(super) fn list(
        &self,
        places: impl IntoIterator<Item = (TopicPartition, Place)>,
    ) -> Result<TopicPartitionList, Error> {
        let mut list = TopicPartitionList::new();
        for (of, place) in places {
            let name = self.partition(of)?;
            list.add_partition(&name.full, number(of.partition))
                .set_offset(place)
                .map_err(|error| Error::Fatal(format!("{of}: {error}")))?;
        }
        Ok(list)
    }
}

/// A partition's number as Kafka has it.
pub(super) fn number(partition: Partition) -> i32 {
    i32::try_from(partition.0).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };

    #[test]
    fn every_topic_has_the_prefix_and_is_found_by_it() {
        let names = Names::new("shop.", &LAYOUT);
        for topic in Topic::ALL {
            let name = names.topic(topic).unwrap();
            assert_eq!(name.full, format!("shop.{topic}"));
            let of = TopicPartition { topic, partition: Partition(0) };
            assert_eq!(names.parse(&name.full, 0), Some(of));
            assert_eq!(names.parse(topic.name(), 0), None);
        }
        assert_eq!(names.parse("shop.orders", -1), None);
    }

    #[test]
    fn partitions_beyond_the_layout_are_refused() {
        let names = Names::new("", &LAYOUT);
        let of = |partition| TopicPartition { topic: Topic::Orders, partition };
        assert!(names.partition(of(Partition(3))).is_ok());
        assert!(matches!(names.partition(of(Partition(4))), Err(Error::Fatal(_))));
        assert!(names.list([(of(Partition(4)), Place::Beginning)]).is_err());
    }
}
