//! How far the lane is, which heads it takes, and what it publishes of that.

use schemas::record::{Block, ChainProgress, ChainRecord, Head, LaneEntry, MatchingEntry};
use schemas::{AlertKind, Epoch, UnixMicros, UnixSeconds};

use super::{Broken, Effect, State};

/// How far a head must be from that of the last progress, by the chain's time: the clock of an ingestor may
/// have jumped.
const PROGRESS_SECONDS: u64 = 30;

/// How far the lane is: its last head, and the ids that it gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LaneHead {
    pub(super) epoch: Epoch,
    pub(super) head: Option<Block>,
    pub(super) finalized: i64,
    pub(super) match_window_seconds: i64,
    pub(super) sequence: u64,
    /// Whether a head was ignored since the last one, and the alert is raised.
    head_ignored: bool,
    /// Version clock of the progress that was published last.
    progress_at: Option<UnixMicros>,
    /// Time of the head in it.
    progress_time: Option<UnixSeconds>,
    /// Whether more is watched than that progress says.
    pub(super) progress_due: bool,
}

impl Default for LaneHead {
    fn default() -> Self {
        Self {
            epoch: Epoch(0),
            head: None,
            finalized: -1,
            match_window_seconds: 0,
            sequence: 0,
            head_ignored: false,
            progress_at: None,
            progress_time: None,
            progress_due: false,
        }
    }
}

impl LaneHead {
    pub(super) fn entry(&self) -> MatchingEntry {
        MatchingEntry::Lane(LaneEntry {
            epoch: self.epoch,
            head: self.head,
            finalized: self.finalized,
            match_window_seconds: self.match_window_seconds,
            sequence: self.sequence.cast_signed(),
            head_ignored: self.head_ignored,
            progress_at: self.progress_at,
            progress_time: self.progress_time,
            progress_due: self.progress_due,
        })
    }

    pub(super) fn of(entry: &LaneEntry) -> Option<Self> {
        Some(Self {
            epoch: entry.epoch,
            head: entry.head,
            finalized: entry.finalized,
            match_window_seconds: entry.match_window_seconds,
            sequence: u64::try_from(entry.sequence).ok()?,
            head_ignored: entry.head_ignored,
            progress_at: entry.progress_at,
            progress_time: entry.progress_time,
            progress_due: entry.progress_due,
        })
    }
}

impl State {
    /// The chain's time: that of the last head.
    pub(super) fn chain_time(&self) -> Option<UnixSeconds> {
        self.lane.head.map(|head| head.timestamp)
    }

    pub(super) fn lane_mut(&mut self) -> &mut LaneHead {
        if self.lane_before.is_none() {
            self.lane_before = Some(self.lane.clone());
        }
        &mut self.lane
    }

    /// Takes a head that can be the chain's next one. With the first one after it that cannot, a person is
    /// called.
    pub(super) fn advance(
        &mut self,
        record: &ChainRecord,
        head: &Head,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Broken> {
        if let Some((kind, message)) = self.misplaced(record) {
            if !self.lane.head_ignored {
                self.lane_mut().head_ignored = true;
                self.alert(kind, None, message, record.observed_at, effects);
            }
            return Ok(());
        }
        let lane = self.lane_mut();
        lane.epoch = record.epoch;
        lane.head = Some(record.block);
        lane.finalized = lane.finalized.max(head.finalized);
        lane.match_window_seconds = head.match_window_seconds;
        lane.head_ignored = false;
        self.run_to(record, head, effects)?;
        self.publish_progress(record, head, effects)
    }

    /// Says how far the lane is, now and then: what reads the tables sees a processor that has stopped by its age.
    fn publish_progress(
        &mut self,
        record: &ChainRecord,
        head: &Head,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Broken> {
        let time = record.block.timestamp;
        let is_near = |last: UnixSeconds| time.0.abs_diff(last.0) < PROGRESS_SECONDS;
        if self.lane.progress_time.is_some_and(is_near) && !self.lane.progress_due {
            return Ok(());
        }
        let oldest = self.transfers.oldest_unconfirmed();
        let oldest = oldest.map(|id| self.transfers.named(id)).transpose()?;
        let oldest_unconfirmed = oldest.map(|row| row.block.timestamp);
        let now = record.observed_at;
        let updated_at = self.lane.progress_at.map_or(now, |last| last.next(now));
        let lane = self.lane_mut();
        (lane.progress_at, lane.progress_time) = (Some(updated_at), Some(time));
        lane.progress_due = false;
        effects.push(Effect::Progress(ChainProgress {
            blockchain: self.blockchain,
            epoch: self.lane.epoch,
            head: record.block,
            confirmed: head.confirmed.first().map_or(-1, |tier| tier.number),
            finalized: self.lane.finalized,
            watched: self.watches.all().collect(),
            updated_at,
            lane: Some(self.partition.0.cast_signed()),
            oldest_unconfirmed,
        }));
        Ok(())
    }

    /// Why a head cannot be the next one. If one that is far too high were taken, every one after it would
    /// be behind it.
    fn misplaced(&self, record: &ChainRecord) -> Option<(AlertKind, String)> {
        let (last, known) = (self.lane.head?, self.lane.epoch);
        let (Block { number, timestamp, .. }, epoch) = (record.block, record.epoch);
        let which = format!(
            "lane {}: head {number} of epoch {} is ignored, the last one is {} of epoch {}",
            self.partition, epoch.0, last.number, known.0
        );
        if epoch < known || (epoch == known && number < last.number) {
            let message = format!(
                "{which}; nothing of the chain is confirmed and no deposit expires until its heads are above that: \
                 check that one ingestor alone writes them"
            );
            return Some((AlertKind::HeadWentBack, message));
        }
        let seconds = timestamp.0.saturating_sub(last.timestamp.0).max(0);
        if number.saturating_sub(last.number) <= self.blockchain.blocks_max(seconds) {
            return None;
        }
        let message = format!(
            "{which} at {}, {seconds} s before it: {} has no blocks that fast; check the ingestor and its endpoint",
            last.timestamp, self.blockchain
        );
        Some((AlertKind::HeadTooFar, message))
    }
}
