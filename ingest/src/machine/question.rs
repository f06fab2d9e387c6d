//! Questions of the cursor to an endpoint, their answers and their refusals.

use schemas::record::Block;
use schemas::{BlockHash, TxHash};

/// A block to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    Latest,
    /// The `safe` tag; `None` from an endpoint without it.
    Safe,
    /// The `finalized` tag; `None` from an endpoint without it.
    Finalized,
    /// The block at a height of the endpoint's chain.
    Number(i64),
}

/// Blocks to search for Transfer events to the configured wallets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// All blocks from one height to another, both included.
    Range { from: i64, to: i64 },
    /// One block: an endpoint that does not have it refuses, where a range finds nothing.
    Block(BlockHash),
    /// All blocks from one height to another, each by the receipts of all its transactions where the endpoint serves
    /// them (`eth_getBlockReceipts`, on Tron the native interface), else as [`Span::Range`].
    Receipts { from: i64, to: i64 },
}

/// Role of the endpoint that is to answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// The one that the step began with.
    #[default]
    First,
    /// One that did not scan the blocks in question, if there is one.
    Second,
    /// One that did not give the second answer: the word of a single endpoint proves nothing.
    Witness,
}

impl Role {
    /// Returns the role to ask for receipts after this one.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Witness => Self::Second,
            Self::First | Self::Second => Self::Witness,
        }
    }
}

/// One question: blocks, then logs, then receipts. An endpoint may process a batch in another order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) role: Role,
    /// First height of the range of a second answer: the endpoint that scanned it is asked only if all others are gone.
    /// `i64::MAX` for a check without a range; `None` to ask the same second endpoint again.
    pub(crate) about: Option<i64>,
    pub(crate) blocks: Vec<Point>,
    pub(crate) logs: Vec<Span>,
    pub(crate) receipts: Vec<Outcome>,
}

impl Ask {
    /// The block that an answer shows for a point; `None` also if it was not asked for.
    pub(crate) fn shown(&self, answer: &Answer, point: Point) -> Option<Header> {
        let mut blocks = self.blocks.iter().zip(&answer.blocks);
        blocks.find(|(asked, _)| **asked == point).and_then(|(_, header)| *header)
    }
}

/// A transaction whose receipt is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) transaction: TxHash,
    /// The height of its block.
    pub(crate) number: i64,
    /// Hash of its block, by which the block is fetched if the endpoint has no receipt.
    pub(crate) block_hash: BlockHash,
    /// `true` to use the native interface for final blocks, if there is one.
    pub(crate) is_final: bool,
}

/// Answer to an [`Ask`], position by position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The blocks; `None` for a missing one.
    pub(crate) blocks: Vec<Option<Header>>,
    /// The logs, as the endpoint gave them.
    pub(crate) logs: Vec<Vec<EventLog>>,
    pub(crate) receipts: Vec<Proof>,
    /// `true` if the logs of [`Span::Receipts`] came from the outcomes of all transactions: logs of failed ones are
    /// then left out.
    pub(crate) by_receipts: bool,
    /// The blocks whose outcomes were read, to compare with ours: backends of one address may be on different forks.
    pub(crate) read: Vec<(i64, BlockHash)>,
    /// `true` if the scanner gave the second answer too, as no other one responds.
    pub(crate) is_alone: bool,
    /// `true` if the endpoint is the one that the step began with.
    pub(crate) is_first: bool,
}

/// Answer of an endpoint about a transaction in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof {
    Receipt(Receipt),
    /// The block does not list the transaction.
    Unlisted,
    /// The endpoint shows neither a receipt, nor that the block lacks the transaction.
    Unknown,
}

impl Proof {
    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Receipt(receipt) => Some(receipt),
            Self::Unlisted | Self::Unknown => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) block_hash: BlockHash,
    /// `true` if it succeeded: a failed one moved nothing, whatever its logs are.
    pub(crate) succeeded: bool,
    pub(crate) logs: Vec<EventLog>,
}

/// The part of a block header that is read. Other fields differ between chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) block: Block,
    pub(crate) parent: BlockHash,
}

/// An event as the endpoint gave it, unchecked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventLog {
    pub(crate) address: [u8; 20],
    pub(crate) topics: Vec<[u8; 32]>,
    /// Unindexed arguments.
    pub(crate) data: Vec<u8>,
    pub(crate) block_number: i64,
    pub(crate) block_hash: BlockHash,
    pub(crate) tx_hash: TxHash,
    pub(crate) log_index: i32,
    /// `true` if the endpoint reports the block as orphaned.
    pub(crate) removed: bool,
}

/// Class of a failed request. Endpoints share no error codes; `rpc` classifies their messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The range or its result is too large; the endpoint may suggest a smaller one.
    Size {
        hint: Option<(i64, i64)>,
    },
    Rate,
    /// The endpoint does not have the block yet, or not any more.
    Behind,
    Timeout,
    /// A failure that may be temporary: connection, status 5xx, malformed answer.
    Transient,
    /// The endpoint pruned the block or its data: a retry never helps.
    Pruned,
    /// The endpoint will not serve this: an operator must act.
    Fatal,
}

impl Refusal {
    /// Number of blocks that the endpoint suggests for a range.
    pub(crate) fn blocks(self) -> Option<i64> {
        let Self::Size { hint: Some((from, to)) } = self else { return None };
        Some(to.saturating_sub(from).saturating_add(1))
    }

    /// The value of the metric label `class`.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Size { .. } => "size",
            Self::Rate => "rate",
            Self::Behind => "behind",
            Self::Timeout => "timeout",
            Self::Transient => "transient",
            Self::Pruned => "pruned",
            Self::Fatal => "fatal",
        }
    }
}
