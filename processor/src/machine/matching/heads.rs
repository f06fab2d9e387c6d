//! Progress of the lane: accepted heads and published progress.

use schemas::record::{Block, ChainProgress, ChainRecord, Head, LaneEntry};
use schemas::{AlertKind, Epoch, UnixSeconds};

use super::{Broken, Effect, State};

/// Minimum chain time between two periodic progress records, in either direction: a rewind takes chain time back.
const PROGRESS_SECONDS: u64 = 30;
/// Chain time without an ignored head after which its alert ends. An hour, because one of two ingestors may lag while
/// the heads of the other are accepted: the alert must not end between two ignored heads.
const QUIET_SECONDS: u64 = 3_600;
/// Minimum chain time between two ignored heads that are noted in the lane's entry.
const NOTED_SECONDS: u64 = 600;

/// Maximum lead of a block's time over the clock of the ingestor that saw it. Most chains allow
/// seconds, Arbitrum an hour; and a clock may be behind.
const AHEAD_MAX_SECONDS: i64 = 2 * 3600;

/// An empty lane.
pub(super) fn fresh_lane() -> LaneEntry {
    LaneEntry {
        epoch: Epoch(0),
        head: None,
        finalized: -1,
        confirmed: -1,
        match_window_seconds: 0,
        sequence: 0,
        went_back_at: None,
        too_far_at: None,
        progress_at: None,
        progress_time: None,
        progress_due: false,
        has_gap: false,
        newest: None,
        stopped: Vec::new(),
        id_partition: None,
    }
}

/// Reason why a block cannot be the chain's next one.
pub(super) enum Misplaced {
    /// Below the last head in the same epoch, or of an older epoch.
    Behind,
    /// More blocks or epochs than the chain can have in the time since the last head.
    TooFar { seconds: i64 },
    /// The block's time is this many seconds after the ingestor saw the block.
    FromTheFuture { seconds: i64 },
}

impl State {
    /// Chain time, taken from the last head.
    pub(super) fn chain_time(&self) -> Option<UnixSeconds> {
        self.lane.head.map(|head| head.timestamp)
    }

    pub(super) fn lane_mut(&mut self) -> &mut LaneEntry {
        if self.lane_before.is_none() {
            self.lane_before = Some(self.lane.clone());
        }
        &mut self.lane
    }

    /// Applies a valid next head of the chain. An invalid one is reported.
    pub(super) fn advance(&mut self, record: &ChainRecord, head: &Head) -> Result<(), Broken> {
        if let Some(misplaced) = self.misplaced(record) {
            self.report(misplaced, record);
            return Ok(());
        }
        self.end_reports(record);
        if record.epoch > self.lane.epoch {
            self.orphan_above(record)?;
        }
        let lane = self.lane_mut();
        lane.epoch = record.epoch;
        lane.head = Some(record.block);
        lane.finalized = lane.finalized.max(head.finalized);
        lane.confirmed = head.confirmed.first().map_or(-1, |tier| tier.number);
        lane.match_window_seconds = head.match_window_seconds;
        lane.has_gap = head.has_gap;
        lane.newest = lane.newest.max(Some(record.block.timestamp));
        self.run_to(record, head)?;
        self.publish_progress(record)
    }

    /// Publishes the lane's progress if it is due or the last is old: readers detect a stopped processor by its age.
    fn publish_progress(&mut self, record: &ChainRecord) -> Result<(), Broken> {
        let time = record.block.timestamp;
        let is_near = |last: UnixSeconds| time.0.abs_diff(last.0) < PROGRESS_SECONDS;
        if self.lane.progress_time.is_some_and(is_near) && !self.lane.progress_due {
            return Ok(());
        }
        self.publish_lane()
    }

    /// Publishes the lane's progress and its stops in force. Before the first head, that is deferred to it.
    pub(super) fn publish_lane(&mut self) -> Result<(), Broken> {
        let Some(head) = self.lane.head else {
            self.lane_mut().progress_due = true;
            return Ok(());
        };
        let oldest = self.transfers.oldest_unconfirmed();
        let oldest = oldest.map(|id| self.transfers.named(id)).transpose()?;
        let oldest_unconfirmed = oldest.map(|row| row.block.timestamp);
        let updated_at = self.lane.progress_at.map_or(self.now, |last| last.next(self.now));
        let lane = self.lane_mut();
        (lane.progress_at, lane.progress_time) = (Some(updated_at), Some(head.timestamp));
        lane.progress_due = false;
        self.effects.push(Effect::Progress(ChainProgress {
            blockchain: self.blockchain,
            epoch: self.lane.epoch,
            head,
            confirmed: self.lane.confirmed,
            finalized: self.lane.finalized,
            watched: self.watches.all().collect(),
            updated_at,
            lane: Some(self.partition.0.cast_signed()),
            oldest_unconfirmed,
            stopped: self.lane.stopped.clone(),
        }));
        Ok(())
    }

    /// Returns the reason if the record's block cannot be the chain's next one. If a head far too
    /// high were accepted, every later one would be behind it; one with a false time would expire
    /// deposits early.
    pub(super) fn misplaced(&self, record: &ChainRecord) -> Option<Misplaced> {
        let (Block { number, timestamp, .. }, epoch) = (record.block, record.epoch);
        let seconds = timestamp.0.saturating_sub(record.observed_at.seconds().0);
        if seconds > AHEAD_MAX_SECONDS {
            return Some(Misplaced::FromTheFuture { seconds });
        }
        let (last, known) = (self.lane.head?, self.lane.epoch);
        if epoch < known || (epoch == known && number < last.number) {
            return Some(Misplaced::Behind);
        }
        let seconds = timestamp.0.saturating_sub(last.timestamp.0).max(0);
        let most = self.blockchain.blocks_max(seconds);
        // Between two rewinds a block is scanned, so there are no more epochs than blocks, also if heads were lost.
        let is_near =
            number.saturating_sub(last.number) <= most && epoch.0.saturating_sub(known.0) <= most;
        (!is_near).then_some(Misplaced::TooFar { seconds })
    }

    fn report(&mut self, why: Misplaced, record: &ChainRecord) {
        let time = self.chain_time().unwrap_or_default();
        let kind = match why {
            Misplaced::Behind => AlertKind::HeadWentBack,
            Misplaced::TooFar { .. } | Misplaced::FromTheFuture { .. } => AlertKind::HeadTooFar,
        };
        let reported_at = ignored_at(&self.lane, kind);
        let is_near = |at: UnixSeconds| time.0.abs_diff(at.0) < NOTED_SECONDS;
        if reported_at.is_some_and(is_near) {
            return;
        }
        set_ignored_at(self.lane_mut(), kind, Some(time));
        // The alert is already raised.
        if reported_at.is_some() {
            return;
        }
        let what = match why {
            Misplaced::Behind => "; while no head counts nothing is confirmed and no deposit expires: check that one \
                                  ingestor alone writes the chain"
                .to_owned(),
            Misplaced::TooFar { seconds } => format!(
                " at {time}, {seconds} s before it: {} has no blocks that fast; check the ingestor and its endpoint",
                self.blockchain
            ),
            Misplaced::FromTheFuture { seconds } => format!(
                ": its time is {seconds} s after it was seen; check the clock of the ingestor and its endpoint"
            ),
        };
        let message = format!(
            "lane {}: head {} of epoch {} is ignored, the last one is {} of epoch {}{what}",
            self.partition,
            record.block.number,
            record.epoch.0,
            self.lane.head.map_or(-1, |last| last.number),
            self.lane.epoch.0
        );
        let alert = self.alert(kind, &self.partition, message);
        self.effects.push(Effect::Alert(alert));
    }

    /// Resolves the alerts about ignored heads once a head is accepted, unless one was ignored lately.
    fn end_reports(&mut self, record: &ChainRecord) {
        let time = record.block.timestamp;
        let is_over = |at: UnixSeconds| time.0.abs_diff(at.0) >= QUIET_SECONDS;
        for kind in [AlertKind::HeadWentBack, AlertKind::HeadTooFar] {
            if !ignored_at(&self.lane, kind).is_some_and(is_over) {
                continue;
            }
            let message = format!("lane {}: heads are taken again", self.partition);
            let alert = self.alert(kind, &self.partition, String::new());
            self.effects.push(Effect::Alert(alert.resolve(message, self.now)));
            set_ignored_at(self.lane_mut(), kind, None);
        }
    }
}

/// Chain time of the last ignored head that an alert of this kind reports.
fn ignored_at(lane: &LaneEntry, kind: AlertKind) -> Option<UnixSeconds> {
    if kind == AlertKind::HeadWentBack { lane.went_back_at } else { lane.too_far_at }
}

fn set_ignored_at(lane: &mut LaneEntry, kind: AlertKind, at: Option<UnixSeconds>) {
    if kind == AlertKind::HeadWentBack { lane.went_back_at = at } else { lane.too_far_at = at }
}
