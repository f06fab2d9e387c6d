//! Stories of matching: fit of transfers and deposits, confirmation, outcome (spec 3.2). Expiry, rejection and
//! forgetting are in `matching/ending.rs`, reorganisations in `matching/reorg.rs` and `matching/returning.rs`.

mod amounts;
mod attaching;
mod confirming;
mod contracts;
mod ending;
mod entries;
mod holding;
mod ids;
mod lane;
mod late;
mod opening;
mod paying;
mod refusing;
mod reorg;
mod returning;
mod stopping;
mod watching;

use crate::chain::{close, head, open, pay, refused, resume, settled, stop, watch};
use crate::name::{CONTRACT, OTHER_CONTRACT, amount, order, wallet};
use crate::story::decide;
use lane::Lane;
use schemas::record::{AmountRule, ChainBody, MatchingEntry};
use schemas::{CloseReason, Draws, Stablecoin, TransferStatus, UnknownReason};
use tidemark_processor::machine::matching::{Effect, Input, State};
use tidemark_processor::machine::{Machine, RestoreError};

/// The first deposit of most stories, opened.
const OPEN_A: &str = "deposit #1 open 10.00 for A/0; to A: opened /0 #1 10.00";
