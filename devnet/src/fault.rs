//! Faults a test can switch on, and the counters of calls.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use alloy_primitives::TxHash;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// An HTTP status with a short text as body, such as 429.
    HttpStatus(u16),
    /// This status and body, unchanged, such as an error in a form other than JSON-RPC's.
    Body { status: u16, text: &'static str },
    /// Every call in the request is answered by this JSON-RPC error.
    RpcError { code: i64, message: String },
    /// HTTP 200 with a body that breaks off in the middle of the JSON.
    Malformed,
    /// The correct answer comes this much later, or at once when the server shuts down.
    Hang(Duration),
}

/// Fault of the HTTP interface of a Tron node, until it is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeFault {
    /// Every request is answered with this status and body.
    Body { status: u16, text: &'static str },
    /// Only this number of transactions, from the first of a block, have an outcome.
    FirstOutcomes(usize),
}

/// Limits of `eth_getLogs`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogLimits {
    /// Maximum number of blocks in one range.
    pub(crate) range_blocks_max: Option<u64>,
    /// Lag of the logs behind the head, in blocks.
    pub(crate) lag_blocks: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Switches {
    /// Number of requests that still fail, and their fault.
    armed: Option<(u32, Fault)>,
    pub(crate) log_limits: LogLimits,
    pub(crate) failed: HashSet<TxHash>,
    /// Transactions that are missing in the index of logs.
    pub(crate) unindexed: HashSet<TxHash>,
    /// `true` if `eth_getBlockReceipts` is refused.
    pub(crate) refuses_block_receipts: bool,
    /// `true` if only the state after the newest block is kept.
    pub(crate) forgets_states: bool,
    pub(crate) native: Option<NativeFault>,
    /// Calls by method. The keys are from the list of methods, so the map is bounded.
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Switches {
    pub(crate) fn arm(&mut self, count: u32, fault: Fault) {
        self.armed = (count > 0).then_some((count, fault));
    }

    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        let (count, fault) = self.armed.take()?;
        self.arm(count - 1, fault.clone());
        Some(fault)
    }

    pub(crate) fn clear(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        *self = Self { counts, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_lasts_for_its_count() {
        let mut switches = Switches::default();
        assert_eq!(switches.take_fault(), None);
        switches.arm(2, Fault::Malformed);
        assert_eq!(switches.take_fault(), Some(Fault::Malformed));
        assert_eq!(switches.take_fault(), Some(Fault::Malformed));
        assert_eq!(switches.take_fault(), None);
        switches.arm(1, Fault::HttpStatus(429));
        switches.arm(0, Fault::HttpStatus(429));
        assert_eq!(switches.take_fault(), None);
    }
}
