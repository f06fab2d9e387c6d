//! Defects planted in the handling of endpoints by ingest: the random runs must find them.

use schemas::record::Observation;

use crate::machine::{Answer, Verdict};

/// Disabled mechanism.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Defect {
    #[default]
    None,
    /// The second check.
    OneCheck,
    /// Every check of the chain id except the first.
    AnyChain,
    /// The refusal of logs that are marked `removed`.
    Removed,
    /// The fall of the vouched height when another endpoint shows a fork: the height stays above every block.
    VouchedNeverFalls,
    /// The identity of a transfer without its place in the block.
    IndexInIdentity,
    /// The distinction between a missing receipt and a denial.
    NullDenies,
    /// The hold of a transfer that endpoints disagree about.
    HoldForgotten,
}

impl Defect {
    pub(crate) fn answer(self, mut answer: Answer) -> Answer {
        if self == Self::Removed {
            answer.logs.iter_mut().flatten().for_each(|log| log.removed = false);
        }
        answer
    }

    pub(crate) fn verdict(self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Unknown if self == Self::NullDenies => Verdict::Denied,
            verdict => verdict,
        }
    }

    /// Applies the defect to the transfers that only the second answer has.
    pub(crate) fn extra(
        self,
        ours: &[Observation],
        theirs: &[Observation],
        extra: &mut Vec<(usize, Observation)>,
    ) {
        if self == Self::IndexInIdentity {
            let is_known = |seen: &&Observation| {
                ours.iter().any(|known| known.log_index == seen.log_index && known.is_equal(seen))
            };
            *extra = theirs.iter().filter(|seen| !is_known(seen)).map(|seen| (0, *seen)).collect();
        }
    }
}
