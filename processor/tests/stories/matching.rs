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
use lane::{Lane, ends, gets};
use schemas::record::{AmountRule, ChainBody, MatchingEntry};
use schemas::{CloseReason, Draws, Stablecoin, TransferStatus, UnknownReason};
use tidemark_processor::machine::matching::{Effect, Input, State};
use tidemark_processor::machine::{Machine, RestoreError};

/// Effects of most stories: order A's deposit #1 opens, transfer #2 for it is seen, is confirmed, and pays; or the
/// deposit expires.
const OPEN_A: &str = "deposit #1 open 10.00 for A/0; to A: opened /0 #1 10.00";
const SEEN_A: &str = "to A: seen #2; detected #2 @110 for #1";
const ASKED_A: &str = "confirmed #2 @110 for #1; to A: settle #2 /0 #1";
const PAID_A: &str = "matched #2 @110 for #1 paid A by #3; deposit #1 settled for A/0";
const EXPIRED_A: &str = "deposit #1 expired for A/0; to A: closed /0 expired";

/// Transfer #1 without a deposit, which became unknown.
fn stray() -> Lane {
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(head(120), "confirmed #1 @110")
        .then(head(131), "unknown #1 @110 no_deposit")
}

/// Order A with deposit #1 of 10.00.
fn offered() -> Lane {
    Lane::new().then(open('A', "10.00"), OPEN_A)
}

/// The same with transfer #2 for it in block 110, unconfirmed.
fn seen() -> Lane {
    offered().then(pay(1, "10.00"), SEEN_A)
}

/// The same, confirmed: its settle was sent.
fn settling() -> Lane {
    seen().then(head(120), ASKED_A)
}
