//! Follows chains block by block and publishes the transfers to the configured wallets.
//!
//! Reads: the JSON-RPC endpoints of each chain, one at a time, and its own past records on `transfers.raw`. The group
//! `ingest` over `chains` assigns the chains to processes.
//! Writes: `transfers.raw` (watched wallets, transfers, retracts, heads) and `chains` (progress).
//!
//! **Invariants**
//! - The log is the only state: a restart restores the cursor from published records. If `chains` has progress of a
//!   chain whose records are gone, it begins with the next epoch at its finalized height or below (`lost.rs`), never at
//!   the tip.
//! - A chain is followed by one process at a time: the group assigns it, and each chain's writer
//!   fences the one before.
//! - A wallet is published as watched before the first head that covers payments to it, so a deposit that
//!   opens after that record misses none. No watched address may leave the configuration.
//! - A head is published in one atomic step with every transfer up to it, so no head
//!   ever covers a range that was not published whole.
//! - A head confirms only blocks that were fetched twice; with one endpoint, also those that were final and old when
//!   they were scanned.
//! - A range starts where the last one ended and ends at or below the endpoint's own head; a step
//!   counts only if the last scanned block is still there before and after it.
//! - On a reorganisation one atomic step retracts exactly the orphaned transfers and begins a new
//!   epoch at a block that both chains have. A reorganisation below the published finalized height
//!   retracts nothing: the chain is halted with an alarm, until an operator rewinds it ([`Rewind`]).
//!
//! **What one endpoint can hide.** No payment is confirmed by one answer (decision 69):
//! - In a range of at most 16 blocks, as at the tip, every block is fetched again by number and its logs by hash. A log
//!   in only one of the two answers is settled by a receipt of the same endpoint; without one it is published and held.
//!   Until then ranges stay that short.
//! - In a longer range, as when catching up, only the blocks in which the range had logs, and its end, are fetched
//!   again.
//! - Before a block is confirmed, at its depth and 6 s of age, its transfers are fetched again: from an endpoint that
//!   did not scan it, where there is one, and in short ranges by the receipts of whole blocks, where those are served.
//!   Late finds with a proof are published, transfers denied by both endpoints retracted, all others held.
//! - Depth and tags count as far as two endpoints have shown the chain (`machine/evidence.rs`).
//! - Not covered: what all endpoints leave out or invent, amounts below a bound while no other endpoint answers, and
//!   what the only endpoint of a chain does in blocks that were final and old when they were scanned.
//!
//! **Choice of an endpoint** (`endpoints.rs`): the same one for a whole step, the best that works. When it fails, or
//! its head is frozen below another one's, the next one continues from the last scanned block; if it shows another
//! block there, the others are asked first, so that a switch is not taken for a reorganisation. Before an endpoint is
//! first asked for blocks, its chain id and the code and `decimals()` of each contract of a coin that a wallet takes
//! are compared with the configuration.
//!
//! **When a chain needs an operator** it is halted with an alarm, and other chains are followed: after a reorganisation
//! that is too deep, when its past records cannot be read back, and while all its endpoints serve another chain or
//! other contracts, which is checked again every 30 s. An alarm without a halt is raised while nothing could be
//! scanned, or checked twice, for five minutes (`runner/stall.rs`). No answer is used in part.
//!
//! On Tron, whose nodes keep some logs of failed transactions, the receipt of each transfer is fetched with its log.
//! The second check reads each solidified block by the node's native HTTP interface, if there is one. The interface
//! must have the outcome of every transaction of the block (decision 37).
//!
//! Deliberately not here: which order a transfer pays, and when it counts as confirmed for an order.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod config;
mod doctor;
mod endpoints;
mod error;
mod lost;
mod machine;
pub mod metrics;
mod publish;
#[cfg(test)]
mod rehearsal;
mod rescan;
mod resolve;
mod restore;
mod rewind;
mod rpc;
mod runner;
#[cfg(test)]
mod sabotage;
mod share;
#[cfg(test)]
mod simulation;
mod tags;
mod transaction;
#[cfg(test)]
mod trials;
mod watched;

pub use config::{ChainConfig, Config, EndpointConfig, NativeConfig, RpcUrl};
pub use doctor::{Examination, Finding, Level, examine};
pub use error::{Error, RestoreError};
pub use machine::{Policy, Tag, Tier};
pub use rescan::{Rescan, RescanError, Survey, Wealth};
pub use resolve::{Resolution, ResolveError, Verdict};
pub use rewind::{Rewind, RewindError, Target};
pub use runner::follow;
pub use share::run;
pub use transaction::{Answer, Mined, Moved, transaction};
pub use watched::check_all as check_watched;
