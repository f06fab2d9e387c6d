//! Late finds: transfers that a second check has and the first one had not. Their blocks are fetched again by number
//! and hash, as those of a scan, and then published in the present epoch, before the head.

use schemas::record::{Block, ChainBody, Observation};
use schemas::{Address, BlockHash, UnixMicros};

use super::second::{Check, Found, Transfers};
use super::{Cursor, HIT_BLOCKS_MAX, Phase};
use crate::machine::compare::{self, Unexplained, next_ordinal, payments};
use crate::machine::{Answer, Ask, Decision, Difference, Header, Next, Note, Outcome, Point, Span};

/// The blocks with late finds.
#[derive(Debug)]
pub(super) struct Finds {
    blocks: Vec<(i64, BlockHash)>,
    /// On chains that keep the logs of failed transactions.
    transactions: Vec<Outcome>,
}

/// Wallets with contracts that are watched in the blocks after a height only.
#[derive(Debug, Default)]
pub(super) struct LateWatch {
    added: Vec<(Address, Address)>,
    pub(super) to: i64,
}

impl LateWatch {
    /// Whether a transfer came before its wallet or contract was watched.
    fn covers(&self, number: i64, seen: &Observation) -> bool {
        number <= self.to && self.added.contains(&(seen.to_address, seen.contract))
    }
}

impl Finds {
    pub(super) fn ask(&self, check: &Check) -> Ask {
        let numbers = self.blocks.iter().map(|(number, _)| *number);
        let numbers = std::iter::once(check.anchor.number).chain(numbers);
        Ask {
            role: check.role,
            blocks: numbers.map(Point::Number).collect(),
            logs: self.blocks.iter().map(|(_, hash)| Span::Block(*hash)).collect(),
            receipts: self.transactions.clone(),
        }
    }
}

impl Cursor {
    /// What is watched from the next block on, and was not when the blocks before were scanned.
    pub(crate) fn watch_from_here(&mut self, added: Vec<(Address, Address)>) {
        let to = self.history.as_ref().map_or(-1, |history| history.last().number);
        self.late_watch = LateWatch { added, to };
    }

    /// Fetches the blocks in which the second answer has more, if any.
    pub(super) fn find(&mut self, mut found: Found, now: UnixMicros) -> Decision {
        let mut finds = Finds { blocks: Vec::new(), transactions: Vec::new() };
        for (number, seen) in payments(&self.rules.watch, &found.logs) {
            if !self.is_find(number, &seen) {
                continue;
            }
            let block = found.logs.iter().find(|log| log.block_number == number);
            let block = block.map(|log| (number, log.block_hash));
            if finds.blocks.last() != block.as_ref() {
                if finds.blocks.len() == HIT_BLOCKS_MAX {
                    // The rest is left to the next check.
                    found.check.to = number - 1;
                    break;
                }
                finds.blocks.extend(block);
            }
            let Some(at) = block else { continue };
            let outcome = self.outcome_at(at, seen.tx_hash);
            if self.rules.needs_receipts && finds.transactions.last() != Some(&outcome) {
                finds.transactions.push(outcome);
            }
        }
        if finds.blocks.is_empty() {
            return self.end_check(found, now);
        }
        self.phase = Phase::Find { found, finds };
        Next::Ask.into()
    }

    /// Whether a transfer should have been published, and was not. One to a wallet that was not watched yet when its
    /// block was scanned is nobody's omission.
    fn is_find(&self, number: i64, seen: &Observation) -> bool {
        self.known().at(number, seen.log_index).is_none() && !self.late_watch.covers(number, seen)
    }

    pub(super) fn found(
        &mut self,
        found: Found,
        finds: &Finds,
        answer: Answer,
        now: UnixMicros,
    ) -> Decision {
        let transfers = match self.read_finds(&found, finds, answer) {
            Ok(transfers) => transfers,
            Err(why) => return self.check_later(found.check, why, now),
        };
        if self.rules.has_second && !transfers.is_empty() {
            self.phase = Phase::Witness { found, transfers };
            return Next::Ask.into();
        }
        self.publish_finds(found, transfers, now)
    }

    /// One step with the late finds, in the present epoch.
    pub(super) fn publish_finds(
        &mut self,
        found: Found,
        transfers: Transfers,
        now: UnixMicros,
    ) -> Decision {
        if transfers.is_empty() {
            return self.end_check(found, now);
        }
        self.count_check(found.check, found.disputed);
        let (last, epoch) = (self.last(), self.known().epoch());
        let mut notes = found.notes;
        let mut records = Vec::with_capacity(transfers.len() + 1);
        for (block, seen) in transfers {
            notes.push(Note::LateFind { block, tx_hash: seen.tx_hash });
            records.push(self.record(epoch, block, now, ChainBody::Transfer(seen)));
        }
        let head = ChainBody::Head(self.head(last.number, &[last], &self.blocks_ahead));
        records.push(self.record(epoch, last, now, head));
        Decision { notes, ..self.publish(records, Next::Ask) }
    }

    /// The late finds, if the blocks are as they were a moment ago.
    fn read_finds(
        &self,
        found: &Found,
        finds: &Finds,
        answer: Answer,
    ) -> Result<Transfers, Difference> {
        let mut headers = answer.blocks.into_iter();
        let mut header = || headers.next().flatten().ok_or(Difference::Behind);
        if header()?.block.hash != found.check.anchor.hash {
            return Err(Difference::Fork);
        }
        let failed = compare::failed(&finds.transactions, &answer.receipts, &found.logs);
        let failed = failed.map_err(|cause| match cause {
            Unexplained::Missing => Difference::Behind,
            Unexplained::Moved | Unexplained::Lacking => Difference::Contradiction,
        })?;
        let lacks_receipts = answer.receipts.len() < finds.transactions.len();
        if lacks_receipts || answer.logs.len() < finds.blocks.len() {
            return Err(Difference::Contradiction);
        }
        let mut transfers: Vec<(Block, Observation)> = Vec::new();
        for ((number, hash), again) in finds.blocks.iter().zip(answer.logs) {
            let Header { block, .. } = header()?;
            let again = self.rules.watch.sift(again, *number, *number);
            let before = found.logs.iter().filter(|log| log.block_number == *number);
            let agrees = again.is_ok_and(|again| before.eq(&again));
            if (block.number, block.hash) != (*number, *hash) || !agrees {
                return Err(Difference::Contradiction);
            }
            let logs: Vec<_> =
                found.logs.iter().filter(|log| log.block_number == *number).cloned().collect();
            for (_, seen) in payments(&self.rules.watch, &logs) {
                if self.is_find(*number, &seen) && !failed.contains(&seen.tx_hash) {
                    let ordinal = next_ordinal(self.known(), *number, &seen, &transfers);
                    transfers.push((block, Observation { ordinal, ..seen }));
                }
            }
        }
        Ok(transfers)
    }
}
