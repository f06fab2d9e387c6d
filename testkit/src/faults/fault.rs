//! Faults of an endpoint.

use std::collections::HashSet;

use serde_json::Value;

/// A fault of some consecutive requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refuses each call, with the entry of `REFUSALS` that has this index.
    Refuses(usize),
    /// Refuses the batch as a whole, with HTTP 200.
    RefusesBatch(usize),
    /// Refuses only calls for logs.
    RefusesLogs(usize),
    /// HTTP 429; `Some` adds a `retry-after` of 0 or 1 second.
    Rate(Option<u8>),
    Unavailable,
    /// HTTP 401: the API key is no longer valid.
    Unauthorized,
    Html,
    /// HTTP 200 without a body.
    Empty,
    EmptyList,
    TronRefusal,
    TronSentence,
    Reset,
    Cut,
    Drip,
    Silence,
    /// The second half of the replies of the batch is missing.
    PartialBatch,
    /// Ids are text, a batch has an extra `null`.
    Loose,
    NullBlocks,
    /// All logs are missing.
    NoLogs,
    /// The last log of each answer is missing.
    PartialLogs,
    /// The endpoint lags by this many blocks: later blocks, logs and receipts are absent.
    Behind(u64),
    /// Every block is of an orphaned fork, which may grow.
    Stale,
    /// Logs are those of the orphaned fork up to its head; blocks are those of the chain.
    Mixed,
    /// A log of the orphaned fork is included, marked as removed.
    Removed,
    /// Every log comes twice.
    Stutter,
    /// Two different logs have one index.
    Collides,
    /// Serves another chain.
    Foreign,
}

/// Numbering of the logs of a block by an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Numbering {
    /// Through the whole block: the standard form.
    #[default]
    Block,
    /// From 0 in each transaction.
    Transaction,
    /// 0 for every log.
    Zero,
}

/// Behaviour of an endpoint, until it is changed.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// The fault, and the number of requests that it still applies to.
    pub fault: Option<(Fault, u32)>,
    /// Seconds of the chain's time for which a new block has no logs yet; if `trail_is_partial`, only every second log
    /// is missing.
    pub trail_seconds: i64,
    pub trail_is_partial: bool,
    /// Maximum number of blocks in a range of logs, and the index in `REFUSALS` with which a larger range is refused.
    pub range_max: Option<(u64, usize)>,
    /// Transactions whose logs it leaves out, while their receipts are complete.
    pub omits: HashSet<String>,
    /// Transactions whose logs it leaves out of ranges; queries by block hash have them.
    pub ranges_omit: HashSet<String>,
    /// Transactions whose logs it leaves out of queries by block hash; ranges have them.
    pub hashes_omit: HashSet<String>,
    /// Logs that are in no block, with `true` for those that have receipts.
    pub invents: Vec<(Value, bool)>,
    pub numbering: Numbering,
    /// Transactions without a receipt, though their blocks list them. It then serves no receipts of whole blocks.
    pub lacks_receipts: HashSet<String>,
    /// Reply to each request for the receipts of a whole block.
    pub block_receipts: Option<Value>,
    /// `safe` and `finalized` are its newest block.
    pub tags_are_young: bool,
    /// Age in seconds that the newest block must reach before replies are sent. The chain's time must advance for it.
    pub answers_after: i64,
    /// Logs and receipts of the blocks below this height are deleted.
    pub pruned_below: u64,
    /// Another backend at the same address, which serves every second request.
    pub backend: Option<Box<Behaviour>>,
}

impl Behaviour {
    /// The fault of the next request.
    pub(super) fn take(&mut self) -> Option<Fault> {
        let (fault, requests) = self.fault.take()?;
        self.fault = requests.checked_sub(1).filter(|left| *left > 0).map(|left| (fault, left));
        Some(fault)
    }

    /// Returns the fault and the behaviour that apply to the request of this number.
    pub(super) fn turn(&mut self, request: usize) -> (Option<Fault>, Self) {
        match self.backend.as_mut().filter(|_| request % 2 == 1) {
            Some(other) => (other.take(), Self::clone(other)),
            None => (self.take(), self.clone()),
        }
    }
}
