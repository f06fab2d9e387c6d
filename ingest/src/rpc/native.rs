//! Tron's native HTTP interface, a second source beside JSON-RPC: the solidified block, and the outcomes of a
//! block's transactions (decision 37).
//!
//! Its format differs: no `0x`, times in milliseconds, errors with HTTP status 200, outcomes without the block's hash.
//! Outcomes are therefore compared with the transactions that JSON-RPC lists in the block.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use alloy_primitives::hex;
use schemas::record::Block;
use schemas::{BlockHash, Hash, TxHash, UnixSeconds};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::block::BLOCK_BYTES_MAX;
use super::outcome::OutcomeLogs;
use super::support::Support;
use super::wire::{self, Listed};
use super::{Endpoint, Failure};
use crate::config::NativeConfig;
use crate::machine::{Answer, Ask, EventLog, Header, Outcome, Point, Proof, Receipt, Refusal};

/// The newest solidified block, without its transactions.
const BLOCK: &str = "walletsolidity/getblock";
/// The outcomes of all transactions of a solidified block; an empty list for any other block.
const INFOS: &str = "walletsolidity/gettransactioninfobyblocknum";

#[derive(Debug)]
pub(super) struct Native {
    config: NativeConfig,
    /// Support of the interface: a guessed address may lack it.
    outcomes: Support,
}

impl Native {
    pub(super) fn new(config: NativeConfig) -> Self {
        Self { config, outcomes: Support::default() }
    }

    fn is_absent(&self) -> bool {
        !self.outcomes.is_expected(Instant::now())
    }
}

impl Endpoint {
    /// Returns `true` if there is a native interface, as far as is known.
    pub(crate) fn has_native(&self) -> bool {
        self.native().is_some()
    }

    /// The native interface, unless it was found missing in the last ten minutes.
    pub(super) fn native(&self) -> Option<&Native> {
        self.native.as_ref().filter(|native| !native.is_absent())
    }

    /// Asks JSON-RPC, and for final blocks the native interface, where there is one.
    pub(super) async fn fetch_by_both(&self, ask: &Ask) -> Result<Answer, Failure> {
        let asks_final = ask.blocks.contains(&Point::Finalized)
            || ask.receipts.iter().any(|outcome| outcome.is_final);
        let native = self.native().filter(|_| asks_final);
        let Some(native) = native else { return self.fetch_at_once(ask).await };
        let mut plain = ask.clone();
        plain.blocks.retain(|point| *point != Point::Finalized);
        plain.receipts.retain(|outcome| !outcome.is_final);
        let plain = self.fetch_at_once(&plain).await?;
        match self.fetch_native(native, ask, plain).await {
            Err(_) if native.is_absent() => self.fetch_at_once(ask).await,
            fetched => fetched,
        }
    }

    /// Adds the native results to the answer of JSON-RPC, at their positions.
    async fn fetch_native(
        &self,
        native: &Native,
        ask: &Ask,
        plain: Answer,
    ) -> Result<Answer, Failure> {
        let mut answer = Answer { logs: plain.logs, ..Answer::default() };
        let mut blocks = plain.blocks.into_iter();
        for point in &ask.blocks {
            answer.blocks.push(match point {
                Point::Finalized => Some(self.fetch_solidified(native).await?),
                Point::Latest | Point::Safe | Point::Number(_) => blocks.next().flatten(),
            });
        }
        let finals = ask.receipts.iter().filter(|outcome| outcome.is_final);
        let proven = self.fetch_finals(native, finals.map(|one| one.number).collect()).await?;
        let mut receipts = plain.receipts.into_iter();
        for outcome in &ask.receipts {
            answer.receipts.push(if outcome.is_final {
                proven.of(outcome)
            } else {
                receipts.next().unwrap_or(Proof::Unknown)
            });
        }
        Ok(answer)
    }

    /// Our logs of the transactions that succeeded, in solidified blocks from one height to another.
    pub(super) async fn fetch_final_logs(
        &self,
        native: &Native,
        from: i64,
        to: i64,
    ) -> Result<OutcomeLogs, Failure> {
        if self.fetch_solidified(native).await?.block.number < to {
            return Err(Failure::new(Refusal::Behind, "the blocks are not solidified yet"));
        }
        let (mut logs, mut read) = (Vec::new(), Vec::new());
        for listed in self.fetch_lists(from..=to).await? {
            let receipts = self.fetch_all_receipts(native, &listed).await?;
            read.push((listed.block.number, listed.block.hash));
            logs.extend(self.moved(receipts));
        }
        Ok((logs, read))
    }

    async fn fetch_solidified(&self, native: &Native) -> Result<Header, Failure> {
        let block: WireBlock = self.ask_native(native, BLOCK, &json!({ "detail": false })).await?;
        block.header().ok_or_else(|| wire::malformed("solidified block", &"a field does not parse"))
    }

    /// The receipts of all transactions of some blocks.
    async fn fetch_finals(
        &self,
        native: &Native,
        numbers: BTreeSet<i64>,
    ) -> Result<Finals, Failure> {
        let mut finals = Finals::default();
        for listed in self.fetch_lists(numbers).await? {
            finals.receipts.extend(self.fetch_all_receipts(native, &listed).await?);
            finals.blocks.insert(listed.block.hash);
        }
        Ok(finals)
    }

    async fn fetch_all_receipts(
        &self,
        native: &Native,
        listed: &Listed,
    ) -> Result<Vec<(TxHash, Receipt)>, Failure> {
        let asked = json!({ "num": listed.block.number });
        receipts(listed, self.ask_native(native, INFOS, &asked).await?)
    }

    async fn ask_native<T: DeserializeOwned>(
        &self,
        native: &Native,
        path: &str,
        body: &Value,
    ) -> Result<T, Failure> {
        let url = native.config.url.at(path);
        let answered = self.post_to(url, body, 1, BLOCK_BYTES_MAX).await;
        let parsed = self.masked(answered.and_then(|body| wire::parse(&body)));
        match &parsed {
            Ok(_) if path == INFOS => native.outcomes.served(),
            Err(failure) if failure.refusal == Refusal::Fatal && !native.config.is_given => {
                if native.outcomes.lacked(Instant::now()) {
                    tracing::warn!(
                        endpoint = self.name,
                        cause = failure.message,
                        "the endpoint serves no /walletsolidity/: its JSON-RPC alone says what is final and what \
                         succeeded; set `native` to an address that serves it, or to \"\" for none"
                    );
                }
            }
            Ok(_) | Err(_) => {}
        }
        parsed
    }
}

/// The final blocks that were asked for, and the receipts of all of their transactions.
#[derive(Default)]
struct Finals {
    blocks: HashSet<BlockHash>,
    receipts: HashMap<TxHash, Receipt>,
}

impl Finals {
    /// Returns the proof of a transaction. Without a receipt, it is unlisted if its block was read, and unknown if
    /// another block is final at its height.
    fn of(&self, outcome: &Outcome) -> Proof {
        match self.receipts.get(&outcome.transaction) {
            Some(receipt) => Proof::Receipt(receipt.clone()),
            None if self.blocks.contains(&outcome.block_hash) => Proof::Unlisted,
            None => Proof::Unknown,
        }
    }
}

#[derive(Deserialize)]
struct WireBlock {
    #[serde(rename = "blockID")]
    id: String,
    block_header: WireHeader,
}

#[derive(Deserialize)]
struct WireHeader {
    raw_data: WireRawHeader,
}

/// Fields that are zero are left out, as everywhere in this interface.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRawHeader {
    #[serde(default)]
    number: i64,
    parent_hash: String,
    /// Milliseconds.
    #[serde(default)]
    timestamp: i64,
}

impl WireBlock {
    fn header(&self) -> Option<Header> {
        let WireRawHeader { number, parent_hash, timestamp } = &self.block_header.raw_data;
        let timestamp = UnixSeconds(timestamp / 1000);
        let block = Block { number: *number, hash: hash(&self.id)?, timestamp };
        Some(Header { block, parent: hash(parent_hash)? })
    }
}

/// Outcome of a transaction.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireInfo {
    id: String,
    #[serde(default)]
    block_number: i64,
    /// Milliseconds.
    #[serde(default, rename = "blockTimeStamp")]
    block_timestamp: i64,
    /// `FAILED`, or absent.
    result: Option<String>,
    #[serde(default)]
    receipt: WireResources,
    #[serde(default)]
    log: Vec<WireLog>,
}

#[derive(Default, Deserialize)]
struct WireResources {
    /// Result of the call of a contract; other transactions have none.
    result: Option<String>,
}

#[derive(Deserialize)]
struct WireLog {
    address: String,
    #[serde(default)]
    topics: Vec<String>,
    #[serde(default)]
    data: String,
}

/// The receipts of a block, if there is one for each of its transactions, in their order.
fn receipts(listed: &Listed, infos: Vec<WireInfo>) -> Result<Vec<(TxHash, Receipt)>, Failure> {
    let (count, listed_count) = (infos.len(), listed.transactions.len());
    if count < listed_count {
        let message = format!("outcomes of {count} of the {listed_count} transactions of a block");
        return Err(Failure::new(Refusal::Behind, message));
    }
    let other = || Failure::new(Refusal::Transient, "the outcomes are of another block");
    if count > listed_count {
        return Err(other());
    }
    let Block { number, timestamp, .. } = listed.block;
    let mut log_index = 0;
    let mut receipts = Vec::with_capacity(count);
    for (transaction, info) in listed.transactions.iter().zip(infos) {
        let is_here = (info.block_number, info.block_timestamp / 1000) == (number, timestamp.0);
        if !is_here || hash(&info.id) != Some(*transaction) {
            return Err(other());
        }
        let has_failed = info.result.is_some_and(|result| result == "FAILED");
        let succeeded = !has_failed && info.receipt.result.as_deref() == Some("SUCCESS");
        let mut logs = Vec::with_capacity(info.log.len());
        for log in &info.log {
            let event = event(log, listed.block, *transaction, log_index);
            logs.push(event.ok_or_else(|| wire::malformed("outcome", &"a log does not parse"))?);
            log_index += 1;
        }
        receipts.push((*transaction, Receipt { block_hash: listed.block.hash, succeeded, logs }));
    }
    Ok(receipts)
}

/// Log with a block-wide index, as in JSON-RPC.
fn event(log: &WireLog, block: Block, tx_hash: TxHash, log_index: i32) -> Option<EventLog> {
    let topics: Option<Vec<[u8; 32]>> = log.topics.iter().map(|t| Some(hash(t)?.0)).collect();
    Some(EventLog {
        address: hex::decode(&log.address).ok()?.try_into().ok()?,
        topics: topics?,
        data: hex::decode(&log.data).ok()?,
        block_number: block.number,
        block_hash: block.hash,
        tx_hash,
        log_index,
        removed: false,
    })
}

fn hash(text: &str) -> Option<Hash> {
    Some(Hash(hex::decode(text).ok()?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
