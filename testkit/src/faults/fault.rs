//! What may be wrong with an endpoint.

use std::collections::HashSet;

use serde_json::Value;

/// What happens to some requests in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Each call is refused in these of the known words.
    Refuses(usize),
    /// The batch as a whole is, with HTTP 200.
    RefusesBatch(usize),
    /// Only calls for logs are.
    RefusesLogs(usize),
    /// 429; with seconds to wait, if there are any.
    Rate(Option<u8>),
    Unavailable,
    /// 401: the key is no longer good.
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
    /// Every second answer of the batch is missing.
    PartialBatch,
    /// Ids are text, and a batch has a `null` more.
    Loose,
    NullBlocks,
    /// No answer has a log.
    NoLogs,
    /// The last log of each answer is missing.
    PartialLogs,
    /// The head lags by this many blocks; where logs of later ones are asked for, there are none.
    Behind(u64),
    /// Every block is of a fork that the chain left, which may grow.
    Stale,
    /// Logs are of that fork as far as it goes, and blocks of the chain.
    Mixed,
    /// A log of that fork is there too, marked removed.
    Removed,
    /// Every log comes twice.
    Stutter,
    /// Two different logs have one index.
    Collides,
    /// Another chain answers.
    Foreign,
}

/// How an endpoint counts the logs of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Numbering {
    /// Through the whole block: the standard form.
    #[default]
    Block,
    /// From 0 in each transaction.
    Transaction,
    /// Not at all: each has 0.
    Zero,
}

/// How an endpoint behaves, until it is set anew.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// And for how many more requests.
    pub fault: Option<(Fault, u32)>,
    /// For how long, by the chain's time, a block has no logs yet; or only every second one, for as long.
    pub trail_seconds: i64,
    pub trail_is_partial: bool,
    /// Most blocks of a range of logs, and the words that refuse more.
    pub range_max: Option<(u64, usize)>,
    /// Transactions whose logs it leaves out, while their receipts are complete.
    pub omits: HashSet<String>,
    /// Transactions whose logs it leaves out of ranges; asked for by the hash of their block they are there.
    pub ranges_omit: HashSet<String>,
    /// The reverse.
    pub hashes_omit: HashSet<String>,
    /// Logs that no block has, and whether there are receipts of them.
    pub invents: Vec<(Value, bool)>,
    pub numbering: Numbering,
    /// Transactions of which it has no receipt, though their blocks list them. It does not serve the receipts of whole
    /// blocks then.
    pub lacks_receipts: HashSet<String>,
    /// `safe` and `finalized` are its newest block.
    pub tags_are_young: bool,
    /// It holds its answers back until the newest block of the chain is as old as this, in seconds. Time must pass for a
    /// change to be seen.
    pub answers_after: i64,
    /// Logs and receipts of the blocks below this height are deleted.
    pub pruned_below: u64,
    /// Another backend at the same address, which answers every second request.
    pub backend: Option<Box<Behaviour>>,
}

impl Behaviour {
    /// The fault of the next request.
    pub(super) fn take(&mut self) -> Option<Fault> {
        let (fault, requests) = self.fault.take()?;
        self.fault = requests.checked_sub(1).filter(|left| *left > 0).map(|left| (fault, left));
        Some(fault)
    }

    /// How the request of this number is answered.
    pub(super) fn turn(&mut self, request: usize) -> (Option<Fault>, Self) {
        match self.backend.as_mut().filter(|_| request % 2 == 1) {
            Some(other) => (other.take(), Self::clone(other)),
            None => (self.take(), self.clone()),
        }
    }
}
