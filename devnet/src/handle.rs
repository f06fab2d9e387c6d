//! The cloneable handle of a chain: every clone commands the same chain.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alloy_primitives::{Address, BlockHash, TxHash, U256};

use crate::chain::Ledger;
use crate::fault::Switches;
use crate::witness::solidified;
use crate::{BlockId, Config, Error, Fault, NativeFault, Reorg, Reorged, TransferCall};

/// Handle of one development chain. Its methods do no I/O; they block only on the locks that the clones share.
#[derive(Debug, Clone)]
pub struct Chain {
    ledger: Arc<Mutex<Ledger>>,
    switches: Arc<Mutex<Switches>>,
}

impl Chain {
    /// A chain with its genesis block, not served over HTTP.
    pub fn new(config: Config) -> Result<Self, Error> {
        let ledger = Arc::new(Mutex::new(Ledger::new(config)?));
        Ok(Self { ledger, switches: Arc::default() })
    }

    /// Queues a transaction with one transfer; `value` is in the smallest units of the token.
    pub fn transfer(
        &self,
        token: Address,
        from: Address,
        to: Address,
        value: U256,
    ) -> Result<TxHash, Error> {
        self.batch(vec![TransferCall { token, from, to, value }])
    }

    /// Queues one transaction with several transfers, in this order.
    ///
    /// # Errors
    /// [`Error::CallCount`] for none or too many transfers; [`Error::PoolFull`].
    pub fn batch(&self, calls: Vec<TransferCall>) -> Result<TxHash, Error> {
        self.ledger().queue(calls)
    }

    /// Mines `count` blocks; the first takes every pending transaction.
    pub fn mine(&self, count: u64) -> Result<Vec<BlockHash>, Error> {
        self.ledger().mine(count)
    }

    /// Mines one block at `timestamp`, in Unix seconds.
    ///
    /// # Errors
    /// [`Error::Timestamp`] unless it is after the head and not after the year 9999; [`Error::ChainFull`].
    pub fn mine_at(&self, timestamp: u64) -> Result<BlockId, Error> {
        self.ledger().mine_at(timestamp)
    }

    /// Sets the timestamp of the next block, in Unix seconds; later blocks step on from it.
    ///
    /// # Errors
    /// [`Error::Timestamp`] unless it is after the head and not after the year 9999.
    pub fn set_next_timestamp(&self, timestamp: u64) -> Result<(), Error> {
        self.ledger().set_next_timestamp(timestamp)
    }

    /// Delays the next block by this many intervals, as if witnesses of Tron had missed their slots.
    ///
    /// # Errors
    /// [`Error::Timestamp`] beyond the year 9999.
    pub fn skip_slots(&self, slots: u64) -> Result<(), Error> {
        let mut ledger = self.ledger();
        let late = slots.saturating_add(1).saturating_mul(ledger.config().block_interval_secs);
        let timestamp = ledger.head().id.timestamp.saturating_add(late);
        ledger.set_next_timestamp(timestamp)
    }

    pub fn head(&self) -> BlockId {
        self.ledger().head().id
    }

    #[must_use]
    pub fn block(&self, number: u64) -> Option<BlockId> {
        self.ledger().block(number).map(|block| block.id)
    }

    /// Replaces the last `depth` blocks by new ones, according to `reorg`, and adds one more. Each replacement
    /// keeps the timestamp of its block; the pending pool stays as it is.
    ///
    /// # Errors
    /// [`Error::ReorgDepth`], [`Error::UnknownTransaction`], [`Error::Offset`],
    /// [`Error::ChainFull`].
    pub fn reorg(&self, depth: u64, reorg: Reorg) -> Result<Reorged, Error> {
        self.ledger().reorg(depth, reorg)
    }

    /// Applies a fault to the next `count` JSON-RPC requests, in place of an earlier one; 0 ends it. A batch is one
    /// request; control calls count too.
    pub fn fail_next(&self, count: u32, fault: Fault) {
        self.switches().arm(count, fault);
    }

    /// Refuses `eth_getLogs` over more than `blocks_max` blocks with code -32005; `None` allows all.
    pub fn limit_range(&self, blocks_max: Option<u64>) {
        self.switches().log_limits.range_blocks_max = blocks_max;
    }

    /// Makes `eth_getLogs` omit the last `blocks` blocks without an error, as a node does whose logs trail its head.
    pub fn lag_logs(&self, blocks: u64) {
        self.switches().log_limits.lag_blocks = blocks;
    }

    /// Gives the HTTP interface of a Tron node a fault; `None` ends it.
    pub fn break_native(&self, fault: Option<NativeFault>) {
        self.switches().native = fault;
    }

    /// Number of the newest solidified block, as a Tron node reports it.
    #[must_use]
    pub fn solidified(&self) -> u64 {
        solidified(&self.ledger())
    }

    /// Makes receipts, and outcomes of a Tron node, report that a transaction failed. Its logs stay, as on some nodes.
    pub fn fail_transaction(&self, hash: TxHash) {
        self.switches().failed.insert(hash);
    }

    /// Makes `eth_getLogs` omit the logs of a transaction, as a node does whose index has a hole. Its receipt and its
    /// outcome are complete.
    pub fn leave_unindexed(&self, hash: TxHash) {
        self.switches().unindexed.insert(hash);
    }

    /// Drops all states except that after the newest block, as a node without an archive.
    pub fn forget_states(&self) {
        self.switches().forgets_states = true;
    }

    /// Makes the chain refuse `eth_getBlockReceipts`, as some nodes and plans do.
    pub fn refuse_block_receipts(&self) {
        self.switches().refuses_block_receipts = true;
    }

    /// Switches off every fault, limit and refusal that the methods above set. The counters stay.
    pub fn clear_faults(&self) {
        self.switches().clear();
    }

    /// Returns the number of calls of a method since the start, failed ones included. Calls of a
    /// method that the chain does not have count as `"unknown"`.
    #[must_use]
    pub fn request_count(&self, method: &str) -> u64 {
        self.switches().counts.get(method).copied().unwrap_or(0)
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn switches(&self) -> MutexGuard<'_, Switches> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
