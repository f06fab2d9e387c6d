//! A question to another endpoint, and what it leaves open.

use schemas::record::{Block, Observation};

use crate::machine::evidence::Verdict;
use crate::machine::{Note, Role};

/// The range to scan after the tip, and whether there is more to ask at once after it; none at the tip.
pub(super) type Then = Option<(i64, i64, bool)>;

/// A question to another endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check {
    /// The range whose transfers are asked for again; empty if only the tip is.
    pub(super) from: i64,
    pub(super) to: i64,
    /// A block of ours at or after the end: an endpoint that has it has ours before it too.
    pub(super) anchor: Block,
    /// The height that it is to vouch for.
    pub(super) candidate: Option<i64>,
    /// Whether it was checked before, and is final now.
    pub(super) is_rescan: bool,
    /// Whether the endpoint that scanned the range answers, as no other one does.
    pub(super) is_alone: bool,
    /// How the step continues.
    pub(super) then: Then,
    /// Who is asked.
    pub(super) role: Role,
}

impl Check {
    /// Of no range: about a block, of the chain up to `last`.
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

/// What a second answer has, while the differences are examined.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) check: Check,
    pub(super) notes: Vec<Note>,
}

/// A transfer about which answers differ.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// Where it is not published yet, its time is not known before the first answer.
    pub(super) block: Block,
    pub(super) seen: Observation,
    /// How many equal ones come before it in its transaction.
    pub(super) rank: usize,
    pub(super) is_published: bool,
    pub(super) is_held: bool,
    /// Whether the second answer lacks it.
    pub(super) is_missing: bool,
    /// Whether the second answer had it from the receipts of its block.
    pub(super) by_receipts: bool,
    /// What the endpoint of the second answer says.
    pub(super) own: Option<Verdict>,
}
