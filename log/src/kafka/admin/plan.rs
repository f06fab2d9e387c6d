//! How topics should be, pure.

use std::collections::HashMap;

use schemas::{Cleanup, Layout, Topic};

use crate::kafka::settings::RECORD_BYTES_MAX;

/// A setting of a topic and its value.
pub(super) type Setting = (&'static str, String);

const HOUR_MILLIS: u64 = 3_600_000;
const DAY_MILLIS: u64 = 24 * HOUR_MILLIS;
/// Batches have a head, and what cannot be compressed becomes a little longer.
const BATCH_BYTES_MAX: usize = RECORD_BYTES_MAX + 65_536;
/// Compacted topics are read as a whole by every restart: they are cleaned early and in small pieces.
const CHANGELOG_SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// A topic as the brokers have it.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// How many partitions it has.
    pub(super) partitions: usize,
    /// How many brokers keep its least kept partition.
    pub(super) replicas: usize,
    /// All its settings.
    pub(super) settings: HashMap<String, String>,
    /// Those that were made for this topic.
    pub(super) own: HashMap<String, String>,
}

/// The settings of a topic.
pub(super) fn wanted(topic: Topic, replication: u16) -> Vec<Setting> {
    // Two of three brokers must have a record before it counts; one alone could lose it.
    let in_sync = if replication >= 3 { 2 } else { 1 };
    let mut settings = vec![
        // Machines take the append time as time: it must come from the log, not from who writes.
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
            ("min.cleanable.dirty.ratio", "0.1".to_owned()),
            ("segment.bytes", CHANGELOG_SEGMENT_BYTES.to_string()),
            ("segment.ms", DAY_MILLIS.to_string()),
            // Longer than any restore takes: one that has read a value must meet its tombstone.
            ("delete.retention.ms", (7 * DAY_MILLIS).to_string()),
            // Longer than it takes to ask whether a step happened.
            ("min.compaction.lag.ms", (10 * 60 * 1000).to_string()),
        ]),
    }
    settings
}

/// Whether a value of a setting will do. An operator may keep records longer than is needed, and what is
/// kept longer is never shortened.
pub(super) fn suffices(setting: &str, is: Option<&String>, wanted: &str) -> bool {
    let is_retention = matches!(setting, "retention.ms" | "delete.retention.ms");
    let millis = |text: &str| text.parse::<i64>().ok();
    is.is_some_and(|is| {
        is == wanted
            || is_retention
                && match (millis(is), millis(wanted)) {
                    (Some(-1), Some(_)) => true,
                    (Some(is), Some(wanted)) => is > wanted,
                    (None, _) | (_, None) => false,
                }
    })
}

/// What is not as it should be, one line each.
pub(super) fn problems(
    topic: Topic,
    name: &str,
    layout: &Layout,
    replication: u16,
    found: Option<&Found>,
) -> Vec<String> {
    let Some(found) = found else { return vec![format!("{name} is missing")] };
    let mut lines = Vec::new();
    let partitions = topic.partitions(layout);
    if u32::try_from(found.partitions).ok() != Some(partitions) {
        lines.push(format!("{name} has {} partitions instead of {partitions}", found.partitions));
    }
    if found.replicas < usize::from(replication) {
        lines
            .push(format!("{name} is kept by {} brokers instead of {replication}", found.replicas));
    }
    for (setting, value) in wanted(topic, replication) {
        let is = found.settings.get(setting);
        if !suffices(setting, is, &value) {
            let is = is.map_or("not set", String::as_str);
            lines.push(format!("{setting} of {name} is {is} instead of {value}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };

    fn right(topic: Topic) -> Found {
        let settings = wanted(topic, 3).into_iter().map(|(key, value)| (key.to_owned(), value));
        let partitions = topic.partitions(&LAYOUT) as usize;
        Found { partitions, replicas: 3, settings: settings.collect(), own: HashMap::new() }
    }

    fn problems_of(topic: Topic, found: Option<&Found>) -> Vec<String> {
        problems(topic, topic.name(), &LAYOUT, 3, found)
    }

    #[test]
    fn every_topic_as_wanted_has_no_problem() {
        for topic in Topic::ALL {
            assert_eq!(problems_of(topic, Some(&right(topic))), Vec::<String>::new());
        }
    }

    #[test]
    fn every_deviation_has_its_line() {
        assert_eq!(problems_of(Topic::Orders, None), ["orders is missing"]);
        let mut found = right(Topic::Orders);
        found.partitions = 3;
        found.replicas = 1;
        found.settings.insert("cleanup.policy".into(), "compact".into());
        found.settings.remove("retention.ms");
        assert_eq!(
            problems_of(Topic::Orders, Some(&found)),
            [
                "orders has 3 partitions instead of 4",
                "orders is kept by 1 brokers instead of 3",
                "cleanup.policy of orders is compact instead of delete",
                "retention.ms of orders is not set instead of 7862400000",
            ]
        );
    }

    #[test]
    fn a_longer_retention_is_never_shortened() {
        let year = "31536000000";
        for (topic, setting) in
            [(Topic::Orders, "retention.ms"), (Topic::OrdersChangelog, "delete.retention.ms")]
        {
            for (is, will_do) in [(year, true), ("-1", true), ("3600000", false), ("?", false)] {
                let mut found = right(topic);
                found.settings.insert(setting.into(), is.into());
                assert_eq!(problems_of(topic, Some(&found)).is_empty(), will_do, "{setting} {is}");
            }
        }
        assert!(!suffices("segment.ms", Some(&year.into()), "86400000"));
    }

    #[test]
    fn fewer_than_three_brokers_cannot_wait_for_two() {
        let in_sync = |replication| {
            let settings = wanted(Topic::Orders, replication);
            settings.into_iter().find(|(key, _)| *key == "min.insync.replicas").unwrap().1
        };
        assert_eq!([in_sync(1), in_sync(2), in_sync(3), in_sync(5)], ["1", "1", "2", "2"]);
    }
}
