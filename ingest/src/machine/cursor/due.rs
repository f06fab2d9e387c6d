//! Choice of the next question to another endpoint, and of its time.

use schemas::UnixMicros;
use schemas::record::{Block, Held};

use super::checks::{AGAIN_MICROS, CHECK_AGE_SECONDS, Check, Found, Question, Then};
use super::second::RECEIPT_BLOCKS_MAX;
use super::{Cursor, Phase};
use crate::machine::{Decision, Next};
#[cfg(test)]
use crate::sabotage::Defect;

/// Interval between repeated checks of final blocks, in seconds of chain time.
const RESCAN_SECONDS: i64 = 60;
/// Maximum blocks with transfers in one check if each needs the receipts of its transactions.
const PROVEN_BLOCKS_MAX: usize = 20;
/// Maximum backlog that is checked by the outcomes of all transactions, on chains where logs alone prove nothing: an
/// hour of Tron's blocks.
const OUTCOME_BLOCKS_MAX: i64 = 1200;

impl Cursor {
    /// Returns the next check by another endpoint, if transfers wait for it or a head is due. It covers the unchecked
    /// blocks up to the depth of confirmation, if any, and one of our blocks at or after them.
    fn next_check(&self, then: Then, now: UnixMicros) -> Option<Check> {
        let last = self.last().number;
        let reach = then.map_or(last, |(_, to, _)| to);
        let wanted = self.evidence.wanted(reach);
        let is_quiet = self.quiet >= self.rules.idle_polls;
        let is_head_due =
            then.is_some_and(|(.., again)| again) || !self.may_hold_back() || is_quiet;
        let checked = self.evidence.checked().max(self.known().complete_above());
        let is_alone = self.evidence.is_alone();
        let is_probe = is_alone && now.0 >= self.checks.alone_at.0.saturating_add(AGAIN_MICROS);
        let from = if is_alone && !is_probe { self.evidence.checked_by_any() } else { checked };
        let due = wanted.iter().map(|tier| tier.number).max()?.min(last);
        let anchor = self.old_anchor(due, checked, now).filter(|anchor| anchor.number > from);
        let waits = |anchor: &Block| {
            let mut live = self.known().above(from);
            live.next().is_some_and(|(block, _)| block.number <= anchor.number)
        };
        let anchor = anchor.filter(|anchor| waits(anchor) || is_head_due);
        // A lagging endpoint is asked for one block until it has it.
        let pinned = self.checks.anchor.filter(|block| self.block_at(block.number) == Some(*block));
        let pinned = pinned.filter(|block| block.number <= last);
        let anchor = anchor.map(|anchor| match pinned {
            Some(pinned) if (from + 1..anchor.number).contains(&pinned.number) => pinned,
            _ => anchor,
        });
        let may_vouch = self.rules.has_second && !self.checks.is_asked && (!is_alone || is_probe);
        let candidate = self.checks.candidate.unwrap_or(reach);
        match anchor {
            Some(anchor) => {
                let candidate = may_vouch.then_some(candidate);
                Some(Check { candidate, ..self.plan_check(from + 1, anchor, false, then) })
            }
            None if may_vouch && self.waits_for_vouching(reach) => {
                let anchor = pinned.or_else(|| self.block_at(candidate)).unwrap_or(self.last());
                Some(Check { candidate: Some(candidate), ..Check::of_tip(anchor, last, then) })
            }
            None => None,
        }
    }

    /// The newest known block up to `due` that is old enough for its logs to be complete.
    fn old_anchor(&self, due: i64, checked: i64, now: UnixMicros) -> Option<Block> {
        // Bounded by our clock, as a node may invent a block's time.
        let present = self.newest?.min(now.seconds());
        let is_old = |block: &Block| {
            let is_settled = block.timestamp.plus(CHECK_AGE_SECONDS) <= present
                && self.checks.were_final(checked + 1, block.number);
            is_settled || self.checks.is_old(block.number, now)
        };
        let ahead = self.blocks_ahead.iter().copied();
        let ahead = ahead.filter(|block| block.number <= due && is_old(block));
        let ahead = ahead.max_by_key(|block| block.number);
        let anchors = [ahead, self.known().anchor_where(due, is_old)].into_iter().flatten();
        anchors.max_by_key(|block| block.number)
    }

    /// Returns `true` if a transfer lacks only vouching to be confirmed.
    fn waits_for_vouching(&self, reach: i64) -> bool {
        let (wanted, now) = (self.evidence.wanted(reach), self.evidence.confirmed(reach));
        let lowest = now.iter().map(|tier| tier.number).min().unwrap_or(-1);
        let checked = self.evidence.checked();
        self.known().above(lowest).any(|(block, seen)| {
            let fits = |below: Option<_>| below.is_none_or(|below| seen.value < below);
            let tiers = wanted.iter().zip(&now).find(|(tier, _)| fits(tier.below));
            let is_next = tiers.is_some_and(|(wanted, now)| {
                block.number <= wanted.number.min(checked) && block.number > now.number
            });
            is_next && !self.evidence.holds(&block, &seen)
        })
    }

    /// The next range of final blocks that is due for a check, if any.
    fn next_rescan(&self, then: Then) -> Option<Check> {
        let is_due = self.newest?.0 >= self.checks.rescanned_at.saturating_add(RESCAN_SECONDS);
        if !is_due || !self.rules.policy.is_shallow() {
            return None;
        }
        let rescanned = self.checks.rescanned.max(self.known().complete_above());
        let anchor = self.known().anchor_at_or_below(self.final_to.min(self.evidence.checked()))?;
        (anchor.number > rescanned).then(|| self.plan_check(rescanned + 1, anchor, true, then))
    }

    fn plan_check(&self, from: i64, anchor: Block, is_rescan: bool, then: Then) -> Check {
        let to = anchor.number.min(from.saturating_add(self.checks.range.blocks() - 1));
        let mut switches = self.checks.switches.iter().copied();
        let mut to = switches.find(|last| *last >= from).map_or(to, |last| to.min(last));
        if from <= self.checks.unknown_to {
            to = to.min(self.checks.unknown_to);
        }
        // Where receipts are needed, nodes keep logs of failed transactions, and their log search misses some logs. So
        // ranges are kept short enough to be checked by outcomes, except after a long outage.
        if self.rules.needs_receipts && anchor.number - from < OUTCOME_BLOCKS_MAX {
            to = to.min(from.saturating_add(RECEIPT_BLOCKS_MAX - 1));
        }
        if self.rules.needs_receipts && !is_rescan {
            let mut hits = self.known().between(from, to);
            hits.dedup_by_key(|(block, _)| block.number);
            to = hits.get(PROVEN_BLOCKS_MAX).map_or(to, |(block, _)| block.number - 1);
        }
        Check { from, to, is_rescan, ..Check::of_tip(anchor, to, then) }
    }

    fn next_held(&mut self, then: Then, now: UnixMicros) -> Option<(Found, Vec<Question>)> {
        if self.evidence.held().is_empty() || !self.checks.ask_held(now) {
            return None;
        }
        let last = self.last().number;
        // Even a lagging endpoint has the vouched block.
        let vouched = self.evidence.vouched().min(last);
        let newest = self.evidence.held().iter().map(|held| held.block.number).max();
        let anchor = self.known().anchor_at_or_below(vouched);
        let anchor = anchor.filter(|anchor| newest <= Some(anchor.number));
        let anchor = anchor.unwrap_or(self.last());
        let held = self.evidence.held().iter().filter(|held| held.block.number <= last);
        let question = |held: &Held| Question {
            block: held.block,
            seen: held.transfer,
            rank: usize::try_from(held.transfer.ordinal).unwrap_or(0),
            is_published: true,
            is_held: true,
            is_missing: false,
            by_receipts: false,
            own: None,
        };
        let questions: Vec<_> = held.map(question).collect();
        let check = Check::of_tip(anchor, last, then);
        Some((Found { check, notes: Vec::new() }, questions))
    }

    /// Returns `true` if a check is due at once, as for the deep transfers after an outage.
    pub(super) fn is_check_due(&self, now: UnixMicros) -> bool {
        self.checks.wait == 0 && self.next_check(None, now).is_some()
    }

    /// Begins the check that is due, or continues the step if none is, or a failed one is to be retried later.
    pub(super) fn check_or_proceed(&mut self, then: Then, now: UnixMicros) -> Decision {
        #[cfg(test)]
        match self.sabotage {
            Defect::VouchedNeverFalls => self.evidence.vouch(i64::MAX, self.evidence.own_tags()),
            Defect::OneCheck => self.evidence.begin(self.last().number),
            _ => {}
        }
        if let Some(wait) = self.checks.wait.checked_sub(1) {
            self.checks.wait = wait;
            return self.proceed(then, now);
        }
        self.checks.end_future(now);
        if self.checks.scanned_at.is_empty() {
            self.checks.scanned(self.last().number, now);
        }
        if let Some((found, questions)) = self.next_held(then, now) {
            return self.settle(found, questions, now);
        }
        match self.next_check(then, now).or_else(|| self.next_rescan(then)) {
            Some(check) => {
                self.checks.is_asked |= check.candidate.is_some();
                if self.evidence.is_alone() && check.from <= self.evidence.checked_by_any() {
                    self.checks.alone_at = now;
                }
                self.phase = Phase::Check(check);
                Next::Ask.into()
            }
            None => self.proceed(then, now),
        }
    }

    pub(super) fn proceed(&mut self, then: Then, now: UnixMicros) -> Decision {
        let Some((from, to, again)) = then else { return self.publish_tip(now) };
        self.phase = Phase::Scan { from, to, again };
        Next::Ask.into()
    }
}
