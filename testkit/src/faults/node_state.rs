//! State that the endpoints of a chain share, and its form in JSON-RPC.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::Notify;

/// State that the endpoints of a chain share.
#[derive(Debug, Default)]
pub struct NodeState {
    parts: Mutex<Parts>,
    /// Notified when the chain's time is set.
    changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Parts {
    /// URL of the chain's own node.
    pub(super) chain: String,
    /// URL of a node that stayed on an orphaned fork.
    pub(super) stale: Option<String>,
    /// URL of a node of another chain.
    pub(super) foreign: Option<String>,
    /// The chain's time.
    now: i64,
    height: u64,
    /// Arrival time of the newest block.
    newest: i64,
    /// Height and arrival time of each block, by its hash.
    born: HashMap<String, (u64, i64)>,
    removed: Option<Value>,
}

impl NodeState {
    /// State for the node at this URL.
    pub fn of(chain: &str) -> Self {
        let node_state = Self::default();
        node_state.parts().chain = chain.to_owned();
        node_state
    }

    pub(super) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_stale(&self, url: Option<String>) {
        self.parts().stale = url;
    }

    pub fn set_foreign(&self, url: String) {
        self.parts().foreign = Some(url);
    }

    /// Sets the log that endpoints with `Fault::Removed` include.
    pub fn set_removed(&self, log: Option<Value>) {
        self.parts().removed = log;
    }

    pub fn set_now(&self, now: i64) {
        self.parts().now = now;
        self.changed.notify_waiters();
    }

    pub(super) fn now(&self) -> i64 {
        self.parts().now
    }

    pub(super) fn height(&self) -> u64 {
        self.parts().height
    }

    pub(super) fn removed(&self) -> Option<Value> {
        let mut log = self.parts().removed.clone()?;
        log["removed"] = json!(true);
        Some(log)
    }

    /// Records that a block arrives now.
    pub fn mined(&self, number: u64, hash: &str) {
        let mut parts = self.parts();
        let now = parts.now;
        parts.height = number;
        parts.newest = now;
        parts.born.insert(hash.to_owned(), (number, now));
    }

    /// Waits until the newest block has this age, in seconds. `seconds` may change meanwhile.
    pub(super) async fn head_is_old(&self, seconds: impl Fn() -> i64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let age = {
                let parts = self.parts();
                parts.now - parts.newest
            };
            if age >= seconds() {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn born(&self, hash: &str) -> Option<(u64, i64)> {
        self.parts().born.get(hash).copied()
    }
}

/// The log of a transfer, as JSON.
pub fn invented(block: (u64, &str), transaction: &str, parties: [&str; 3], units: u128) -> Value {
    let [token, from, to] = parties.map(|address| address.trim_start_matches("0x").to_lowercase());
    let (number, hash) = block;
    json!({
        "address": format!("0x{token}"),
        "topics": [
            format!("0x{TRANSFER}"), format!("0x{from:0>64}"), format!("0x{to:0>64}"),
        ],
        "data": format!("0x{units:064x}"),
        "blockNumber": format!("{number:#x}"), "blockHash": hash,
        "transactionHash": transaction, "transactionIndex": "0x3e7", "logIndex": "0x3e7",
        "removed": false,
    })
}

/// Topic hash of ERC-20's `Transfer` event.
pub(super) const TRANSFER: &str =
    "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

/// Parses a number as JSON-RPC writes it.
pub(super) fn hex_number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}
