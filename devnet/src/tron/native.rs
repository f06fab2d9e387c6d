//! The HTTP interface: blocks, and the outcomes of their transactions.

use alloy_primitives::{Address, B256, hex};
use serde_json::{Map, Value, json};

use crate::block::{Block, Transaction};
use crate::chain::Ledger;
use crate::witness::{solidified, witness};
use crate::{Chain, NativeFault};

/// Methods that are served below both paths.
const METHODS: [&str; 4] = [GET_NOW_BLOCK, GET_BLOCK, GET_BLOCK_BY_NUM, GET_INFOS];
const GET_NOW_BLOCK: &str = "getnowblock";
const GET_BLOCK: &str = "getblock";
const GET_BLOCK_BY_NUM: &str = "getblockbynum";
const GET_INFOS: &str = "gettransactioninfobyblocknum";

/// Returns status and body of the answer to a request. With `is_solid`, nothing above the solidified block is shown.
pub(super) fn answer(chain: &Chain, method: &str, body: &Value, is_solid: bool) -> (u16, String) {
    let Some(method) = METHODS.iter().find(|known| **known == method) else {
        return (404, String::new());
    };
    let fault = {
        let mut switches = chain.switches();
        *switches.counts.entry(method).or_default() += 1;
        switches.native
    };
    let outcomes_max = match fault {
        Some(NativeFault::Body { status, text }) => return (status, text.to_owned()),
        Some(NativeFault::FirstOutcomes(count)) => count,
        None => usize::MAX,
    };
    let failed = chain.switches().failed.clone();
    let ledger = chain.ledger();
    let newest = if is_solid { solidified(&ledger) } else { ledger.head().id.number };
    let block_at =
        |number: Option<u64>| ledger.block(number?).filter(|block| block.id.number <= newest);
    let answered = match *method {
        GET_BLOCK => match wanted(&ledger, body, newest) {
            Ok(number) => {
                let with_transactions = body["detail"].as_bool().unwrap_or_default();
                block_at(number).map(|block| block_json(&ledger, block, with_transactions))
            }
            Err(message) => Some(json!({ "Error": message })),
        },
        GET_INFOS => {
            let infos = |block: &Block| {
                let transactions = block.transactions.iter().take(outcomes_max);
                let has_failed = |tx: &Transaction| failed.contains(&tx.hash);
                transactions.map(|tx| info_json(block, tx, has_failed(tx))).collect()
            };
            let number = body["num"].as_u64().filter(|number| *number > 0);
            number.map(|number| block_at(Some(number)).map_or_else(|| json!([]), infos))
        }
        GET_BLOCK_BY_NUM => {
            let number = body["num"].as_u64().or(Some(0));
            block_at(number).map(|block| block_json(&ledger, block, true))
        }
        _ => block_at(Some(newest)).map(|block| block_json(&ledger, block, true)),
    };
    (200, answered.unwrap_or_else(|| json!({})).to_string())
}

/// The block number for `id_or_num`; none if it is the hash of no block.
fn wanted(ledger: &Ledger, body: &Value, newest: u64) -> Result<Option<u64>, &'static str> {
    let text = body["id_or_num"].as_str().unwrap_or_default();
    if text.is_empty() {
        return Ok(Some(newest));
    }
    if let Ok(number) = text.parse() {
        return Ok(Some(number));
    }
    let hash: B256 = text.parse().map_err(|_| "id must be legal block hash.")?;
    Ok(ledger.block_by_hash(hash).map(|block| block.id.number))
}

/// Hexadecimal form of an account: 41 and its 20 bytes.
fn account(address: Address) -> String {
    format!("41{}", hex::encode(address))
}

fn block_json(ledger: &Ledger, block: &Block, with_transactions: bool) -> Value {
    let mut key = [0; 20];
    key[12..].copy_from_slice(&witness(ledger, block).to_be_bytes());
    let mut raw = Map::new();
    // Zeros are left out.
    if block.id.number > 0 {
        raw.insert("number".into(), json!(block.id.number));
    }
    raw.insert("txTrieRoot".into(), json!(hex::encode(block.transactions_root)));
    raw.insert("witness_address".into(), json!(account(Address::new(key))));
    raw.insert("parentHash".into(), json!(hex::encode(block.parent_hash)));
    raw.insert("version".into(), json!(34));
    raw.insert("timestamp".into(), json!(millis(block)));
    let mut shown = json!({
        "blockID": hex::encode(block.id.hash),
        "block_header": { "raw_data": raw, "witness_signature": hex::encode([0; 65]) },
    });
    if with_transactions && !block.transactions.is_empty() {
        let transactions = block.transactions.iter().map(|transaction| {
            json!({ "txID": hex::encode(transaction.hash), "ret": [{ "contractRet": "SUCCESS" }] })
        });
        shown["transactions"] = transactions.collect();
    }
    shown
}

fn millis(block: &Block) -> u64 {
    block.id.timestamp.saturating_mul(1_000)
}

fn info_json(block: &Block, transaction: &Transaction, has_failed: bool) -> Value {
    let logs = transaction.calls.iter().map(|call| {
        json!({
            "address": hex::encode(call.token),
            "topics": call.topics().map(hex::encode),
            "data": hex::encode(call.value.to_be_bytes::<32>()),
        })
    });
    let mut info = json!({
        "id": hex::encode(transaction.hash),
        "fee": transaction.gas(),
        "blockNumber": block.id.number,
        "blockTimeStamp": millis(block),
        "contractResult": [""],
        "receipt": { "energy_usage_total": transaction.gas(), "result": "SUCCESS" },
        "log": logs.collect::<Vec<_>>(),
    });
    if let Some(call) = transaction.calls.first() {
        info["contract_address"] = json!(account(call.token));
    }
    if has_failed {
        info["result"] = json!("FAILED");
        info["receipt"]["result"] = json!("OUT_OF_TIME");
    }
    info
}

#[cfg(test)]
mod tests {
    use alloy_primitives::U256;

    use super::*;
    use crate::witness::tests::chain;

    fn ask(chain: &Chain, method: &str, body: Value, is_solid: bool) -> Value {
        let (status, text) = answer(chain, method, &body, is_solid);
        assert_eq!(status, 200);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn outcomes_are_in_order_and_of_solidified_blocks() {
        let chain = chain();
        let byte = Address::repeat_byte;
        let pay = |units| chain.transfer(byte(1), byte(2), byte(3), U256::from(units)).unwrap();
        let sent = [pay(5), pay(6)];
        chain.fail_transaction(sent[1]);
        chain.mine(1).unwrap();
        let infos =
            |number: i64, is_solid| ask(&chain, GET_INFOS, json!({ "num": number }), is_solid);
        assert_eq!(
            (infos(1, true), infos(9, false), infos(0, false)),
            (json!([]), json!([]), json!({}))
        );
        let found = infos(1, false);
        assert_eq!([0, 1].map(|at| found[at]["id"].clone()), sent.map(|tx| json!(hex::encode(tx))));
        assert_eq!(found[0]["receipt"]["result"], "SUCCESS");
        assert_eq!(
            (found[1]["result"].clone(), found[1]["log"].as_array().map(Vec::len)),
            (json!("FAILED"), Some(1))
        );
        assert_eq!(found[0]["log"][0]["address"], hex::encode(byte(1)));
        assert_eq!(found[0]["blockTimeStamp"], chain.head().timestamp * 1_000);
        chain.mine(18).unwrap();
        assert_eq!(infos(1, true), found);
        chain.break_native(Some(NativeFault::FirstOutcomes(1)));
        assert_eq!(infos(1, true).as_array().map(Vec::len), Some(1));
        chain.break_native(Some(NativeFault::Body { status: 200, text: crate::tron::LITE_NODE }));
        assert_eq!(answer(&chain, GET_INFOS, &json!({ "num": 1 }), true).1, crate::tron::LITE_NODE);
        assert_eq!(chain.request_count(GET_INFOS), 7);
    }

    #[test]
    fn blocks_are_the_newest_or_the_one_asked_for() {
        let chain = chain();
        chain.mine(20).unwrap();
        let number = |method, body, is_solid| {
            ask(&chain, method, body, is_solid)["block_header"]["raw_data"]["number"].take()
        };
        for method in [GET_NOW_BLOCK, GET_BLOCK] {
            assert_eq!(
                [false, true].map(|solid| number(method, json!({}), solid)),
                [20, 2].map(Value::from)
            );
        }
        let hash = chain.block(2).map(|block| hex::encode(block.hash)).unwrap();
        assert_eq!(number(GET_BLOCK, json!({ "id_or_num": hash }), true), 2);
        assert_eq!(number(GET_BLOCK, json!({ "id_or_num": "3" }), false), 3);
        assert_eq!(ask(&chain, GET_BLOCK, json!({ "id_or_num": "3" }), true), json!({}));
        let error = ask(&chain, GET_BLOCK, json!({ "id_or_num": "x" }), true);
        assert_eq!(error["Error"], "id must be legal block hash.");
        let genesis = ask(&chain, GET_BLOCK_BY_NUM, json!({}), true);
        assert!(genesis["block_header"]["raw_data"].get("number").is_none());
        assert_eq!(answer(&chain, "getaccount", &json!({}), true).0, 404);
    }
}
