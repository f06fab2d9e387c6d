//! First step of a chain that the log does not know yet, or not any more.

use schemas::record::{Block, ChainBody};
use schemas::{Epoch, UnixMicros};

use super::{Cursor, Phase};
use crate::machine::{Decision, Header, Next};

impl Cursor {
    pub(super) fn begin(&mut self, latest: Option<Header>) -> Next {
        let Some(latest) = latest else { return Next::Retry("the endpoint has no head") };
        self.newest = Some(latest.block.timestamp);
        // A new chain may be shorter than the lag.
        let target = (latest.block.number - self.rules.lag).max(0);
        // Block 0 holds no transactions, so scanning from it is scanning after it.
        let number = match self.rules.lost {
            Some(lost) => lost.number,
            None => self.rules.start_block.map_or(target, |start| start - 1),
        };
        let number = number.max(0);
        if number > target {
            return Next::Behind;
        }
        self.phase = Phase::Base { number };
        Next::Ask
    }

    /// The first step: a head at the block before the first one to scan, after heads at some blocks below it. Those
    /// cover no transfers; they are anchors for a reorganisation of that block itself. After a loss of the records
    /// there are none: lower blocks were final.
    pub(super) fn base(
        &mut self,
        number: i64,
        blocks: Vec<Option<Header>>,
        now: UnixMicros,
    ) -> Decision {
        let mut records = Vec::new();
        let wanted = self.base_numbers(number);
        for (wanted, header) in wanted.iter().zip(blocks) {
            match header {
                Some(header) if header.block.number != *wanted => {
                    return Next::Retry("the endpoint answered with another block").into();
                }
                Some(Header { block, .. }) => records.push(block),
                // A node with little history may lack an older block, but not the one to begin at.
                None if *wanted == number => return Next::Behind.into(),
                None => {}
            }
        }
        self.checks.begin(number);
        self.evidence.begin(number);
        let anchors = records.clone();
        let epoch = self.rules.lost.map_or(Epoch(0), |lost| Epoch(lost.epoch.0.saturating_add(1)));
        let record = |block: Block| {
            let below = anchors.partition_point(|anchor| anchor.number <= block.number);
            let mut head = self.head(block.number, anchors.get(..below).unwrap_or_default(), &[]);
            for tier in &mut head.confirmed {
                // No transfer is published up to here, so the block counts as confirmed and is not checked again.
                (tier.number, tier.timestamp) = (block.number, Some(block.timestamp));
            }
            self.record(epoch, block, now, ChainBody::Head(head))
        };
        let records = records.into_iter().map(record).collect();
        self.publish(records, Next::Ask)
    }

    /// Heights at growing distances below `number` down to the window, none if records are lost; then `number`.
    pub(super) fn base_numbers(&self, number: i64) -> Vec<i64> {
        if self.rules.lost.is_some() {
            return vec![number];
        }
        let window = self.rules.reorg_window;
        let distances = (0..62).map(|power| 1_i64 << power).take_while(|d| *d < window);
        let mut numbers: Vec<i64> = distances
            .chain([window, 0])
            .map(|distance| number.saturating_sub(distance))
            .filter(|number| *number >= 0)
            .collect();
        numbers.sort_unstable();
        numbers
    }
}
