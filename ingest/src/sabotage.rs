//! Defects planted in the handling of endpoints by ingest: the random runs must find them.

use crate::machine::{Answer, Cursor, Defects};

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
    /// The fall of the vouched height when another endpoint shows a fork.
    VouchedNeverFalls,
    /// The identity of a transfer without its place in the block.
    IndexInIdentity,
    /// The distinction between a missing receipt and a denial.
    NullDenies,
    /// The hold of a transfer that endpoints disagree about.
    HoldForgotten,
}

impl Defect {
    pub(crate) fn plant(self, cursor: &mut Cursor) {
        cursor.defects = Defects {
            is_blind: self == Self::OneCheck,
            never_falls: self == Self::VouchedNeverFalls,
            index_in_identity: self == Self::IndexInIdentity,
            null_denies: self == Self::NullDenies,
            forgets_holds: self == Self::HoldForgotten,
        };
    }

    /// Applies the defect to an answer.
    pub(crate) fn answer(self, mut answer: Answer) -> Answer {
        if self == Self::Removed {
            answer.logs.iter_mut().flatten().for_each(|log| log.removed = false);
        }
        answer
    }
}
