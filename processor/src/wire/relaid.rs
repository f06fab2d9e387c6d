//! The changelogs of an installation that moves to another log, and perhaps to another number of lanes. They are
//! written while no processor runs.

use log::{NewRecord, Offset};
use schemas::record::{LaneEntry, MatchingEntry};
use schemas::{Blockchain, Layout, Partition, SEQUENCE_BITS, Topic};

use super::NEXT_HEADER;
use crate::machine::matching::{lane_of, wallet_of};

/// Maximum number of partitions that give ids, as ids stay below 2^53.
const ID_PARTITIONS_MAX: u32 = 1 << (53 - SEQUENCE_BITS);

/// The newest entry of a key, as the changelog has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// Entries of all chains, for another number of lanes. `of` has the entries of each chain, of all
/// its lanes together.
///
/// # Errors
/// An entry cannot be read, lanes of a chain differ in head or epoch, or no partitions for ids are left.
pub fn lanes(
    of: &[(Blockchain, Vec<Entry>)],
    from: &Layout,
    to: &Layout,
) -> Result<Vec<NewRecord>, String> {
    let mut chains = Vec::with_capacity(of.len());
    for (blockchain, entries) in of {
        let mut read = Vec::with_capacity(entries.len());
        for entry in entries {
            let decoded: MatchingEntry =
                schemas::decode(&entry.value).map_err(|cause| format!("{blockchain}: {cause}"))?;
            read.push((entry, decoded));
        }
        chains.push((*blockchain, read));
    }
    let lanes = || chains.iter().flat_map(|(_, entries)| own_entries(entries));
    let sequence = lanes().map(|lane| lane.sequence).max().unwrap_or(0);
    let named = lanes().filter_map(|lane| u32::try_from(lane.id_partition?).ok()).max();
    let first = Topic::TransfersRaw.partitions(from).max(named.map_or(0, |last| last + 1));
    let count = Topic::TransfersRaw.partitions(to);
    if first.saturating_add(count) > ID_PARTITIONS_MAX {
        return Err("ids have no more partitions: keep log.lanes".to_owned());
    }
    let mut records = Vec::new();
    for (blockchain, entries) in &chains {
        let own: Vec<LaneEntry> = own_entries(entries).cloned().collect();
        for lane in to.lanes_of(*blockchain) {
            let (key, entry) = lane_of(&own, Partition(first + lane.0), sequence)
                .map_err(|cause| format!("{blockchain}: {cause}"))?;
            let record = NewRecord::encode(Topic::MatchingChangelog, lane, key, &entry);
            records.push(record.map_err(|cause| cause.to_string())?);
        }
        for (entry, read) in entries {
            let Some(wallet) = wallet_of(read) else { continue };
            records.push(plain(Topic::MatchingChangelog, to.lane(*blockchain, &wallet), entry));
        }
    }
    Ok(records)
}

fn own_entries<'a>(
    entries: &'a [(&Entry, MatchingEntry)],
) -> impl Iterator<Item = &'a LaneEntry> + use<'a> {
    entries.iter().filter_map(|(_, entry)| match entry {
        MatchingEntry::Lane(lane) => Some(lane),
        MatchingEntry::Deposit(_) | MatchingEntry::Transfer(_) | MatchingEntry::Watch(_) => None,
    })
}

/// Record of an unchanged entry, for a partition.
#[must_use]
pub fn plain(topic: Topic, partition: Partition, entry: &Entry) -> NewRecord {
    NewRecord {
        to: log::TopicPartition { topic, partition },
        key: entry.key.clone(),
        value: Some(entry.value.clone()),
        headers: schemas::Headers::default(),
    }
}

/// Adds a header to the last entry of a partition: the offset in each input where its state
/// continues.
pub fn continue_at(entry: &mut NewRecord, inputs: &[(Topic, Offset)]) {
    let next: Vec<_> = inputs.iter().map(|(topic, next)| format!("{topic}/{next}")).collect();
    entry.headers.push(NEXT_HEADER, next.join(",").as_bytes());
}

#[cfg(test)]
mod tests {
    use schemas::record::Watch;
    use schemas::{Address, DepositId};

    use super::*;
    use crate::machine::Machine;
    use crate::machine::matching::State;
    use crate::wire::{self, Wire};

    fn entry(key: &str, entry: &MatchingEntry) -> Entry {
        Entry { key: key.as_bytes().to_vec(), value: schemas::encode(entry).unwrap() }
    }

    fn watch(last: u8) -> (Address, Entry) {
        let wallet = Address::new(schemas::AddressFamily::Evm, [last; 20]);
        let watch = Watch { wallet_address: wallet, contracts: vec![wallet] };
        (wallet, entry(&format!("w/{wallet}"), &MatchingEntry::Watch(watch)))
    }

    /// Two lanes become three: entries of a wallet are in its lane, and no old lane may have given
    /// the new ids.
    #[test]
    fn wallets_are_dealt_to_other_lanes() {
        let layout = |lanes| Layout { lanes, orders: 1, webhooks: 1 };
        let (from, to) = (layout(2), layout(3));
        let (_, lane) = lane_of(&[], Partition(40), 7).unwrap();
        let watched: Vec<_> = (1..30).map(watch).collect();
        let mut entries = vec![entry("lane", &lane), entry("lane", &lane)];
        entries.extend(watched.iter().map(|(_, entry)| entry.clone()));
        let chains: Vec<_> = Blockchain::ALL
            .iter()
            .map(|chain| match chain {
                Blockchain::Polygon => (*chain, entries.clone()),
                _ => (*chain, Vec::new()),
            })
            .collect();
        let records = lanes(&chains, &from, &to).unwrap();
        let count = Topic::TransfersRaw.partitions(&to);
        let mut seen = Vec::new();
        for partition in Topic::MatchingChangelog.all_partitions(&to) {
            let mut state = State::fresh(partition, &to).unwrap();
            for record in records.iter().filter(|record| record.to.partition == partition) {
                wire::restore(&mut state, &record.key, record.value.as_deref()).unwrap();
            }
            for (_, entry) in state.snapshot() {
                match entry {
                    MatchingEntry::Lane(lane) => {
                        let ids = u32::try_from(lane.id_partition.unwrap()).unwrap();
                        assert!(ids > 40 && ids <= 40 + count, "{partition}: {ids}");
                        assert_eq!(lane.sequence, 7);
                        seen.push(ids);
                    }
                    MatchingEntry::Watch(watch) => {
                        assert_eq!(to.lane(Blockchain::Polygon, &watch.wallet_address), partition);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), usize::try_from(count).unwrap(), "a partition of ids for each");
        assert_eq!(records.len(), seen.len() + watched.len());
        assert!(DepositId::from_parts(Partition(40 + count), 1).0 < 1 << 53);
    }

    #[test]
    fn ids_do_not_outgrow_their_bits() {
        let layout = Layout { lanes: 256, orders: 1, webhooks: 1 };
        let (_, lane) = lane_of(&[], Partition(ID_PARTITIONS_MAX - 2), 7).unwrap();
        let chains = [(Blockchain::Eth, vec![entry("lane", &lane)])];
        let refused = lanes(&chains, &layout, &layout).unwrap_err();
        assert!(refused.contains("keep log.lanes"), "{refused}");
        let bad = [(Blockchain::Eth, vec![Entry { key: b"lane".to_vec(), value: vec![1] }])];
        assert!(lanes(&bad, &layout, &layout).is_err());
        let mut record = plain(Topic::OrdersChangelog, Partition(0), &bad[0].1[0]);
        continue_at(&mut record, &[(Topic::OrdersCommands, Offset(7))]);
        assert_eq!(record.headers.get(NEXT_HEADER), Some(b"orders.commands/7".as_slice()));
    }
}
