//! Finished results that are not committed yet, and the time of their commit.

use std::time::{Duration, Instant};

use log::NewRecord;

use crate::machine::partitions::Position;

/// Number of results at which a step is committed at once.
const COUNT_MAX: usize = 1024;
/// Multiple of the last commit's duration for which the first result waits for a commit, within the bounds below. A
/// worker takes nothing while it commits. Commits of up to 25 ms then fill at most a ninth of its time, unless results
/// are many or an order's next event waits for them.
const LINGER_FACTOR: u32 = 8;
const LINGER_MIN: Duration = Duration::from_millis(5);
const LINGER_MAX: Duration = Duration::from_millis(200);

/// A record that is complete, and what must be written with its offset.
pub(super) struct Finished {
    pub(super) position: Position,
    pub(super) records: Vec<NewRecord>,
}

/// The results for the next step. A crash repeats their requests.
#[derive(Default)]
pub(super) struct Results {
    finished: Vec<Finished>,
    /// Time at which the first of them finished.
    since: Option<Instant>,
    commit_begun: Option<Instant>,
    commit_took: Duration,
}

impl Results {
    pub(super) fn push(&mut self, finished: Finished, now: Instant) {
        self.since.get_or_insert(now);
        self.finished.push(finished);
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&Finished) -> bool) {
        self.finished.retain(keep);
        if self.finished.is_empty() {
            self.since = None;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Finished> {
        self.finished.iter()
    }

    /// `true` if the results are enough for a commit, or the first has waited long enough.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let linger = (self.commit_took * LINGER_FACTOR).clamp(LINGER_MIN, LINGER_MAX);
        let is_old = |since| now.saturating_duration_since(since) >= linger;
        self.finished.len() >= COUNT_MAX || self.since.is_some_and(is_old)
    }

    pub(super) fn commit_begins(&mut self, now: Instant) {
        self.commit_begun = Some(now);
    }

    pub(super) fn committed(&mut self, now: Instant) {
        let begun = self.commit_begun.take().unwrap_or(now);
        self.commit_took = now.saturating_duration_since(begun);
        self.finished.clear();
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::partitions::Ownership;
    use crate::runner::tests::scripted::at;
    use log::Offset;
    use schemas::Topic;

    fn finished() -> Finished {
        let from = at(Topic::WebhooksDispatch);
        let position = Position { from, offset: Offset(0), ownership: Ownership::default() };
        Finished { position, records: Vec::new() }
    }

    #[test]
    fn a_step_waits_for_eight_times_the_last_commit() {
        let begun = Instant::now();
        let after = |millis| begun + Duration::from_millis(millis);
        for (took, linger) in [(0, 5), (1, 8), (10, 80), (25, 200), (4000, 200)] {
            let mut results = Results::default();
            results.commit_begins(begun);
            results.committed(after(took));
            assert!(!results.is_due(after(took + 1000)), "there is nothing");
            results.push(finished(), after(took));
            results.push(finished(), after(took + linger - 1));
            assert!(!results.is_due(after(took + linger - 1)), "{took}");
            assert!(results.is_due(after(took + linger)), "{took}");
            results.retain(|_| false);
            assert!(!results.is_due(after(took + linger)), "all were lost");
        }
    }

    #[test]
    fn very_many_results_do_not_wait() {
        let (mut results, now) = (Results::default(), Instant::now());
        (1..COUNT_MAX).for_each(|_| results.push(finished(), now));
        assert!(!results.is_due(now));
        results.push(finished(), now);
        assert!(results.is_due(now));
    }
}
