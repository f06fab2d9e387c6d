//! Time of the chains. An expiry by an order's own timer is final. So it does not depend on the clock of one machine
//! alone, which may have jumped.

use std::sync::Arc;
use std::time::Duration;

use log::{Log, Offset, Record, Tail, TopicPartition};
use schemas::record::ChainProgress;
use schemas::{Topic, UnixMicros, UnixSeconds};

use crate::metrics;

/// Maximum lead of the clock over the newest block of all chains before timers wait for the chains: longer than any
/// chain normally goes without a block.
const AHEAD_MAX_SECONDS: i64 = 600;
/// Number of offsets before the end of a partition that are read at the start. One record is enough (a lane's progress
/// may lag its chain, but is never ahead of it); more are read, as not every offset has a record.
const LAST_RECORDS: usize = 16;

pub(super) struct ChainTime {
    tail: Box<dyn Tail>,
    /// Time of the newest block; none if no chain was ever followed.
    newest: Option<UnixSeconds>,
    is_ahead: bool,
}

impl ChainTime {
    /// Follows the chains from their last records on.
    pub(super) fn follow(log: &dyn Log) -> Result<Self, log::Error> {
        let mut time = Self { tail: log.tail(&[Topic::Chains])?, newest: None, is_ahead: false };
        for partition in Topic::Chains.all_partitions(&log.layout()) {
            let of = TopicPartition { topic: Topic::Chains, partition };
            let bounds = log.bounds(of)?;
            let from = bounds.end.0.saturating_sub_unsigned(LAST_RECORDS as u64);
            time.note(&log.read(of, bounds.start.max(Offset(from)), LAST_RECORDS)?)?;
        }
        Ok(time)
    }

    fn note(&mut self, records: &[Arc<Record>]) -> Result<(), log::Error> {
        for record in records {
            let progress = record.unless_garbage::<ChainProgress>()?;
            self.newest = self.newest.max(progress.map(|of| of.head.timestamp));
        }
        Ok(())
    }

    /// The time for timers: the clock's, but at most [`AHEAD_MAX_SECONDS`] past the newest block, if there is one.
    ///
    /// # Errors
    /// The topic cannot be followed. On transient errors the last known time is used.
    pub(super) fn bound(&mut self, now: UnixMicros) -> Result<UnixMicros, log::Error> {
        match self.tail.poll(Duration::ZERO) {
            Ok(records) => self.note(&records)?,
            Err(log::Error::Transient(_)) => {}
            Err(error) => return Err(error),
        }
        let Some(newest) = self.newest else { return Ok(now) };
        let ahead = now.seconds().0.saturating_sub(newest.0);
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        ::metrics::gauge!(metrics::CLOCK_AHEAD_SECONDS).set(ahead as f64);
        let is_ahead = ahead > AHEAD_MAX_SECONDS;
        if is_ahead && !self.is_ahead {
            tracing::warn!(
                ahead_seconds = ahead,
                "the clock is ahead of every chain: orders without a deposit do not expire until a chain has \
                 caught up; check the clock of this machine and the endpoints"
            );
        }
        self.is_ahead = is_ahead;
        Ok(now.min(newest.plus(AHEAD_MAX_SECONDS).micros()))
    }
}
