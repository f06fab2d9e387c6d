//! The second check: a block is confirmed only after its logs were asked for again, at its depth, from another
//! endpoint where there is one. What is due, how answers are compared, and what waits for that.
//!
//! What the second answer has more is a late find ([`super::find`]); what it has less must be proven by a receipt
//! ([`super::proof`]). Nothing here stops the scan: what fails is asked again later, and the heads confirm less.

use std::collections::{BTreeMap, VecDeque};

use schemas::record::{Block, Observation};
use schemas::{UnixMicros, UnixSeconds};

use super::{Cursor, Phase, REFUSED_MAX};
use crate::machine::compare::{payments, proves, same};
use crate::machine::range::RangeSize;
use crate::machine::{
    Answer, Ask, Decision, Difference, EventLog, History, Next, Note, Point, Proof, Span,
};
use crate::machine::{Refusal, Role};

/// How long ago a block must have been scanned for its logs to be believed complete. Nodes, and the backends of one address, show
/// a header before its logs: mostly by less than a second, by 3 s at worst. A block's own time says the same only if it was final
/// when it was scanned: any other may have come a moment ago, with a reorganisation.
const CHECK_AGE_SECONDS: i64 = 6;
const CHECK_AGE_MICROS: i64 = CHECK_AGE_SECONDS * 1_000_000;
/// How often blocks are asked for once more when they are final, by the chain's time.
const RESCAN_SECONDS: i64 = 60;
/// Most blocks with transfers in one check, where each needs the receipts of its transactions.
const PROVEN_BLOCKS_MAX: usize = 20;
/// Most steps that begin before a check that failed is tried again.
const WAIT_MAX: u32 = 16;

/// The range to scan after the tip, and whether there is more to ask at once after it; none at the tip.
pub(super) type Then = Option<(i64, i64, bool)>;

/// Transfers with their blocks.
pub(super) type Transfers = Vec<(Block, Observation)>;

/// A range that is checked again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check {
    pub(super) from: i64,
    pub(super) to: i64,
    /// A block of ours at or after the end: an endpoint that has it has ours before it too.
    pub(super) anchor: Block,
    /// Whether it was checked before, and is final now.
    pub(super) is_rescan: bool,
    /// How the step continues.
    pub(super) then: Then,
    /// Who is asked.
    pub(super) role: Role,
}

/// What a second answer has, while the differences are examined.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) check: Check,
    pub(super) logs: Vec<EventLog>,
    /// The lowest block with a transfer about which endpoints disagree: it stays unconfirmed, and all above it.
    pub(super) disputed: Option<i64>,
    pub(super) notes: Vec<Note>,
}

/// How far the chain was checked.
#[derive(Debug)]
pub(super) struct Checks {
    /// Every block up to this one was asked for twice, or was old and final when it was scanned.
    pub(super) checked: i64,
    /// Every block up to this one was asked for when it was final.
    rescanned: i64,
    /// The chain's time when no block was left to be asked for so.
    rescanned_at: i64,
    range: RangeSize,
    pub(super) failures: u32,
    /// When the chain was scanned up to a block, of late.
    scanned_at: VecDeque<(i64, UnixMicros)>,
    /// The last blocks in a row that were final when they were scanned: the first and the last of them.
    scanned_final: (i64, i64),
    /// Steps to begin without a check.
    pub(super) wait: u32,
    /// The transfers that every endpoint denied in the last check, with how often in a row.
    pub(super) denied: BTreeMap<(i64, i32), u32>,
    /// Whether the disagreement was reported.
    is_reported: bool,
    /// The last blocks before another endpoint took over the scan: a check ends there, as it is another one's than the scan.
    switches: VecDeque<i64>,
    /// Nobody knows which endpoint scanned the blocks up to this one: two are asked for them.
    unknown_to: i64,
    /// The newest time that a second answer has confirmed, of a block or of one after it.
    pub(super) time: Option<UnixSeconds>,
}

/// The newest time by which something was confirmed.
fn confirmed_time(history: &History) -> Option<UnixSeconds> {
    history.head().confirmed.iter().filter_map(|tier| tier.timestamp).max()
}

impl Checks {
    /// Continues where the last head ends.
    pub(super) fn new(history: Option<&History>, range_max: i64) -> Self {
        Self {
            checked: history.map_or(-1, History::checked),
            rescanned: history.map_or(-1, |history| history.head().finalized),
            rescanned_at: 0,
            range: RangeSize::new(range_max),
            failures: 0,
            scanned_at: VecDeque::new(),
            scanned_final: (0, -1),
            wait: 0,
            denied: BTreeMap::new(),
            is_reported: false,
            switches: VecDeque::new(),
            unknown_to: history.map_or(-1, |history| history.last().number),
            time: history.and_then(confirmed_time),
        }
    }

    /// Nothing up to the block before the first one is scanned, so nothing is missed there.
    pub(super) fn begin(&mut self, number: i64) {
        (self.checked, self.rescanned) = (number, number);
    }

    /// What lies above is another chain now.
    pub(super) fn rewind(&mut self, number: i64) {
        self.checked = self.checked.min(number);
        self.rescanned = self.rescanned.min(number);
        self.denied.clear();
        self.scanned_at.clear();
        self.scanned_final.1 = self.scanned_final.1.min(number);
        self.switches.retain(|last| *last <= number);
        self.unknown_to = self.unknown_to.min(number);
    }

    /// Another endpoint scans what follows this block.
    pub(super) fn switch(&mut self, last: i64) {
        let checked = self.checked;
        self.switches.retain(|switch| *switch > checked && *switch < last);
        self.switches.push_back(last);
    }

    /// Notes that the chain is scanned up to a block.
    pub(super) fn scanned(&mut self, number: i64, now: UnixMicros) {
        let is_old = |at: &(i64, UnixMicros)| at.1.0 <= now.0.saturating_sub(CHECK_AGE_MICROS);
        while self.scanned_at.get(1).is_some_and(is_old) {
            self.scanned_at.pop_front();
        }
        self.scanned_at.push_back((number, now));
    }

    /// Notes that these blocks were final when they were scanned; none if the last is before the first.
    pub(super) fn scanned_final(&mut self, from: i64, to: i64) {
        if to < from {
            return;
        }
        let is_next = self.scanned_final.1 >= from - 1;
        self.scanned_final = (if is_next { self.scanned_final.0 } else { from }, to);
    }

    /// Whether a block was scanned long enough ago.
    fn is_old(&self, number: i64, now: UnixMicros) -> bool {
        let old = now.0.saturating_sub(CHECK_AGE_MICROS);
        self.scanned_at.iter().any(|(to, at)| number <= *to && at.0 <= old)
    }

    /// Whether all from a block to another were final when they were scanned.
    fn were_final(&self, from: i64, to: i64) -> bool {
        self.scanned_final.0 <= from && to <= self.scanned_final.1
    }

    fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.wait = 1_u32.checked_shl(self.failures).unwrap_or(WAIT_MAX).min(WAIT_MAX);
    }
}

impl Cursor {
    /// The height up to which no head promises more than was checked.
    pub(super) fn final_max(&self) -> i64 {
        let rescanned =
            if self.rules.policy.is_shallow() { self.checks.rescanned } else { i64::MAX };
        self.checks.checked.min(rescanned)
    }

    pub(super) fn ask_check(&self, check: &Check) -> Ask {
        let (from, to) = (check.from, check.to);
        // What counts is what succeeded; a rescan takes nothing back.
        let with_receipts = self.rules.needs_receipts && !check.is_rescan;
        let live = if with_receipts { self.known().between(from, to) } else { Vec::new() };
        Ask {
            role: check.role,
            blocks: vec![Point::Number(check.anchor.number), Point::Latest],
            logs: vec![Span::Range { from, to }],
            receipts: self.outcomes(&live),
        }
    }

    /// The next range that is due for a check, if any.
    fn next_check(&self, then: Then, now: UnixMicros) -> Option<Check> {
        let (newest, last) = (self.newest?, self.last().number);
        let checked = self.checks.checked.max(self.known().complete_above());
        let is_old = |block: &Block| {
            let is_settled = block.timestamp.plus(CHECK_AGE_SECONDS) <= newest
                && self.checks.were_final(checked + 1, block.number);
            is_settled || self.checks.is_old(block.number, now)
        };
        let reach = then.map_or(last, |(_, to, _)| to);
        let confirmed = self.rules.policy.confirmed(reach, self.tags);
        let due = confirmed.iter().map(|tier| tier.number).max()?.min(last);
        let ahead = self.blocks_ahead.iter().copied();
        let ahead = ahead.filter(|block| block.number <= due && is_old(block));
        let ahead = ahead.max_by_key(|block| block.number);
        let anchors = [ahead, self.known().anchor_where(due, is_old)].into_iter().flatten();
        let anchor = anchors.max_by_key(|block| block.number);
        let anchor = anchor.filter(|anchor| anchor.number > checked)?;
        let mut live = self.known().above(checked);
        let waits = live.next().is_some_and(|(block, _)| block.number <= anchor.number);
        let is_quiet = self.quiet >= self.rules.idle_polls;
        let is_head_due = then.is_some_and(|(.., again)| again) || !self.may_hold_back();
        let is_head_due = is_head_due || is_quiet;
        (waits || is_head_due).then(|| self.plan_check(checked + 1, anchor, false, then))
    }

    /// The next range that is due for a check of what is final, if any.
    fn next_rescan(&self, then: Then) -> Option<Check> {
        let is_due = self.newest?.0 >= self.checks.rescanned_at.saturating_add(RESCAN_SECONDS);
        if !is_due || !self.rules.policy.is_shallow() {
            return None;
        }
        let rescanned = self.checks.rescanned.max(self.known().complete_above());
        let anchor = self.known().anchor_at_or_below(self.final_to.min(self.checks.checked))?;
        (anchor.number > rescanned).then(|| self.plan_check(rescanned + 1, anchor, true, then))
    }

    fn plan_check(&self, from: i64, anchor: Block, is_rescan: bool, then: Then) -> Check {
        let to = anchor.number.min(from.saturating_add(self.checks.range.blocks() - 1));
        let mut switches = self.checks.switches.iter().copied();
        let mut to = switches.find(|last| *last >= from).map_or(to, |last| to.min(last));
        if from <= self.checks.unknown_to {
            to = to.min(self.checks.unknown_to);
        }
        if self.rules.needs_receipts && !is_rescan {
            let mut hits = self.known().between(from, to);
            hits.dedup_by_key(|(block, _)| block.number);
            to = hits.get(PROVEN_BLOCKS_MAX).map_or(to, |(block, _)| block.number - 1);
        }
        Check { from, to, anchor, is_rescan, then, role: Role::Second }
    }

    /// Whether a transfer is deep enough already, as after an outage: it does not wait for the next poll.
    pub(super) fn is_check_due(&self, now: UnixMicros) -> bool {
        self.checks.wait == 0 && self.next_check(None, now).is_some()
    }

    /// Checks what is due before the step continues.
    pub(super) fn check_or_proceed(&mut self, then: Then, now: UnixMicros) -> Decision {
        #[cfg(test)]
        if self.is_blind {
            self.checks.begin(self.last().number);
        }
        if let Some(wait) = self.checks.wait.checked_sub(1) {
            self.checks.wait = wait;
            return self.proceed(then, now);
        }
        if self.checks.scanned_at.is_empty() {
            self.checks.scanned(self.last().number, now);
        }
        match self.next_check(then, now).or_else(|| self.next_rescan(then)) {
            Some(check) => {
                self.phase = Phase::Check(check);
                Next::Ask.into()
            }
            None => self.proceed(then, now),
        }
    }

    fn proceed(&mut self, then: Then, now: UnixMicros) -> Decision {
        let Some((from, to, again)) = then else { return self.publish_tip(now) };
        self.phase = Phase::Scan { from, to, again };
        Next::Ask.into()
    }

    pub(super) fn compare(&mut self, check: Check, answer: Answer, now: UnixMicros) -> Decision {
        let mut headers = answer.blocks.into_iter();
        let (from, to) = (check.from, check.to);
        let sifted = self.rules.watch.sift(answer.logs.into_iter().flatten(), from, to);
        let (header, newest) = (headers.next().flatten(), headers.next().flatten());
        let Some(header) = header else {
            // Its chain came as far in time, and without this block. A time that has not come yet is invented: then a
            // chain that is at the present came as far.
            let present = now.seconds().plus(-CHECK_AGE_SECONDS);
            let reached = check.anchor.timestamp.min(present);
            let is_fork = newest.is_some_and(|newest| newest.block.timestamp >= reached);
            let why = if is_fork { Difference::Fork } else { Difference::Behind };
            return self.check_later(check, why, now);
        };
        let Ok(logs) = sifted else {
            return self.check_later(check, Difference::Contradiction, now);
        };
        // Deposits expire by the times of blocks: another time is another block.
        if header.block != check.anchor {
            return self.check_later(check, Difference::Fork, now);
        }
        let live = self.known().between(from, to);
        let needs_receipts = self.rules.needs_receipts && !check.is_rescan;
        if needs_receipts && answer.receipts.len() < live.len() {
            return self.check_later(check, Difference::Contradiction, now);
        }
        let is_fork = |log: &EventLog| {
            let ours = live.iter().find(|(block, _)| block.number == log.block_number);
            ours.is_some_and(|(block, _)| block.hash != log.block_hash)
        };
        if logs.iter().any(is_fork) {
            return self.check_later(check, Difference::Contradiction, now);
        }
        let seen = payments(&self.rules.watch, &logs);
        let is_seen = |(block, ours): &(Block, Observation)| {
            seen.iter().any(|(number, seen)| *number == block.number && same(seen, ours))
        };
        let mut receipts = answer.receipts.into_iter();
        let mut is_proven = |(block, ours): &(Block, Observation)| {
            let receipt = receipts.next();
            let receipt = receipt.as_ref().and_then(Proof::receipt);
            !needs_receipts || proves(&self.rules.watch, receipt, *block, ours)
        };
        let mut is_missing = |ours: &(Block, Observation)| !is_proven(ours) || !is_seen(ours);
        let missing: Vec<_> = live.into_iter().filter(|ours| is_missing(ours)).collect();
        let found = Found { check, logs, disputed: None, notes: Vec::new() };
        // What was checked before stays: a confirmed transfer is acted upon.
        if missing.is_empty() || check.is_rescan {
            if !check.is_rescan {
                self.checks.denied.clear();
            }
            return self.find(found, now);
        }
        self.phase = Phase::Prove { found, missing, role: check.role };
        Next::Ask.into()
    }

    /// The check is over, and brought nothing to publish.
    pub(super) fn end_check(&mut self, found: Found, now: UnixMicros) -> Decision {
        let Found { check, disputed, notes, .. } = found;
        if self.is_half(check) && disputed.is_none() {
            self.phase = Phase::Check(Check { role: Role::Witness, ..check });
            return with_notes(Next::Ask.into(), notes);
        }
        self.count_check(check, disputed);
        let decision = if disputed.is_some() {
            self.proceed(check.then, now)
        } else {
            self.check_or_proceed(check.then, now)
        };
        with_notes(decision, notes)
    }

    /// Whether another endpoint is to be asked too, because this one may have scanned.
    fn is_half(&self, check: Check) -> bool {
        let is_unknown = self.rules.has_second && check.to <= self.checks.unknown_to;
        is_unknown && !check.is_rescan && check.role == Role::Second
    }

    /// Notes how far the check came.
    pub(super) fn count_check(&mut self, check: Check, disputed: Option<i64>) {
        let used = check.to - check.from + 1;
        let to = disputed.map_or(check.to, |number| number - 1).min(check.to);
        if check.is_rescan {
            self.checks.rescanned = self.checks.rescanned.max(to);
            if to == check.anchor.number {
                self.checks.rescanned_at = self.newest.map_or(0, |newest| newest.0);
            }
        } else if !self.is_half(check) {
            self.checks.checked = self.checks.checked.max(to);
            self.checks.time = self.checks.time.max(Some(check.anchor.timestamp));
            self.count_final(check.from, to);
        }
        self.checks.range.grow(used);
        if disputed.is_some() {
            self.checks.failed();
        } else {
            self.checks.failures = 0;
            self.checks.is_reported &= check.is_rescan;
        }
    }

    /// Blocks that are final at this check need no other.
    fn count_final(&mut self, from: i64, to: i64) {
        if self.checks.rescanned >= from - 1 {
            self.checks.rescanned = self.checks.rescanned.max(to.min(self.final_to));
        }
    }

    /// A range that was old and final when it was scanned needs no second check, where it would be the same endpoint's.
    pub(super) fn exempt(&mut self, from: i64, to: Block) {
        if self.rules.has_second {
            return;
        }
        let is_old =
            self.newest.is_some_and(|newest| to.timestamp.plus(CHECK_AGE_SECONDS) <= newest);
        if self.checks.checked >= from - 1 && is_old && to.number <= self.final_to {
            self.checks.checked = to.number;
            self.checks.time = self.checks.time.max(Some(to.timestamp));
            self.count_final(from, to.number);
        }
    }

    /// The answer cannot be used: the step continues, and the check is tried again later.
    pub(super) fn check_later(
        &mut self,
        check: Check,
        why: Difference,
        now: UnixMicros,
    ) -> Decision {
        self.checks.failed();
        let note = Note::Check { why, block: check.anchor };
        with_notes(self.proceed(check.then, now), vec![note])
    }

    /// There is no answer: the step begins again, without a check unless a shorter range may do.
    pub(super) fn check_refused(&mut self, check: Check, refusal: Refusal) -> Next {
        let used = check.to - check.from + 1;
        let shrunk = match refusal {
            Refusal::Size { hint } => {
                let blocks = |(a, b): (i64, i64)| b.saturating_sub(a).saturating_add(1);
                self.checks.range.shrink(used, hint.map(blocks))
            }
            Refusal::Timeout => {
                self.checks.range.shrink(used, None);
                false
            }
            Refusal::Rate
            | Refusal::Behind
            | Refusal::Transient
            | Refusal::Pruned
            | Refusal::Fatal => false,
        };
        if !shrunk {
            self.checks.failed();
            // As in a scan, whatever the words are.
            if used > 1 && self.checks.failures.is_multiple_of(REFUSED_MAX) {
                self.checks.range.shrink(used, None);
            }
        }
        Next::Ask
    }

    /// Reports a disagreement when it begins.
    pub(super) fn report_dispute(
        &mut self,
        notes: &mut Vec<Note>,
        transfer: &(Block, Observation),
    ) {
        if !std::mem::replace(&mut self.checks.is_reported, true) {
            notes.push(Note::Disputed { block: transfer.0, tx_hash: transfer.1.tx_hash });
        }
    }
}

pub(super) fn with_notes(mut decision: Decision, notes: Vec<Note>) -> Decision {
    decision.notes.splice(..0, notes);
    decision
}
