//! Read positions of groups and sinks, in the old log and in the new one.

use std::collections::{BTreeMap, BTreeSet};

use log::{Committed, Offset, TopicPartition};
use processor::machine::{matching, orders};
use processor::wire::Wire;
use schemas::{Partition, Topic};

use super::manifest::Manifest;
use super::{DISPATCHER, HERALD, PROJECTOR, groups};

/// The groups of the machines, and their inputs.
pub(super) const MACHINES: [(&str, &[Topic]); 2] = [
    (matching::State::GROUP, matching::State::INPUTS),
    (orders::State::GROUP, orders::State::INPUTS),
];

/// Reader of a topic: a group, or a sink of the group that sends alerts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reader {
    pub(super) group: &'static str,
    pub(super) sink: Option<String>,
}

/// Records of an old topic that a reader has processed.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) reader: Reader,
    taken: BTreeMap<Partition, Taken>,
}

#[derive(Debug)]
struct Taken {
    before: Offset,
    /// Later offsets that are also complete.
    also: BTreeSet<Offset>,
    metadata: String,
}

impl Reading {
    /// `true` if the reader is done with the record.
    pub(super) fn has(&self, partition: Partition, offset: Offset) -> bool {
        let of = self.taken.get(&partition);
        of.is_some_and(|taken| offset < taken.before || taken.also.contains(&offset))
    }

    /// `true` if the reader ever read the partition.
    pub(super) fn knows(&self, partition: Partition) -> bool {
        self.taken.contains_key(&partition)
    }

    /// `true` if the reader ever read any partition.
    pub(super) fn knows_any(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Returns the metadata that the reader keeps beside its position.
    pub(super) fn metadata(&self, partition: Partition) -> &str {
        self.taken.get(&partition).map_or("", |taken| taken.metadata.as_str())
    }
}

/// Returns the records of a topic that each of its readers has processed.
pub(super) fn of_topic(manifest: &Manifest, topic: Topic) -> Vec<Reading> {
    let (deliverer, _) = webhooks::deliverer_inputs();
    let mut readings = Vec::new();
    for (group, _) in groups().into_iter().filter(|(_, topics)| topics.contains(&topic)) {
        let (mut taken, mut sinks) = (BTreeMap::new(), BTreeMap::new());
        let positions = manifest.group(group);
        for (of, at) in positions.into_iter().filter(|(of, _)| of.topic == topic) {
            let also = if group == deliverer { webhooks::completed(&at) } else { BTreeSet::new() };
            let before = match group {
                // Not past the position of the tables: the projector must apply again every record
                // that they lack.
                PROJECTOR => at.offset.min(manifest.in_tables(of)),
                _ => at.offset,
            };
            if (group, topic) == (HERALD, Topic::Alerts) {
                sinks.extend(webhooks::sinks_of(&at.metadata));
            }
            taken.insert(of.partition, Taken { before, also, metadata: at.metadata });
        }
        readings.push(Reading { reader: Reader { group, sink: None }, taken });
        readings.extend(sinks.into_iter().map(|(sink, before)| {
            let taken = Taken { before, also: BTreeSet::new(), metadata: String::new() };
            let reader = Reader { group, sink: Some(sink) };
            Reading { reader, taken: BTreeMap::from([(Partition(0), taken)]) }
        }));
    }
    readings
}

/// A partition with records that the processor has not read.
pub(super) fn untaken(manifest: &Manifest) -> Option<TopicPartition> {
    MACHINES.into_iter().find_map(|(group, inputs)| {
        inputs.iter().find_map(|topic| untaken_of(manifest, group, *topic))
    })
}

/// Returns the first partition of the topic with records that the group has not read.
pub(super) fn untaken_of(manifest: &Manifest, group: &str, topic: Topic) -> Option<TopicPartition> {
    let readings = of_topic(manifest, topic);
    let reading = readings.iter().find(|reading| reading.reader.group == group);
    manifest.parts_of(topic).find_map(|part| {
        let partition = Partition(part.partition);
        let is_taken = reading.is_some_and(|reading| reading.has(partition, Offset(part.last)));
        (!is_taken).then_some(TopicPartition { topic, partition })
    })
}

/// The reader that must not see a record twice in new partitions: the records that it has processed
/// come first.
pub(super) fn exact(readings: &[Reading]) -> Option<&Reading> {
    let (deliverer, _) = webhooks::deliverer_inputs();
    let is_exact = |reading: &&Reading| [DISPATCHER, deliverer].contains(&reading.reader.group);
    readings.iter().find(is_exact)
}

/// Position of each reader in the new log.
#[derive(Debug, Default)]
pub(super) struct Continued(BTreeMap<(Reader, TopicPartition), Committed>);

impl Continued {
    pub(super) fn set(&mut self, reader: &Reader, of: TopicPartition, at: Committed) {
        self.0.insert((reader.clone(), of), at);
    }

    pub(super) fn of_group(&self, group: &str, of: TopicPartition) -> Option<Committed> {
        let of_group = self.0.iter().filter(|((reader, at), _)| reader.group == group && *at == of);
        let (mut own, mut sinks) = (None, BTreeMap::new());
        for ((reader, _), at) in of_group {
            match &reader.sink {
                None => own = Some(at.clone()),
                Some(sink) => drop(sinks.insert(sink.clone(), at.offset)),
            }
        }
        let mut own = own?;
        if !sinks.is_empty() {
            own.metadata = webhooks::sinks_text(sinks);
        }
        Some(own)
    }

    /// The positions of a group in all partitions; `None` where it never read.
    pub(super) fn group(
        &self,
        group: &str,
        of: impl IntoIterator<Item = TopicPartition>,
    ) -> Vec<(TopicPartition, Option<Committed>)> {
        of.into_iter().map(|of| (of, self.of_group(group, of))).collect()
    }
}

#[cfg(test)]
mod tests {
    use schemas::{Incarnation, Layout};
    use store::{Origin, Position};

    use super::super::manifest::Positions;
    use super::*;

    fn manifest(group: &str, of: TopicPartition, offset: i64, metadata: &str) -> Manifest {
        let origin = Origin { installation: "embedded/7".to_owned(), incarnation: Incarnation(0) };
        let layout = Layout { lanes: 1, orders: 4, webhooks: 2 };
        let mut manifest = Manifest::new(origin, layout, String::new());
        let at = Committed { offset: Offset(offset), metadata: metadata.to_owned() };
        manifest.set_group(group, &Positions::from([(of, at)]));
        manifest
    }

    fn reading<'a>(readings: &'a [Reading], group: &str) -> &'a Reading {
        readings.iter().find(|reading| reading.reader.group == group).unwrap()
    }

    #[test]
    fn the_tables_bound_what_the_projector_has() {
        let of = TopicPartition { topic: Topic::Orders, partition: Partition(2) };
        let mut manifest = manifest(PROJECTOR, of, 9, "");
        let has = |manifest: &Manifest, offset| {
            let readings = of_topic(manifest, of.topic);
            reading(&readings, PROJECTOR).has(of.partition, Offset(offset))
        };
        assert!(!has(&manifest, 0), "the tables have nothing");
        manifest.set_tables(&[Position { topic: of.topic, partition: of.partition, next: 5 }]);
        assert!(has(&manifest, 4) && !has(&manifest, 5));
        let readings = of_topic(&manifest, of.topic);
        assert!(!reading(&readings, DISPATCHER).knows_any());
        assert_eq!(exact(&readings).unwrap().reader.group, DISPATCHER);
    }

    #[test]
    fn every_sink_keeps_its_place() {
        let of = TopicPartition { topic: Topic::Alerts, partition: Partition(0) };
        let text = webhooks::sinks_text([("mail".to_owned(), Offset(7))]);
        let readings = of_topic(&manifest(HERALD, of, 4, &text), of.topic);
        assert_eq!(readings.len(), 2);
        let mail = readings.iter().find(|reading| reading.reader.sink.is_some()).unwrap();
        assert!(mail.has(of.partition, Offset(6)) && !mail.has(of.partition, Offset(7)));
        let mut continued = Continued::default();
        let at = |offset| Committed { offset: Offset(offset), metadata: String::new() };
        continued.set(&readings[0].reader, of, at(1));
        continued.set(&mail.reader, of, at(3));
        let expected = webhooks::sinks_text([("mail".to_owned(), Offset(3))]);
        let group = continued.group(HERALD, [of]);
        assert_eq!(group, [(of, Some(Committed { offset: Offset(1), metadata: expected }))]);
        assert_eq!(continued.group(PROJECTOR, [of]), [(of, None)]);
    }
}
