//! An endpoint that contradicts itself: one answer has logs of a block that another one lacks. Receipts of the same
//! endpoint settle it. What a receipt proves counts, whichever answer had it; what has no receipt is published and held.
//! Until that step is published ranges stay so short that every block is asked for by its hash: no retry asks a weaker
//! question than the attempt that failed.

use schemas::UnixMicros;
use schemas::record::Observation;

use super::{Cursor, Phase, Scanned};
use crate::machine::compare::content;
use crate::machine::evidence::Verdict;
use crate::machine::{Answer, Ask, Decision, EventLog, Next, Note, Outcome, Point};

impl Cursor {
    pub(super) fn ask_doubted(&self, scanned: &Scanned, doubted: &[EventLog]) -> Ask {
        let receipts: Vec<Outcome> = doubted.iter().map(|log| self.outcome(log)).collect();
        let blocks = vec![Point::Number(self.last().number), Point::Number(scanned.to.number)];
        Ask { blocks, receipts, ..Ask::default() }
    }

    /// Examines what only one of two answers has, before anything of the range is published.
    pub(super) fn doubt(&mut self, scanned: Scanned, doubted: Vec<EventLog>) -> Decision {
        let highest = doubted.iter().map(|log| log.block_number).max();
        self.doubted_to = self.doubted_to.max(highest.unwrap_or(-1));
        let differ = doubted.iter().any(|log| !scanned.repeated.contains(log));
        let block = scanned.blocks.iter().find(|block| Some(block.number) == highest).copied();
        let block = block.filter(|_| differ);
        let notes = block.map(|block| Note::Contradiction { block }).into_iter().collect();
        self.phase = Phase::Doubt { scanned, doubted };
        Decision { notes, ..Next::Ask.into() }
    }

    pub(super) fn resolve(
        &mut self,
        mut scanned: Scanned,
        doubted: Vec<EventLog>,
        answer: &Answer,
        now: UnixMicros,
    ) -> Decision {
        let mut headers = answer.blocks.iter().copied().map(|header| header.map(|h| h.block.hash));
        let shown = (headers.next().flatten(), headers.next().flatten());
        if shown != (Some(self.last().hash), Some(scanned.to.hash)) {
            return Next::Retry("a block changed during the step").into();
        }
        if answer.receipts.len() < doubted.len() {
            return Next::Retry("the answer is incomplete").into();
        }
        for (log, proof) in doubted.iter().zip(&answer.receipts) {
            let block = scanned.blocks.iter().find(|block| block.number == log.block_number);
            let (seen, _) = self.rules.watch.observe(std::slice::from_ref(log));
            let (Some(block), Some(seen)) = (block, seen.first()) else { continue };
            let is_copy = scanned.repeated.contains(log);
            let equal = |other: &EventLog| content(other) == content(log);
            let known = scanned.logs.iter().filter(|other| equal(other)).count();
            let is_known = scanned.logs.contains(log) && !is_copy;
            // Of equal ones the last is in doubt.
            let rank = if is_known { known.saturating_sub(1) } else { known };
            let verdict = Verdict::of(proof, &self.rules.watch, block, seen, rank);
            match verdict {
                Verdict::Proven | Verdict::Unknown if is_known => {}
                Verdict::Proven | Verdict::Unknown => scanned.logs.push(log.clone()),
                Verdict::Denied if is_known => {
                    if let Some(at) = scanned.logs.iter().rposition(equal) {
                        scanned.logs.remove(at);
                    }
                }
                Verdict::Denied => {}
            }
            if verdict == Verdict::Unknown {
                let ordinal = i32::try_from(rank).unwrap_or(i32::MAX);
                scanned.held.push(Observation { ordinal, ..*seen }.payment());
            }
        }
        scanned.logs.sort_by_key(|log| (log.block_number, log.log_index, log.tx_hash));
        self.publish_step(&scanned, now)
    }
}
