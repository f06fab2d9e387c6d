//! Differences between two answers are settled by receipts: of the endpoint that gave the second answer, then of
//! another one. There is no vote. A transfer that both endpoints (or the only one) have, by logs or receipts, is
//! published, or stays. A published one that all deny, several times in a row, is retracted. An unpublished one that
//! the receipt of the endpoint that showed it denies is dropped. All others are held: published, unconfirmed, and
//! checked again until both agree.

use schemas::record::{Block, ChainBody, Observation};
use schemas::{Address, Epoch, UnixMicros};

use super::checks::{AGAIN_MICROS, Check, Found, Question};
use super::{Cursor, Phase};
use crate::machine::compare::next_ordinal;
use crate::machine::evidence::Verdict;
use crate::machine::{Answer, Ask, Decision, Difference, Next, Note, Outcome, Point, Proof};

/// Minimum consecutive denials of a transfer by all endpoints before it is retracted: a node that lags may deny it
/// once.
const DENIALS_MIN: u32 = 3;

/// Outcome for a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    /// Proven: it is published, and confirmed when its block is.
    Counts,
    /// Published, and not confirmed.
    Held,
    /// Held as well: every endpoint denies it, but not yet often enough.
    Doubted,
    /// Denied by every endpoint, several times in a row: it is retracted.
    Denied,
    /// Not published: the receipt of the endpoint that showed it denies it.
    Dropped,
}

/// Pairs of wallet and contract that are watched only above a height.
#[derive(Debug, Default)]
pub(super) struct LateWatch {
    added: Vec<(Address, Address)>,
    pub(super) to: i64,
}

impl LateWatch {
    /// Returns `true` if a transfer came before its wallet or contract was watched.
    pub(super) fn covers(&self, number: i64, seen: &Observation) -> bool {
        number <= self.to && self.added.contains(&(seen.to_address, seen.contract))
    }
}

impl Cursor {
    /// Notes the pairs of wallet and contract that are watched only from the next block on.
    pub(crate) fn watch_from_here(&mut self, added: Vec<(Address, Address)>) {
        let to = self.history.as_ref().map_or(-1, |history| history.last().number);
        self.late_watch = LateWatch { added, to };
    }

    /// Asks for receipts of the transactions, and for the blocks, to check the fork.
    pub(super) fn ask_receipts(&self, check: &Check, questions: &[Question], is_own: bool) -> Ask {
        let blocks = questions.iter().map(|question| Point::Number(question.block.number));
        let blocks = std::iter::once(Point::Number(check.anchor.number)).chain(blocks);
        let receipts = questions.iter().map(|Question { block, seen, .. }| {
            let is_final = self.is_final(block.number);
            let (number, block_hash) = (block.number, block.hash);
            Outcome { transaction: seen.tx_hash, number, block_hash, is_final }
        });
        Ask {
            role: if is_own { check.role } else { check.role.other() },
            about: (is_own && check.is_empty()).then_some(i64::MAX),
            blocks: blocks.collect(),
            receipts: receipts.collect(),
            ..Ask::default()
        }
    }

    /// Asks the open questions, or ends the check.
    pub(super) fn settle(
        &mut self,
        found: Found,
        questions: Vec<Question>,
        now: UnixMicros,
    ) -> Decision {
        if questions.is_empty() {
            return self.end_check(found, now);
        }
        self.phase = Phase::Settle { found, questions };
        Next::Ask.into()
    }

    /// Takes receipts: first those of the endpoint of the second answer, then those of another one.
    pub(super) fn receipts(
        &mut self,
        mut found: Found,
        mut questions: Vec<Question>,
        answer: &Answer,
        now: UnixMicros,
    ) -> Decision {
        found.check.is_alone |= answer.is_alone && self.rules.has_second;
        let verdicts = match self.verdicts(&found.check, &mut questions, answer) {
            Ok(verdicts) => verdicts,
            Err(why) => return self.check_later(found.check, why, now),
        };
        let is_own = questions.iter().all(|question| question.own.is_none());
        if is_own {
            for (question, verdict) in questions.iter_mut().zip(&verdicts) {
                question.own = Some(*verdict);
            }
            let needs_other = |question: &Question| !is_settled_by_one(question);
            if self.has_other(&found.check) && questions.iter().any(needs_other) {
                self.phase = Phase::Settle { found, questions };
                return Next::Ask.into();
            }
        }
        // An endpoint cannot be its own witness.
        let others = (!is_own && !found.check.is_alone).then_some(verdicts);
        let settled: Vec<_> = (0..questions.len())
            .map(|at| {
                let other = others.as_ref().and_then(|others| others.get(at).copied());
                self.settled(&questions[at], other, self.has_other(&found.check), now)
            })
            .collect();
        self.publish_settled(found, questions.into_iter().zip(settled).collect(), now)
    }

    /// Returns `true` if another endpoint is asked as well.
    fn has_other(&self, check: &Check) -> bool {
        self.rules.has_second && !check.is_alone
    }

    fn verdicts(
        &self,
        check: &Check,
        questions: &mut [Question],
        answer: &Answer,
    ) -> Result<Vec<Verdict>, Difference> {
        let mut headers = answer.blocks.iter();
        let mut header = || headers.next().copied().flatten().ok_or(Difference::Behind);
        if header()?.block != check.anchor {
            return Err(Difference::Fork);
        }
        if answer.receipts.len() < questions.len() {
            return Err(Difference::Contradiction);
        }
        let mut verdicts = Vec::with_capacity(questions.len());
        for (question, proof) in questions.iter_mut().zip(&answer.receipts) {
            let shown = header()?.block;
            if (shown.number, shown.hash) != (question.block.number, question.block.hash) {
                return Err(Difference::Fork);
            }
            question.block = shown;
            let (block, seen, rank) = (&question.block, &question.seen, question.rank);
            let verdict = Verdict::of(proof, &self.rules.watch, block, seen, rank);
            // Some nodes serve the log of a transaction that no block of theirs lists: that is not a denial. Nor is a
            // receipt that contradicts the block's receipts.
            let shows = !question.is_published && question.own.is_none();
            let contradicts = *proof == Proof::Unlisted || question.by_receipts;
            let denies = verdict == Verdict::Denied;
            let verdict = if shows && contradicts && denies { Verdict::Unknown } else { verdict };
            #[cfg(test)]
            let verdict = self.sabotage.verdict(verdict);
            verdicts.push(verdict);
        }
        Ok(verdicts)
    }

    fn settled(
        &mut self,
        question: &Question,
        other: Option<Verdict>,
        has_other: bool,
        now: UnixMicros,
    ) -> Settled {
        use Verdict::{Denied, Proven, Unknown};
        let Question { block, seen, is_published, is_held, .. } = question;
        let own = question.own.unwrap_or(Unknown);
        let key = (block.number, block.hash, seen.payment());
        let (denials, denied_at) = self.checks.denied.remove(&key).unwrap_or_default();
        // While the other endpoint is down, held transfers and late finds wait for it.
        let waits = self.rules.has_second && (*is_held || !*is_published);
        match (own, other) {
            (Proven, None) if *is_published && !*is_held => Settled::Counts,
            (Proven, None) if !(has_other || waits) => Settled::Counts,
            (Proven, Some(Proven)) => Settled::Counts,
            // The endpoint that showed it denies it by receipt.
            (Denied, _) if !*is_published => Settled::Dropped,
            (Denied, Some(Denied) | None) if other.is_some() || !self.rules.has_second => {
                // Denials within `AGAIN_MICROS` count as one.
                let is_new = denials == 0 || now.0 >= denied_at.0.saturating_add(AGAIN_MICROS);
                let (denials, at) = if is_new { (denials + 1, now) } else { (denials, denied_at) };
                self.checks.denied.insert(key, (denials, at));
                if denials >= DENIALS_MIN { Settled::Denied } else { Settled::Doubted }
            }
            _ => Settled::Held,
        }
    }

    /// Publishes late finds, retracts of transfers that every endpoint denies, and changes of held ones; ends the check
    /// if there are none. Retracts begin a new epoch; the blocks stay.
    fn publish_settled(
        &mut self,
        mut found: Found,
        settled: Vec<(Question, Settled)>,
        now: UnixMicros,
    ) -> Decision {
        let mut finds: Vec<(Block, Observation)> = Vec::new();
        let mut taken: Vec<(Block, Observation)> = Vec::new();
        let mut is_changed = false;
        for (question, settled) in settled {
            let Question { block, mut seen, is_published, is_missing, .. } = question;
            let was_held = question.is_held;
            if settled == Settled::Dropped {
                continue;
            }
            if !is_published {
                let ordinal = next_ordinal(self.known(), block.number, &seen, &finds);
                seen = Observation { ordinal, ..seen };
                found.notes.push(Note::LateFind { block, tx_hash: seen.tx_hash });
                finds.push((block, seen));
            }
            let tx_hash = seen.tx_hash;
            match settled {
                Settled::Held | Settled::Doubted => {
                    let is_new = self.hold(block, seen, now);
                    is_changed |= is_new;
                    // Reported only if it was held before: a node that lags may differ once.
                    let is_dispute = !is_new && settled == Settled::Held;
                    if is_dispute && self.checks.reported.insert((block.hash, seen.payment())) {
                        found.notes.push(Note::Disputed { block, tx_hash });
                    }
                }
                Settled::Denied => {
                    found.notes.push(Note::Forged { block, tx_hash });
                    taken.push((block, seen));
                }
                Settled::Counts if is_published && !was_held && is_missing => {
                    found.notes.push(Note::Omitted { block, tx_hash });
                }
                Settled::Counts | Settled::Dropped => {}
            }
            let is_held = matches!(settled, Settled::Held | Settled::Doubted);
            if !is_held && self.evidence.holds(&block, &seen) {
                self.evidence.release(&block, &seen);
                self.checks.reported.remove(&(block.hash, seen.payment()));
                is_changed = true;
            }
        }
        if finds.is_empty() && taken.is_empty() && !is_changed {
            return self.end_check(found, now);
        }
        if !self.is_half(found.check) {
            self.count_check(found.check);
            found.notes.extend(self.alone_note());
        }
        let (last, epoch) = (self.last(), self.known().epoch());
        let epoch = if taken.is_empty() { epoch } else { Epoch(epoch.0.saturating_add(1)) };
        let mut records = Vec::with_capacity(finds.len() + taken.len() + 1);
        // Late finds are of the present epoch, retracts of the next one.
        for (at, seen) in finds {
            records.push(self.record(self.known().epoch(), at, now, ChainBody::Transfer(seen)));
        }
        for (at, seen) in taken {
            records.push(self.record(epoch, at, now, ChainBody::Retract(seen)));
        }
        let head = ChainBody::Head(self.head(last.number, &[last], &self.blocks_ahead));
        records.push(self.record(epoch, last, now, head));
        Decision { notes: found.notes, ..self.publish(records, Next::Ask) }
    }

    pub(super) fn hold(&mut self, block: Block, seen: Observation, now: UnixMicros) -> bool {
        #[cfg(test)]
        if self.sabotage == crate::sabotage::Defect::HoldForgotten {
            return false;
        }
        let is_new = self.evidence.hold(block, seen);
        if is_new {
            self.checks.held(now);
        }
        is_new
    }
}

/// Returns `true` if one endpoint's receipt is enough: it proves a transfer that the scanning endpoint showed too, or
/// denies one that only the same endpoint showed.
fn is_settled_by_one(question: &Question) -> bool {
    match question.own {
        Some(Verdict::Proven) => question.is_published && !question.is_held,
        Some(Verdict::Denied) => !question.is_published,
        Some(Verdict::Unknown) | None => false,
    }
}
