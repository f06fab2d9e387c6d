//! Assignment of records to the partitions of the new log, and their order there.

use std::iter::Peekable;

use log::{Record, TopicPartition};
use schemas::{Address, Blockchain, KeyKind, Layout, Partition, Topic, UnixMicros};

use super::files::{Files, name_of};
use super::line::Line;

#[derive(Debug, Clone, Copy)]
pub(super) struct Dealing {
    pub(super) from: Layout,
    pub(super) to: Layout,
}

impl Dealing {
    /// `true` if both layouts have the same partitions of the topic.
    pub(super) fn keeps(self, topic: Topic) -> bool {
        let Self { from, to } = self;
        match topic.spec().key {
            KeyKind::Lane => from.lanes == to.lanes,
            KeyKind::Order => from.orders == to.orders,
            KeyKind::Event => from.webhooks == to.webhooks,
            KeyKind::Chain | KeyKind::Single => true,
        }
    }

    /// Returns the new partition of a record. A lane's record without a wallet as key moves to the first lane of its
    /// chain: no stage reads it again.
    pub(super) fn partition(self, from: TopicPartition, key: &[u8]) -> Partition {
        if self.keeps(from.topic) {
            return from.partition;
        }
        let key = String::from_utf8_lossy(key);
        match from.topic.spec().key {
            KeyKind::Order => self.to.order(&key),
            KeyKind::Event => self.to.webhook(&key),
            KeyKind::Lane => match (self.chain_of(from.partition), Address::parse(&key)) {
                (Some(chain), Ok(wallet)) => self.to.lane(chain, &wallet),
                (Some(chain), Err(_)) => self.to.lanes_of(chain).next().unwrap_or_default(),
                (None, _) => Partition(0),
            },
            KeyKind::Chain | KeyKind::Single => from.partition,
        }
    }

    /// The chain of an old lane.
    pub(super) fn chain_of(self, lane: Partition) -> Option<Blockchain> {
        let is_of = |chain: &&Blockchain| self.from.lanes_of(**chain).any(|of| of == lane);
        Blockchain::ALL.iter().find(is_of).copied()
    }
}

/// The records of an old partition, in their order.
pub(super) type Records = Box<dyn Iterator<Item = anyhow::Result<Record>>>;

pub(super) fn records(files: &Files, of: TopicPartition) -> anyhow::Result<Records> {
    let lines = files.read::<Line>(&name_of(of))?;
    Ok(Box::new(lines.map(move |line| line?.record(of))))
}

/// Several partitions merged by record time; each keeps its order.
pub(super) struct Merged(Vec<Peekable<Records>>);

impl Merged {
    pub(super) fn new(partitions: Vec<Records>) -> Self {
        Self(partitions.into_iter().map(Iterator::peekable).collect())
    }
}

impl Iterator for Merged {
    type Item = anyhow::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = |records: &mut Peekable<Records>| {
            let next = records.peek()?;
            // An error comes first, so that it is reported at once.
            Some(next.as_ref().map_or(UnixMicros(i64::MIN), |record| record.appended_at))
        };
        let times = self.0.iter_mut().enumerate();
        let times = times.filter_map(|(number, records)| Some((first(records)?, number)));
        let (_, number) = times.min()?;
        self.0.get_mut(number)?.next()
    }
}

#[cfg(test)]
mod tests {
    use log::Offset;
    use schemas::Headers;

    use super::*;

    fn layout(lanes: u32, orders: u32) -> Layout {
        Layout { lanes, orders, webhooks: 2 }
    }

    #[test]
    fn what_is_not_changed_stays_where_it_is() {
        let dealing = Dealing { from: layout(2, 4), to: layout(3, 4) };
        let of = |topic, number| TopicPartition { topic, partition: Partition(number) };
        assert!(dealing.keeps(Topic::Orders) && dealing.keeps(Topic::WebhooksDead));
        assert!(!dealing.keeps(Topic::Deposits));
        assert_eq!(dealing.partition(of(Topic::Orders, 3), b"x"), Partition(3));
        let chain = dealing.chain_of(Partition(5)).unwrap();
        assert_eq!(chain.index(), 2);
        let wallet = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
        let lane = dealing.to.lane(chain, &Address::parse(wallet).unwrap());
        assert_eq!(dealing.partition(of(Topic::Deposits, 5), wallet.as_bytes()), lane);
        assert_eq!(dealing.partition(of(Topic::Deposits, 5), b"stop"), Partition(6));
        let dealing = Dealing { from: layout(2, 4), to: layout(2, 7) };
        assert_eq!(dealing.partition(of(Topic::Orders, 3), b"x"), dealing.to.order("x"));
    }

    #[test]
    fn partitions_are_merged_by_time() {
        let records = |partition: u32, times: &'static [i64]| -> Records {
            let from = TopicPartition { topic: Topic::Orders, partition: Partition(partition) };
            let record = move |(offset, at): (usize, i64)| {
                Ok(Record {
                    from,
                    offset: Offset(i64::try_from(offset).unwrap()),
                    appended_at: UnixMicros(at),
                    key: Vec::new(),
                    value: None,
                    headers: Headers::default(),
                })
            };
            Box::new(times.iter().copied().enumerate().map(record))
        };
        let merged =
            Merged::new(vec![records(0, &[1, 5, 5]), records(1, &[2, 4, 9]), records(2, &[])]);
        let found: Vec<_> = merged
            .map(|old| old.map(|old| (old.appended_at.0, old.from.partition.0)).unwrap())
            .collect();
        assert_eq!(found, [(1, 0), (2, 1), (4, 1), (5, 0), (5, 0), (9, 1)]);
    }
}
