//! The directory rows that this process wrote a moment ago, and need not write again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::place::Place;

/// For how long a directory row need not be written again. Much less than what must have passed since the last time
/// before a sweep takes a partition out of the directory: see [`super::sweep`].
pub(super) const KNOWN_FOR: Duration = Duration::from_secs(10);
/// Places that are remembered at most.
const PLACES_MAX: usize = 10_000;

/// What was written, and when the write began.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<Place, Instant>>);

impl Places {
    /// Those that must be written.
    pub(super) fn unknown(&self, places: &BTreeSet<Place>) -> Vec<Place> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |place: &Place| known.get(place).is_some_and(|at| at.elapsed() < KNOWN_FOR);
        places.iter().filter(|place| !is_known(place)).cloned().collect()
    }

    /// They were written, by a call that began at `at`.
    pub(super) fn written(&self, places: Vec<Place>, at: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + places.len() > PLACES_MAX {
            known.retain(|_, at| at.elapsed() < KNOWN_FOR);
        }
        if known.len() + places.len() <= PLACES_MAX {
            known.extend(places.into_iter().map(|place| (place, at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_again_when_it_was_not_for_a_while() {
        let places = Places::default();
        let place = |shard| Place { shard, ..Place::default() };
        let both = || BTreeSet::from([place(1), place(2)]);
        assert_eq!(places.unknown(&both()), [place(1), place(2)]);
        let now = Instant::now();
        places.written(vec![place(1)], now);
        assert_eq!(places.unknown(&both()), [place(2)]);
        places.written(vec![place(2)], now.checked_sub(KNOWN_FOR).unwrap());
        assert_eq!(places.unknown(&both()), [place(2)], "it was long ago");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let places = Places::default();
        let many =
            |from: i32| (from..from + 6_000).map(|shard| Place { shard, ..Place::default() });
        let now = Instant::now();
        places.written(many(0).collect(), now);
        places.written(many(6_000).collect(), now);
        assert_eq!(places.unknown(&many(6_000).collect()).len(), 6_000, "written again, not lost");
        assert!(places.unknown(&many(0).collect()).is_empty());
    }
}
