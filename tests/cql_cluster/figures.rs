//! Durations and numbers of calls.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use testkit::measure::percentile;

/// Kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// Wait of a create for its row.
    Create,
    /// Write of the row of a create.
    CreatedRow,
    Status,
    /// Twenty rows of one of three lists.
    List,
    /// A call of the projector.
    Apply,
}

/// A successful call.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) call: Call,
    pub(crate) begun: Instant,
    pub(crate) took: Duration,
    pub(crate) rows: usize,
}

/// The calls that began within a period of this `length`.
#[derive(Debug)]
pub(crate) struct Figures {
    what: &'static str,
    length: Duration,
    pub(crate) by_call: BTreeMap<Call, Vec<Duration>>,
    /// Rows of the projector that were acknowledged in each window.
    pub(crate) progress: Vec<usize>,
}

/// Window of the progress.
const WINDOW: Duration = Duration::from_secs(5);

impl Figures {
    pub(crate) fn of(what: &'static str, samples: &[Sample], from: Instant, to: Instant) -> Self {
        let length = to.duration_since(from);
        let mut by_call: BTreeMap<Call, Vec<Duration>> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| (from..to).contains(&sample.begun)) {
            by_call.entry(sample.call).or_default().push(sample.took);
        }
        by_call.values_mut().for_each(|times| times.sort());
        let mut progress = vec![0; (length.as_millis() / WINDOW.as_millis()) as usize];
        for sample in samples.iter().filter(|sample| sample.call == Call::Apply) {
            let ended = (sample.begun + sample.took).saturating_duration_since(from);
            let window = (ended.as_millis() / WINDOW.as_millis()) as usize;
            if let Some(rows) = progress.get_mut(window)
                && sample.begun + sample.took >= from
            {
                *rows += sample.rows;
            }
        }
        Self { what, length, by_call, progress }
    }

    /// `true` if the 95th percentile of each kind of call of the api is below this. A third of all statements go to
    /// each node first: if callers waited for a lost node, more than 5 % would be slower.
    pub(crate) fn are_within(&self, max: Duration) -> bool {
        let answered = [Call::Create, Call::CreatedRow, Call::Status, Call::List];
        answered.iter().all(|call| percentile(&self.by_call[call], 95) < max)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {:.0} s:", self.what, self.length.as_secs_f32())?;
        for (call, times) in &self.by_call {
            let [p50, p99, max] = [50, 99, 100].map(|part| percentile(times, part).as_millis());
            let rate = times.len() as f32 / self.length.as_secs_f32();
            writeln!(f, "  {call:?}: {rate:.1}/s, p50 {p50} ms, p99 {p99} ms, max {max} ms")?;
        }
        let rates = self.progress.iter().map(|rows| rows / WINDOW.as_secs() as usize);
        write!(f, "  rows/s in windows of {WINDOW:?}: {:?}", rates.collect::<Vec<_>>())
    }
}
