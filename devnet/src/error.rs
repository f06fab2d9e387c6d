//! Reasons to refuse a command to the chain. A refused command has changed nothing.

use std::io;
use std::net::SocketAddr;

use alloy_primitives::TxHash;

use crate::chain::{HEIGHT_MAX, MINE_COUNT_MAX, PENDING_COUNT_MAX, TRANSACTION_CALLS_MAX};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot listen on {address}: choose a free address of this machine")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("invalid configuration: {0}")]
    Config(&'static str),
    #[error("the pending pool is full, {} transactions: mine first", PENDING_COUNT_MAX)]
    PoolFull,
    #[error("a transaction has 1 to {} transfers, not {count}", TRANSACTION_CALLS_MAX)]
    CallCount { count: usize },
    #[error("at most {} blocks are mined at once, not {count}", MINE_COUNT_MAX)]
    MineCount { count: u64 },
    #[error("the chain is full: {} blocks", HEIGHT_MAX)]
    ChainFull,
    #[error("timestamp {timestamp} is not after {parent_timestamp}, or is after the year 9999")]
    Timestamp { timestamp: u64, parent_timestamp: u64 },
    #[error("a reorg replaces 1 to {height} blocks, not {depth}")]
    ReorgDepth { depth: u64, height: u64 },
    #[error("transaction {0} is not in the replaced blocks")]
    UnknownTransaction(TxHash),
    #[error("offset {offset} is not in the new blocks, 0 to {offset_max}")]
    Offset { offset: u64, offset_max: u64 },
    #[error("the mining period is zero")]
    Period,
}
