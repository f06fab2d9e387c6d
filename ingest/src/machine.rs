//! Cursor of one chain: chooses the next question and applies each answer.
//!
//! Pure: no I/O, no clock, no configuration file. A step is three questions, each one request; a second check
//! by another endpoint (`machine/cursor/second.rs`) may come after the first of them:
//!
//! 1. *tip*: the endpoint's head, our last block, the tags: finds new blocks and reorganisations.
//! 2. *scan*: the end of the range, our last block again, the first block, which must be its child, and the
//!    logs of the range; in a range of at most 16 blocks, every block.
//! 3. *verify*: our last block once more, and blocks by number with their logs by hash: in such a short range all, in a
//!    longer one those with transfers and the end; on Tron, also the outcome of each transfer. The step is published
//!    only if the blocks agree; receipts settle logs that only one of the two answers has.
//!
//! Our last block is read before and after the end of the range, so the end descends from it; a later
//! reorganisation shows at the next tip. If our last block is gone, *search* tries anchors from the
//! newest down, until one is canonical.

mod blocks;
mod compare;
mod cursor;
mod evidence;
mod history;
mod policy;
mod question;
mod range;
#[cfg(test)]
mod tests;
mod watch;

use schemas::record::{Block, ChainRecord};
use schemas::{Amount, Blockchain, Epoch, TxHash, UnixMicros};

pub(crate) use compare::{next_ordinal, payments};
pub(crate) use cursor::Cursor;
pub(crate) use evidence::Verdict;
pub(crate) use history::History;
pub(crate) use policy::Tags;
pub use policy::{Policy, Tag, Tier};
pub(crate) use question::{
    Answer, Ask, EventLog, Header, Outcome, Point, Proof, Receipt, Refusal, Role, Span,
};
pub(crate) use watch::{Flow, Skipped, TRANSFER_TOPIC, Watch, topic};

/// Configuration of the cursor of a chain.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) blockchain: Blockchain,
    pub(crate) watch: Watch,
    pub(crate) policy: Policy,
    pub(crate) reorg_window: i64,
    /// Distance to stay behind the endpoint's head, in blocks.
    pub(crate) lag: i64,
    /// Maximum blocks of one range.
    pub(crate) range_max: i64,
    /// First block to scan when nothing was published yet; `None`: the one after the head less `lag`.
    pub(crate) start_block: Option<i64>,
    /// `true` if failed transactions may keep their logs, so that each transfer needs its receipt.
    pub(crate) needs_receipts: bool,
    /// `true` if several endpoints are configured: then one alone confirms only amounts below `alone_below`, even in
    /// final blocks.
    pub(crate) has_second: bool,
    /// Amounts below this are confirmed by one endpoint while no other answers.
    pub(crate) alone_below: Amount,
    /// Number of polls for which a head without news is held back.
    pub(crate) idle_polls: u32,
    /// Maximum backoff after a failed second check, in polls.
    pub(crate) check_wait_polls: u32,
    /// Published with each head.
    pub(crate) match_window_seconds: i64,
    /// Point to restart from if the records of the chain are gone.
    pub(crate) lost: Option<Lost>,
}

/// Last known state of a chain whose records are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Newest epoch of any of its records.
    pub(crate) epoch: Epoch,
    /// The last block that counts as scanned; later ones are scanned again.
    pub(crate) number: i64,
    /// Time of its last progress record.
    pub(crate) observed_at: UnixMicros,
}

/// Consequences of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    /// One atomic step to publish before anything else; empty for none.
    pub(crate) publish: Vec<ChainRecord>,
    pub(crate) notes: Vec<Note>,
    pub(crate) next: Next,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// An event of a trusted contract was left out.
    Skipped(Skipped),
    Rewound {
        /// The last scanned block, now orphaned.
        from: Block,
        /// The newest block that is still canonical.
        to: Block,
        retracted: usize,
    },
    /// A second check has a transfer that the scan did not have.
    LateFind { block: Block, tx_hash: TxHash },
    /// A second check lacks a transfer that the receipt of the same endpoint has.
    Omitted { block: Block, tx_hash: TxHash },
    /// A transfer stays held: the endpoints still disagree about it, or not both have proved it.
    Disputed { block: Block, tx_hash: TxHash },
    /// Every endpoint denies a transfer, several times in a row: it is retracted.
    Forged { block: Block, tx_hash: TxHash },
    /// Every endpoint pruned the blocks after this one.
    Gap { after: Block },
    /// Two answers of one endpoint about a block have different logs.
    Contradiction { block: Block },
    /// One endpoint confirms alone from here on, or does so no longer.
    Alone { begins: bool },
    /// A second check of the blocks up to this one could not be used.
    Check { why: Difference, block: Block },
}

impl Note {
    /// Returns the reason and the block of a second check that could not be used.
    pub(crate) fn check(notes: &[Self]) -> Option<(Difference, Block)> {
        notes.iter().find_map(|note| {
            if let Self::Check { why, block } = note { Some((*why, *block)) } else { None }
        })
    }
}

/// Reason why the answer of a second check cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The endpoint does not have the block yet.
    Behind,
    /// The endpoint has another block there.
    Fork,
    Contradiction,
}

impl Difference {
    /// The value of the metric label `kind`.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Behind => "behind",
            Self::Fork => "fork",
            Self::Contradiction => "contradiction",
        }
    }
}

/// Time of the next question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// At once.
    Ask,
    /// After the poll interval: everything is scanned.
    AtTip,
    /// After a short wait: the endpoint lacks a block or receipt that the step needs.
    Behind,
    /// After backing off: a request was refused, or its answer cannot be used.
    Retry(&'static str),
    /// Never: an operator must decide.
    Halt(String),
}

impl From<Next> for Decision {
    fn from(next: Next) -> Self {
        Self { publish: Vec::new(), notes: Vec::new(), next }
    }
}
