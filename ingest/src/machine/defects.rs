//! Defects that a test plants in the machine, to show that its runs find them.

use schemas::record::Observation;

use super::compare::Comparison;
use super::evidence::Verdict;

/// Rules that are switched off.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Defects {
    /// There is no second check.
    pub(crate) is_blind: bool,
    /// The vouched height is above every block, and no fork that another endpoint shows lowers it.
    pub(crate) never_falls: bool,
    /// A log with another log index counts as another transfer.
    pub(crate) index_in_identity: bool,
    /// An endpoint without a receipt of a transfer denies it.
    pub(crate) null_denies: bool,
    /// A transfer that endpoints disagree about is not held.
    pub(crate) forgets_holds: bool,
}

impl Defects {
    pub(super) fn verdict(self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Unknown if self.null_denies => Verdict::Denied,
            verdict => verdict,
        }
    }

    pub(super) fn compare(
        self,
        ours: &[Observation],
        theirs: &[Observation],
        differ: &mut Comparison,
    ) {
        if self.index_in_identity {
            let is_known = |seen: &&Observation| {
                ours.iter().any(|known| known.log_index == seen.log_index && known.is_equal(seen))
            };
            differ.extra = theirs.iter().filter(|seen| !is_known(seen)).map(|s| (0, *s)).collect();
        }
    }
}
