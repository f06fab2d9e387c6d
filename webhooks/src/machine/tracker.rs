//! Completed records of one partition, in whatever order they complete.
//!
//! The commit has the low watermark and a bitset of the completions above it, so that after a crash
//! no complete record is handled again. The bitset reaches [`WINDOW`] offsets: a caller that asks
//! [`Tracker::fits`] before starting never completes a record that it cannot hold.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use log::{Committed, Offset};

/// Number of offsets, from the watermark on, whose records may start: so large that an attempt that takes its whole
/// time-out does not stop the other records of its partition. The bitset takes 2731 bytes of text at most.
pub(crate) const WINDOW: i64 = 16_384;

/// The state of one partition. Offsets that the log skips (expired, or markers of Kafka's
/// transactions) count as complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tracker {
    /// The first offset that was not received.
    next: i64,
    /// Received and not complete.
    open: BTreeSet<i64>,
    /// Completed under an earlier owner, not received again yet.
    complete: BTreeSet<i64>,
}

impl Tracker {
    /// Resumes at the group's position. A bitset that cannot be read counts as empty: that repeats
    /// webhooks, which is allowed, and loses none.
    pub(crate) fn restore(committed: Option<&Committed>) -> Self {
        let Some(committed) = committed else { return Self::default() };
        let bytes = STANDARD_NO_PAD.decode(&committed.metadata).unwrap_or_default();
        let first = committed.offset.0;
        let bits = bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte & (1 << bit) != 0));
        let complete = (first..).zip(bits).filter(|(_, bit)| *bit).map(|(o, _)| o).collect();
        Self { next: first, open: BTreeSet::new(), complete }
    }

    /// Records the receipt of an offset. Returns `true` if it is to be processed, `false` if it was
    /// received before or is complete already.
    pub(crate) fn receive(&mut self, offset: Offset) -> bool {
        if offset.0 < self.next {
            return false;
        }
        self.next = offset.0.saturating_add(1);
        let done = self.complete.contains(&offset.0);
        self.complete = self.complete.split_off(&self.next);
        if !done {
            self.open.insert(offset.0);
        }
        !done
    }

    /// `true` if a received record may be started.
    pub(crate) fn fits(&self, offset: Offset) -> bool {
        offset.0.saturating_sub(self.watermark()) < WINDOW
    }

    /// Marks a received record as complete.
    pub(crate) fn complete(&mut self, offset: Offset) {
        self.open.remove(&offset.0);
    }

    fn watermark(&self) -> i64 {
        self.open.first().copied().unwrap_or(self.next)
    }

    /// Watermark and bitset to commit.
    pub(crate) fn committed(&self) -> Committed {
        let watermark = self.watermark();
        let end = watermark.saturating_add(WINDOW);
        let mut open = self.open.iter().peekable();
        let received = (watermark..self.next.min(end)).filter(|o| open.next_if_eq(&o).is_none());
        let mut bytes: Vec<u8> = Vec::new();
        for offset in received.chain(self.complete.range(..end).copied()) {
            let position = usize::try_from(offset.saturating_sub(watermark)).unwrap_or_default();
            bytes.resize(bytes.len().max(position / 8 + 1), 0);
            if let Some(byte) = bytes.last_mut() {
                // Offsets come in increasing order, so the bit is in the last byte.
                *byte |= 1 << (position % 8);
            }
        }
        Committed { offset: Offset(watermark), metadata: STANDARD_NO_PAD.encode(bytes) }
    }
}

/// Offsets above the committed position of the deliverer's group that are complete.
#[must_use]
pub fn completed(committed: &Committed) -> BTreeSet<Offset> {
    Tracker::restore(Some(committed)).complete.into_iter().map(Offset).collect()
}

/// Commit that skips a record of the deliverer's group; `before` has the offsets between its
/// position and that record. `None` if the record is complete already, or too far above the position.
#[must_use]
pub fn without(
    committed: Option<&Committed>,
    before: &[Offset],
    skipped: Offset,
) -> Option<Committed> {
    let mut tracker = Tracker::restore(committed);
    for offset in before {
        tracker.receive(*offset);
    }
    if !tracker.receive(skipped) || !tracker.fits(skipped) {
        return None;
    }
    tracker.complete(skipped);
    Some(tracker.committed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn at(offset: i64, metadata: &str) -> Committed {
        Committed { offset: Offset(offset), metadata: metadata.to_owned() }
    }

    #[test]
    fn the_watermark_waits_for_the_slowest() {
        let mut tracker = Tracker::restore(Some(&at(5, "")));
        for offset in 5..9 {
            assert!(tracker.receive(Offset(offset)));
        }
        tracker.complete(Offset(6));
        tracker.complete(Offset(8));
        let committed = tracker.committed();
        assert_eq!(committed, at(5, &STANDARD_NO_PAD.encode([0b1010])));
        assert_eq!(completed(&committed), BTreeSet::from([Offset(6), Offset(8)]));
        let mut restored = Tracker::restore(Some(&committed));
        let again: Vec<_> = (5..10).filter(|o| restored.receive(Offset(*o))).collect();
        assert_eq!(again, [5, 7, 9]);
        tracker.complete(Offset(5));
        assert_eq!(tracker.committed().offset, Offset(7));
        tracker.complete(Offset(7));
        assert_eq!(tracker.committed(), at(9, ""));
    }

    #[test]
    fn a_skipped_record_is_complete() {
        let offsets: Vec<_> = (5..8).map(Offset).collect();
        let before = &offsets[..];
        assert_eq!(without(Some(&at(8, "")), &[], Offset(8)), Some(at(9, "")));
        let open = without(Some(&at(5, "")), before, Offset(8)).unwrap();
        assert_eq!(open, at(5, &STANDARD_NO_PAD.encode([0b1000])));
        assert_eq!(without(Some(&open), before, Offset(8)), None, "it is complete");
        assert_eq!(without(None, &[Offset(0)], Offset(WINDOW)), None, "it is too far behind");
    }

    #[test]
    fn a_rewind_brings_nothing_twice() {
        let mut tracker = Tracker::restore(None);
        assert!((0..4).all(|o| tracker.receive(Offset(o))));
        tracker.complete(Offset(2));
        assert!((0..4).all(|o| !tracker.receive(Offset(o))));
        assert!(tracker.receive(Offset(4)));
    }

    #[test]
    fn the_window_bounds_the_metadata() {
        let mut tracker = Tracker::restore(None);
        assert!((0..WINDOW + 10).all(|o| tracker.receive(Offset(o))));
        assert!(tracker.fits(Offset(WINDOW - 1)));
        assert!(!tracker.fits(Offset(WINDOW)));
        (1..WINDOW).for_each(|o| tracker.complete(Offset(o)));
        let committed = tracker.committed();
        assert_eq!(committed.offset, Offset(0));
        assert_eq!(committed.metadata.len(), 2731);
        tracker.complete(Offset(0));
        assert!(tracker.fits(Offset(WINDOW)));
        assert_eq!(tracker.committed(), at(WINDOW, ""));
    }

    #[test]
    fn a_gap_wider_than_the_window_does_not_stop_it() {
        let mut tracker = Tracker::restore(None);
        assert!(tracker.receive(Offset(3)));
        assert!(tracker.receive(Offset(50_000)));
        assert!(!tracker.fits(Offset(50_000)));
        tracker.complete(Offset(3));
        assert!(tracker.fits(Offset(50_000)));
        assert_eq!(tracker.committed().offset, Offset(50_000));
    }

    #[test]
    fn unreadable_metadata_repeats_and_loses_nothing() {
        let mut tracker = Tracker::restore(Some(&at(7, "!not base64")));
        assert!(!tracker.receive(Offset(6)));
        assert!(tracker.receive(Offset(7)));
    }

    /// Event in a partition's life. `Read` has the maximum number of records, `Complete` an index modulo the records in
    /// work.
    #[derive(Debug, Clone)]
    enum Move {
        Read(usize),
        Complete(usize),
        Commit,
        Crash,
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            (1_usize..40).prop_map(Move::Read),
            (0_usize..4000).prop_map(Move::Complete),
            (0_usize..4000).prop_map(Move::Complete),
            Just(Move::Commit),
            Just(Move::Crash),
        ];
        vec(one, 1..300)
    }

    proptest! {
        /// Against plain sets: nothing incomplete lies below the watermark, and after a crash
        /// exactly what was not complete at the last commit is worked on again.
        #[test]
        fn agrees_with_plain_sets(gaps in vec(1_i64..4, 400), moves in moves()) {
            let log: Vec<i64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let mut tracker = Tracker::restore(None);
            let mut stored: Option<Committed> = None;
            let mut durable: BTreeSet<i64> = BTreeSet::new();
            let mut done: BTreeSet<i64> = BTreeSet::new();
            let mut working: BTreeSet<i64> = BTreeSet::new();
            let mut position = 0_i64;
            for step in moves {
                match step {
                    Move::Read(count) => {
                        let read: Vec<_> =
                            log.iter().copied().filter(|o| *o >= position).take(count).collect();
                        for offset in read {
                            position = offset + 1;
                            let fresh = tracker.receive(Offset(offset));
                            prop_assert_eq!(fresh, !done.contains(&offset));
                            if fresh { working.insert(offset); }
                        }
                    }
                    Move::Complete(which) if !working.is_empty() => {
                        let offset = *working.iter().nth(which % working.len()).unwrap();
                        if tracker.fits(Offset(offset)) {
                            tracker.complete(Offset(offset));
                            working.remove(&offset);
                            done.insert(offset);
                        }
                    }
                    Move::Complete(_) => {}
                    Move::Commit => {
                        let committed = tracker.committed();
                        prop_assert!(
                            log.iter().all(|o| *o >= committed.offset.0 || done.contains(o))
                        );
                        prop_assert!(committed.metadata.len() <= 2731);
                        durable.clone_from(&done);
                        stored = Some(committed);
                    }
                    Move::Crash => {
                        tracker = Tracker::restore(stored.as_ref());
                        done.clone_from(&durable);
                        working.clear();
                        position = stored.as_ref().map_or(0, |c| c.offset.0);
                    }
                }
            }
        }
    }
}
