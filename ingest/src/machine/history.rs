//! Published records of a chain, as far back as a rewind may reach.
//!
//! The published records are the only source: a running cursor applies each step it publishes, and a restart applies
//! the same records read back from the log. So both have the same state.

use std::collections::BTreeMap;

use schemas::record::{Block, ChainBody, ChainRecord, Head, Observation};
use schemas::{Epoch, UnixMicros};

/// State after the records of a lane, or of all lanes of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    epoch: Epoch,
    last: Block,
    head: Head,
    observed_at: UnixMicros,
    /// Height of the newest head that confirms every amount up to itself, so that no transfer at or below it is
    /// missing; -1 if none is known. The head before the first scanned block is such a head.
    settled: i64,
    /// Blocks that were on the chain when scanned: every head and every block with a transfer, so
    /// that a rewind to the newest canonical one retracts no canonical transfer.
    anchors: BTreeMap<i64, Block>,
    /// Transfers that were not retracted, by height.
    live: BTreeMap<i64, Vec<(Block, Observation)>>,
}

impl History {
    /// Applies the next record of a lane or chain. Records before the first head are ignored: they are of blocks at or
    /// below it, where nothing is retracted.
    pub(crate) fn fold(history: Option<Self>, record: &ChainRecord) -> Option<Self> {
        match (history, &record.body) {
            (Some(mut history), _) => {
                history.apply(record);
                Some(history)
            }
            (None, ChainBody::Head(head)) => Some(Self {
                epoch: record.epoch,
                last: record.block,
                head: head.clone(),
                observed_at: record.observed_at,
                settled: settled(head, record.block.number),
                anchors: BTreeMap::from([(record.block.number, record.block)]),
                live: BTreeMap::new(),
            }),
            (None, ChainBody::Transfer(_) | ChainBody::Retract(_) | ChainBody::Watch(_)) => None,
        }
    }

    pub(crate) fn apply(&mut self, record: &ChainRecord) {
        let (block, number) = (record.block, record.block.number);
        match &record.body {
            ChainBody::Transfer(seen) => {
                self.anchors.insert(number, block);
                insert(&mut self.live, (block, *seen));
            }
            ChainBody::Retract(seen) => {
                let is_other = |live: &(Block, Observation)| live.1.payment() != seen.payment();
                if let Some(live) = self.live.get_mut(&number) {
                    live.retain(is_other);
                    if live.is_empty() {
                        self.live.remove(&number);
                    }
                }
            }
            ChainBody::Watch(_) => {}
            ChainBody::Head(head) => {
                if record.epoch > self.epoch {
                    self.anchors.split_off(&number.saturating_add(1));
                    self.settled = self.settled.min(number);
                } else {
                    self.settled = self.settled.max(settled(head, number));
                }
                self.epoch = record.epoch;
                self.last = block;
                self.head = head.clone();
                self.observed_at = record.observed_at;
                self.anchors.insert(number, block);
            }
        }
    }

    /// Drops state that no rewind and no second check needs: the anchors below the newest one at or below
    /// [`History::reach`], and the transfers up to that one.
    pub(crate) fn prune(&mut self, window: i64) {
        let Some(keep) = self.anchor_at_or_below(self.reach(window)).map(|b| b.number) else {
            return;
        };
        self.anchors = self.anchors.split_off(&keep);
        self.live = self.live.split_off(&keep.saturating_add(1));
        if self.settled <= keep {
            self.settled = -1;
        }
    }

    /// Height up to which blocks had all proofs: they are confirmed for the largest amounts, or final. Smaller amounts
    /// may have been confirmed further by one endpoint alone.
    pub(crate) fn checked(&self) -> i64 {
        let largest = self.head.confirmed.last().map_or(-1, |tier| tier.number);
        largest.max(self.head.finalized)
    }

    /// Height above which rewinds and second checks need the whole history.
    pub(crate) fn reach(&self, window: i64) -> i64 {
        self.floor(window).min(self.checked())
    }

    /// The height down to which a rewind must be possible.
    pub(crate) fn floor(&self, window: i64) -> i64 {
        self.head.finalized.max(self.last.number.saturating_sub(window))
    }

    /// Merges another lane of the same chain. Returns `false`, unchanged, if the lanes end at different heads.
    #[must_use]
    pub(crate) fn absorb(&mut self, lane: Self) -> bool {
        let is_same = (lane.epoch, lane.last) == (self.epoch, self.last);
        if is_same {
            self.anchors.extend(lane.anchors);
            for transfer in lane.live.into_values().flatten() {
                insert(&mut self.live, transfer);
            }
        }
        is_same
    }

    /// Returns the history above a height, its anchor included.
    #[cfg(test)]
    pub(crate) fn from(&self, number: i64) -> Self {
        let mut later = self.clone();
        later.anchors = later.anchors.split_off(&number);
        later.live = later.live.split_off(&(number + 1));
        later.settled = if later.settled <= number { -1 } else { later.settled };
        later
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn last(&self) -> Block {
        self.last
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn observed_at(&self) -> UnixMicros {
        self.observed_at
    }

    /// The newest anchor at or below a height.
    pub(crate) fn anchor_at_or_below(&self, number: i64) -> Option<Block> {
        self.anchors.range(..=number).next_back().map(|(_, block)| *block)
    }

    /// The newest anchor at or below a height for which `is` holds.
    pub(crate) fn anchor_where(&self, number: i64, is: impl Fn(&Block) -> bool) -> Option<Block> {
        self.anchors.range(..=number).rev().map(|(_, block)| *block).find(is)
    }

    /// The height above which every transfer that was published is known, and every block was scanned.
    pub(crate) fn complete_above(&self) -> i64 {
        self.lowest().max(self.settled)
    }

    /// The height of the lowest anchor.
    pub(crate) fn lowest(&self) -> i64 {
        self.anchors.keys().next().copied().unwrap_or(self.last.number)
    }

    /// The newest anchors below a height, newest first.
    pub(crate) fn anchors_below(&self, number: i64, count_max: usize) -> Vec<Block> {
        self.anchors.range(..number).rev().take(count_max).map(|(_, block)| *block).collect()
    }

    /// The published block at a height, where one is known.
    pub(crate) fn anchor_at(&self, number: i64) -> Option<Block> {
        self.anchors.get(&number).copied()
    }

    /// The transfers from one height to another, in order.
    pub(crate) fn between(&self, from: i64, to: i64) -> Vec<(Block, Observation)> {
        if from > to {
            return Vec::new();
        }
        self.live.range(from..=to).flat_map(|(_, seen)| seen).copied().collect()
    }

    /// The transfers above a height, in order.
    pub(crate) fn above(&self, number: i64) -> impl Iterator<Item = (Block, Observation)> + '_ {
        self.live.range(number.saturating_add(1)..).flat_map(|(_, seen)| seen).copied()
    }
}

/// Inserts a transfer in order, so that lanes can be read one by one.
fn insert(live: &mut BTreeMap<i64, Vec<(Block, Observation)>>, transfer: (Block, Observation)) {
    let block = live.entry(transfer.0.number).or_default();
    let place = |(_, seen): &(Block, Observation)| (seen.log_index, seen.payment());
    let at = block.partition_point(|other| place(other) <= place(&transfer));
    block.insert(at, transfer);
}

/// Returns the head's height if it confirms every tier up to it, else -1.
fn settled(head: &Head, number: i64) -> i64 {
    if head.confirmed.iter().all(|tier| tier.number == number) { number } else { -1 }
}

#[cfg(test)]
mod tests {
    use schemas::record::{ConfirmedTier, example};
    use schemas::{BlockHash, Hash, UnixSeconds};

    use super::*;
    use crate::simulation;

    fn block(number: i64, fork: u8) -> Block {
        let hash: BlockHash = Hash([fork; 32]);
        Block { number, hash, timestamp: UnixSeconds(number) }
    }

    fn record(epoch: i64, block: Block, body: ChainBody) -> ChainRecord {
        let observed_at = UnixMicros(epoch * 1000 + block.number);
        ChainRecord { epoch: Epoch(epoch), block, observed_at, body, ..example::chain_record() }
    }

    fn head(epoch: i64, number: i64, fork: u8, finalized: i64) -> ChainRecord {
        let tier = ConfirmedTier { below: None, number: number - 1, timestamp: None };
        let head = simulation::head(block(number, fork), vec![tier], finalized);
        ChainRecord { epoch: Epoch(epoch), ..head }
    }

    fn transfer(number: i64, fork: u8, log_index: i32) -> ChainRecord {
        let ChainBody::Transfer(seen) = example::chain_record().body else { panic!() };
        record(0, block(number, fork), ChainBody::Transfer(Observation { log_index, ..seen }))
    }

    fn retract(of: &ChainRecord, epoch: i64) -> ChainRecord {
        let ChainBody::Transfer(seen) = of.body else { panic!() };
        record(epoch, of.block, ChainBody::Retract(seen))
    }

    fn fold(records: &[ChainRecord]) -> History {
        records.iter().fold(None, History::fold).unwrap()
    }

    fn live(history: &History) -> Vec<(i64, i32)> {
        history.above(i64::MIN).map(|(block, seen)| (block.number, seen.log_index)).collect()
    }

    #[test]
    fn rewind_removes_anchors_and_retracted_transfers() {
        let kept = transfer(12, 1, 3);
        let gone = transfer(14, 1, 0);
        let history = fold(&[
            head(0, 10, 1, 0),
            kept,
            gone.clone(),
            head(0, 15, 1, 0),
            retract(&gone, 1),
            head(1, 12, 1, 0),
        ]);
        assert_eq!(history.epoch(), Epoch(1));
        assert_eq!(history.anchors_below(99, 9), [12, 10].map(|n| block(n, 1)));
        assert_eq!(live(&history), [(12, 3)]);
    }

    #[test]
    fn pruning_keeps_one_anchor_at_or_below_the_floor() {
        let mut history = fold(&[
            head(0, 10, 1, 0),
            transfer(12, 1, 3),
            head(0, 20, 1, 0),
            transfer(25, 1, 1),
            head(0, 30, 1, 5),
        ]);
        // The floor is 18: a rewind may have to reach it, and 12 is the newest anchor that does.
        history.prune(12);
        assert_eq!(history.anchors_below(99, 9), [30, 25, 20, 12].map(|n| block(n, 1)));
        assert_eq!(live(&history), [(25, 1)]);
        history.apply(&head(0, 31, 1, 26));
        history.prune(12);
        assert_eq!(history.anchors_below(99, 9), [31, 30, 25].map(|n| block(n, 1)));
        assert_eq!(live(&history), []);
        history.apply(&head(0, 60, 1, 26));
        history.prune(12);
        assert_eq!(history.anchors_below(99, 9), [60, 31].map(|n| block(n, 1)));
    }

    #[test]
    fn unconfirmed_transfers_are_kept_for_second_checks() {
        let mut last = head(0, 90, 1, 5);
        let ChainBody::Head(body) = &mut last.body else { panic!() };
        body.confirmed[0].number = 21;
        let mut history = fold(&[
            head(0, 10, 1, 0),
            head(0, 20, 1, 0),
            transfer(25, 1, 1),
            head(0, 30, 1, 5),
            last,
        ]);
        history.prune(12);
        assert_eq!((live(&history), history.complete_above()), (vec![(25, 1)], 20));
    }

    #[test]
    fn transfers_before_the_first_head_are_not_kept() {
        let history = fold(&[transfer(9, 1, 0), head(0, 10, 1, 0), head(0, 11, 1, 0)]);
        assert_eq!(live(&history), []);
        assert_eq!([transfer(9, 1, 0)].iter().fold(None, History::fold), None);
    }

    #[test]
    fn lanes_add_up_only_at_the_same_head() {
        let a = fold(&[head(0, 10, 1, 0), transfer(12, 1, 3), head(0, 15, 1, 0)]);
        let b = fold(&[head(0, 10, 1, 0), transfer(13, 1, 0), head(0, 15, 1, 0)]);
        let mut both = a.clone();
        assert!(both.absorb(b));
        assert_eq!(live(&both), [(12, 3), (13, 0)]);
        assert_eq!(both.anchors_below(99, 9).len(), 4);
        assert!(!both.absorb(fold(&[head(0, 15, 2, 0)])));
        assert!(!both.absorb(fold(&[head(1, 15, 1, 0)])));
    }
}
