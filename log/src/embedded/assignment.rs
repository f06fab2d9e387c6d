//! Partition assignment by ranges: each member gets consecutive partitions of each of its topics.

use std::collections::{BTreeMap, BTreeSet};

use schemas::{Layout, Partition, Topic};

use crate::TopicPartition;

/// Shares each topic's partitions among the members that read it, in the order of their names. Of
/// topics with equal partition counts and the same members, partition i goes to the same member.
pub(super) fn range(
    members: &BTreeMap<String, Vec<Topic>>,
    layout: &Layout,
) -> BTreeMap<String, BTreeSet<TopicPartition>> {
    let topics: BTreeSet<Topic> = members.values().flatten().copied().collect();
    let mut shares: BTreeMap<String, BTreeSet<TopicPartition>> =
        members.keys().map(|name| (name.clone(), BTreeSet::new())).collect();
    for topic in topics {
        let readers: Vec<&String> =
            members.iter().filter(|(_, t)| t.contains(&topic)).map(|(name, _)| name).collect();
        for partition in topic.all_partitions(layout) {
            let reader = reader_of(partition, topic.partitions(layout), &readers);
            if let Some(share) = reader.and_then(|name| shares.get_mut(name)) {
                share.insert(TopicPartition { topic, partition });
            }
        }
    }
    shares
}

/// Reader of a partition: `count` partitions are cut into one range for each reader, whose sizes
/// differ by one at most.
fn reader_of<'a>(partition: Partition, count: u32, readers: &[&'a String]) -> Option<&'a String> {
    let readers_count = u64::try_from(readers.len()).ok()?;
    let index = (u64::from(partition.0) * readers_count).checked_div(u64::from(count))?;
    readers.get(usize::try_from(index).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { lanes: 1, orders: 5, webhooks: 2 };

    fn share(members: &[(&str, &[Topic])]) -> BTreeMap<String, BTreeSet<TopicPartition>> {
        let members = members.iter().map(|(n, t)| ((*n).to_owned(), t.to_vec())).collect();
        range(&members, &LAYOUT)
    }

    fn partitions(of: &BTreeSet<TopicPartition>, topic: Topic) -> Vec<u32> {
        of.iter().filter(|p| p.topic == topic).map(|p| p.partition.0).collect()
    }

    #[test]
    fn each_partition_has_one_reader_shares_are_even() {
        let topics = [Topic::TransfersRaw, Topic::Orders, Topic::WebhooksDispatch];
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        for count in 1..=names.len() {
            let members: Vec<(&str, &[Topic])> =
                names[..count].iter().map(|n| (*n, topics.as_slice())).collect();
            let shares = share(&members);
            for topic in topics {
                let mut all: Vec<u32> =
                    shares.values().flat_map(|s| partitions(s, topic)).collect();
                all.sort_unstable();
                assert_eq!(all, (0..topic.partitions(&LAYOUT)).collect::<Vec<_>>());
                let sizes: Vec<usize> =
                    shares.values().map(|s| partitions(s, topic).len()).collect();
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn a_topic_goes_only_to_members_that_read_it() {
        let shares = share(&[("a", &[Topic::Orders]), ("b", &[Topic::Alerts, Topic::Orders])]);
        assert_eq!(partitions(&shares["a"], Topic::Orders), [0, 1, 2]);
        assert_eq!(partitions(&shares["b"], Topic::Orders), [3, 4]);
        assert_eq!(partitions(&shares["b"], Topic::Alerts), [0]);
        assert!(share(&[]).is_empty());
    }
}
