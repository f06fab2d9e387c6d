//! A check by another endpoint, and the open differences of its answer.

use schemas::record::{Block, Observation};

use crate::machine::evidence::Verdict;
use crate::machine::{Note, Role};

/// The range to scan after the check, `true` if the next one follows at once; `None` at the tip.
pub(super) type Then = Option<(i64, i64, bool)>;

/// A check by another endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check {
    /// The range to fetch again; empty for a check of the tip.
    pub(super) from: i64,
    pub(super) to: i64,
    /// Our block at or after the end: an endpoint that has it has ours before it too.
    pub(super) anchor: Block,
    /// Height to be vouched for.
    pub(super) candidate: Option<i64>,
    /// `true` if the range was checked before, and is final now.
    pub(super) is_rescan: bool,
    /// `true` if the endpoint that scanned the range answers the check too, as no other one
    /// responds.
    pub(super) is_alone: bool,
    /// Continuation of the step after the check.
    pub(super) then: Then,
    /// Role of the endpoint that is asked.
    pub(super) role: Role,
}

impl Check {
    /// Returns a check without a range, about a block of the chain up to `last`.
    pub(super) fn of_tip(anchor: Block, last: i64, then: Then) -> Self {
        Self {
            from: last + 1,
            to: last,
            anchor,
            candidate: None,
            is_rescan: false,
            is_alone: false,
            then,
            role: Role::Second,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to < self.from
    }
}

/// A check and its notes, while the differences of its answer are examined.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) check: Check,
    pub(super) notes: Vec<Note>,
}

/// A transfer about which answers differ.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// Its block; if that is not published yet, its time is unknown before the first answer.
    pub(super) block: Block,
    pub(super) seen: Observation,
    /// Number of equal ones before it in its transaction.
    pub(super) rank: usize,
    pub(super) is_published: bool,
    pub(super) is_held: bool,
    /// `true` if the second answer lacks it.
    pub(super) is_missing: bool,
    /// `true` if the second answer had it from the receipts of its block.
    pub(super) by_receipts: bool,
    /// Verdict of the endpoint that gave the second answer.
    pub(super) own: Option<Verdict>,
}
