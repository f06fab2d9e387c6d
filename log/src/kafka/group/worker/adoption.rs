//! Takeover of partitions: the group's positions, and when a missing one is accepted.
//!
//! A group without a position in a partition reads it from the beginning. The first time that is
//! correct; but a position may also have expired, have been deleted, or be missing in the response
//! of a coordinator during its failover, and then all records would be processed again. So the
//! first owner of a partition commits a mark there before it reads, and a missing position is
//! accepted only if there is no record or the oldest is recent. `docs/decisions/0018` says why.

use std::ops::ControlFlow;
use std::time::Duration;

use rdkafka::Offset as KafkaOffset;
use runtime::{Clock, SystemClock};

use super::{KafkaWorker, Membership, Ownership};
use crate::kafka::client::settings::Appetite;
use crate::kafka::group::assignment;
use crate::kafka::group::position::{GroupPosition, Positions};
use crate::kafka::read::reader::{Extent, Reader};
use crate::metrics;
use crate::{Assigned, Error, Event, Record, TopicPartition};

/// Maximum age of the oldest record in a partition whose missing position is accepted.
const FIRST_READ_MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Time for which a missing position is read again before it counts as lost.
pub(super) const MISSING_POSITION_TIMEOUT: Duration = Duration::from_secs(10);

impl KafkaWorker {
    /// Fences predecessors, reads the group's positions in the assignment, and reports the changes.
    ///
    /// # Errors
    /// [`Error::Fatal`] if the group lost a position; [`Error::Transient`] before that is certain, and
    /// while positions cannot be read.
    pub(super) fn adopt_assignment(&mut self) -> Result<(), Error> {
        let adopted = self.producer.renew().and_then(|()| self.adopt());
        if let (Err(_), Some(member)) = (&adopted, self.membership.member()) {
            // A member that does not poll loses its membership.
            drop(member.poll(Duration::ZERO));
        }
        adopted
    }

    fn adopt(&mut self) -> Result<(), Error> {
        let Membership::Joined(member, Ownership::Assigned { partitions, since }) =
            &self.membership
        else {
            return Ok(());
        };
        let mut positions = member.positions(partitions)?;
        if let Some(of) = self.find_forgotten(&positions)? {
            let text = format!(
                "the group {} has no position in {of} any more: its offsets expired or were deleted; \
                 to read everything again would publish everything again; kafka-consumer-groups.sh \
                 --reset-offsets sets the position to continue from",
                self.spec.group
            );
            let is_certain = since.elapsed() > MISSING_POSITION_TIMEOUT;
            return Err(if is_certain { Error::fatal(text) } else { Error::transient(text) });
        }
        let mark = self.marks.next();
        let missing = positions.iter().filter(|(_, position)| position.is_none());
        let first: Positions =
            missing.map(|(of, _)| (*of, Some(GroupPosition::marked(None, &mark)))).collect();
        if !first.is_empty() {
            member.commit(&first)?;
            positions.extend(first);
        }
        self.adopt_positions(positions)
    }

    /// A partition whose position the group lost, if any.
    fn find_forgotten(&self, positions: &Positions) -> Result<Option<TopicPartition>, Error> {
        let missing = positions.iter().filter(|(_, position)| position.is_none());
        let mut reader = None;
        for (of, _) in missing {
            if self.cursors.position(*of).is_some() || self.has_old_records(*of, &mut reader)? {
                return Ok(Some(*of));
            }
        }
        Ok(None)
    }

    fn has_old_records(
        &self,
        of: TopicPartition,
        reader: &mut Option<Reader>,
    ) -> Result<bool, Error> {
        let bounds = self.shared.query.bounds(of)?;
        if bounds.start >= bounds.end {
            return Ok(false);
        }
        let reader = match reader {
            Some(reader) => reader,
            None => reader.insert(Reader::new(&self.shared, Appetite::Page)?),
        };
        let mut oldest = None;
        let mut take = |record: Record| {
            oldest = Some(record.appended_at);
            ControlFlow::Break(())
        };
        let range = (KafkaOffset::Beginning, bounds.end);
        reader.scan(&self.shared, of, range, Extent::Whole, &mut take, &mut || {})?;
        let age = oldest.map_or(0, |oldest| SystemClock.now().0.saturating_sub(oldest.0));
        Ok(u128::try_from(age).is_ok_and(|micros| micros > FIRST_READ_MAX_AGE.as_micros()))
    }

    fn adopt_positions(&mut self, mut positions: Positions) -> Result<(), Error> {
        let Membership::Joined(member, ownership) = &mut self.membership else { return Ok(()) };
        let change = assignment::change(&self.cursors.positions(), &positions);
        self.cursors.remove(&change.lost);
        let gained: Vec<Assigned> = change
            .gained
            .iter()
            .map(|of| {
                let position = positions.remove(of).flatten();
                let committed = position.as_ref().and_then(GroupPosition::committed);
                self.cursors.add(*of, position);
                Assigned { partition: *of, committed }
            })
            .collect();
        let placed = member.assign_paused(self.cursors.starts());
        if placed.is_ok() {
            *ownership = Ownership::Owner { is_reading: false };
        }
        tracing::debug!(
            kafka.group = self.spec.group,
            kafka.member = self.spec.member,
            gained = gained.len(),
            lost = change.lost.len(),
            kept = self.cursors.partitions().len() - gained.len(),
            "a consumer group was rebalanced"
        );
        // Reported even if the assignment failed: the next try sees no change any more.
        self.report_lost(change.lost);
        if !gained.is_empty() {
            self.events.push_back(Event::Assigned(gained));
        }
        self.note_positions();
        placed?;
        ::metrics::counter!(metrics::LOG_REBALANCES_TOTAL, "group" => self.spec.group).increment(1);
        Ok(())
    }
}
