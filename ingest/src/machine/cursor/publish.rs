//! The records of a step, and the head's fields.

use schemas::record::{Block, ChainBody, ChainRecord, ConfirmedTier, Head};
use schemas::{Epoch, UnixMicros};

use super::{Cursor, Phase};
use crate::machine::{Decision, History, Next};

/// Maximum lead in seconds of `observed_at` over the chain's newest block: longer than chains pause. `observed_at` only
/// increases, so one jump of the clock would move all later records ahead.
const AHEAD_MAX_SECONDS: i64 = 600;

impl Cursor {
    /// Holds back a head that brings no transfers, if no transfer waits for confirmation, no watch for its publication,
    /// and the last head is recent. Deposits expire by heads, so an expiry may be delayed as long as the head.
    pub(super) fn hold_back(&mut self) -> bool {
        let known = self.known();
        let confirmed = known.head().confirmed.iter().map(|tier| tier.number).min();
        let is_confirmed = known.above(confirmed.unwrap_or(-1)).next().is_none();
        let is_held_back = is_confirmed && self.may_hold_back();
        self.held_back += u32::from(is_held_back);
        is_held_back
    }

    /// Returns `true` if a head without news can wait.
    pub(super) fn may_hold_back(&self) -> bool {
        self.unannounced.is_empty() && self.held_back < self.rules.idle_polls
    }

    /// Returns the watches to publish before `records`: payments are seen in the blocks after our last one, or, on the
    /// first start, after the last head of the first step.
    fn announcements(&mut self, records: &[ChainRecord]) -> Vec<ChainRecord> {
        let Some(end) = records.last() else { return Vec::new() };
        let block = self.history.as_ref().map_or(end.block, History::last);
        let announce = |watch| {
            let body = ChainBody::Watch(watch);
            let ChainRecord { blockchain, epoch, observed_at, .. } = *end;
            ChainRecord { blockchain, epoch, block, observed_at, body, confirmed: false }
        };
        std::mem::take(&mut self.unannounced).into_iter().map(announce).collect()
    }

    /// Returns the head at `number`. `fresh` are the anchors that the same step adds, `blocks`
    /// other known ones.
    ///
    /// Ingest never rewinds below the finalized height, and a rewind ends at an anchor. So the finalized height is that
    /// of an anchor, or below all of them. Blocks that still need a second check are neither final nor confirmed.
    pub(super) fn head(&self, number: i64, fresh: &[Block], blocks: &[Block]) -> Head {
        let history = self.history.as_ref();
        let newest = |blocks: &[Block], limit: i64| {
            let below = blocks.iter().filter(|block| block.number <= limit);
            let below = below.max_by_key(|block| block.number).copied();
            below.or_else(|| history?.anchor_at_or_below(limit))
        };
        let window = number.saturating_sub(self.rules.reorg_window);
        let limit = self.evidence.tags().finalized.unwrap_or(window).min(number);
        let before = history.map(History::head);
        let limit = limit.min(self.final_max()).min(self.evidence.vouched_to());
        let finalized = newest(fresh, limit).map_or(limit, |block| block.number);
        let begun = || self.rules.lost.map_or(-1, |lost| lost.number);
        let finalized = finalized.max(before.map_or_else(begun, |head| head.finalized)).max(-1);
        let mut confirmed = self.evidence.confirmed(number);
        for tier in &mut confirmed {
            let covers = |before: &&ConfirmedTier| match (before.below, tier.below) {
                (None, _) => true,
                (Some(before), Some(below)) => before >= below,
                (Some(_), None) => false,
            };
            let before = before.and_then(|head| head.confirmed.iter().find(covers));
            // Confirmed blocks stay confirmed unless they are rewound: a restart resumes checks at this height.
            let kept = before.map_or(-1, |before| before.number.min(number));
            tier.number = tier.number.max(kept);
            // The time of final blocks counts too: they cannot change, even if the policy does not confirm them yet.
            let limit = tier.number.max(finalized);
            let time = |blocks| newest(blocks, limit).map(|block: Block| block.timestamp);
            let time = time(blocks).max(time(fresh));
            let before = before.filter(|before| before.number <= tier.number);
            // Bounded by the newest block time that a second answer confirmed: one endpoint may invent a time.
            let time = self.checks.time.map_or(time, |checked| time.map(|time| time.min(checked)));
            tier.timestamp = time.max(before.and_then(|before| before.timestamp));
        }
        Head {
            confirmed,
            finalized,
            match_window_seconds: self.rules.match_window_seconds,
            held: self.evidence.held().to_vec(),
            has_gap: self.has_gap,
        }
    }

    pub(super) fn record(
        &self,
        epoch: Epoch,
        block: Block,
        now: UnixMicros,
        body: ChainBody,
    ) -> ChainRecord {
        let newest = self.newest.map(|newest| newest.plus(AHEAD_MAX_SECONDS).micros());
        let now = newest.map_or(now, |newest| newest.min(now));
        let before = self.rules.lost.map(|lost| lost.observed_at);
        let before = self.history.as_ref().map(History::observed_at).or(before);
        let observed_at = before.map_or(now, |before| before.next(now));
        let blockchain = self.rules.blockchain;
        ChainRecord { blockchain, epoch, block, observed_at, body, confirmed: false }
    }

    pub(super) fn publish(&mut self, mut records: Vec<ChainRecord>, next: Next) -> Decision {
        mark_confirmed(&mut records);
        records.splice(..0, self.announcements(&records));
        for record in &records {
            self.history = History::fold(self.history.take(), record);
        }
        if let Some(history) = &mut self.history {
            history.prune(self.rules.reorg_window);
        }
        self.ahead = None;
        // Kept until they are checked twice: their times are needed when they are confirmed, for the expiry of
        // deposits.
        let checked = self.evidence.checked();
        self.blocks_ahead.retain(|block| block.number >= checked);
        self.held_back = 0;
        self.quiet = 0;
        self.phase = Phase::Tip;
        Decision { publish: records, notes: Vec::new(), next }
    }
}

/// Marks the transfers that a step's last head confirms: while ingest catches up, the processor can then publish one
/// record of a payment instead of two.
fn mark_confirmed(records: &mut [ChainRecord]) {
    let Some((ChainRecord { block, body: ChainBody::Head(head), .. }, earlier)) =
        records.split_last_mut()
    else {
        return;
    };
    for record in earlier {
        if let ChainBody::Transfer(seen) = &record.body {
            record.confirmed =
                record.block.number <= block.number && head.confirms(&record.block, seen);
        }
    }
}
