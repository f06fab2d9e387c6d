//! The HTTP interface: the solidified block, and the outcomes of transactions.

use alloy_primitives::hex;
use serde_json::{Map, Value, json};

use crate::block::{Block, Transaction};
use crate::witness::solidified;
use crate::{Chain, NativeFault};

/// Methods that are served below `/walletsolidity/`.
const METHODS: [&str; 2] = [GET_BLOCK, GET_INFOS];
const GET_BLOCK: &str = "getblock";
const GET_INFOS: &str = "gettransactioninfobyblocknum";

/// Returns status and body of the answer to a request. Nothing above the solidified block is shown.
pub(super) fn answer(chain: &Chain, method: &str, body: &Value) -> (u16, String) {
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
    let newest = solidified(&ledger);
    let block_at = |number| ledger.block(number).filter(|block| block.id.number <= newest);
    let answered = if *method == GET_BLOCK {
        // `getblock` with an `id_or_num` is not supported: the answer is empty.
        block_at(newest).filter(|_| body.get("id_or_num").is_none()).map(block_json)
    } else {
        let infos = |block: &Block| {
            let transactions = block.transactions.iter().take(outcomes_max);
            let has_failed = |tx: &Transaction| failed.contains(&tx.hash);
            transactions.map(|tx| info_json(block, tx, has_failed(tx))).collect()
        };
        let number = body["num"].as_u64().filter(|number| *number > 0);
        number.map(|number| block_at(number).map_or_else(|| json!([]), infos))
    };
    (200, answered.unwrap_or_else(|| json!({})).to_string())
}

/// A block without its transactions.
fn block_json(block: &Block) -> Value {
    let mut raw = Map::new();
    // java-tron omits zero values.
    if block.id.number > 0 {
        raw.insert("number".into(), json!(block.id.number));
    }
    raw.insert("txTrieRoot".into(), json!(hex::encode(block.transactions_root)));
    raw.insert("parentHash".into(), json!(hex::encode(block.parent_hash)));
    raw.insert("version".into(), json!(34));
    raw.insert("timestamp".into(), json!(millis(block)));
    json!({
        "blockID": hex::encode(block.id.hash),
        "block_header": { "raw_data": raw, "witness_signature": hex::encode([0; 65]) },
    })
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
    if has_failed {
        info["result"] = json!("FAILED");
        info["receipt"]["result"] = json!("OUT_OF_TIME");
    }
    info
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, U256};

    use super::*;
    use crate::witness::tests::chain;

    fn ask(chain: &Chain, method: &str, body: Value) -> Value {
        let (status, text) = answer(chain, method, &body);
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
        let infos = |number: i64| ask(&chain, GET_INFOS, json!({ "num": number }));
        assert_eq!((infos(1), infos(9), infos(0)), (json!([]), json!([]), json!({})));
        chain.mine(18).unwrap();
        let found = infos(1);
        assert_eq!([0, 1].map(|at| found[at]["id"].clone()), sent.map(|tx| json!(hex::encode(tx))));
        assert_eq!(found[0]["receipt"]["result"], "SUCCESS");
        assert_eq!(
            (found[1]["result"].clone(), found[1]["log"].as_array().map(Vec::len)),
            (json!("FAILED"), Some(1))
        );
        assert_eq!(found[0]["log"][0]["address"], hex::encode(byte(1)));
        assert_eq!(found[0]["blockTimeStamp"], chain.block(1).unwrap().timestamp * 1_000);
        chain.break_native(Some(NativeFault::FirstOutcomes(1)));
        assert_eq!(infos(1).as_array().map(Vec::len), Some(1));
        chain.break_native(Some(NativeFault::Body { status: 200, text: crate::tron::LITE_NODE }));
        assert_eq!(answer(&chain, GET_INFOS, &json!({ "num": 1 })).1, crate::tron::LITE_NODE);
        assert_eq!(chain.request_count(GET_INFOS), 6);
    }

    #[test]
    fn the_block_is_the_newest_solidified_one() {
        let chain = chain();
        let header = || ask(&chain, GET_BLOCK, json!({}))["block_header"]["raw_data"].take();
        assert!(header().get("number").is_none(), "the genesis block");
        chain.mine(20).unwrap();
        assert_eq!(header()["number"], 2);
        assert_eq!(answer(&chain, "getaccount", &json!({})).0, 404);
    }
}
