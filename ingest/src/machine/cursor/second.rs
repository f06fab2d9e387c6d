//! The second check, scheduled by [`super::due`]: compares the answers of two endpoints. Its proofs are kept in
//! [`crate::machine::evidence`]; differences are settled by receipts ([`super::settle`]).
//!
//! One request asks another endpoint for the transfers of a range that is deep enough to be confirmed, for a block near
//! the tip, and for the tags. If that block is ours, everything up to it is vouched for; if not, the newest common
//! block bounds confirmation from then on. An endpoint that is behind is asked for the same block until it has it. A
//! failed check does not stop the scan: it is retried later, and until then heads confirm less.

use schemas::record::{Block, Observation};
use schemas::{BlockHash, PaymentKey, UnixMicros};

use super::checks::{Check, Found, Question};
use super::{Cursor, Phase, REFUSED_MAX};
use crate::machine::compare::{self, payments};
use crate::machine::{
    Answer, Ask, Decision, Difference, EventLog, Header, Next, Note, Point, Refusal, Role, Span,
    Tag, Tags,
};

/// Maximum blocks of a check by block receipts; longer ranges are checked by their logs.
pub(super) const RECEIPT_BLOCKS_MAX: i64 = 16;
/// Maximum backoff of a check, in steps, if the endpoint does not have the block yet.
const BEHIND_WAIT_MAX: u32 = 2;
/// Maximum number of our blocks in one request to another endpoint that searches for the newest common one.
const COMMON_MAX: usize = 32;

impl Cursor {
    /// Limit that the checks set on the finalized height.
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

    pub(super) fn compare(
        &mut self,
        mut check: Check,
        answer: Answer,
        now: UnixMicros,
    ) -> Decision {
        check.is_alone |= answer.is_alone && self.rules.has_second;
        let mut headers = answer.blocks.iter().copied();
        let (header, newest) = (headers.next().flatten(), headers.next().flatten());
        let newest = newest.map_or(-1, |newest| newest.block.number);
        let Some(header) = header else {
            let is_behind = newest < check.anchor.number;
            self.checks.anchor = Some(check.anchor).filter(|_| is_behind);
            let why = if is_behind { Difference::Behind } else { Difference::Contradiction };
            return self.check_later(check, why, now);
        };
        self.checks.anchor = None;
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
        if check.is_empty() && answer.is_first && check.is_alone {
            self.evidence.note_alone();
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

    /// Applies another endpoint's block at the height to vouch for, and its tags. Returns `true` if the
    /// block differs from ours.
    fn is_contested(&mut self, check: &mut Check, shown: &[Option<Header>], newest: i64) -> bool {
        let Some(number) = check.candidate.take() else { return false };
        let mut shown = shown.iter().copied();
        let header = shown.next().flatten();
        let mut tag = || shown.next().flatten().map(|header| header.block.number);
        let finalized = self.rules.policy.uses_tags().then(&mut tag).flatten();
        let tags = Tags { finalized, safe: self.rules.policy.uses(Tag::Safe).then(tag).flatten() };
        let anchor = check.anchor.number;
        self.evidence.vouch(anchor, tags.up_to(anchor));
        // The same height is asked for until the endpoint has it.
        self.checks.candidate = Some(number).filter(|_| header.is_none() && newest < number);
        let Some(header) = header else { return false };
        match self.block_at(number) {
            Some(ours) if ours == header.block => self.evidence.vouch(number, tags.up_to(number)),
            Some(_) => return true,
            None if number > self.last().number => self.checks.shown = Some(header.block),
            None => {}
        }
        false
    }

    /// Our block at a height, where it is known.
    pub(super) fn block_at(&self, number: i64) -> Option<Block> {
        let is = |block: &Block| block.number == number;
        let ahead = self.blocks_ahead.iter().copied().find(|block| is(block));
        Some(self.last()).filter(is).or(ahead).or_else(|| self.known().anchor_at(number))
    }

    /// Vouches for a scanned block if another endpoint has shown the same.
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
        let is_contested = self.sabotage != crate::sabotage::Defect::VouchedNeverFalls;
        #[cfg(test)]
        let newest = if is_contested { newest } else { Some(i64::MAX) };
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
        let is_other =
            |number: i64, hash| self.block_at(number).is_some_and(|ours| ours.hash != hash);
        let is_read_elsewhere = answer.read.iter().any(|(number, hash)| is_other(*number, *hash));
        let logs = self.rules.watch.sift(answer.logs.into_iter().flatten(), from, to);
        let Ok(logs) = logs else {
            return self.check_later(check, Difference::Contradiction, now);
        };
        let live = self.known().between(from, to);
        let is_fork = |log: &EventLog| is_other(log.block_number, log.block_hash);
        if is_read_elsewhere || logs.iter().any(is_fork) {
            return self.check_later(check, Difference::Contradiction, now);
        }
        let needs_receipts = self.rules.needs_receipts && !by_receipts;
        let mut questions = self.questions(check, &live, &logs, (needs_receipts, by_receipts));
        // Only denials by consecutive checks count.
        let is_asked = |(_, hash, payment): &(i64, BlockHash, PaymentKey)| {
            questions.iter().any(|one| (one.block.hash, one.seen.payment()) == (*hash, *payment))
        };
        let is_outside = |number: i64| check.is_rescan || number < from || number > to;
        self.checks.denied.retain(|key, _| is_outside(key.0) || is_asked(key));
        let mut found = Found { check, notes: Vec::new() };
        if questions.len() > super::HIT_BLOCKS_MAX {
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
        (needs_receipts, by_receipts): (bool, bool),
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
            self.sabotage.extra(&ours, &theirs, &mut differ.extra);
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
                let own = None;
                Question { block, seen, rank, is_published, is_held, is_missing, by_receipts, own }
            };
            // In a rescan the published transfers are not questioned: they were confirmed and acted
            // upon.
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

    /// Ends a check without records to publish, unless a second endpoint must be asked too.
    pub(super) fn end_check(&mut self, found: Found, now: UnixMicros) -> Decision {
        let Found { check, notes } = found;
        if self.is_half(check) {
            self.phase = Phase::Check(Check { role: Role::Witness, candidate: None, ..check });
            return with_notes(Next::Ask.into(), notes);
        }
        self.count_check(check);
        let mut notes = notes;
        notes.extend(self.alone_note());
        let decision = self.check_or_proceed(check.then, now);
        with_notes(decision, notes)
    }

    /// Returns a note if one endpoint now confirms alone, or does so no longer.
    pub(super) fn alone_note(&mut self) -> Option<Note> {
        let is_alone = self.evidence.is_alone();
        let was_alone = std::mem::replace(&mut self.checks.is_alone, is_alone);
        (is_alone != was_alone).then_some(Note::Alone { begins: is_alone })
    }

    /// Returns `true` if a second endpoint must be asked too, as this one may be the scanner.
    pub(super) fn is_half(&self, check: Check) -> bool {
        let is_unknown = self.rules.has_second && check.to <= self.checks.unknown_to;
        is_unknown && !check.is_empty() && !check.is_rescan && check.role == Role::Second
    }

    /// Postpones a check whose answer cannot be used; the step continues.
    pub(super) fn check_later(
        &mut self,
        check: Check,
        why: Difference,
        now: UnixMicros,
    ) -> Decision {
        let wait_max = self.rules.check_wait_polls;
        let is_behind = why == Difference::Behind;
        self.checks.failed(if is_behind { wait_max.min(BEHIND_WAIT_MAX) } else { wait_max });
        let note = Note::Check { why, block: check.anchor };
        with_notes(self.proceed(check.then, now), vec![note])
    }

    /// Restarts the step after a refused check: with a shorter range, or without a check.
    pub(super) fn check_refused(&mut self, check: Check, refusal: Refusal) -> Next {
        let used = check.to - check.from + 1;
        let mut shrunk = false;
        if !check.is_empty() && matches!(refusal, Refusal::Size { .. } | Refusal::Timeout) {
            shrunk = self.checks.range.shrink(used, refusal.blocks());
        }
        // After a time-out the check is postponed as well.
        if !shrunk || refusal == Refusal::Timeout {
            self.checks.failed(self.rules.check_wait_polls);
            // As in a scan: after several refusals of any kind the range is halved.
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
