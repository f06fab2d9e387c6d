//! The records of a chain: its transfers in blocks, and the time up to which all is decided.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use api::inspect::search::TRANSFERS;
use ingest::Survey;
use log::{Record, TopicPartition};
use reconcile::{Inclusion, Period};
use schemas::record::{
    Block, ChainBody, ChainProgress, ChainRecord, Head, Observation, Transfer, Watch,
};
use schemas::{
    Address, BlockHash, Blockchain, Epoch, Partition, PaymentKey, Topic, TransferId, UnixSeconds,
};

use super::records::{Newest, Reader};

/// `transfers.raw` of a chain, without retracted transfers.
pub(super) struct Published {
    pub(super) blockchain: Blockchain,
    /// Transfers in blocks of the period.
    live: BTreeMap<PaymentKey, (Block, Observation)>,
    /// Chain time up to which each lane has decided everything; `None` for a lane that has decided nothing.
    lanes: Vec<Option<UnixSeconds>>,
    /// The first published block at or after the end of the period; without one, the last published block.
    pub(super) anchor: Option<Block>,
    /// Transfers that endpoints disagree about.
    pub(super) held: BTreeSet<PaymentKey>,
    /// Transfers that were retracted, even if they were published again.
    pub(super) retracted: BTreeSet<PaymentKey>,
    /// Height at which the watch of a wallet and a contract began; `None` if it began before the records of the period.
    watched: BTreeMap<(Address, Address), Option<i64>>,
}

impl Published {
    pub(super) fn read(reader: &mut Reader<'_>, blockchain: Blockchain) -> anyhow::Result<Self> {
        let mut decided: BTreeMap<i32, (Epoch, i64)> = BTreeMap::new();
        let chains = Topic::Chains;
        let of = TopicPartition { topic: chains, partition: Partition(blockchain.index()) };
        reader.partition(of, |_, progress: ChainProgress| {
            if let Some(lane) = progress.lane {
                decided.insert(lane, (progress.epoch, progress.head.number));
            }
        })?;
        let (live, held, retracted, watched, lanes) = Default::default();
        let mut published =
            Self { blockchain, live, lanes, anchor: None, held, retracted, watched };
        for partition in reader.lanes_of(blockchain) {
            let of = TopicPartition { topic: Topic::TransfersRaw, partition };
            let decided = decided.get(&partition.0.cast_signed()).copied();
            let (period, mut settled) = (reader.period, None);
            reader.partition(of, |_, record: ChainRecord| {
                published.take(period, &record);
                if let ChainBody::Head(head) = &record.body
                    && decided >= Some((record.epoch, record.block.number))
                {
                    settled = settled_by(head);
                }
            })?;
            published.lanes.push(settled);
        }
        // Most periods have no watch, and need no earlier records.
        if published.watched.values().any(Option::is_some) {
            for partition in reader.lanes_of(blockchain) {
                let of = TopicPartition { topic: Topic::TransfersRaw, partition };
                reader.before(of, |_, record: ChainRecord| published.take_earlier(&record))?;
            }
        }
        Ok(published)
    }

    /// Takes a record from before those of the period.
    fn take_earlier(&mut self, record: &ChainRecord) {
        for pair in pairs(&record.body) {
            self.watched.insert(pair, None);
        }
    }

    fn take(&mut self, period: Period, record: &ChainRecord) {
        let block = record.block;
        let is_watch = matches!(record.body, ChainBody::Watch(_));
        for pair in pairs(&record.body) {
            // A transfer before the first watch of the period belongs to a watch that began earlier.
            self.watched.entry(pair).or_insert(is_watch.then_some(block.number));
        }
        match &record.body {
            ChainBody::Transfer(seen) if period.contains(block.timestamp) => {
                self.live.insert(seen.payment(), (block, *seen));
            }
            ChainBody::Transfer(_) | ChainBody::Watch(_) => {}
            ChainBody::Retract(seen) => {
                let payment = seen.payment();
                if self.live.get(&payment).is_some_and(|(live, _)| live.hash == block.hash) {
                    self.live.remove(&payment);
                }
                self.retracted.insert(payment);
            }
            ChainBody::Head(head) => {
                self.held = head.held.iter().map(|held| held.transfer.payment()).collect();
                let is_behind = |anchor: Block| anchor.timestamp >= period.to;
                let keeps = self
                    .anchor
                    .is_some_and(|anchor| is_behind(anchor) && anchor.number <= block.number);
                if !keeps {
                    self.anchor = Some(block);
                }
            }
        }
    }

    /// Returns the chain time up to which all lanes have decided everything; `None` if a lane has decided nothing.
    pub(super) fn settled(&self) -> Option<UnixSeconds> {
        self.lanes.iter().copied().collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// The transfers in blocks of a part of the period, in the order of the chain.
    pub(super) fn raw(&self, part: Period) -> Vec<Inclusion> {
        let inside = self.live.values().filter(|(block, _)| part.contains(block.timestamp));
        let mut raw: Vec<_> = inside
            .map(|(block, seen)| Inclusion { number: block.number, hash: block.hash, seen: *seen })
            .collect();
        raw.sort_by_key(|one| (one.number, one.seen.log_index));
        raw
    }

    /// The number of transfers of the period in blocks from a time on.
    pub(super) fn younger(&self, from: UnixSeconds) -> u64 {
        let is_younger = |(block, _): &&(Block, Observation)| block.timestamp >= from;
        self.live.values().filter(is_younger).count() as u64
    }

    /// The transfers that endpoints show. A payment in or before the block at which the watch of its wallet and
    /// contract began is left out, unless it was published, as by a rescan.
    pub(super) fn due(&self, survey: &Survey) -> Vec<Inclusion> {
        let published: HashSet<_> =
            self.live.values().map(|(block, seen)| (block.hash, seen.payment())).collect();
        let is_due = |(number, hash, seen): &&(i64, BlockHash, Observation)| {
            let since = self.watched.get(&(seen.to_address, seen.contract)).copied().flatten();
            since.is_none_or(|since| *number > since)
                || published.contains(&(*hash, seen.payment()))
        };
        let due = survey.received.iter().filter(is_due);
        due.map(|(number, hash, seen)| Inclusion { number: *number, hash: *hash, seen: *seen })
            .collect()
    }
}

/// The wallets and contracts that a record shows to be watched.
fn pairs(body: &ChainBody) -> Vec<(Address, Address)> {
    match body {
        ChainBody::Transfer(seen) => vec![(seen.to_address, seen.contract)],
        ChainBody::Watch(Watch { wallet_address, contracts }) => {
            contracts.iter().map(|contract| (*wallet_address, *contract)).collect()
        }
        ChainBody::Retract(_) | ChainBody::Head(_) => Vec::new(),
    }
}

/// Returns the time up to which a head decides everything: blocks of that time are confirmed for
/// every amount, and no deposit can open for them any more.
fn settled_by(head: &Head) -> Option<UnixSeconds> {
    let times = head.confirmed.iter().map(|tier| tier.timestamp);
    let confirmed = times.collect::<Option<Vec<_>>>()?.into_iter().min()?;
    Some(confirmed.plus(head.match_window_seconds.saturating_neg()))
}

/// The newest record of each transfer whose block is in the period.
pub(super) fn transfers(
    reader: &mut Reader<'_>,
    blockchain: Blockchain,
) -> anyhow::Result<BTreeMap<TransferId, Newest<Transfer>>> {
    let mut newest: BTreeMap<TransferId, Newest<Transfer>> = BTreeMap::new();
    let period = reader.period;
    for topic in TRANSFERS {
        for partition in reader.lanes_of(blockchain) {
            let of = TopicPartition { topic, partition };
            reader.partition(of, |record: &Record, value: Transfer| {
                let known = newest.get(&value.transfer_id);
                let is_of = known.is_some() || period.contains(value.block.timestamp);
                if is_of && known.is_none_or(|known| known.value.updated_at < value.updated_at) {
                    let Record { offset, appended_at, .. } = *record;
                    let id = value.transfer_id;
                    newest.insert(id, Newest { value, at: of, offset, appended_at });
                }
            })?;
        }
    }
    newest.retain(|_, newest| period.contains(newest.value.block.timestamp));
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use schemas::record::example;
    use schemas::{Hash, UnixMicros};

    use super::*;

    const PERIOD: Period = Period { from: UnixSeconds(100), to: UnixSeconds(200) };

    fn published() -> Published {
        let (live, held, retracted, watched, lanes) = Default::default();
        let blockchain = Blockchain::Eth;
        Published { blockchain, live, lanes, anchor: None, held, retracted, watched }
    }

    /// A record about the block of this height and time.
    fn record(number: i64, fork: u8, body: ChainBody) -> ChainRecord {
        let block = Block { number, hash: Hash([fork; 32]), timestamp: UnixSeconds(number) };
        ChainRecord { block, body, observed_at: UnixMicros(0), ..example::chain_record() }
    }

    fn seen() -> Observation {
        let ChainBody::Transfer(seen) = example::chain_record().body else { panic!() };
        seen
    }

    fn head() -> Head {
        let ChainBody::Head(head) = example::chain_head().body else { panic!() };
        head
    }

    fn numbers(published: &Published) -> Vec<i64> {
        published.raw(PERIOD).iter().map(|one| one.number).collect()
    }

    #[test]
    fn what_was_retracted_does_not_count() {
        let mut published = published();
        let (transfer, retract) = (ChainBody::Transfer(seen()), ChainBody::Retract(seen()));
        published.take(PERIOD, &record(99, 1, transfer.clone()));
        assert_eq!(numbers(&published), [0_i64; 0], "before the period");
        published.take(PERIOD, &record(150, 1, transfer.clone()));
        assert_eq!((numbers(&published), published.younger(UnixSeconds(150))), (vec![150], 1));
        assert!(published.retracted.is_empty());
        published.take(PERIOD, &record(150, 1, retract.clone()));
        assert_eq!(numbers(&published), [0_i64; 0]);
        assert!(published.retracted.contains(&seen().payment()));
        published.take(PERIOD, &record(151, 2, transfer));
        published.take(PERIOD, &record(150, 1, retract));
        assert_eq!(numbers(&published), [151], "the same payment in another block");
    }

    #[test]
    fn a_head_settles_what_it_confirms_for_every_amount() {
        let mut head = head();
        head.match_window_seconds = 600;
        for (tier, seconds) in head.confirmed.iter_mut().zip([9_000, 8_000]) {
            tier.timestamp = Some(UnixSeconds(seconds));
        }
        assert_eq!(head.confirmed.len(), 2);
        assert_eq!(settled_by(&head), Some(UnixSeconds(7_400)));
        head.confirmed[1].timestamp = None;
        assert_eq!(settled_by(&head), None);
        let mut published = published();
        published.lanes = vec![Some(UnixSeconds(9)), Some(UnixSeconds(7))];
        assert_eq!(published.settled(), Some(UnixSeconds(7)));
        published.lanes.push(None);
        assert_eq!(published.settled(), None, "a lane without a head");
    }

    #[test]
    fn the_anchor_is_behind_the_period_and_on_the_chain() {
        let mut published = published();
        for (number, expected) in [(150, 150), (199, 199), (200, 200), (210, 200), (190, 190)] {
            published.take(PERIOD, &record(number, 1, ChainBody::Head(head())));
            assert_eq!(published.anchor.map(|anchor| anchor.number), Some(expected), "{number}");
        }
    }

    #[test]
    fn payments_before_a_watch_are_not_due() {
        let mut published = published();
        let survey = Survey {
            blocks: vec![100, 200],
            endpoints: 1,
            left_out: Vec::new(),
            received: [150, 151].map(|number| (number, Hash([1; 32]), seen())).to_vec(),
            sent: Vec::new(),
            wealth: Ok(Vec::new()),
        };
        assert_eq!(published.due(&survey).len(), 2);
        let (wallet_address, contracts) = (seen().to_address, vec![seen().contract]);
        let watch = ChainBody::Watch(Watch { wallet_address, contracts });
        published.take(PERIOD, &record(150, 1, watch.clone()));
        assert_eq!(published.due(&survey).len(), 1);
        // When a contract is added, the wallet is announced again, with the contracts that were watched before.
        for earlier in [watch.clone(), ChainBody::Transfer(seen())] {
            let mut published = self::published();
            published.take(PERIOD, &record(150, 1, watch.clone()));
            published.take_earlier(&record(20, 1, earlier));
            assert_eq!(published.due(&survey).len(), 2);
        }
        let mut published = self::published();
        published.take(PERIOD, &record(99, 1, ChainBody::Transfer(seen())));
        published.take(PERIOD, &record(150, 1, watch));
        assert_eq!(published.due(&survey).len(), 2, "a transfer came before this watch");
    }
}
