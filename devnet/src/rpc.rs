//! The JSON-RPC methods: one request in, one answer out.

use std::collections::HashSet;

use alloy_primitives::{Address, B256, U256};
use serde_json::{Value, json};

use crate::block::{Block, hex_of};
use crate::filter::Filter;
use crate::param::{
    BlockTag, Params, RpcError, parse_address, parse_bytes, parse_count, parse_hash, parse_value,
};
use crate::{Chain, Reorg, Token, TransferCall, view};

/// Most calls in one JSON-RPC batch.
const BATCH_COUNT_MAX: usize = 1_000;
/// Name under which calls of unknown methods are counted.
const UNKNOWN: &str = "unknown";

/// Function that answers one JSON-RPC request.
pub(crate) type Method = fn(&Chain, &Value) -> Result<Value, RpcError>;

type Handler = fn(&Chain, Params<'_>) -> Result<Value, RpcError>;

const BLOCK_RECEIPTS: &str = "eth_getBlockReceipts";
/// Every method that the chain answers.
const METHODS: [(&str, Handler); 16] = [
    ("eth_chainId", |chain, _| Ok(json!(view::quantity(chain.ledger().config().chain_id)))),
    ("net_version", |chain, _| Ok(json!(chain.ledger().config().chain_id.to_string()))),
    ("web3_clientVersion", |_, _| {
        Ok(json!(concat!("tidemark-devnet/", env!("CARGO_PKG_VERSION"))))
    }),
    ("eth_syncing", |_, _| Ok(json!(false))),
    ("eth_blockNumber", |chain, _| Ok(json!(view::quantity(chain.head().number)))),
    ("eth_getBlockByNumber", block_by_number),
    ("eth_getBlockByHash", block_by_hash),
    ("eth_getLogs", logs),
    ("eth_getTransactionReceipt", transaction_receipt),
    (BLOCK_RECEIPTS, block_receipts),
    ("eth_getCode", code),
    ("eth_call", call),
    ("devnet_transfer", transfer),
    ("devnet_mine", mine),
    ("devnet_reorg", reorg),
    ("evm_setNextBlockTimestamp", set_next_timestamp),
];

/// Counts the calls of a request body, also those that fail; of a batch the first [`BATCH_COUNT_MAX`].
pub(crate) fn count(chain: &Chain, body: &Value) {
    let calls = body.as_array().map_or(std::slice::from_ref(body), Vec::as_slice);
    let mut switches = chain.switches();
    for call in calls.iter().take(BATCH_COUNT_MAX) {
        let known = call.get("method").and_then(Value::as_str).and_then(find_method);
        *switches.counts.entry(known.map_or(UNKNOWN, |(name, _)| name)).or_default() += 1;
    }
}

/// Answers a single request or a batch. With a `refusal`, every call is answered with that error.
pub(crate) fn answer(
    chain: &Chain,
    body: &Value,
    method: Method,
    refusal: Option<&RpcError>,
) -> Value {
    let refuse = |message| envelope(&Value::Null, Err(RpcError::new(-32600, message)));
    match body.as_array() {
        None => answer_one(chain, body, method, refusal),
        Some(requests) if requests.is_empty() => refuse("empty batch"),
        Some(requests) if requests.len() > BATCH_COUNT_MAX => refuse("batch too large"),
        Some(requests) => {
            requests.iter().map(|request| answer_one(chain, request, method, refusal)).collect()
        }
    }
}

/// The answer to a body that is not JSON.
pub(crate) fn parse_error() -> Value {
    envelope(&Value::Null, Err(RpcError::new(-32700, "parse error")))
}

/// Answers one request. Without an id the answer has the id null.
fn answer_one(chain: &Chain, request: &Value, method: Method, refusal: Option<&RpcError>) -> Value {
    let id = request.get("id").unwrap_or(&Value::Null);
    let outcome = match refusal {
        Some(refusal) => Err(refusal.clone()),
        None => method(chain, request),
    };
    envelope(id, outcome)
}

fn envelope(id: &Value, outcome: Result<Value, RpcError>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error.to_json() }),
    }
}

fn find_method(name: &str) -> Option<&'static (&'static str, Handler)> {
    METHODS.iter().find(|(known, _)| *known == name)
}

/// Answers one request as an EVM node does.
pub(crate) fn call_method(chain: &Chain, request: &Value) -> Result<Value, RpcError> {
    let name = request.get("method").and_then(Value::as_str);
    let name = name.ok_or_else(|| RpcError::new(-32600, "invalid request"))?;
    let is_refused = name == BLOCK_RECEIPTS && chain.switches().refuses_block_receipts;
    let (_, method) = find_method(name).filter(|_| !is_refused).ok_or_else(|| {
        let message = format!("the method {name} does not exist/is not available");
        RpcError::new(-32601, message)
    })?;
    method(chain, Params::parse(request.get("params"))?)
}

fn block_by_number(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let tag = BlockTag::parse(params.required(0)?)?;
    let ledger = chain.ledger();
    if tag == BlockTag::Pending {
        return Ok(view::pending_block(&ledger.pending_block()));
    }
    Ok(ledger.block(tag.number(&ledger)).map_or(Value::Null, view::block))
}

fn block_by_hash(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let hash = parse_hash(params.required(0)?)?;
    Ok(chain.ledger().block_by_hash(hash).map_or(Value::Null, view::block))
}

fn logs(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let filter = Filter::parse(params.required(0)?)?;
    let (limits, unindexed) = {
        let switches = chain.switches();
        (switches.log_limits, switches.unindexed.clone())
    };
    let ledger = chain.ledger();
    let logs = filter.select(&ledger, limits)?;
    let indexed = logs.iter().filter(|log| !unindexed.contains(&log.transaction_hash));
    Ok(indexed.map(view::log).collect())
}

fn transaction_receipt(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let hash = parse_hash(params.required(0)?)?;
    let failed = chain.switches().failed.clone();
    let ledger = chain.ledger();
    let mut receipt = ledger.place(hash).and_then(|(block, index)| view::receipt(block, index));
    fail(receipt.as_mut_slice(), &failed);
    Ok(receipt.unwrap_or(Value::Null))
}

/// Sets the status 0, a failure, in the receipts of failed transactions.
fn fail(receipts: &mut [Value], failed: &HashSet<B256>) {
    for receipt in receipts {
        if parse_hash(&receipt["transactionHash"]).is_ok_and(|hash| failed.contains(&hash)) {
            receipt["status"] = json!("0x0");
        }
    }
}

/// Takes a number, a tag or a block hash.
fn block_receipts(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let which = params.required(0)?;
    let failed = chain.switches().failed.clone();
    let ledger = chain.ledger();
    let block: Option<&Block> = match parse_hash(which) {
        Ok(hash) => ledger.block_by_hash(hash),
        Err(_) => ledger.block(BlockTag::parse(which)?.number(&ledger)),
    };
    let mut receipts = block.map(view::receipts);
    fail(receipts.as_deref_mut().unwrap_or_default(), &failed);
    Ok(receipts.map_or(Value::Null, Value::Array))
}

/// Placeholder code of a token: the bytes are `PUSH0 PUSH0 REVERT`.
fn code(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let address = parse_address(params.required(0)?)?;
    let is_token = chain.ledger().config().token(address).is_some();
    Ok(json!(if is_token { "0x5f5ffd" } else { "0x" }))
}

/// Answers the three read methods of a token. Balances are those after the requested block.
fn call(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let request = params.required(0)?;
    let member = |name| request.get(name).filter(|value: &&Value| !value.is_null());
    let missing = |name: &str| RpcError::invalid_params(format!("missing {name} in the call"));
    let to = parse_address(member("to").ok_or_else(|| missing("to"))?)?;
    let input = member("input").or(member("data")).ok_or_else(|| missing("input"))?;
    let input = parse_bytes(input)?;
    let has_states = !chain.switches().forgets_states;
    let ledger = chain.ledger();
    let tag = params.optional(1).map_or(Ok(BlockTag::Latest), BlockTag::parse)?;
    let number = tag.number(&ledger);
    if number < ledger.head().id.number && !has_states {
        return Err(RpcError::new(-32000, "missing trie node"));
    }
    let Some(token) = ledger.config().token(to) else { return Ok(json!("0x")) };
    let output = match (input.get(..4), input.get(16..36)) {
        (Some([0x31, 0x3c, 0xe5, 0x67]), _) => word(U256::from(token.decimals)),
        (Some([0x95, 0xd8, 0x9b, 0x41]), _) => symbol_output(token),
        (Some([0x70, 0xa0, 0x82, 0x31]), Some(owner)) => {
            word(ledger.balance_at(to, Address::from_slice(owner), number))
        }
        _ => return Err(RpcError::new(3, "execution reverted")),
    };
    Ok(json!(hex_of(output)))
}

fn word(value: U256) -> Vec<u8> {
    value.to_be_bytes::<32>().to_vec()
}

/// An ABI string: offset, length, bytes padded to whole words.
fn symbol_output(token: &Token) -> Vec<u8> {
    let text = token.symbol.as_bytes();
    let mut output = word(U256::from(32));
    output.extend(word(U256::from(text.len())));
    output.extend(text);
    output.resize(64 + text.len().next_multiple_of(32), 0);
    output
}

/// Takes `[{token, from, to, value}]`, the value in the smallest units.
fn transfer(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let request = params.required(0)?;
    let member = |name: &str| {
        let member = request.get(name);
        member.ok_or_else(|| RpcError::invalid_params(format!("missing {name} in the transfer")))
    };
    let call = TransferCall {
        token: parse_address(member("token")?)?,
        from: parse_address(member("from")?)?,
        to: parse_address(member("to")?)?,
        value: parse_value(member("value")?)?,
    };
    Ok(json!(hex_of(chain.batch(vec![call])?)))
}

/// Takes `[count]`, 1 if absent.
fn mine(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let count = params.optional(0).map_or(Ok(1), parse_count)?;
    Ok(chain.mine(count)?.into_iter().map(hex_of).collect())
}

/// Takes `[depth]`; every transaction is kept. Returns the hashes of the new blocks.
fn reorg(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    let depth = parse_count(params.required(0)?)?;
    let added = chain.reorg(depth, Reorg::Keep)?.added;
    Ok(added.into_iter().map(|block| hex_of(block.hash)).collect())
}

/// Takes `[timestamp]` in Unix seconds.
fn set_next_timestamp(chain: &Chain, params: Params<'_>) -> Result<Value, RpcError> {
    chain.set_next_timestamp(parse_count(params.required(0)?)?)?;
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const USDC: &str = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48";
    const OWNER: &str = "0x00000000000000000000000000000000000000ee";
    const OTHER: &str = "0x00000000000000000000000000000000000000ff";

    fn chain() -> Chain {
        let address = USDC.parse().unwrap();
        let config = Config {
            chain_id: 137,
            genesis_timestamp: 1_000,
            block_interval_secs: 2,
            finalized_depth: 4,
            tokens: vec![Token { address, decimals: 6, symbol: "USDC".to_owned() }],
            ..Config::default()
        };
        Chain::new(config).unwrap()
    }

    /// The result, or the error code.
    fn ask(chain: &Chain, method: &str, params: Value) -> Result<Value, i64> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut answer = answer(chain, &body, call_method, None);
        assert_eq!(answer["id"], 1);
        match answer["error"]["code"].as_i64() {
            Some(code) => Err(code),
            None => Ok(answer["result"].take()),
        }
    }

    fn transfer_params(value: Value) -> Value {
        json!([{ "token": USDC, "from": OWNER, "to": OTHER, "value": value }])
    }

    #[test]
    fn a_fresh_chain_describes_itself() {
        let chain = chain();
        assert_eq!(ask(&chain, "eth_chainId", json!([])), Ok(json!("0x89")));
        assert_eq!(ask(&chain, "net_version", Value::Null), Ok(json!("137")));
        assert_eq!(ask(&chain, "eth_syncing", json!([])), Ok(json!(false)));
        assert_eq!(ask(&chain, "eth_blockNumber", json!([])), Ok(json!("0x0")));
        assert_eq!(ask(&chain, "eth_nothing", json!([])), Err(-32601));
        assert_eq!(ask(&chain, "eth_chainId", json!({})), Err(-32602));
    }

    #[test]
    fn blocks_are_found_by_number_tag_and_hash() {
        let chain = chain();
        chain.mine(5).unwrap();
        let number = |tag: &str| {
            ask(&chain, "eth_getBlockByNumber", json!([tag, false])).unwrap()["number"].take()
        };
        let tags = ["earliest", "finalized", "safe", "latest", "pending", "0x4"];
        assert_eq!(tags.map(number), ["0x0", "0x1", "0x3", "0x5", "0x6", "0x4"].map(Value::from));
        assert_eq!(ask(&chain, "eth_getBlockByNumber", json!(["0x6", false])), Ok(Value::Null));
        assert_eq!(ask(&chain, "eth_getBlockByNumber", json!([])), Err(-32602));
        let block = ask(&chain, "eth_getBlockByNumber", json!(["0x4", true])).unwrap();
        assert_eq!(block["timestamp"], "0x3f0");
        let by_hash = ask(&chain, "eth_getBlockByHash", json!([block["hash"], false]));
        assert_eq!(by_hash, Ok(block.clone()));
        chain.reorg(2, Reorg::Keep).unwrap();
        let gone = ask(&chain, "eth_getBlockByHash", json!([block["hash"], false]));
        assert_eq!(gone, Ok(Value::Null));
        let pending = ask(&chain, "eth_getBlockByNumber", json!(["pending", false])).unwrap();
        assert_eq!(pending["hash"], Value::Null);
    }

    #[test]
    fn control_methods_make_a_transfer() {
        let chain = chain();
        assert_eq!(ask(&chain, "evm_setNextBlockTimestamp", json!([2_000])), Ok(Value::Null));
        assert_eq!(ask(&chain, "evm_setNextBlockTimestamp", json!([5])), Err(-32000));
        let tx = ask(&chain, "devnet_transfer", transfer_params(json!("0x10"))).unwrap();
        assert_eq!(ask(&chain, "eth_getTransactionReceipt", json!([tx])), Ok(Value::Null));
        let mined = ask(&chain, "devnet_mine", json!([])).unwrap();
        assert_eq!(mined.as_array().unwrap().len(), 1);
        let receipt = ask(&chain, "eth_getTransactionReceipt", json!([tx])).unwrap();
        let logs = ask(&chain, "eth_getLogs", json!([{ "address": USDC }])).unwrap();
        assert_eq!(receipt["status"], "0x1");
        assert_eq!(receipt["logs"], logs);
        assert_eq!(logs[0]["blockHash"], mined[0]);
        assert_eq!(logs[0]["blockTimestamp"], "0x7d0");
        assert_eq!(logs[0]["transactionHash"], tx);
        assert_eq!(logs[0]["data"], hex_of(word(U256::from(16))));
        assert_eq!(logs[0]["removed"], false);
        for which in [json!("latest"), json!("0x1"), mined[0].clone()] {
            let receipts = ask(&chain, "eth_getBlockReceipts", json!([which]));
            assert_eq!(receipts, Ok(json!([receipt])));
        }
        chain.fail_transaction(parse_hash(&tx).unwrap());
        let failed = ask(&chain, "eth_getTransactionReceipt", json!([tx])).unwrap();
        assert_eq!(failed["status"], "0x0");
        assert_eq!(ask(&chain, "eth_getBlockReceipts", json!(["0x1"])), Ok(json!([failed])));
        let added = ask(&chain, "devnet_reorg", json!(["0x1"])).unwrap();
        assert_eq!(added.as_array().unwrap().len(), 2);
        let moved = ask(&chain, "eth_getTransactionReceipt", json!([tx])).unwrap();
        assert_eq!(moved["blockHash"], added[0]);
        assert_eq!(ask(&chain, "devnet_reorg", json!([9])), Err(-32000));
        assert_eq!(ask(&chain, "devnet_transfer", json!([{ "token": USDC }])), Err(-32602));
    }

    #[test]
    fn tokens_answer_their_read_methods() {
        let chain = chain();
        ask(&chain, "devnet_transfer", transfer_params(json!(25))).unwrap();
        chain.mine(1).unwrap();
        let call = |to: &str, name: &str, input: String| {
            ask(&chain, "eth_call", json!([{ "to": to, name: input }, "latest"]))
        };
        let number = |number: u64| Ok(json!(hex_of(word(U256::from(number)))));
        assert_eq!(call(USDC, "data", "0x313ce567".to_owned()), number(6));
        let symbol = call(USDC, "input", "0x95d89b41".to_owned()).unwrap();
        let expected = format!("0x{:064x}{:064x}{:0<64}", 32, 4, "55534443");
        assert_eq!(symbol, json!(expected));
        let balance = |owner: &str| format!("0x70a08231{:0>64}", &owner[2..]);
        assert_eq!(call(USDC, "data", balance(OTHER)), number(25));
        assert_eq!(call(USDC, "data", balance(OWNER)), number(0));
        assert_eq!(call(USDC, "data", "0x70a08231".to_owned()), Err(3));
        assert_eq!(call(USDC, "data", "0x12345678".to_owned()), Err(3));
        assert_eq!(call(OWNER, "data", "0x313ce567".to_owned()), Ok(json!("0x")));
        assert_eq!(ask(&chain, "eth_getCode", json!([USDC, "latest"])), Ok(json!("0x5f5ffd")));
        assert_eq!(ask(&chain, "eth_getCode", json!([OWNER, "latest"])), Ok(json!("0x")));
    }

    #[test]
    fn a_batch_is_answered_in_order_within_its_bound() {
        let chain = chain();
        let request = |id, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method });
        let body = json!([request(1, "eth_blockNumber"), request(2, "nothing"), 3]);
        count(&chain, &body);
        let answers = answer(&chain, &body, call_method, None);
        assert_eq!(answers[0]["result"], "0x0");
        assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(2), &json!(-32601)));
        assert_eq!(answers[2]["error"]["code"], -32600);
        assert_eq!(chain.request_count("eth_blockNumber"), 1);
        assert_eq!(chain.request_count(UNKNOWN), 2);
        assert_eq!(answer(&chain, &json!([]), call_method, None)["error"]["code"], -32600);
        let large = Value::from(vec![request(1, "eth_chainId"); BATCH_COUNT_MAX + 1]);
        assert_eq!(answer(&chain, &large, call_method, None)["error"]["code"], -32600);
        let refusal = RpcError::new(-32005, "slow down");
        let refused = answer(&chain, &body, call_method, Some(&refusal));
        assert_eq!(refused[0]["error"], json!({ "code": -32005, "message": "slow down" }));
        assert_eq!(refused.as_array().unwrap().len(), 3);
    }
}
