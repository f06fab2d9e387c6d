//! A reorganisation: the search for the newest anchor (a remembered block with a head or a transfer) that is still
//! canonical, and the rewind to it, one atomic step of retracts and a head with the next epoch.

use schemas::record::{Block, ChainBody, ChainRecord, Observation};
use schemas::{Epoch, UnixMicros};

use super::{Cursor, Phase};
use crate::machine::{Decision, Header, Next, Note};

/// Anchors fetched by one request when searching for the common ancestor.
const SEARCH_MAX: usize = 32;
/// A chain is halted when this many searches in a row found no canonical block at or above the finalized height.
const FRUITLESS_SEARCHES_MAX: u32 = 5;

impl Cursor {
    pub(super) fn search_page(&self, below: i64) -> Vec<Block> {
        self.known().anchors_below(below, SEARCH_MAX)
    }

    pub(super) fn search(
        &mut self,
        below: i64,
        headers: &[Option<Header>],
        now: UnixMicros,
    ) -> Decision {
        let page = self.search_page(below);
        let Some(oldest) = page.last() else { return self.give_up() };
        for (anchor, header) in page.iter().zip(headers) {
            let Some(header) = header else { return Next::Behind.into() };
            if header.block.number != anchor.number {
                return Next::Retry("the endpoint answered with another block").into();
            }
            if header.block.hash == anchor.hash {
                return self.rewind(*anchor, now);
            }
        }
        self.phase = Phase::Search { below: oldest.number };
        Next::Ask.into()
    }

    fn rewind(&mut self, ancestor: Block, now: UnixMicros) -> Decision {
        let history = self.known();
        let from = history.last();
        if ancestor == from {
            // A rewind needs two answers that agree. The first one came from another node behind the endpoint.
            return Next::Retry("the endpoint gives two answers about the last scanned block")
                .into();
        }
        if ancestor.number < history.head().finalized {
            return self.give_up();
        }
        let epoch = Epoch(history.epoch().0.saturating_add(1));
        let orphaned: Vec<(Block, Observation)> = history.above(ancestor.number).collect();
        let retracted = orphaned.len();
        self.evidence.rewind(ancestor.number);
        self.doubted_to = -1;
        self.checks.rewind(ancestor.number);
        // The blocks after the ancestor are scanned again, for all watched wallets.
        self.late_watch.to = self.late_watch.to.min(ancestor.number);
        self.blocks_ahead.retain(|block| block.number <= ancestor.number);
        let mut records: Vec<ChainRecord> = orphaned
            .into_iter()
            .map(|(block, seen)| self.record(epoch, block, now, ChainBody::Retract(seen)))
            .collect();
        let head = ChainBody::Head(self.head(ancestor.number, &[], &[]));
        records.push(self.record(epoch, ancestor, now, head));
        let notes = vec![Note::Rewound { from, to: ancestor, retracted }];
        Decision { notes, ..self.publish(records, Next::Ask) }
    }

    /// Ends a search that found no canonical block at or above the finalized height. A node that is stuck on an
    /// orphaned fork shows none either, so only several searches in a row, with waits between, halt the chain.
    fn give_up(&mut self) -> Decision {
        self.fruitless = self.fruitless.saturating_add(1);
        if self.fruitless < FRUITLESS_SEARCHES_MAX {
            return Next::Retry("the endpoint is on a chain that leaves ours below finality")
                .into();
        }
        let history = self.known();
        let (floor, last) = (history.floor(self.rules.reorg_window), history.last().number);
        Next::Halt(format!("scanned up to {last}, but no block from {floor} on is canonical"))
            .into()
    }
}
