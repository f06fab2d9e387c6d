//! The manifest of an export.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use log::{Committed, Offset, TopicPartition};
use schemas::{Incarnation, Layout, Partition, Topic};
use serde::{Deserialize, Serialize};
use store::{Origin, Position};

/// Version of the format of an export's files.
const FORMAT: u32 = 1;

/// The file `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// Version of the program that made it, for people.
    version: String,
    pub(super) installation: String,
    incarnation: i64,
    pub(super) exported_at: String,
    lanes: u32,
    order_partitions: u32,
    webhook_partitions: u32,
    /// Partitions with records.
    pub(super) parts: Vec<Part>,
    groups: Vec<GroupPosition>,
    /// Number of rows in the tables.
    pub(super) rows: u64,
    /// Second before which final rows were removed.
    pub(super) pruned_before: Option<i64>,
    positions: Vec<TablesPosition>,
}

/// The records of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) topic: String,
    pub(super) partition: u32,
    pub(super) records: u64,
    /// Offset of the last record.
    pub(super) last: i64,
    /// `true` if older records have expired.
    pub(super) has_expired: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct GroupPosition {
    group: String,
    topic: String,
    partition: u32,
    next: i64,
    metadata: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TablesPosition {
    topic: String,
    partition: u32,
    next: i64,
}

pub(super) type Positions = BTreeMap<TopicPartition, Committed>;

impl Manifest {
    pub(super) fn new(of: Origin, layout: Layout, exported_at: String) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            installation: of.installation,
            incarnation: of.incarnation.0,
            exported_at,
            lanes: layout.lanes,
            order_partitions: layout.orders,
            webhook_partitions: layout.webhooks,
            parts: Vec::new(),
            groups: Vec::new(),
            rows: 0,
            pruned_before: None,
            positions: Vec::new(),
        }
    }

    /// Parses a manifest; fails if it is none, of another format, or has a topic that this version does not know.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
            version: String,
        }
        let head: Head = serde_json::from_str(text)?;
        ensure!(
            head.format == FORMAT,
            "it was made by version {} in format {}, and this program reads format {FORMAT}: import it with that version",
            head.version,
            head.format
        );
        let manifest: Self = serde_json::from_str(text)?;
        for part in &manifest.parts {
            part.of()?;
        }
        Ok(manifest)
    }

    pub(super) const fn layout(&self) -> Layout {
        Layout {
            lanes: self.lanes,
            orders: self.order_partitions,
            webhooks: self.webhook_partitions,
        }
    }

    pub(super) const fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation)
    }

    pub(super) fn set_group(&mut self, group: &str, positions: &Positions) {
        self.groups.extend(positions.iter().map(|(of, at)| GroupPosition {
            group: group.to_owned(),
            topic: of.topic.name().to_owned(),
            partition: of.partition.0,
            next: at.offset.0,
            metadata: at.metadata.clone(),
        }));
    }

    pub(super) fn group(&self, group: &str) -> Positions {
        let of_group = self.groups.iter().filter(|position| position.group == group);
        let position = |at: &GroupPosition| {
            let topic = Topic::named(&at.topic)?;
            let of = TopicPartition { topic, partition: Partition(at.partition) };
            Some((of, Committed { offset: Offset(at.next), metadata: at.metadata.clone() }))
        };
        of_group.filter_map(position).collect()
    }

    pub(super) fn set_tables(&mut self, positions: &[Position]) {
        self.positions = positions
            .iter()
            .map(|at| TablesPosition {
                topic: at.topic.name().to_owned(),
                partition: at.partition.0,
                next: at.next,
            })
            .collect();
    }

    /// Returns the position of the tables in a partition; 0 if they have none.
    pub(super) fn in_tables(&self, of: TopicPartition) -> Offset {
        let is_of = |at: &&TablesPosition| {
            (at.topic.as_str(), at.partition) == (of.topic.name(), of.partition.0)
        };
        self.positions.iter().find(is_of).map_or(Offset(0), |at| Offset(at.next))
    }

    /// The partitions of a topic that have records.
    pub(super) fn parts_of(&self, topic: Topic) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(move |part| part.topic == topic.name())
    }
}

impl Part {
    /// Returns the partition; fails if this version has no such topic.
    pub(super) fn of(&self) -> anyhow::Result<TopicPartition> {
        let topic = Topic::named(&self.topic);
        let topic = topic.with_context(|| format!("this version has no topic {}", self.topic))?;
        Ok(TopicPartition { topic, partition: Partition(self.partition) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads_back() {
        let of = Origin { installation: "embedded/7".to_owned(), incarnation: Incarnation(3) };
        let layout = Layout { lanes: 2, orders: 4, webhooks: 3 };
        let mut manifest = Manifest::new(of, layout, "2026-11-27T07:00:00Z".to_owned());
        let of = TopicPartition { topic: Topic::Orders, partition: Partition(1) };
        let at = Committed { offset: Offset(9), metadata: "step".to_owned() };
        let positions = Positions::from([(of, at)]);
        manifest.set_group("projector", &positions);
        let here = Position { topic: of.topic, partition: of.partition, next: 8 };
        manifest.set_tables(&[here]);
        let text = serde_json::to_string(&manifest).unwrap();
        let read = Manifest::parse(&text).unwrap();
        assert_eq!(read, manifest);
        assert_eq!((read.layout(), read.incarnation()), (layout, Incarnation(3)));
        assert_eq!(read.group("projector"), positions);
        assert_eq!(read.group("others"), Positions::new());
        assert_eq!(read.in_tables(of), Offset(8));
        let other = Manifest { format: FORMAT + 1, ..manifest };
        let refused = Manifest::parse(&serde_json::to_string(&other).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("import it with that version"), "{refused}");
    }
}
