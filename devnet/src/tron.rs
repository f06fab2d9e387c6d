//! The chain as a node of Tron shows it: java-tron's JSON-RPC and, beside it, its own HTTP interface.
//!
//! **As documented** (java-tron 4.8, its documentation and source):
//! - JSON-RPC: a state root without bytes, zeros for blooms, uncles, receipts root, mix hash, nonce and gas; the tags
//!   `latest`, `earliest` and `finalized`, and -32602 for `safe`, `pending`, an unknown block hash and more than 5,000 blocks; logs
//!   up to the head where a range ends beyond it; state at `latest` alone; receipts of type 0.
//! - HTTP: hexadecimal without `0x`, accounts with 41 in front but not those of logs, times in milliseconds, zeros
//!   left out; `{}` for a block and `[]` for outcomes that are not there; below `/walletsolidity/` nothing but what is
//!   solidified; outcomes in the order of the transactions, without block hash or log index.
//! - The solidified block: 19 of 27 witnesses have built on it. One who misses a slot ([`crate::Chain::skip_slots`]) delays it.
//! - Logs of a transaction that failed stay ([`crate::Chain::fail_transaction`]), in logs and in outcomes.
//! - Errors: [`BUSY`] and [`SUSPENDED`] outside of JSON-RPC, [`LITE_NODE`] as a bare sentence.
//!
//! **Not real**: hashes do not begin with the height, as those of Tron do; every transaction is a call of a token, so none is
//! without a result; transactions and outcomes have the fields that are read and few others; witnesses have numbers
//! for keys, never change, and sign nothing; there is no maintenance period; the control methods of the development chain
//! are answered too.

mod native;
mod rpc;

use std::collections::HashSet;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::post;
use serde_json::Value;

use crate::block::Block;
use crate::chain::Ledger;
use crate::server::{Served, as_is, respond};

/// A node that has no capacity for the request: HTTP 200, on both interfaces.
pub const BUSY: &str =
    r#"{"Error":"class java.lang.IllegalAccessException : lack of computing resources"}"#;
/// A gateway that punishes too many requests: HTTP 403, or 503 with a key.
pub const SUSPENDED: &str = r#"{"Error":"request rate exceeded the allowed_rps(10), and the query server is suspended for 1 s"}"#;
/// A node without history, asked for blocks or outcomes: HTTP 200.
pub const LITE_NODE: &str = "this API is closed because this node is a lite fullnode";

/// Witnesses that take turns, one for each slot.
const WITNESSES: u64 = 27;
/// How many of them have built on a solidified block, its own one included.
const BUILDERS: usize = 19;

/// The witness in whose slot a block lies.
fn witness(ledger: &Ledger, block: &Block) -> u64 {
    let config = ledger.config();
    let age = block.id.timestamp.saturating_sub(config.genesis_timestamp);
    age / config.block_interval_secs.max(1) % WITNESSES
}

/// The newest block on which enough different witnesses have built.
pub(crate) fn solidified(ledger: &Ledger) -> u64 {
    let mut builders = HashSet::new();
    for number in (1..=ledger.head().id.number).rev() {
        builders.extend(ledger.block(number).map(|block| witness(ledger, block)));
        if builders.len() == BUILDERS {
            return number;
        }
    }
    0
}

pub(crate) fn router(served: Served) -> Router {
    Router::new()
        .route("/jsonrpc", post(json_rpc))
        .route("/wallet/{method}", post(wallet))
        .route("/walletsolidity/{method}", post(wallet_solidity))
        .with_state(served)
}

async fn json_rpc(State(served): State<Served>, body: Bytes) -> Response {
    respond(&served, &body, rpc::call).await
}

async fn wallet(state: State<Served>, method: Path<String>, body: Bytes) -> Response {
    http(&state, &method, &body, false)
}

async fn wallet_solidity(state: State<Served>, method: Path<String>, body: Bytes) -> Response {
    http(&state, &method, &body, true)
}

fn http(served: &Served, method: &str, body: &[u8], is_solid: bool) -> Response {
    // No body is as good as an empty object.
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let (status, text) = native::answer(&served.chain, method, &body, is_solid);
    as_is(status, text)
}

#[cfg(test)]
mod tests {
    use crate::{Chain, Config};

    pub(super) fn chain() -> Chain {
        let config = Config { chain_id: 728_126_428, block_interval_secs: 3, ..Config::default() };
        Chain::new(config).unwrap()
    }

    #[test]
    fn nineteen_witnesses_build_on_a_solidified_block() {
        let chain = chain();
        chain.mine(18).unwrap();
        assert_eq!(chain.solidified(), 0);
        chain.mine(1).unwrap();
        assert_eq!(chain.solidified(), 1);
        chain.mine(100).unwrap();
        assert_eq!(chain.solidified(), 119 - 18);
    }

    #[test]
    fn a_missed_slot_delays_it() {
        let chain = chain();
        chain.mine(30).unwrap();
        let before = chain.head();
        chain.skip_slots(1).unwrap();
        chain.mine(1).unwrap();
        assert_eq!(chain.head().timestamp - before.timestamp, 6);
        assert_eq!(chain.solidified(), 31 - 18);
        // 20 slots are missed: the next witnesses are among those that built last.
        chain.skip_slots(20).unwrap();
        chain.mine(1).unwrap();
        assert_eq!(chain.solidified(), 31 - 18);
        chain.mine(40).unwrap();
        assert_eq!(chain.solidified(), 72 - 18);
    }
}
