//! A development chain that speaks Ethereum JSON-RPC, for the demo and for tests; for tests also as a node of Tron.
//!
//! Reads: transfers, mining and reorg commands, from [`Chain`] or as JSON-RPC control methods.
//! Writes: nothing; everything lives in memory and is gone at shutdown.
//!
//! Invariants:
//! - Equal configuration and equal commands give equal hashes: there is no clock and no randomness.
//! - A transaction keeps its hash when a reorg includes it again; a block that replaces another always has a new hash.
//! - The genesis block is never replaced, and a reorg always leaves a longer chain.
//!
//! Deliberately not here: an EVM, signatures, accounts with gas, state roots that verify, and any
//! knowledge of the other crates. A token is an address, decimals and a symbol; its balances are
//! the sums of its transfers, and a sender may send what it does not have.
//!
//! The pure model is `chain.rs`; `filter.rs` and `view.rs` translate from and to JSON, `rpc.rs` is
//! the list of methods, `tron.rs` serves Tron's interfaces, and `server.rs` alone has tasks.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod answer;
mod block;
mod chain;
mod config;
mod emitter;
mod error;
mod fault;
mod filter;
mod handle;
mod param;
mod rpc;
mod server;
pub mod tron;
mod view;
mod witness;

pub use block::{BlockId, TransferCall};
pub use chain::{Reorg, Reorged};
pub use config::{Config, Token};
pub use emitter::emitter;
pub use error::Error;
pub use fault::{Fault, NativeFault};
pub use handle::Chain;
pub use server::Devnet;
