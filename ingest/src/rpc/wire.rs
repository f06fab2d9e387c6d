//! Wire format of JSON-RPC: calls and replies. Every field from outside is checked here.

use std::time::Duration;

use schemas::record::Block;
use schemas::{Address, BlockHash, Hash, TxHash, UnixSeconds};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::failure::{Failure, RETRY_AFTER_MAX};
use crate::machine::{EventLog, Header, Point, Receipt, Refusal, Span};

/// One call of a batch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) method: &'static str,
    pub(super) params: Value,
}

impl Call {
    /// A call without parameters.
    pub(super) fn plain(method: &'static str) -> Self {
        Self { method, params: json!([]) }
    }

    pub(super) fn receipt(transaction: TxHash) -> Self {
        Self { method: "eth_getTransactionReceipt", params: json!([transaction]) }
    }

    pub(super) fn code(contract: Address) -> Self {
        Self { method: "eth_getCode", params: json!([hex(contract), "latest"]) }
    }

    /// A call of a contract; `at` is the number of a block, or a tag.
    pub(super) fn view(contract: Address, data: &str, at: &str) -> Self {
        let call = json!({ "to": hex(contract), "data": data });
        Self { method: "eth_call", params: json!([call, at]) }
    }

    /// The receipts of one block, by its hash or its number.
    pub(super) fn block_receipts(span: Span) -> Self {
        let which = match span {
            Span::Block(hash) => json!(hash),
            Span::Range { from, .. } | Span::Receipts { from, .. } => json!(quantity(from)),
        };
        Self { method: "eth_getBlockReceipts", params: json!([which]) }
    }

    pub(super) fn block(point: Point) -> Self {
        let which = match point {
            Point::Latest => json!("latest"),
            Point::Safe => json!("safe"),
            Point::Finalized => json!("finalized"),
            Point::Number(number) => json!(quantity(number)),
        };
        Self { method: "eth_getBlockByNumber", params: json!([which, false]) }
    }

    /// One block of any fork, with the hashes of its transactions.
    pub(super) fn block_of(hash: BlockHash) -> Self {
        Self { method: "eth_getBlockByHash", params: json!([hash, false]) }
    }
}

/// JSON-RPC encoding of a number.
pub(super) fn quantity(number: i64) -> String {
    format!("{number:#x}")
}

/// The body of a request; ids are positions. A single call is sent without a batch: some endpoints
/// refuse batches.
pub(super) fn body(calls: &[Call]) -> Value {
    let mut list = Vec::with_capacity(calls.len());
    for (id, Call { method, params }) in calls.iter().enumerate() {
        list.push(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }
    if list.len() == 1 { list.swap_remove(0) } else { Value::Array(list) }
}

/// The results of a request of `count` calls, in the order of the calls.
///
/// # Errors
/// [`Failure`] if the batch as a whole was refused, or is not answered call by call.
pub(super) fn results(body: &[u8], count: usize) -> Result<Vec<Result<Value, Failure>>, Failure> {
    let reply: Value = parse(body)?;
    let replies = if let Value::Array(replies) = reply {
        replies
    } else if count == 1 && reply.is_object() {
        vec![reply]
    } else {
        // One error for the whole batch, or a body that is not JSON-RPC.
        let refused = reply.get("error").map(error);
        return Err(refused.unwrap_or_else(|| Failure::from_bytes(body)));
    };
    let mut results: Vec<Option<Result<Value, Failure>>> = vec![None; count];
    // Some gateways add an empty reply.
    for mut reply in replies.into_iter().filter(|reply| !reply.is_null()) {
        let id = reply.get("id").and_then(position);
        let refused = reply.get("error").filter(|error| !error.is_null()).map(error);
        let result = reply.get_mut("result").map(Value::take);
        match (id.and_then(|id| results.get_mut(id)), refused, result) {
            (Some(slot), Some(failure), _) => *slot = Some(Err(failure)),
            (Some(slot), None, Some(result)) => *slot = Some(Ok(result)),
            // Refused before its calls were read.
            (None, Some(failure), _) => return Err(failure),
            _ => return Err(Failure::from_bytes(body)),
        }
    }
    let all: Option<Vec<_>> = results.into_iter().collect();
    all.ok_or_else(|| Failure::new(Refusal::Transient, "a call of the batch was not answered"))
}

/// A body in the form of `T`, if it has that form.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|_| Failure::from_bytes(body))
}

/// Position of a reply's call, by its id. Some endpoints return ids as text.
fn position(id: &Value) -> Option<usize> {
    match id.as_str() {
        Some(text) => text.parse().ok(),
        None => usize::try_from(id.as_u64()?).ok(),
    }
}

/// The result of a single call, parsed as `T`, or `None` for `null`.
pub(super) fn result<T: DeserializeOwned>(body: &[u8]) -> Result<Option<T>, Failure> {
    #[derive(Deserialize)]
    #[serde(bound(deserialize = "T: Deserialize<'de>"))]
    struct Reply<T> {
        #[serde(default, deserialize_with = "present")]
        result: Option<Option<T>>,
        error: Option<Value>,
    }
    match parse::<Reply<T>>(body)? {
        Reply { error: Some(refused), .. } => Err(error(&refused)),
        Reply { result: Some(result), .. } => Ok(result),
        Reply { .. } => Err(Failure::from_bytes(body)),
    }
}

/// Reads a field that is present, so that `null` differs from an absent field.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    field: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

/// The pause that an endpoint asks for, if it is a valid duration.
fn pause_of(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().map(|pause| pause.min(RETRY_AFTER_MAX))
}

fn error(error: &Value) -> Failure {
    let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    // With some endpoints only `data` distinguishes a range limit from a rate limit.
    let data = error.get("data").and_then(Value::as_str).unwrap_or_default();
    let failure = Failure::from_rpc(code, format!("{message} {data}").trim());
    // Infura's field for the pause.
    let pause = error.pointer("/data/rate/backoff_seconds").and_then(Value::as_f64);
    Failure { retry_after: pause.and_then(pause_of), ..failure }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBlock {
    number: String,
    hash: Hash,
    parent_hash: Hash,
    timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireLog {
    address: String,
    topics: Vec<Hash>,
    data: String,
    block_number: String,
    block_hash: BlockHash,
    transaction_hash: TxHash,
    log_index: String,
    #[serde(default)]
    removed: bool,
}

/// One of the receipts of a block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireOutcome {
    transaction_hash: TxHash,
    block_number: String,
    block_hash: BlockHash,
    status: String,
    logs: Vec<WireLog>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReceipt {
    block_hash: BlockHash,
    status: String,
    #[serde(default)]
    logs: Vec<Value>,
}

/// A block, or none for `null`.
pub(super) fn header(value: Value) -> Result<Option<Header>, Failure> {
    if value.is_null() {
        return Ok(None);
    }
    let wire: WireBlock = serde_json::from_value(value).map_err(|e| malformed("block", &e))?;
    let (number, timestamp) = (parse_quantity(&wire.number), parse_quantity(&wire.timestamp));
    let (Some(number), Some(timestamp)) = (number, timestamp) else {
        return Err(malformed("block", &"a number is not a quantity"));
    };
    let block = Block { number, hash: wire.hash, timestamp: UnixSeconds(timestamp) };
    Ok(Some(Header { block, parent: wire.parent_hash }))
}

/// A block with its transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) block: Block,
    pub(crate) transactions: Vec<TxHash>,
}

/// A block with the hashes of its transactions, or none for `null`.
pub(super) fn listed(value: Value) -> Result<Option<Listed>, Failure> {
    #[derive(Deserialize)]
    struct WireList {
        transactions: Vec<TxHash>,
    }
    let Some(Header { block, .. }) = header(value.clone())? else { return Ok(None) };
    let list: WireList = serde_json::from_value(value).map_err(|e| malformed("block", &e))?;
    Ok(Some(Listed { block, transactions: list.transactions }))
}

pub(super) fn logs(value: Value) -> Result<Vec<EventLog>, Failure> {
    let list: Vec<WireLog> = serde_json::from_value(value).map_err(|e| malformed("logs", &e))?;
    block_logs(list)
}

/// The logs without those of zero value, which anyone can emit in any number.
pub(super) fn block_logs(list: Vec<WireLog>) -> Result<Vec<EventLog>, Failure> {
    let with_value = list.into_iter().filter(|wire| {
        let digits = wire.data.strip_prefix("0x").unwrap_or(&wire.data);
        digits.len() != 64 || digits.bytes().any(|digit| digit != b'0')
    });
    let logs: Option<Vec<_>> = with_value.map(event).collect();
    logs.ok_or_else(|| malformed("logs", &"a field does not parse"))
}

/// The receipts of the block that was asked for, in its order.
pub(super) fn outcomes(
    span: Span,
    list: Vec<WireOutcome>,
) -> Result<Vec<(TxHash, Receipt)>, Failure> {
    let other = |what| Failure::new(Refusal::Transient, format!("the {what} are of another block"));
    let block = list.first().map(|wire| wire.block_hash);
    let mut outcomes = Vec::with_capacity(list.len());
    for wire in list {
        let WireOutcome { transaction_hash, block_hash, .. } = wire;
        let number = parse_quantity(&wire.block_number);
        let is_asked = match span {
            Span::Block(hash) => hash == block_hash,
            Span::Range { from, .. } | Span::Receipts { from, .. } => number == Some(from),
        };
        if !is_asked || block != Some(block_hash) {
            return Err(other("receipts"));
        }
        let logs = block_logs(wire.logs)?;
        let is_here = |log: &EventLog| {
            (Some(log.block_number), log.block_hash) == (number, block_hash)
                && log.tx_hash == transaction_hash
        };
        if !logs.iter().all(is_here) {
            return Err(other("logs of a receipt"));
        }
        let succeeded = succeeded(&wire.status)?;
        outcomes.push((transaction_hash, Receipt { block_hash, succeeded, logs }));
    }
    Ok(outcomes)
}

fn succeeded(status: &str) -> Result<bool, Failure> {
    match parse_quantity(status) {
        Some(1) => Ok(true),
        Some(0) => Ok(false),
        _ => Err(malformed("receipt", &"the status is neither 0 nor 1")),
    }
}

fn event(wire: WireLog) -> Option<EventLog> {
    Some(EventLog {
        address: bytes(&wire.address)?.try_into().ok()?,
        topics: wire.topics.into_iter().map(|topic| topic.0).collect(),
        data: bytes(&wire.data)?,
        block_number: parse_quantity(&wire.block_number)?,
        block_hash: wire.block_hash,
        tx_hash: wire.transaction_hash,
        log_index: parse_quantity(&wire.log_index)?.try_into().ok()?,
        removed: wire.removed,
    })
}

/// The outcome of a transaction, or none for `null`.
pub(super) fn receipt(value: Value) -> Result<Option<Receipt>, Failure> {
    if value.is_null() {
        return Ok(None);
    }
    let wire: WireReceipt = serde_json::from_value(value).map_err(|e| malformed("receipt", &e))?;
    let succeeded = succeeded(&wire.status)?;
    // Most logs are of other contracts, and need not parse.
    let logs = wire.logs.into_iter().filter_map(|log| event(serde_json::from_value(log).ok()?));
    Ok(Some(Receipt { block_hash: wire.block_hash, succeeded, logs: logs.collect() }))
}

/// An address as nodes write it, those of Tron included.
pub(super) fn hex(address: Address) -> String {
    alloy_primitives::hex::encode_prefixed(address.bytes())
}

/// Bytes, `None` if empty.
pub(super) fn output(value: &Value) -> Result<Option<Vec<u8>>, Failure> {
    let output = value.as_str().and_then(bytes).ok_or_else(|| malformed("output", &"not bytes"))?;
    Ok(Some(output).filter(|output| !output.is_empty()))
}

/// Number in a 32-byte word, if below 256.
pub(super) fn small_number(output: &[u8]) -> Option<u8> {
    let (number, zeros) = output.split_last()?;
    (output.len() == 32 && zeros.iter().all(|byte| *byte == 0)).then_some(*number)
}

/// A text: an ABI string, or the 32 bytes that some old tokens return.
pub(super) fn text(output: &[u8]) -> Option<String> {
    let text = match output.get(32..64).and_then(small_number) {
        Some(length) => output.get(64..64 + usize::from(length))?,
        None => output.split(|byte| *byte == 0).next()?,
    };
    String::from_utf8(text.to_vec()).ok().filter(|text| !text.chars().any(char::is_control))
}

pub(super) fn chain_id(value: &Value) -> Result<u64, Failure> {
    let number = value.as_str().and_then(parse_quantity);
    number
        .and_then(|number| u64::try_from(number).ok())
        .ok_or_else(|| malformed("chain id", &"not a quantity"))
}

pub(super) fn malformed(what: &str, cause: &dyn std::fmt::Display) -> Failure {
    Failure::new(Refusal::Transient, format!("malformed {what}: {cause}"))
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    text.strip_prefix("0x").and_then(|digits| alloy_primitives::hex::decode(digits).ok())
}

fn parse_quantity(text: &str) -> Option<i64> {
    let digits = text.strip_prefix("0x")?;
    // The standard library's parser accepts a sign.
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    i64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests;
