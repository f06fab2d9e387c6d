//! Why a command to the chain was refused. A refused command has changed nothing.

use std::io;
use std::net::SocketAddr;

use alloy_primitives::TxHash;

/// A refused command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where the chain was told to listen.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A constant of the chain makes no sense.
    #[error("invalid configuration: {0}")]
    Config(&'static str),
    /// Mine before sending more.
    #[error("the pending pool is full: {count_max} transactions")]
    PoolFull {
        /// The bound of the pool.
        count_max: usize,
    },
    /// A transaction needs between one and the bound of transfers.
    #[error("a transaction has 1 to {count_max} transfers, not {count}")]
    CallCount {
        /// How many were given.
        count: usize,
        /// The bound of one transaction.
        count_max: usize,
    },
    /// Mine in smaller steps.
    #[error("at most {count_max} blocks are mined at once, not {count}")]
    MineCount {
        /// How many were asked for.
        count: u64,
        /// The bound of one command.
        count_max: u64,
    },
    /// The chain has as many blocks as it keeps.
    #[error("the chain is full: {height_max} blocks")]
    ChainFull {
        /// The bound of the chain.
        height_max: u64,
    },
    /// Timestamps only grow.
    #[error("timestamp {timestamp} is not after {parent_timestamp}, or is after the year 9999")]
    Timestamp {
        /// What was asked for, in Unix seconds.
        timestamp: u64,
        /// Timestamp of the head, in Unix seconds.
        parent_timestamp: u64,
    },
    /// A reorg replaces at least one block and never the genesis.
    #[error("a reorg replaces 1 to {height} blocks, not {depth}")]
    ReorgDepth {
        /// How many blocks were to be replaced.
        depth: u64,
        /// Number of the head.
        height: u64,
    },
    /// The transaction is not in a block that the reorg replaces.
    #[error("transaction {0} is not in the replaced blocks")]
    UnknownTransaction(TxHash),
    /// The block to move to is not one of the new blocks.
    #[error("offset {offset} is not in the new blocks, 0 to {offset_max}")]
    Offset {
        /// Where the transaction was to go.
        offset: u64,
        /// Offset of the last new block.
        offset_max: u64,
    },
    /// Automatic mining needs a pause between blocks.
    #[error("the mining period is zero")]
    Period,
}
