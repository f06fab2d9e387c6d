//! The names of topics on the broker, and which of them were verified against the layout.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::{Offset as KafkaOffset, TopicPartitionList};
use schemas::{Layout, Partition, Topic};

use crate::{Cause, Error, TopicPartition};

/// Every topic by both of its names.
#[derive(Debug)]
pub(crate) struct Names {
    prefix: String,
    by_topic: BTreeMap<Topic, Name>,
    by_name: HashMap<String, Topic>,
}

#[derive(Debug)]
pub(crate) struct Name {
    /// With the prefix.
    pub(crate) full: String,
    /// Number of partitions in the layout.
    pub(crate) partitions: u32,
    /// `true` once the broker's partition count was compared.
    verified: AtomicBool,
}

impl Name {
    pub(crate) fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Relaxed)
    }

    pub(crate) fn set_verified(&self) {
        self.verified.store(true, Ordering::Relaxed);
    }
}

impl Names {
    pub(crate) fn new(prefix: &str, layout: &Layout) -> Self {
        let full = |topic: Topic| format!("{prefix}{}", topic.name());
        let name = |topic: Topic| Name {
            full: full(topic),
            partitions: topic.partitions(layout),
            verified: AtomicBool::new(false),
        };
        Self {
            prefix: prefix.to_owned(),
            by_topic: Topic::ALL.into_iter().map(|topic| (topic, name(topic))).collect(),
            by_name: Topic::ALL.into_iter().map(|topic| (full(topic), topic)).collect(),
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name of a topic.
    ///
    /// # Errors
    /// [`Error::Fatal`] if there is no such topic, which no caller can cause.
    pub(crate) fn topic(&self, topic: Topic) -> Result<&Name, Error> {
        self.by_topic.get(&topic).ok_or_else(|| Error::fatal(format!("there is no topic {topic}")))
    }

    /// The name of a partition's topic.
    ///
    /// # Errors
    /// [`Error::Fatal`] if the layout has no such partition.
    pub(crate) fn partition(&self, of: TopicPartition) -> Result<&Name, Error> {
        let name = self.topic(of.topic)?;
        if of.partition.0 < name.partitions {
            Ok(name)
        } else {
            Err(Error::fatal(format!("there is no partition {of}")))
        }
    }

    /// None if `name` is not one of this installation's topics, or `partition` is negative.
    pub(crate) fn parse(&self, name: &str, partition: i32) -> Option<TopicPartition> {
        let topic = *self.by_name.get(name)?;
        Some(TopicPartition { topic, partition: Partition(u32::try_from(partition).ok()?) })
    }

    pub(crate) fn list(
        &self,
        positions: impl IntoIterator<Item = (TopicPartition, KafkaOffset)>,
    ) -> Result<TopicPartitionList, Error> {
        let mut list = TopicPartitionList::new();
        for (of, position) in positions {
            let name = self.partition(of)?;
            list.add_partition(&name.full, number(of.partition))
                .set_offset(position)
                .map_err(|error| Error::fatal(Cause::from(error)))?;
        }
        Ok(list)
    }
}

pub(crate) fn number(partition: Partition) -> i32 {
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
        assert!(names.list([(of(Partition(4)), KafkaOffset::Beginning)]).is_err());
    }
}
