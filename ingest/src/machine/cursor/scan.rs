//! A range: its logs, the blocks that verify them, and the step that publishes it.
//!
//! An endpoint may contradict itself: one answer has logs of a block that another one lacks. Receipts of the same
//! endpoint settle it. A log counts if a receipt proves it, whichever answer had it, and is dropped if a receipt denies
//! it. Without a receipt it is published and held. Until that step is published, ranges stay so short that every block
//! is fetched by its hash, so that no retry is weaker than the failed attempt.

use schemas::record::{Block, ChainBody, Observation};
use schemas::{PaymentKey, UnixMicros};

use super::{Cursor, HIT_BLOCKS_MAX, Phase};
use crate::machine::blocks;
use crate::machine::compare::{self, Merged, Unexplained, content};
use crate::machine::evidence::Verdict;
use crate::machine::{Answer, Ask, Decision, EventLog, Header, Next, Note, Outcome, Point};

/// A range as it was scanned.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) to: Block,
    /// `true` if the next range follows at once.
    pub(super) again: bool,
    pub(super) logs: Vec<EventLog>,
    /// Logs of one answer alone, and copies with one index: duplicates or equal transfers.
    pub(super) doubted: Vec<EventLog>,
    /// The highest block that the endpoint contradicted itself about.
    pub(super) contradicted: Option<Block>,
    /// The blocks to fetch again: each with logs, the end, and in a short range all others too.
    pub(super) blocks: Vec<Block>,
    pub(super) transactions: Vec<Outcome>,
    /// Doubted transfers to hold: the receipts of the endpoint neither prove nor deny them.
    pub(super) held: Vec<PaymentKey>,
}

impl Scanned {
    fn logs_of(&self, block: &Block) -> &[EventLog] {
        let start = self.logs.partition_point(|log| log.block_number < block.number);
        let end = self.logs.partition_point(|log| log.block_number <= block.number);
        self.logs.get(start..end).unwrap_or_default()
    }
}

impl Cursor {
    pub(super) fn scan(&mut self, (from, to, again): (i64, i64, bool), answer: Answer) -> Next {
        let mut headers = answer.blocks.into_iter();
        let (end, last) = (headers.next().flatten(), headers.next().flatten());
        let (Some(end), Some(last)) = (end, last) else { return Next::Behind };
        if last.block.hash != self.last().hash {
            return Next::Retry("the last scanned block changed during the step");
        }
        if end.block.number != to {
            return Next::Retry("the endpoint answered with another block");
        }
        let others = blocks::before_end(from, to).map(|_| headers.next().flatten());
        let headers: Option<Vec<Header>> = others.chain(std::iter::once(Some(end))).collect();
        let Some(headers) = headers else { return Next::Behind };
        let logs = self.rules.watch.sift(answer.logs.into_iter().flatten(), from, to);
        let logs = match logs {
            Ok(logs) => logs,
            Err(reason) => return Next::Retry(reason),
        };
        let blocks = match blocks::to_verify(from, last.block, &headers, end.block, &logs) {
            Ok(blocks) => blocks,
            Err(next) => return next,
        };
        if blocks.len() > HIT_BLOCKS_MAX && self.range.shrink(to - from + 1, None) {
            return Next::Ask;
        }
        let mut transactions = Vec::new();
        if self.rules.needs_receipts {
            transactions.extend(logs.iter().map(|log| self.outcome(log)));
            // Logs are in order, so those of a transaction follow each other.
            transactions.dedup();
        }
        self.phase = Phase::Verify(Scanned {
            to: end.block,
            again,
            logs,
            doubted: Vec::new(),
            contradicted: None,
            blocks,
            transactions,
            held: Vec::new(),
        });
        Next::Ask
    }

    /// Returns the range with the times of its blocks, and its certain and doubted logs, except those of failed
    /// transactions. Fails if a block changed since the scan, or blocks or receipts are missing or contradict the logs.
    pub(super) fn verify(&self, mut scanned: Scanned, answer: Answer) -> Result<Scanned, Next> {
        let mut headers = answer.blocks.into_iter();
        let Some(last) = headers.next().flatten() else { return Err(Next::Behind) };
        if last.block.hash != self.last().hash {
            return Err(Next::Retry("the last scanned block changed during the step"));
        }
        let mut blocks = Vec::with_capacity(scanned.blocks.len());
        let (mut certain, mut doubted, mut contradicted) = (Vec::new(), Vec::new(), None);
        for ((block, header), logs) in scanned.blocks.iter().zip(headers).zip(answer.logs) {
            let Some(header) = header else { return Err(Next::Behind) };
            if (header.block.number, header.block.hash) != (block.number, block.hash) {
                return Err(Next::Retry("a block changed during the step"));
            }
            let again = self.rules.watch.sift(logs, block.number, block.number);
            let merged = Merged::of(scanned.logs_of(block), &again.map_err(Next::Retry)?);
            certain.extend(merged.certain);
            doubted.extend(merged.doubted);
            contradicted = if merged.differ { Some(header.block) } else { contradicted };
            blocks.push(header.block);
        }
        let receipts = answer.receipts;
        if blocks.len() < scanned.blocks.len() || receipts.len() < scanned.transactions.len() {
            return Err(Next::Retry("the answer is incomplete"));
        }
        let failed = compare::failed(&scanned.transactions, &receipts, &certain);
        let failed = failed.map_err(|cause| match cause {
            Unexplained::Missing => Next::Behind,
            Unexplained::Moved => Next::Retry("a transaction moved during the step"),
            Unexplained::Lacking => Next::Retry("a receipt lacks a log of its transaction"),
        })?;
        for logs in [&mut certain, &mut doubted] {
            logs.retain(|log| !failed.contains(&log.tx_hash));
        }
        (scanned.logs, scanned.doubted, scanned.contradicted) = (certain, doubted, contradicted);
        Ok(Scanned { blocks, ..scanned })
    }

    pub(super) fn publish_step(&mut self, step: &Scanned, now: UnixMicros) -> Decision {
        let (epoch, to) = (self.known().epoch(), step.to);
        let used = to.number - self.last().number;
        let (mut records, mut notes) = (Vec::new(), Vec::new());
        for block in &step.blocks {
            let (seen, skipped) = self.rules.watch.observe(step.logs_of(block));
            notes.extend(skipped.into_iter().map(Note::Skipped));
            for seen in &seen {
                if step.held.contains(&seen.payment()) {
                    self.hold(*block, *seen, now);
                }
            }
            let transfers = seen.into_iter().map(ChainBody::Transfer);
            records.extend(transfers.map(|body| self.record(epoch, *block, now, body)));
        }
        self.range.grow(used);
        self.refused = 0;
        self.exempt(self.last().number + 1, to);
        self.vouch_shown(to);
        self.has_gap = false;
        self.checks.scanned_final(to.number - used + 1, to.number.min(self.final_to));
        self.checks.scanned(to.number, now);
        self.blocks_ahead.extend(&step.blocks);
        if records.is_empty() && !step.again && self.hold_back() {
            self.ahead = Some(to);
            return Decision { notes, ..Next::AtTip.into() };
        }
        let mut anchors: Vec<Block> = records.iter().map(|record| record.block).collect();
        anchors.push(to);
        let head = ChainBody::Head(self.head(to.number, &anchors, &self.blocks_ahead));
        records.push(self.record(epoch, to, now, head));
        let decision = self.publish(records, Next::Ask);
        let next = if step.again || self.is_check_due(now) { Next::Ask } else { Next::AtTip };
        Decision { notes, next, ..decision }
    }

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
