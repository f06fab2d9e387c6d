//! The second check: what is due, how the answers of two endpoints are compared, and what waits for that. What it proves is
//! noted in [`crate::machine::evidence`]; differences are settled by receipts ([`super::settle`]).
//!
//! One request asks another endpoint for the transfers of a range at its depth, for a block near the tip, and for its
//! tags. Where it shows that block as ours, everything up to it is vouched for; where it has another one, the newest block
//! that both have bounds what is confirmed from then on. One that is behind is asked for the same block until it has it.
//! Nothing here stops the scan: what fails is asked again later, and the heads confirm less.

use std::collections::{BTreeMap, HashSet, VecDeque};

use schemas::record::{Block, Observation};
use schemas::{BlockHash, PaymentKey, UnixMicros, UnixSeconds};

use super::settle::Question;
use super::{Cursor, Phase, REFUSED_MAX};
use crate::machine::compare::{self, payments};
use crate::machine::range::RangeSize;
use crate::machine::{
    Answer, Ask, Decision, Difference, EventLog, Header, History, Next, Note, Point, Refusal, Role,
    Span, Tag, Tags,
};

/// How long ago a block must have been scanned for its logs to be believed complete. Nodes, and the backends of one address, show
/// a header before its logs: mostly by less than a second, by 3 s at worst. A block's own time says the same only if it was final
/// when it was scanned: any other may have come a moment ago, with a reorganisation.
const CHECK_AGE_SECONDS: i64 = 6;
const CHECK_AGE_MICROS: i64 = CHECK_AGE_SECONDS * 1_000_000;
/// How often blocks are asked for once more when they are final, by the chain's time.
const RESCAN_SECONDS: i64 = 60;
/// How often what is held is asked about, and whether another endpoint is back.
const AGAIN_MICROS: i64 = 15_000_000;
/// Most blocks with transfers in one check, where each needs the receipts of its transactions.
const PROVEN_BLOCKS_MAX: usize = 20;
/// Most blocks of a check that asks for the outcomes of all transactions of each; more are asked for by their logs, as
/// after an outage.
const RECEIPT_BLOCKS_MAX: i64 = 16;
/// Most steps that begin before a check that failed is tried again.
const WAIT_MAX: u32 = 16;
/// The same where the endpoint does not have the block yet.
const BEHIND_WAIT_MAX: u32 = 2;
/// Blocks of ours that one request asks another endpoint for, to find the newest that both have.
const COMMON_MAX: usize = 32;

/// The range to scan after the tip, and whether there is more to ask at once after it; none at the tip.
pub(super) type Then = Option<(i64, i64, bool)>;

/// A question to another endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check {
    /// The range whose transfers are asked for again; empty if only the tip is.
    pub(super) from: i64,
    pub(super) to: i64,
    /// A block of ours at or after the end: an endpoint that has it has ours before it too.
    pub(super) anchor: Block,
    /// The height that it is to vouch for.
    pub(super) candidate: Option<i64>,
    /// Whether it was checked before, and is final now.
    pub(super) is_rescan: bool,
    /// Whether the endpoint that scanned the range answers, as no other one does.
    pub(super) is_alone: bool,
    /// How the step continues.
    pub(super) then: Then,
    /// Who is asked.
    pub(super) role: Role,
}

impl Check {
    fn is_empty(&self) -> bool {
        self.to < self.from
    }
}

/// What a second answer has, while the differences are examined.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) check: Check,
    pub(super) notes: Vec<Note>,
}

/// Which checks were made, and when.
#[derive(Debug)]
pub(super) struct Checks {
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
    /// How often in a row every endpoint denied a transfer.
    pub(super) denied: BTreeMap<(i64, BlockHash, PaymentKey), u32>,
    /// The held transfers that were reported.
    pub(super) reported: HashSet<(BlockHash, PaymentKey)>,
    /// When held transfers were last asked about.
    held_at: UnixMicros,
    /// When the blocks that one endpoint checked alone were last asked for of another one.
    alone_at: UnixMicros,
    /// The height that another endpoint is to show, while it is behind.
    candidate: Option<i64>,
    /// What another endpoint showed above our last block.
    shown: Option<Block>,
    /// Whether one was asked to vouch since the last tip.
    pub(super) is_asked: bool,
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
            alone_at: UnixMicros(0),
            candidate: None,
            shown: None,
            is_asked: false,
            switches: VecDeque::new(),
            unknown_to: history.map_or(-1, |history| history.last().number),
            time: history.and_then(confirmed_time),
        }
    }

    /// Nothing up to the block before the first one is scanned, so nothing is missed there.
    pub(super) fn begin(&mut self, number: i64) {
        self.rescanned = number;
    }

    /// What lies above is another chain now.
    pub(super) fn rewind(&mut self, number: i64) {
        self.rescanned = self.rescanned.min(number);
        self.denied.clear();
        self.reported.clear();
        (self.candidate, self.shown) = (None, None);
        self.scanned_at.clear();
        self.scanned_final.1 = self.scanned_final.1.min(number);
        self.switches.retain(|last| *last <= number);
        self.unknown_to = self.unknown_to.min(number);
    }

    /// Another endpoint scans what follows this block.
    pub(super) fn switch(&mut self, checked: i64, last: i64) {
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

    fn failed(&mut self, wait_max: u32) {
        self.failures = self.failures.saturating_add(1);
        self.wait = 1_u32.checked_shl(self.failures).unwrap_or(wait_max).min(wait_max);
    }
}

impl Cursor {
    /// The height up to which no head promises more than was checked.
    pub(super) fn final_max(&self) -> i64 {
        let rescanned =
            if self.rules.policy.is_shallow() { self.checks.rescanned } else { i64::MAX };
        self.evidence.checked().min(rescanned)
    }

    pub(super) fn ask_check(&self, check: &Check) -> Ask {
        let Check { from, to, .. } = *check;
        let mut blocks = vec![Point::Number(check.anchor.number), Point::Latest];
        if let Some(number) = check.candidate {
            blocks.push(Point::Number(number));
            blocks.extend(self.rules.policy.uses_tags().then_some(Point::Finalized));
            blocks.extend(self.rules.policy.uses(Tag::Safe).then_some(Point::Safe));
        }
        let is_short = to.saturating_sub(from) < RECEIPT_BLOCKS_MAX;
        let span = if is_short { Span::Receipts { from, to } } else { Span::Range { from, to } };
        let logs = if check.is_empty() { Vec::new() } else { vec![span] };
        let about = Some(if check.is_empty() { i64::MAX } else { from });
        Ask { role: check.role, about, blocks, logs, ..Ask::default() }
    }

    /// What another endpoint is to be asked next, if anything: for transfers that wait or a head that is due, whether it
    /// has our block at their depth, and what it has in the blocks up to there that were not checked.
    fn next_check(&self, then: Then, now: UnixMicros) -> Option<Check> {
        let last = self.last().number;
        let reach = then.map_or(last, |(_, to, _)| to);
        let wanted = self.evidence.wanted(reach);
        let is_quiet = self.quiet >= self.rules.idle_polls;
        let is_head_due = then.is_some_and(|(.., again)| again) || !self.may_hold_back() || is_quiet;
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
        let may_vouch = self.rules.has_second && !self.checks.is_asked && (!is_alone || is_probe);
        let candidate = self.checks.candidate.unwrap_or(reach);
        match anchor {
            Some(anchor) => {
                let candidate = may_vouch.then_some(candidate);
                Some(Check { candidate, ..self.plan_check(from + 1, anchor, false, then) })
            }
            None if may_vouch && self.waits_for_vouching(reach) => Some(Check {
                from: last + 1,
                to: last,
                anchor: self.last(),
                candidate: Some(candidate),
                is_rescan: false,
                is_alone: false,
                then,
                role: Role::Second,
            }),
            None => None,
        }
    }

    /// The newest known block up to a height that was scanned long enough ago.
    fn old_anchor(&self, due: i64, checked: i64, now: UnixMicros) -> Option<Block> {
        // A block's time counts by our clock: another one's may be invented.
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

    /// Whether a transfer would be confirmed if another endpoint had shown the chain as far as we have.
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

    /// The next range that is due for a check of what is final, if any.
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
        if self.rules.needs_receipts && !is_rescan {
            let mut hits = self.known().between(from, to);
            hits.dedup_by_key(|(block, _)| block.number);
            to = hits.get(PROVEN_BLOCKS_MAX).map_or(to, |(block, _)| block.number - 1);
        }
        let (candidate, is_alone, role) = (None, false, Role::Second);
        Check { from, to, anchor, candidate, is_rescan, is_alone, then, role }
    }

    /// Asks about what is held, now and then.
    fn next_held(&mut self, then: Then, now: UnixMicros) -> Option<(Found, Vec<Question>)> {
        let is_due = now.0 >= self.checks.held_at.0.saturating_add(AGAIN_MICROS);
        if !is_due || self.evidence.held().is_empty() {
            return None;
        }
        self.checks.held_at = now;
        let (last, anchor) = (self.last().number, self.last());
        let held = self.evidence.held().iter().filter(|held| held.block.number <= last);
        let question = |held: &schemas::record::Held| Question {
            block: held.block,
            seen: held.transfer,
            rank: usize::try_from(held.transfer.ordinal).unwrap_or(0),
            is_published: true,
            is_held: true,
            is_missing: false,
            own: None,
        };
        let questions: Vec<_> = held.map(question).collect();
        let (from, to) = (last + 1, last);
        let (candidate, is_rescan, is_alone) = (None, false, false);
        let role = Role::Second;
        let check = Check { from, to, anchor, candidate, is_rescan, is_alone, then, role };
        Some((Found { check, notes: Vec::new() }, questions))
    }

    /// Whether a transfer is deep enough already, as after an outage: it does not wait for the next poll.
    pub(super) fn is_check_due(&self, now: UnixMicros) -> bool {
        self.checks.wait == 0 && self.next_check(None, now).is_some()
    }

    /// Checks what is due before the step continues.
    pub(super) fn check_or_proceed(&mut self, then: Then, now: UnixMicros) -> Decision {
        #[cfg(test)]
        if self.defects.is_blind {
            self.evidence.begin(self.last().number);
        }
        if let Some(wait) = self.checks.wait.checked_sub(1) {
            self.checks.wait = wait;
            return self.proceed(then, now);
        }
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

    fn proceed(&mut self, then: Then, now: UnixMicros) -> Decision {
        let Some((from, to, again)) = then else { return self.publish_tip(now) };
        self.phase = Phase::Scan { from, to, again };
        Next::Ask.into()
    }

    pub(super) fn compare(&mut self, mut check: Check, answer: Answer, now: UnixMicros) -> Decision {
        check.is_alone |= answer.is_alone && self.rules.has_second;
        let mut headers = answer.blocks.iter().copied();
        let (header, newest) = (headers.next().flatten(), headers.next().flatten());
        let newest = newest.map_or(-1, |newest| newest.block.number);
        let Some(header) = header else {
            let is_behind = newest < check.anchor.number;
            let why = if is_behind { Difference::Behind } else { Difference::Contradiction };
            return self.check_later(check, why, now);
        };
        // Deposits expire by the times of blocks: another time is another block.
        if header.block != check.anchor {
            return self.search_common(check, Some(Difference::Fork));
        }
        if check.candidate.is_some() && !answer.is_first {
            let shown: Vec<_> = headers.collect();
            if self.is_contested(&mut check, &shown, newest) {
                return self.search_common(check, None);
            }
        }
        if check.is_empty() {
            let is_vouched = self.checks.candidate.is_none();
            let found = Found { check, notes: Vec::new() };
            return if is_vouched || answer.is_first {
                self.end_check(found, now)
            } else {
                self.check_later(check, Difference::Behind, now)
            };
        }
        self.compare_range(check, answer, now)
    }

    /// Takes what another endpoint shows at the height that it is to vouch for, and its tags. Whether it has another
    /// block there.
    fn is_contested(&mut self, check: &mut Check, shown: &[Option<Header>], newest: i64) -> bool {
        let Some(number) = check.candidate.take() else { return false };
        let mut shown = shown.iter().copied();
        let Some(header) = shown.next().flatten() else {
            // Asked for again until it has it.
            self.checks.candidate = Some(number).filter(|_| newest < number);
            return false;
        };
        self.checks.candidate = None;
        let mut tag = || shown.next().flatten().map(|header| header.block.number);
        let finalized = self.rules.policy.uses_tags().then(&mut tag).flatten();
        let tags = Tags { finalized, safe: self.rules.policy.uses(Tag::Safe).then(tag).flatten() };
        match self.block_at(number) {
            Some(ours) if ours == header.block => self.evidence.vouch(number, tags.up_to(number)),
            Some(_) => return true,
            None if number > self.last().number => {
                self.evidence.vouch(check.anchor.number, tags.up_to(self.last().number));
                self.checks.shown = Some(header.block);
            }
            None => self.evidence.vouch(check.anchor.number, tags.up_to(check.anchor.number)),
        }
        false
    }

    /// Our block at a height, where it is known.
    fn block_at(&self, number: i64) -> Option<Block> {
        let is = |block: &Block| block.number == number;
        let ahead = self.blocks_ahead.iter().copied().find(|block| is(block));
        Some(self.last()).filter(is).or(ahead).or_else(|| self.known().anchor_at(number))
    }

    /// Takes note of a block that was scanned where another endpoint has shown one.
    pub(super) fn vouch_shown(&mut self, end: Block) {
        let Some(shown) = self.checks.shown.take() else { return };
        if shown == end {
            self.evidence.vouch(end.number, Tags::default());
        }
    }

    /// Asks another endpoint for the newest block that both have.
    fn search_common(&mut self, check: Check, why: Option<Difference>) -> Decision {
        let vouched = self.evidence.vouched();
        let known = self.known().anchors_below(vouched.saturating_add(1), COMMON_MAX);
        let ahead = self.blocks_ahead.iter().filter(|block| block.number <= vouched).copied();
        let mut blocks: Vec<_> = ahead.chain(known).collect();
        blocks.sort_by_key(|block| std::cmp::Reverse(block.number));
        blocks.dedup_by_key(|block| block.number);
        blocks.truncate(COMMON_MAX);
        self.checks.candidate = None;
        self.phase = Phase::Common { check, blocks, why };
        Next::Ask.into()
    }

    pub(super) fn common(
        &mut self,
        (mut check, blocks, why): (Check, Vec<Block>, Option<Difference>),
        answer: &Answer,
        now: UnixMicros,
    ) -> Decision {
        let shown = |block: &Block| {
            let mut headers = answer.blocks.iter().flatten();
            headers.any(|header| header.block == *block)
        };
        let is_silent = answer.blocks.iter().all(Option::is_none);
        if is_silent && !blocks.is_empty() {
            return self.check_later(check, why.unwrap_or(Difference::Behind), now);
        }
        let newest = blocks.iter().find(|block| shown(block)).map(|block| block.number);
        let below = blocks.last().map_or(-1, |oldest| oldest.number - 1);
        #[cfg(test)]
        let newest = newest.or(self.defects.never_falls.then_some(i64::MAX));
        self.evidence.contest(newest.unwrap_or(below));
        match why {
            Some(why) => self.check_later(check, why, now),
            None if check.is_empty() || check.anchor.number > self.evidence.vouched() => {
                self.check_or_proceed(check.then, now)
            }
            None => {
                check.candidate = None;
                self.phase = Phase::Check(check);
                Next::Ask.into()
            }
        }
    }

    /// Compares the transfers of a range, block by block.
    fn compare_range(&mut self, check: Check, answer: Answer, now: UnixMicros) -> Decision {
        let (from, to) = (check.from, check.to);
        let by_receipts = answer.by_receipts;
        let logs = answer.logs.into_iter().flatten();
        let sifted = if by_receipts {
            self.rules.watch.sift_all(logs, from, to)
        } else {
            self.rules.watch.sift(logs, from, to)
        };
        let Ok(logs) = sifted else {
            return self.check_later(check, Difference::Contradiction, now);
        };
        let live = self.known().between(from, to);
        let is_fork = |log: &EventLog| {
            self.block_at(log.block_number).is_some_and(|ours| ours.hash != log.block_hash)
        };
        if logs.iter().any(is_fork) {
            return self.check_later(check, Difference::Contradiction, now);
        }
        let needs_receipts = self.rules.needs_receipts && !by_receipts;
        let questions = self.questions(check, &live, &logs, needs_receipts);
        // Only denials of checks in a row count.
        let is_asked = |(_, hash, payment): &(i64, BlockHash, PaymentKey)| {
            questions.iter().any(|one| (one.block.hash, one.seen.payment()) == (*hash, *payment))
        };
        let is_outside = |number: i64| check.is_rescan || number < from || number > to;
        self.checks.denied.retain(|key, _| is_outside(key.0) || is_asked(key));
        let more = questions.len() > super::HIT_BLOCKS_MAX;
        let mut found = Found { check, notes: Vec::new() };
        let mut questions = questions;
        if more {
            // The rest is left to the next check.
            questions.sort_by_key(|question| question.block.number);
            let next = questions[super::HIT_BLOCKS_MAX].block.number;
            let first = questions[0].block.number;
            if next > first {
                questions.retain(|question| question.block.number < next);
                found.check.to = next - 1;
            }
        }
        self.settle(found, questions, now)
    }

    /// The transfers of a range about which the answers differ, or whose outcomes are not known.
    fn questions(
        &self,
        check: Check,
        live: &[(Block, Observation)],
        logs: &[EventLog],
        needs_receipts: bool,
    ) -> Vec<Question> {
        let seen = payments(&self.rules.watch, logs);
        let mut numbers: Vec<i64> = live.iter().map(|(block, _)| block.number).collect();
        numbers.extend(seen.iter().map(|(number, _)| *number));
        numbers.sort_unstable();
        numbers.dedup();
        let mut questions = Vec::new();
        for number in numbers {
            let ours: Vec<_> =
                live.iter().filter(|(at, _)| at.number == number).map(|(_, seen)| *seen).collect();
            let theirs: Vec<_> =
                seen.iter().filter(|(at, _)| *at == number).map(|(_, seen)| *seen).collect();
            let mut differ = compare::difference(&ours, &theirs);
            #[cfg(test)]
            self.defects.compare(&ours, &theirs, &mut differ);
            differ.extra.retain(|(_, seen)| !self.late_watch.covers(number, seen));
            let hash = logs.iter().find(|log| log.block_number == number).map(|log| log.block_hash);
            let block = live.iter().map(|(block, _)| *block).find(|block| block.number == number);
            let block = block.or_else(|| self.block_at(number)).or_else(|| {
                hash.map(|hash| Block { number, hash, timestamp: check.anchor.timestamp })
            });
            let Some(block) = block else { continue };
            let lacking = differ.missing.clone();
            let question = |is_published: bool, (rank, seen): (usize, Observation)| {
                let is_held = is_published && self.evidence.holds(&block, &seen);
                let is_missing = lacking.contains(&(rank, seen));
                Question { block, seen, rank, is_published, is_held, is_missing, own: None }
            };
            // What was checked before stays: a confirmed transfer is acted upon.
            if !check.is_rescan {
                if needs_receipts {
                    differ.missing = compare::difference(&ours, &[]).missing;
                }
                let missing = std::mem::take(&mut differ.missing);
                questions.extend(missing.into_iter().map(|one| question(true, one)));
            }
            questions.extend(differ.extra.into_iter().map(|one| question(false, one)));
        }
        questions
    }

    /// The check is over, and brought nothing to publish.
    pub(super) fn end_check(&mut self, found: Found, now: UnixMicros) -> Decision {
        let Found { check, notes } = found;
        if self.is_half(check) {
            self.phase = Phase::Check(Check { role: Role::Witness, candidate: None, ..check });
            return with_notes(Next::Ask.into(), notes);
        }
        let was_alone = self.evidence.is_alone();
        self.count_check(check);
        let mut notes = notes;
        notes.extend(self.alone_note(was_alone));
        let decision = self.check_or_proceed(check.then, now);
        with_notes(decision, notes)
    }

    /// That one endpoint confirms alone now, or does so no longer.
    pub(super) fn alone_note(&self, was_alone: bool) -> Option<Note> {
        let is_alone = self.evidence.is_alone();
        (is_alone != was_alone).then_some(Note::Alone { begins: is_alone })
    }

    /// Whether another endpoint is to be asked too, because this one may have scanned.
    pub(super) fn is_half(&self, check: Check) -> bool {
        let is_unknown = self.rules.has_second && check.to <= self.checks.unknown_to;
        is_unknown && !check.is_empty() && !check.is_rescan && check.role == Role::Second
    }

    /// Notes how far the check came.
    pub(super) fn count_check(&mut self, check: Check) {
        self.checks.failures = 0;
        if check.is_empty() {
            return;
        }
        if check.is_rescan {
            self.checks.rescanned = self.checks.rescanned.max(check.to);
            if check.to == check.anchor.number {
                self.checks.rescanned_at = self.newest.map_or(0, |newest| newest.0);
            }
        } else if check.from <= self.evidence.checked().saturating_add(1) || check.is_alone {
            self.evidence.check(check.to, check.is_alone);
            if !check.is_alone {
                self.checks.alone_at = UnixMicros(0);
            }
            self.checks.time = self.checks.time.max(Some(check.anchor.timestamp));
            if !check.is_alone {
                self.count_final(check.from, check.to);
            }
        } else {
            // Another endpoint is back: what was checked by one alone is next.
            self.checks.alone_at = UnixMicros(0);
        }
        self.checks.range.grow(check.to - check.from + 1);
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
        if self.evidence.checked() >= from - 1 && is_old && to.number <= self.final_to {
            self.evidence.check(to.number, false);
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
        self.checks.failed(if why == Difference::Behind { BEHIND_WAIT_MAX } else { WAIT_MAX });
        let note = Note::Check { why, block: check.anchor };
        with_notes(self.proceed(check.then, now), vec![note])
    }

    /// There is no answer: the step begins again, without a check unless a shorter range may do.
    pub(super) fn check_refused(&mut self, check: Check, refusal: Refusal) -> Next {
        let used = check.to - check.from + 1;
        let shrunk = match refusal {
            Refusal::Size { hint } if !check.is_empty() => {
                let blocks = |(a, b): (i64, i64)| b.saturating_sub(a).saturating_add(1);
                self.checks.range.shrink(used, hint.map(blocks))
            }
            Refusal::Timeout if !check.is_empty() => {
                self.checks.range.shrink(used, None);
                false
            }
            Refusal::Size { .. }
            | Refusal::Timeout
            | Refusal::Rate
            | Refusal::Behind
            | Refusal::Transient
            | Refusal::Pruned
            | Refusal::Fatal => false,
        };
        if !shrunk {
            self.checks.failed(WAIT_MAX);
            // As in a scan, whatever the words are.
            if used > 1 && self.checks.failures.is_multiple_of(REFUSED_MAX) {
                self.checks.range.shrink(used, None);
            }
        }
        Next::Ask
    }
}

pub(super) fn with_notes(mut decision: Decision, notes: Vec<Note>) -> Decision {
    decision.notes.splice(..0, notes);
    decision
}
