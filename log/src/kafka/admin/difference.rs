//! Wanted partitions and settings of the topics, and how those on the brokers differ. Pure.

use std::collections::HashMap;

use schemas::{Blockchain, Cleanup, Layout, Topic};

use crate::kafka::client::settings::RECORD_BYTES_MAX;

/// A setting of a topic and its value.
pub(super) type Setting = (&'static str, String);

const HOUR_MILLIS: u64 = 3_600_000;
const DAY_MILLIS: u64 = 24 * HOUR_MILLIS;
/// Maximum bytes of a batch. It has a header, and incompressible data grows a little when
/// compressed.
const BATCH_BYTES_MAX: usize = RECORD_BYTES_MAX + 65_536;
/// Bytes of a segment of a compacted topic. Every restart reads these topics as a whole, so they
/// are cleaned early and in small pieces.
const CHANGELOG_SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// A topic as the brokers have it.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) partitions: usize,
    /// Number of replicas of its least replicated partition.
    pub(super) replicas: usize,
    /// All its settings, defaults included.
    pub(super) settings: HashMap<String, String>,
    /// Settings that were set for this topic.
    pub(super) own: HashMap<String, String>,
}

pub(super) fn wanted(topic: Topic, replication: u16) -> Vec<Setting> {
    // Two of three brokers must have a record before it counts; one alone could lose it.
    let in_sync = if replication >= 3 { 2 } else { 1 };
    let mut settings = vec![
        // Append times are the clock of the state machines: they must come from the broker, not the
        // producer.
        ("message.timestamp.type", "LogAppendTime".to_owned()),
        ("min.insync.replicas", in_sync.to_string()),
        ("max.message.bytes", BATCH_BYTES_MAX.to_string()),
        ("unclean.leader.election.enable", "false".to_owned()),
    ];
    match topic.spec().cleanup {
        Cleanup::Delete { hours } => settings.extend([
            ("cleanup.policy", "delete".to_owned()),
            ("retention.ms", (u64::from(hours) * HOUR_MILLIS).to_string()),
            ("retention.bytes", "-1".to_owned()),
            ("segment.ms", DAY_MILLIS.to_string()),
        ]),
        Cleanup::Compact => settings.extend([
            ("cleanup.policy", "compact".to_owned()),
            // A restore reads about twice the live data at most; a lower ratio cleans more often.
            ("min.cleanable.dirty.ratio", "0.5".to_owned()),
            ("segment.bytes", CHANGELOG_SEGMENT_BYTES.to_string()),
            ("segment.ms", DAY_MILLIS.to_string()),
            // Longer than any restore: one that read a value must also read its tombstone.
            ("delete.retention.ms", (7 * DAY_MILLIS).to_string()),
            // Longer than any lookup of a step's outcome, which reads the step's first record.
            ("min.compaction.lag.ms", (10 * 60 * 1000).to_string()),
        ]),
    }
    settings
}

/// `true` if a setting has the wanted value or is a longer retention, which is never shortened: an
/// operator may keep records longer.
pub(super) fn suffices(setting: &str, actual: Option<&str>, wanted: &str) -> bool {
    let is_retention = matches!(setting, "retention.ms" | "delete.retention.ms");
    let millis = |text: &str| text.parse::<i64>().ok();
    actual.is_some_and(|actual| {
        let is_longer = || match (millis(actual), millis(wanted)) {
            (Some(actual), Some(wanted)) => actual == -1 || actual > wanted,
            (None, _) | (_, None) => false,
        };
        actual == wanted || is_retention && is_longer()
    })
}

/// A way in which a topic on the brokers differs from the configuration. `topic` is its name there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// `tidemark topics create` creates it.
    Missing { topic: String },
    /// The configuration is wrong, or belongs to another installation.
    Partitions { topic: String, actual: usize, wanted: u32 },
    /// Partitions of newer chains are missing. `tidemark topics create` adds them.
    Chains { topic: String, actual: usize, wanted: u32 },
    /// The least replicated partition has too few replicas. Kafka's own tools add replicas.
    Replication { topic: String, actual: usize, wanted: u16 },
    /// `tidemark topics create` corrects it.
    Setting { topic: String, setting: &'static str, actual: Option<String>, wanted: String },
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { topic } => write!(f, "{topic} is missing"),
            Self::Partitions { topic, actual, wanted } => {
                write!(f, "{topic} has {actual} partitions instead of {wanted}")
            }
            Self::Chains { topic, actual, wanted } => {
                write!(f, "{topic} has {actual} partitions instead of {wanted}: chains were added")
            }
            Self::Replication { topic, actual, wanted } => {
                write!(f, "{topic} has {actual} replicas instead of {wanted}")
            }
            Self::Setting { topic, setting, actual, wanted } => {
                let actual = actual.as_deref().unwrap_or("not set");
                write!(f, "{setting} of {topic} is {actual} instead of {wanted}")
            }
        }
    }
}

/// `true` if `min.insync.replicas` is above the wanted value and below the topic's replicas.
fn is_safer(setting: &str, actual: Option<&str>, wanted: &str, replicas: usize) -> bool {
    let count = |text: &str| text.parse::<usize>().ok();
    let (actual, wanted) = (actual.and_then(count), count(wanted));
    setting == "min.insync.replicas" && actual > wanted && actual < Some(replicas)
}

/// Settings that neither suffice nor are safer than wanted, with their wanted values.
pub(super) fn corrections(topic: Topic, replication: u16, found: &Found) -> Vec<Setting> {
    let is_wrong = |(key, value): &Setting| {
        let actual = found.settings.get(*key).map(String::as_str);
        !suffices(key, actual, value) && !is_safer(key, actual, value, found.replicas)
    };
    wanted(topic, replication).into_iter().filter(is_wrong).collect()
}

/// `true` if a topic has exactly the partitions of the first `chains` chains, and lacks those of newer
/// ones. Adding them moves no record and no id; more lanes for each chain would move most.
pub(super) fn lacks_chains(
    topic: Topic,
    layout: &Layout,
    actual: usize,
    chains: Option<usize>,
) -> bool {
    let count = |chains: u32| usize::try_from(topic.partitions_for(chains, layout)).ok();
    let known = chains.and_then(|chains| u32::try_from(chains).ok());
    known.is_some_and(|known| {
        known < Blockchain::COUNT
            && count(known) == Some(actual)
            && count(Blockchain::COUNT) != Some(actual)
    })
}

/// Differences of a topic from the configuration. `name` is its name on the brokers, `chains` the
/// number of chains that the topics were made for.
pub(super) fn differences(
    topic: Topic,
    name: &str,
    layout: &Layout,
    replication: u16,
    found: Option<&Found>,
    chains: Option<usize>,
) -> Vec<Difference> {
    let name = || name.to_owned();
    let Some(found) = found else { return vec![Difference::Missing { topic: name() }] };
    let mut differences = Vec::new();
    let (actual, wanted) = (found.partitions, topic.partitions(layout));
    if lacks_chains(topic, layout, actual, chains) {
        differences.push(Difference::Chains { topic: name(), actual, wanted });
    } else if u32::try_from(actual).ok() != Some(wanted) {
        differences.push(Difference::Partitions { topic: name(), actual, wanted });
    }
    let (actual, wanted) = (found.replicas, replication);
    if actual < usize::from(wanted) {
        differences.push(Difference::Replication { topic: name(), actual, wanted });
    }
    differences.extend(corrections(topic, replication, found).into_iter().map(
        |(setting, wanted)| {
            let actual = found.settings.get(setting).cloned();
            Difference::Setting { topic: name(), setting, actual, wanted }
        },
    ));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };

    fn as_wanted(topic: Topic) -> Found {
        let settings = wanted(topic, 3).into_iter().map(|(key, value)| (key.to_owned(), value));
        let partitions = topic.partitions(&LAYOUT) as usize;
        Found { partitions, replicas: 3, settings: settings.collect(), own: HashMap::new() }
    }

    fn lines(topic: Topic, found: Option<&Found>) -> Vec<String> {
        let chains = Some(Blockchain::COUNT as usize);
        let differences = differences(topic, topic.name(), &LAYOUT, 3, found, chains);
        differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_topic_as_wanted_has_no_difference() {
        for topic in Topic::ALL {
            assert_eq!(lines(topic, Some(&as_wanted(topic))), Vec::<String>::new());
        }
    }

    #[test]
    fn every_difference_has_its_line() {
        assert_eq!(lines(Topic::Orders, None), ["orders is missing"]);
        let mut found = as_wanted(Topic::Orders);
        found.partitions = 3;
        found.replicas = 1;
        found.settings.insert("cleanup.policy".into(), "compact".into());
        found.settings.remove("retention.ms");
        assert_eq!(
            lines(Topic::Orders, Some(&found)),
            [
                "orders has 3 partitions instead of 4",
                "orders has 1 replicas instead of 3",
                "cleanup.policy of orders is compact instead of delete",
                "retention.ms of orders is not set instead of 7862400000",
            ]
        );
    }

    /// The topic `chains` has a partition for each chain that the topics were made for.
    #[test]
    fn chains_are_added_and_nothing_else() {
        let layout = Layout { lanes: 3, ..LAYOUT };
        let chains = Blockchain::COUNT as usize;
        for (topic, actual, known, lacks) in [
            (Topic::TransfersRaw, 3 * (chains - 1), Some(chains - 1), true),
            (Topic::TransfersRaw, 3, Some(1), true),
            (Topic::Chains, chains - 1, Some(chains - 1), true),
            // The topic has these partitions already.
            (Topic::TransfersRaw, 3 * chains, Some(chains - 1), false),
            // Another number of lanes.
            (Topic::TransfersRaw, 2 * chains, Some(chains), false),
            (Topic::TransfersRaw, 2 * (chains - 1), Some(chains - 1), false),
            (Topic::TransfersRaw, 3 * (chains - 1), Some(chains), false),
            (Topic::TransfersRaw, 3 * (chains - 1), None, false),
            // Topics of a later version, which knows more chains.
            (Topic::TransfersRaw, 3 * (chains + 1), Some(chains + 1), false),
            (Topic::Orders, 3, Some(chains - 1), false),
            (Topic::Orders, 4, Some(chains - 1), false),
            (Topic::Alerts, 1, Some(chains - 1), false),
        ] {
            let found = lacks_chains(topic, &layout, actual, known);
            assert_eq!(found, lacks, "{topic} with {actual}, chains with {known:?}");
        }
    }

    #[test]
    fn a_longer_retention_is_never_shortened() {
        let year = "31536000000";
        for (topic, setting) in
            [(Topic::Orders, "retention.ms"), (Topic::OrdersChangelog, "delete.retention.ms")]
        {
            for (actual, suffices) in [(year, true), ("-1", true), ("3600000", false), ("?", false)]
            {
                let mut found = as_wanted(topic);
                found.settings.insert(setting.into(), actual.into());
                assert_eq!(lines(topic, Some(&found)).is_empty(), suffices, "{setting} {actual}");
            }
        }
        assert!(!suffices("segment.ms", Some(year), "86400000"));
    }

    #[test]
    fn more_replicas_in_sync_than_wanted_stay() {
        let with = |in_sync: &str, replicas| {
            let mut found = as_wanted(Topic::Orders);
            found.settings.insert("min.insync.replicas".into(), in_sync.into());
            corrections(Topic::Orders, 1, &Found { replicas, ..found }).len()
        };
        assert_eq!([with("2", 3), with("3", 5), with("1", 1)], [0, 0, 0]);
        // If every replica must be in sync, the restart of one broker stops all writes.
        assert_eq!([with("2", 1), with("2", 2), with("3", 3), with("0", 3)], [1, 1, 1, 1]);
    }

    fn setting(name: &str, replication: u16) -> String {
        let settings = wanted(Topic::Orders, replication);
        settings.into_iter().find(|(key, _)| *key == name).unwrap().1
    }

    /// A broker that refused the largest record of ours would stop a stage.
    #[test]
    fn topics_take_the_largest_record() {
        // The header of a batch and of its record, with room to spare.
        const AROUND: usize = 61 + 64;
        let max: usize = setting("max.message.bytes", 1).parse().unwrap();
        assert_eq!(max, BATCH_BYTES_MAX);
        assert!(max >= RECORD_BYTES_MAX + AROUND, "{max}");
        let mut found = as_wanted(Topic::Orders);
        found.settings.insert("max.message.bytes".into(), (max - 1).to_string());
        assert_eq!(lines(Topic::Orders, Some(&found)).len(), 1);
    }

    #[test]
    fn fewer_than_three_brokers_cannot_wait_for_two() {
        let in_sync = |replication| setting("min.insync.replicas", replication);
        assert_eq!([in_sync(1), in_sync(2), in_sync(3), in_sync(5)], ["1", "1", "2", "2"]);
    }
}
