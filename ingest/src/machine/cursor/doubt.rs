//! An endpoint that contradicts itself: one answer has logs of a block that another one lacks. Receipts of the same
//! endpoint settle it. A log counts if a receipt proves it, whichever answer had it, and is dropped if a receipt denies
//! it. Without a receipt it is published and held. Until that step is published, ranges stay so short that every block
//! is fetched by its hash, so that no retry is weaker than the failed attempt.

use schemas::UnixMicros;
use schemas::record::Observation;

use super::{Cursor, Phase, Scanned};
use crate::machine::compare::content;
use crate::machine::evidence::Verdict;
use crate::machine::{Answer, Ask, Decision, Next, Note, Outcome, Point};

impl Cursor {
    pub(super) fn ask_doubted(&self, scanned: &Scanned) -> Ask {
        let receipts: Vec<Outcome> = scanned.doubted.iter().map(|log| self.outcome(log)).collect();
        let blocks = vec![Point::Number(self.last().number), Point::Number(scanned.to.number)];
        Ask { blocks, receipts, ..Ask::default() }
    }

    /// Asks for receipts of the doubted logs before anything of the range is published.
    pub(super) fn doubt(&mut self, scanned: Scanned) -> Decision {
        let highest = scanned.doubted.iter().map(|log| log.block_number).max();
        self.doubted_to = self.doubted_to.max(highest.unwrap_or(-1));
        let contradiction = scanned.contradicted.map(|block| Note::Contradiction { block });
        self.phase = Phase::Doubt(scanned);
        Decision { notes: contradiction.into_iter().collect(), ..Next::Ask.into() }
    }

    pub(super) fn resolve(
        &mut self,
        mut scanned: Scanned,
        answer: &Answer,
        now: UnixMicros,
    ) -> Decision {
        let mut headers = answer.blocks.iter().copied().map(|header| header.map(|h| h.block.hash));
        let shown = (headers.next().flatten(), headers.next().flatten());
        if shown != (Some(self.last().hash), Some(scanned.to.hash)) {
            return Next::Retry("a block changed during the step").into();
        }
        let doubted = std::mem::take(&mut scanned.doubted);
        if answer.receipts.len() < doubted.len() {
            return Next::Retry("the answer is incomplete").into();
        }
        for (log, proof) in doubted.into_iter().zip(&answer.receipts) {
            let block = scanned.blocks.iter().find(|block| block.number == log.block_number);
            let (seen, _) = self.rules.watch.observe(std::slice::from_ref(&log));
            let (Some(block), Some(seen)) = (block, seen.first()) else { continue };
            // Equal logs that already count come before this one.
            let rank = scanned.logs.iter().filter(|other| content(other) == content(&log)).count();
            let verdict = Verdict::of(proof, &self.rules.watch, block, seen, rank);
            if verdict == Verdict::Unknown {
                let ordinal = i32::try_from(rank).unwrap_or(i32::MAX);
                scanned.held.push(Observation { ordinal, ..*seen }.payment());
            }
            if verdict != Verdict::Denied {
                scanned.logs.push(log);
            }
        }
        scanned.logs.sort_by_key(|log| (log.block_number, log.log_index, log.tx_hash));
        self.publish_step(&scanned, now)
    }
}
