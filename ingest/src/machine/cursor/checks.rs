//! Checks by another endpoint: the present one with its open differences, and past ones with their times, from which
//! [`super::due`] derives the next.

use std::collections::{BTreeMap, HashSet, VecDeque};

use schemas::record::{Block, Observation};
use schemas::{BlockHash, PaymentKey, UnixMicros, UnixSeconds};

use super::Cursor;
use crate::machine::evidence::Verdict;
use crate::machine::range::RangeSize;
use crate::machine::{History, Note, Role};

/// Minimum time in seconds since a block's scan for its logs to count as complete. Nodes, and backends of one address,
/// show a header up to 3 s before its logs, mostly less than 1 s. A block's own time counts only if it was final when
/// scanned: any other block may have arrived much later, by a reorganisation.
pub(super) const CHECK_AGE_SECONDS: i64 = 6;
const CHECK_AGE_MICROS: i64 = CHECK_AGE_SECONDS * 1_000_000;
/// Minimum interval between counted denials, questions about held transfers, and probes for another endpoint.
pub(super) const AGAIN_MICROS: i64 = CHECK_AGE_MICROS;
/// Maximum interval between questions about transfers that are held for long.
const HELD_WAIT_MAX_MICROS: i64 = 300_000_000;
/// Maximum number of remembered changes of the scanning endpoint; who scanned earlier blocks is unknown.
const SWITCHES_MAX: usize = 48;
/// Number of questions about held transfers before they become rarer.
const HELD_ASKS_OFTEN: u32 = 4;

/// The range to scan after the check, `true` if the next one follows at once; `None` at the tip.
pub(super) type Then = Option<(i64, i64, bool)>;

/// A check by another endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check {
    /// The range to fetch again; empty for a check of the tip.
    pub(super) from: i64,
    pub(super) to: i64,
    /// Our block at or after the end: an endpoint that has it has ours before it too.
    pub(super) anchor: Block,
    /// Height to be vouched for.
    pub(super) candidate: Option<i64>,
    /// `true` if the range was checked before, and is final now.
    pub(super) is_rescan: bool,
    /// `true` if the endpoint that scanned the range answers the check too, as no other one
    /// responds.
    pub(super) is_alone: bool,
    /// Continuation of the step after the check.
    pub(super) then: Then,
    pub(super) role: Role,
}

impl Check {
    /// Returns a check without a range, about a block of the chain up to `last`.
    pub(super) fn of_tip(anchor: Block, last: i64, then: Then) -> Self {
        Self {
            from: last + 1,
            to: last,
            anchor,
            candidate: None,
            is_rescan: false,
            is_alone: false,
            then,
            role: Role::Second,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to < self.from
    }
}

/// A check and its notes, while the differences of its answer are examined.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) check: Check,
    pub(super) notes: Vec<Note>,
}

/// A transfer to settle by receipts.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// Its block; if that is not published yet, its time is unknown before the first answer.
    pub(super) block: Block,
    pub(super) seen: Observation,
    /// Number of equal ones before it in its transaction.
    pub(super) rank: usize,
    pub(super) is_published: bool,
    pub(super) is_held: bool,
    /// `true` if the second answer lacks it.
    pub(super) is_missing: bool,
    /// `true` if the second answer had it from the receipts of its block.
    pub(super) by_receipts: bool,
    /// Verdict of the endpoint that gave the second answer.
    pub(super) own: Option<Verdict>,
}

/// Past checks and their times.
#[derive(Debug)]
pub(super) struct Checks {
    /// Height up to which blocks were checked after they had become final, or need no check.
    pub(super) rescanned: i64,
    /// Chain time at which no final block was left to check again.
    pub(super) rescanned_at: i64,
    pub(super) range: RangeSize,
    pub(super) failures: u32,
    /// Recent scan times, each with the last block scanned by then.
    pub(super) scanned_at: VecDeque<(i64, UnixMicros)>,
    /// First and last of the newest run of blocks that were final when they were scanned.
    scanned_final: (i64, i64),
    /// Number of steps to begin without a check, after a failed one.
    pub(super) wait: u32,
    /// Consecutive denials of a transfer by every endpoint, and the time of the last one.
    pub(super) denied: BTreeMap<(i64, BlockHash, PaymentKey), (u32, UnixMicros)>,
    /// The held transfers that were reported as disputed.
    pub(super) reported: HashSet<(BlockHash, PaymentKey)>,
    /// Time of the last question about held transfers, or of the last new held transfer.
    held_at: UnixMicros,
    /// Number of questions about held transfers since the last new one.
    held_asks: u32,
    /// Time another endpoint was last asked for the blocks that one checked alone.
    pub(super) alone_at: UnixMicros,
    /// `true` if the last report was that one endpoint confirms alone.
    pub(super) is_alone: bool,
    /// Height that a lagging endpoint is asked again to vouch for.
    pub(super) candidate: Option<i64>,
    /// Our block that a lagging endpoint is asked for again.
    pub(super) anchor: Option<Block>,
    /// Block that another endpoint showed above our last one.
    pub(super) shown: Option<Block>,
    /// `true` if another endpoint was asked to vouch since the last tip.
    pub(super) is_asked: bool,
    /// Last blocks before each change of the scanner. A check ends there, as it must be by
    /// another endpoint than the scan.
    pub(super) switches: VecDeque<i64>,
    /// Height up to which it is unknown which endpoint scanned: two endpoints are asked for these
    /// blocks.
    pub(super) unknown_to: i64,
    /// Newest block time that a second answer has confirmed, or that needs none.
    pub(super) time: Option<UnixSeconds>,
}

/// Newest block time up to which any amount is confirmed.
fn confirmed_time(history: &History) -> Option<UnixSeconds> {
    history.head().confirmed.iter().filter_map(|tier| tier.timestamp).max()
}

impl Checks {
    /// Checks of a cursor that continues after the last head.
    pub(super) fn new(history: Option<&History>, range_max: i64) -> Self {
        Self {
            rescanned: history.map_or(-1, |history| history.head().finalized),
            rescanned_at: 0,
            range: RangeSize::new(range_max),
            failures: 0,
            scanned_at: VecDeque::new(),
            scanned_final: (0, -1),
            wait: 0,
            denied: BTreeMap::new(),
            reported: HashSet::new(),
            held_at: UnixMicros(0),
            held_asks: 0,
            alone_at: UnixMicros(0),
            is_alone: false,
            candidate: None,
            anchor: None,
            shown: None,
            is_asked: false,
            switches: VecDeque::new(),
            unknown_to: history.map_or(-1, |history| history.last().number),
            time: history.and_then(confirmed_time),
        }
    }

    /// Takes note of the block before the first one to scan: blocks up to it need no second check.
    pub(super) fn begin(&mut self, number: i64) {
        self.rescanned = number;
    }

    /// Takes note of a rewind to a height: the blocks above it are of another chain now.
    pub(super) fn rewind(&mut self, number: i64) {
        self.rescanned = self.rescanned.min(number);
        self.denied.clear();
        self.reported.clear();
        (self.candidate, self.anchor, self.shown) = (None, None, None);
        self.scanned_at.clear();
        self.scanned_final.1 = self.scanned_final.1.min(number);
        self.switches.retain(|last| *last <= number);
        self.unknown_to = self.unknown_to.min(number);
    }

    /// Takes note that another endpoint scans the blocks after `last`.
    pub(super) fn switch(&mut self, checked: i64, last: i64) {
        self.switches.retain(|switch| *switch > checked && *switch < last);
        self.switches.push_back(last);
        self.shown = None;
        if self.switches.len() > SWITCHES_MAX
            && let Some(forgotten) = self.switches.pop_front()
        {
            self.unknown_to = self.unknown_to.max(forgotten);
        }
    }

    /// Notes that the chain is scanned up to a block.
    pub(super) fn scanned(&mut self, number: i64, now: UnixMicros) {
        let is_old = |at: &(i64, UnixMicros)| at.1.0 <= now.0.saturating_sub(CHECK_AGE_MICROS);
        while self.scanned_at.get(1).is_some_and(is_old) {
            self.scanned_at.pop_front();
        }
        self.scanned_at.push_back((number, now));
    }

    /// Notes that these blocks were final when they were scanned. The range may be empty.
    pub(super) fn scanned_final(&mut self, from: i64, to: i64) {
        if to < from {
            return;
        }
        let is_next = self.scanned_final.1 >= from - 1;
        self.scanned_final = (if is_next { self.scanned_final.0 } else { from }, to);
    }

    /// Returns `true` if held transfers are due for a question, and counts it.
    pub(super) fn ask_held(&mut self, now: UnixMicros) -> bool {
        let doublings = self.held_asks.saturating_sub(HELD_ASKS_OFTEN).min(16);
        let wait = AGAIN_MICROS.saturating_mul(1 << doublings).min(HELD_WAIT_MAX_MICROS);
        let is_due = now.0 >= self.held_at.0.saturating_add(wait);
        if is_due {
            (self.held_at, self.held_asks) = (now, self.held_asks.saturating_add(1));
        }
        is_due
    }

    pub(super) fn held(&mut self, now: UnixMicros) {
        (self.held_at, self.held_asks) = (now, 0);
    }

    /// Moves times of the future to the present, where the clock was set back: waits must not last as long as it was
    /// ahead.
    pub(super) fn end_future(&mut self, now: UnixMicros) {
        let scanned = self.scanned_at.iter_mut().map(|(_, at)| at);
        let denied = self.denied.values_mut().map(|(_, at)| at);
        for at in scanned.chain(denied).chain([&mut self.held_at, &mut self.alone_at]) {
            *at = now.min(*at);
        }
    }

    /// Returns `true` if a block was scanned long enough ago.
    pub(super) fn is_old(&self, number: i64, now: UnixMicros) -> bool {
        let old = now.0.saturating_sub(CHECK_AGE_MICROS);
        self.scanned_at.iter().any(|(to, at)| number <= *to && at.0 <= old)
    }

    /// Returns `true` if all blocks from one to another were final when they were scanned.
    pub(super) fn were_final(&self, from: i64, to: i64) -> bool {
        self.scanned_final.0 <= from && to <= self.scanned_final.1
    }

    pub(super) fn failed(&mut self, wait_max: u32) {
        self.failures = self.failures.saturating_add(1);
        self.wait = 1_u32.checked_shl(self.failures).unwrap_or(wait_max).min(wait_max);
    }
}

impl Cursor {
    /// Notes the blocks that a check covered.
    pub(super) fn count_check(&mut self, check: Check) {
        self.checks.failures = 0;
        if check.is_empty() {
            return;
        }
        let base = self.evidence.checked().max(self.known().complete_above());
        if check.is_rescan {
            self.checks.rescanned = self.checks.rescanned.max(check.to);
            if check.to == check.anchor.number {
                self.checks.rescanned_at = self.newest.map_or(0, |newest| newest.0);
            }
        } else {
            // Above blocks that one endpoint checked alone, a check by two counts as alone too: the checked height must
            // not skip blocks.
            let is_alone = check.is_alone || check.from > base.saturating_add(1);
            self.evidence.check(check.to, is_alone);
            if check.to == check.anchor.number {
                // The anchor vouches for block times only if the range ends at it.
                self.checks.time = self.checks.time.max(Some(check.anchor.timestamp));
            }
            if !check.is_alone {
                // Another endpoint responds: blocks that one checked alone are next.
                self.checks.alone_at = UnixMicros(0);
            }
            if !is_alone {
                self.count_final(check.from, check.to);
            }
        }
        self.checks.range.grow(check.to - check.from + 1);
    }

    /// Notes that the final blocks of this check need no other one.
    fn count_final(&mut self, from: i64, to: i64) {
        if self.checks.rescanned >= from - 1 {
            self.checks.rescanned = self.checks.rescanned.max(to.min(self.final_to));
        }
    }

    /// Exempts a range that was old and final when it was scanned from the second check, if the
    /// same endpoint would make it.
    pub(super) fn exempt(&mut self, from: i64, to: Block) {
        if self.rules.has_second {
            return;
        }
        let is_old =
            self.newest.is_some_and(|newest| to.timestamp.plus(CHECK_AGE_SECONDS) <= newest);
        if self.evidence.checked() >= from - 1 && is_old && to.number <= self.final_to {
            self.evidence.check(to.number, false);
            self.checks.time = self.checks.time.max(Some(to.timestamp));
            self.count_final(from, to.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_blocks_before_the_switches_nobody_knows() {
        let mut checks = Checks::new(None, 100);
        let mut switch = |last: usize| {
            checks.switch(0, i64::try_from(last).unwrap());
            (checks.switches.len(), checks.unknown_to)
        };
        let known = (1..=SWITCHES_MAX).map(&mut switch).all(|(_, to)| to == -1);
        assert!(known);
        assert_eq!(switch(SWITCHES_MAX + 1), (SWITCHES_MAX, 1));
        assert_eq!(switch(SWITCHES_MAX + 2), (SWITCHES_MAX, 2));
    }
}
