//! Cache of recently written directory rows, which need no second write.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::list_partition::ListPartition;

/// Time for which a directory row need not be written again. Much less than the time without writes
/// after which a sweep takes a partition out of the directory: see [`super::sweep`].
pub(super) const KNOWN_FOR: Duration = Duration::from_secs(10);
/// Maximum number of partitions remembered.
const PARTITIONS_MAX: usize = 10_000;

/// Directory rows that were written, and the time when each write began.
#[derive(Debug, Default)]
pub(super) struct KnownPartitions(Mutex<HashMap<ListPartition, Instant>>);

impl KnownPartitions {
    /// Returns the partitions that must be written.
    pub(super) fn unknown(
        &self,
        partitions: &BTreeSet<ListPartition>,
        now: Instant,
    ) -> Vec<ListPartition> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known =
            |partition: &ListPartition| known.get(partition).is_some_and(|at| is_known(*at, now));
        partitions.iter().filter(|partition| !is_known(partition)).cloned().collect()
    }

    /// Notes the partitions that a call begun at `at` wrote.
    pub(super) fn written(&self, partitions: Vec<ListPartition>, at: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + partitions.len() > PARTITIONS_MAX {
            known.retain(|_, written| is_known(*written, at));
        }
        if known.len() + partitions.len() <= PARTITIONS_MAX {
            known.extend(partitions.into_iter().map(|partition| (partition, at)));
        }
    }
}

fn is_known(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < KNOWN_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_partition_is_written_again_after_a_while() {
        let partitions = KnownPartitions::default();
        let partition = |shard| ListPartition { shard, ..ListPartition::default() };
        let both = || BTreeSet::from([partition(1), partition(2)]);
        let now = Instant::now();
        assert_eq!(partitions.unknown(&both(), now), [partition(1), partition(2)]);
        partitions.written(vec![partition(1)], now);
        assert_eq!(partitions.unknown(&both(), now), [partition(2)]);
        partitions.written(vec![partition(2)], now.checked_sub(KNOWN_FOR).unwrap());
        assert_eq!(partitions.unknown(&both(), now), [partition(2)], "it was long ago");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let partitions = KnownPartitions::default();
        let many = |from: i32| {
            (from..from + 6_000).map(|shard| ListPartition { shard, ..ListPartition::default() })
        };
        let now = Instant::now();
        partitions.written(many(0).collect(), now);
        partitions.written(many(6_000).collect(), now);
        assert_eq!(
            partitions.unknown(&many(6_000).collect(), now).len(),
            6_000,
            "written again, not lost"
        );
        assert!(partitions.unknown(&many(0).collect(), now).is_empty());
    }
}
