//! JSON-RPC as it travels: calls out, replies in. Every field from outside is checked here.

use std::time::Duration;

use schemas::record::Block;
use schemas::{Address, BlockHash, Hash, TxHash, UnixSeconds};
use serde::Deserialize;
use serde::de::DeserializeOwned;
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
    pub(super) fn receipt(transaction: TxHash) -> Self {
        Self { method: "eth_getTransactionReceipt", params: json!([transaction]) }
    }

    pub(super) fn code(contract: Address) -> Self {
        Self { method: "eth_getCode", params: json!([hex(contract), "latest"]) }
    }

    /// A call without arguments.
    pub(super) fn view(contract: Address, selector: &str) -> Self {
        let call = json!({ "to": hex(contract), "data": selector });
        Self { method: "eth_call", params: json!([call, "latest"]) }
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
}

/// A number as JSON-RPC writes it.
pub(super) fn quantity(number: i64) -> String {
    format!("{number:#x}")
}

/// The body of a request; ids are positions. A single call is no batch: some endpoints take none.
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
    let text = || String::from_utf8_lossy(body.get(..400).unwrap_or(body)).into_owned();
    let reply: Value = serde_json::from_slice(body).map_err(|_| Failure::from_body(&text()))?;
    let replies = if let Value::Array(replies) = reply {
        replies
    } else if count == 1 && reply.is_object() {
        vec![reply]
    } else {
        // One error for the whole batch, or no JSON-RPC.
        let refused = reply.get("error").map(error);
        return Err(refused.unwrap_or_else(|| Failure::from_body(&text())));
    };
    let mut results: Vec<Option<Result<Value, Failure>>> = vec![None; count];
    for mut reply in replies {
        let id = reply.get("id").and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
        let refused = reply.get("error").filter(|error| !error.is_null()).map(error);
        let result = reply.get_mut("result").map(Value::take);
        match (id.and_then(|id| results.get_mut(id)), refused, result) {
            (Some(slot), Some(failure), _) => *slot = Some(Err(failure)),
            (Some(slot), None, Some(result)) => *slot = Some(Ok(result)),
            // Refused before its calls were read.
            (None, Some(failure), _) => return Err(failure),
            _ => return Err(Failure::from_body(&text())),
        }
    }
    let all: Option<Vec<_>> = results.into_iter().collect();
    all.ok_or_else(|| Failure::new(Refusal::Transient, "a call of the batch was not answered"))
}

/// The result of a single call, parsed as what it is to be.
pub(super) fn result<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    #[derive(Deserialize)]
    struct Reply<T> {
        result: Option<T>,
        error: Option<Value>,
    }
    let text = || String::from_utf8_lossy(body.get(..400).unwrap_or(body)).into_owned();
    let reply: Reply<T> = serde_json::from_slice(body).map_err(|_| Failure::from_body(&text()))?;
    match reply {
        Reply { error: Some(refused), .. } => Err(error(&refused)),
        Reply { result: Some(result), .. } => Ok(result),
        Reply { .. } => Err(Failure::from_body(&text())),
    }
}

/// A pause that an endpoint asks for, if it is one.
fn pause_of(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().map(|pause| pause.min(RETRY_AFTER_MAX))
}

fn error(error: &Value) -> Failure {
    let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    // Some put the words that separate range from rate into `data`.
    let data = error.get("data").and_then(Value::as_str).unwrap_or_default();
    let failure = Failure::from_rpc(code, format!("{message} {data}").trim());
    // Infura's way to say it.
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

/// The part of a receipt that a block is read by.
#[derive(Deserialize)]
pub(super) struct WireLogs {
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
pub(super) struct Listed {
    pub(super) block: Block,
    pub(super) transactions: Vec<TxHash>,
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

/// The logs without those whose value is zero: anybody can make any number of them.
pub(super) fn block_logs(list: Vec<WireLog>) -> Result<Vec<EventLog>, Failure> {
    let with_value = list.into_iter().filter(|wire| {
        let digits = wire.data.strip_prefix("0x").unwrap_or(&wire.data);
        digits.len() != 64 || digits.bytes().any(|digit| digit != b'0')
    });
    let logs: Option<Vec<_>> = with_value.map(event).collect();
    logs.ok_or_else(|| malformed("logs", &"a field does not parse"))
}

/// All logs of a block, whatever was asked for.
pub(super) fn receipt_logs(receipts: Vec<WireLogs>) -> Result<Vec<EventLog>, Failure> {
    block_logs(receipts.into_iter().flat_map(|receipt| receipt.logs).collect())
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
    let succeeded = match parse_quantity(&wire.status) {
        Some(1) => true,
        Some(0) => false,
        _ => return Err(malformed("receipt", &"the status is neither 0 nor 1")),
    };
    // Most are of other contracts, and need not parse.
    let logs = wire.logs.into_iter().filter_map(|log| event(serde_json::from_value(log).ok()?));
    Ok(Some(Receipt { block_hash: wire.block_hash, succeeded, logs: logs.collect() }))
}

/// An address as nodes write it, those of Tron included.
pub(super) fn hex(address: Address) -> String {
    alloy_primitives::hex::encode_prefixed(address.bytes())
}

/// Bytes, none if there are none.
pub(super) fn output(value: &Value) -> Result<Option<Vec<u8>>, Failure> {
    let output = value.as_str().and_then(bytes).ok_or_else(|| malformed("output", &"not bytes"))?;
    Ok(Some(output).filter(|output| !output.is_empty()))
}

/// A number of one word; none for anything else.
pub(super) fn small_number(output: &[u8]) -> Option<u8> {
    let (number, zeros) = output.split_last()?;
    (output.len() == 32 && zeros.iter().all(|byte| *byte == 0)).then_some(*number)
}

/// A text: an ABI string, or the 32 bytes that some old tokens answer.
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
    // The parser of the standard library would take a sign.
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    i64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0xabababababababababababababababababababababababababababababababab";

    fn block_json() -> Value {
        json!({
            "number": "0x10", "hash": HASH, "parentHash": HASH, "timestamp": "0x6553f100",
            "stateRoot": "0x", "gasLimit": 5,
        })
    }

    fn log_json() -> Value {
        json!({
            "address": "0x00000000000000000000000000000000000000AA", "topics": [HASH],
            "data": "0x0102", "blockNumber": "0x10", "blockHash": HASH, "transactionHash": HASH,
            "transactionIndex": "0x0", "logIndex": "0x7", "removed": false,
        })
    }

    #[test]
    fn blocks_need_four_fields_and_tolerate_the_rest() {
        let header = header(block_json()).unwrap().unwrap();
        assert_eq!((header.block.number, header.block.timestamp.0), (16, 1_700_000_000));
        assert_eq!(header.block.hash, Hash([0xab; 32]));
        assert_eq!(super::header(Value::Null), Ok(None));
        for (field, value) in [
            ("number", json!(16)),
            ("number", json!("16")),
            ("number", json!("0x")),
            ("number", json!("0x+1")),
            ("number", json!("0xffffffffffffffff")),
            ("hash", json!("0x12")),
            ("hash", Value::Null),
            ("parentHash", json!(5)),
        ] {
            let mut broken = block_json();
            broken[field] = value;
            let failure = super::header(broken.clone()).unwrap_err();
            assert_eq!(failure.refusal, Refusal::Transient, "{broken}");
        }
    }

    #[test]
    fn logs_parse_whole_or_not_at_all() {
        let logs = logs(json!([log_json(), log_json()])).unwrap();
        assert_eq!(logs.len(), 2);
        assert_eq!((logs[0].log_index, &logs[0].data[..]), (7, &[1, 2][..]));
        assert_eq!(logs[0].address[19], 0xaa);
        for (field, value) in [
            ("address", json!("0xaa")),
            ("data", json!("0x1")),
            ("logIndex", json!("0x80000000")),
            ("blockNumber", Value::Null),
            ("topics", json!(["0x1"])),
            ("removed", json!("no")),
        ] {
            let mut broken = log_json();
            broken[field] = value;
            assert!(super::logs(json!([log_json(), broken])).is_err(), "{field}");
        }
        assert!(super::logs(Value::Null).is_err());
        let mut worthless = log_json();
        worthless["data"] = json!(format!("0x{}", "0".repeat(64)));
        assert_eq!(super::logs(json!([worthless, log_json()])).unwrap().len(), 1);
    }

    #[test]
    fn single_results_are_what_was_asked_for_or_a_failure() {
        let logs =
            |body: &str| result::<Vec<WireLogs>>(body.as_bytes()).map(|receipts| receipts.len());
        assert_eq!(logs(r#"{"id":0,"result":[{"logs":[],"status":"0x1"}]}"#), Ok(1));
        for (body, refusal) in [
            (r#"{"id":0,"error":{"code":-32000,"message":"unknown block"}}"#, Refusal::Behind),
            (r#"{"Error":"lack of computing resources"}"#, Refusal::Rate),
            (r#"{"id":0,"result":null}"#, Refusal::Transient),
            (r#"{"id":0,"result":[{}]}"#, Refusal::Transient),
            ("<html>", Refusal::Transient),
        ] {
            assert_eq!(logs(body).unwrap_err().refusal, refusal, "{body}");
        }
    }

    #[test]
    fn outputs_of_contracts() {
        let word = |last| [[0; 31].as_slice(), &[last]].concat();
        assert_eq!(output(&json!("0x")), Ok(None));
        assert_eq!(output(&json!("0x0102")), Ok(Some(vec![1, 2])));
        assert!(output(&Value::Null).is_err());
        assert_eq!(small_number(&word(18)), Some(18));
        for other in [vec![1; 32], word(6)[1..].to_vec(), Vec::new()] {
            assert_eq!(small_number(&other), None);
        }
        let string = [word(32), word(4), b"USDC".to_vec(), vec![0; 28]].concat();
        assert_eq!(text(&string), Some("USDC".to_owned()));
        let fixed = [b"DAI".to_vec(), vec![0; 29]].concat();
        assert_eq!(text(&fixed), Some("DAI".to_owned()));
        for other in [[word(32), word(200)].concat(), vec![0xff; 32], b"a\n".to_vec()] {
            assert_eq!(text(&other), None);
        }
    }

    #[test]
    fn receipts_succeeded_or_not() {
        let json = |status: Value| json!({ "blockHash": HASH, "status": status, "logs": [] });
        let block_hash = Hash([0xab; 32]);
        let receipt = |succeeded| Some(Receipt { block_hash, succeeded, logs: Vec::new() });
        assert_eq!(super::receipt(json(json!("0x1"))), Ok(receipt(true)));
        assert_eq!(super::receipt(json(json!("0x0"))), Ok(receipt(false)));
        assert_eq!(super::receipt(Value::Null), Ok(None));
        for status in [json!("0x2"), Value::Null, json!(1)] {
            assert!(super::receipt(json(status)).is_err());
        }
    }

    #[test]
    fn replies_are_matched_by_id() {
        let body = json!([
            { "id": 1, "result": "b" },
            { "id": 0, "error": { "code": -32000, "message": "unknown block" } },
            { "id": 2, "result": null },
        ]);
        let results = results(body.to_string().as_bytes(), 3).unwrap();
        assert_eq!(results[0].as_ref().unwrap_err().refusal, Refusal::Behind);
        assert_eq!(results[1], Ok(json!("b")));
        assert_eq!(results[2], Ok(Value::Null));
    }

    #[test]
    fn a_single_call_is_answered_without_a_batch() {
        let one = |reply: Value| results(reply.to_string().as_bytes(), 1);
        assert_eq!(one(json!({ "id": 0, "result": null })), Ok(vec![Ok(Value::Null)]));
        assert_eq!(one(json!([{ "id": 0, "result": "a" }])), Ok(vec![Ok(json!("a"))]));
        let error = json!({ "code": -32000, "message": "unknown block" });
        let refused = one(json!({ "id": 0, "error": error })).unwrap();
        assert_eq!(refused[0].as_ref().unwrap_err().refusal, Refusal::Behind);
        // Refused before it was read.
        let refused = one(json!({ "id": null, "error": error })).unwrap_err();
        assert_eq!(refused.refusal, Refusal::Behind);
        let tron = one(json!({ "Error": "lack of computing resources" })).unwrap_err();
        assert_eq!(tron.refusal, Refusal::Rate);
    }

    #[test]
    fn batches_that_are_not_answered_as_such() {
        let whole = json!({ "id": null, "error": { "code": -32005, "message": "slow down" } });
        let first = json!([{ "id": null, "error": { "code": -32005, "message": "slow down" } }]);
        for (body, refusal) in [
            (whole.to_string(), Refusal::Rate),
            (first.to_string(), Refusal::Rate),
            (r#"{"Error":"lack of computing resources"}"#.to_owned(), Refusal::Rate),
            (r#"[{"id":0,"result":1}]"#.to_owned(), Refusal::Transient),
            (r#"[{"id":0,"result":1},{"id":9,"result":1}]"#.to_owned(), Refusal::Transient),
            (r#"[{"id":0,"result":1},{"id":1}]"#.to_owned(), Refusal::Transient),
            ("[{\"id\":0".to_owned(), Refusal::Transient),
            (String::new(), Refusal::Transient),
        ] {
            assert_eq!(results(body.as_bytes(), 2).unwrap_err().refusal, refusal, "{body}");
        }
    }

    #[test]
    fn calls_have_the_shape_of_the_standard() {
        let calls = [Call::block(Point::Latest), Call::block(Point::Number(255))];
        let block = |id, which| {
            let method = "eth_getBlockByNumber";
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": [which, false] })
        };
        assert_eq!(body(&calls), json!([block(0, "latest"), block(1, "0xff")]));
        assert_eq!(body(&calls[..1]), block(0, "latest"));
    }
}
