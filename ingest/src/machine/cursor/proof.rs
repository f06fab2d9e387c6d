//! Transfers that a second check lacks: receipts say whether an endpoint leaves out logs or another invents them. On
//! Tron one whose transaction did not succeed there is lacking too.
//!
//! There is no vote. One receipt that has the transfer keeps it, and as long as another endpoint denies it, nothing
//! from its block on is confirmed. Only what every endpoint denies, several checks in a row, is taken back.

use schemas::record::{Block, ChainBody, Observation};
use schemas::{Epoch, UnixMicros};

use super::second::{Check, Found, Transfers};
use super::{Cursor, Phase};
use crate::machine::compare::proves;
use crate::machine::{Answer, Ask, Decision, Difference, Next, Note, Outcome, Point, Role};

/// How many checks in a row must deny a transfer: a node that lags may answer so once.
const DENIALS_MIN: u32 = 3;

impl Cursor {
    pub(super) fn ask_receipts(
        &self,
        check: &Check,
        missing: &[(Block, Observation)],
        role: Role,
    ) -> Ask {
        Ask {
            role,
            blocks: vec![Point::Number(check.anchor.number)],
            logs: Vec::new(),
            receipts: self.outcomes(missing),
        }
    }

    /// The question what became of the transactions of some transfers, one by one.
    pub(super) fn outcomes(&self, transfers: &[(Block, Observation)]) -> Vec<Outcome> {
        let outcomes = transfers.iter().map(|(block, seen)| self.outcome(block, seen.tx_hash));
        outcomes.collect()
    }

    pub(super) fn prove(
        &mut self,
        mut found: Found,
        missing: Vec<(Block, Observation)>,
        role: Role,
        answer: Answer,
        now: UnixMicros,
    ) -> Decision {
        let (proven, denied) = match self.divide(found.check, missing, answer) {
            Ok(divided) => divided,
            Err(why) => return self.check_later(found.check, why, now),
        };
        let is_own = role == found.check.role;
        for (block, seen) in proven {
            if is_own {
                found.notes.push(Note::Omitted { block, tx_hash: seen.tx_hash });
            } else {
                found.disputed = Some(found.disputed.map_or(block.number, |n| n.min(block.number)));
                self.report_dispute(&mut found.notes, &(block, seen));
            }
        }
        if !is_own {
            return self.denied_by_all(found, denied, now);
        }
        if denied.is_empty() {
            self.checks.denied.clear();
            return self.find(found, now);
        }
        self.phase = Phase::Prove { found, missing: denied, role: role.other() };
        Next::Ask.into()
    }

    /// The transfers that have a receipt, and those that have none.
    fn divide(
        &self,
        check: Check,
        transfers: Vec<(Block, Observation)>,
        answer: Answer,
    ) -> Result<(Transfers, Transfers), Difference> {
        let header = answer.blocks.into_iter().next().flatten().ok_or(Difference::Behind)?;
        if header.block.hash != check.anchor.hash {
            return Err(Difference::Fork);
        }
        if answer.receipts.len() < transfers.len() {
            return Err(Difference::Contradiction);
        }
        let (mut proven, mut denied) = (Vec::new(), Vec::new());
        for ((block, seen), receipt) in transfers.into_iter().zip(answer.receipts) {
            let has_receipt = proves(&self.rules.watch, receipt.receipt(), block, &seen);
            if has_receipt { &mut proven } else { &mut denied }.push((block, seen));
        }
        Ok((proven, denied))
    }

    /// Late finds are published if another endpoint has their receipts. If it has none, one of the two answers falsely:
    /// nothing is confirmed from there on.
    pub(super) fn witness(
        &mut self,
        mut found: Found,
        transfers: Transfers,
        answer: Answer,
        now: UnixMicros,
    ) -> Decision {
        let (proven, denied) = match self.divide(found.check, transfers, answer) {
            Ok(divided) => divided,
            Err(why) => return self.check_later(found.check, why, now),
        };
        let lowest = denied.iter().map(|(block, _)| block.number).min();
        found.disputed = found.disputed.into_iter().chain(lowest).min();
        for transfer in &denied {
            self.report_dispute(&mut found.notes, transfer);
        }
        self.publish_finds(found, proven, now)
    }

    fn denied_by_all(
        &mut self,
        mut found: Found,
        denied: Vec<(Block, Observation)>,
        now: UnixMicros,
    ) -> Decision {
        let place = |transfer: &(Block, Observation)| (transfer.0.number, transfer.1.log_index);
        let before = std::mem::take(&mut self.checks.denied);
        let times = |place| before.get(&place).map_or(1, |times| times + 1);
        self.checks.denied = denied.iter().map(|t| (place(t), times(place(t)))).collect();
        let lowest = denied.iter().map(|(block, _)| block.number).min();
        found.disputed = found.disputed.into_iter().chain(lowest).min();
        let is_forged = |transfer: &(Block, Observation)| {
            self.checks.denied.get(&place(transfer)).is_some_and(|times| *times >= DENIALS_MIN)
        };
        let forged: Vec<_> = denied.into_iter().filter(is_forged).collect();
        if !self.checks.denied.is_empty() {
            // Asked again soon.
            self.checks.failures = 0;
        }
        if forged.is_empty() {
            return self.find(found, now);
        }
        self.take_back(found, forged, now)
    }

    /// One step that retracts what no endpoint has. The epoch says that something was taken back; the blocks stay.
    fn take_back(
        &mut self,
        mut found: Found,
        forged: Vec<(Block, Observation)>,
        now: UnixMicros,
    ) -> Decision {
        self.count_check(found.check, found.disputed);
        self.checks.denied.clear();
        self.checks.wait = 0;
        let (last, epoch) = (self.last(), Epoch(self.known().epoch().0.saturating_add(1)));
        let mut records = Vec::with_capacity(forged.len() + 1);
        for (block, seen) in forged {
            records.push(self.record(epoch, block, now, ChainBody::Retract(seen)));
            found.notes.push(Note::Forged { block, tx_hash: seen.tx_hash });
        }
        let head = ChainBody::Head(self.head(last.number, &[last], &self.blocks_ahead));
        records.push(self.record(epoch, last, now, head));
        Decision { notes: found.notes, ..self.publish(records, Next::Ask) }
    }
}
