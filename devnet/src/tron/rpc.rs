//! java-tron's JSON-RPC: that of the development chain, with java-tron's deviations.

use alloy_primitives::B256;
use serde_json::{Value, json};

use crate::block::hex_of;
use crate::param::RpcError;
use crate::witness::solidified;
use crate::{Chain, rpc, view};

/// Maximum distance between the first and the last block of one `eth_getLogs`.
const RANGE_BLOCKS_MAX: u64 = 5_000;

pub(super) fn call(chain: &Chain, request: &Value) -> Result<Value, RpcError> {
    let mut request = request.clone();
    let method = request["method"].as_str().unwrap_or_default().to_owned();
    match method.as_str() {
        "eth_getBlockByNumber" => {
            resolve_tag(chain, &mut request["params"][0])?;
            Ok(as_block(rpc::call_method(chain, &request)?))
        }
        "eth_getBlockByHash" => Ok(as_block(rpc::call_method(chain, &request)?)),
        "eth_getBlockReceipts" => {
            resolve_tag(chain, &mut request["params"][0])?;
            let mut receipts = rpc::call_method(chain, &request)?;
            receipts.as_array_mut().into_iter().flatten().for_each(as_receipt);
            Ok(receipts)
        }
        "eth_getTransactionReceipt" => {
            let mut receipt = rpc::call_method(chain, &request)?;
            as_receipt(&mut receipt);
            Ok(receipt)
        }
        "eth_getLogs" => logs(chain, &mut request),
        "eth_call" | "eth_getCode" => match request["params"][1].as_str() {
            Some("latest") => rpc::call_method(chain, &request),
            Some(tag) if !tag.starts_with("0x") => Err(unsupported(tag)),
            _ => {
                Err(RpcError::invalid_params("QUANTITY not supported, just support TAG as latest"))
            }
        },
        "web3_clientVersion" => Ok(json!("TRON/v4.8.2/tidemark-devnet")),
        _ => rpc::call_method(chain, &request),
    }
}

fn unsupported(tag: &str) -> RpcError {
    RpcError::invalid_params(format!("TAG {tag} not supported"))
}

/// Replaces the tag `finalized` by the number of the solidified block, and refuses `safe` and
/// `pending`.
fn resolve_tag(chain: &Chain, tag: &mut Value) -> Result<(), RpcError> {
    match tag.as_str() {
        Some(name @ ("safe" | "pending")) => Err(unsupported(name)),
        Some("finalized") => {
            *tag = json!(view::quantity(solidified(&chain.ledger())));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn logs(chain: &Chain, request: &mut Value) -> Result<Value, RpcError> {
    let filter = &mut request["params"][0];
    let head = chain.head().number;
    let mut bounds = [0, head];
    for (name, bound) in ["fromBlock", "toBlock"].into_iter().zip(&mut bounds) {
        let Some(tag) = filter.get_mut(name) else { continue };
        resolve_tag(chain, tag)?;
        let digits = tag.as_str().and_then(|text| text.strip_prefix("0x"));
        let Some(number) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
            continue;
        };
        *bound = number;
        // java-tron accepts a range that ends beyond the head; `rpc::call_method` would refuse it.
        *tag = json!(view::quantity(number.min(head)));
    }
    let [from, to] = bounds;
    if from > to {
        return Err(RpcError::invalid_params("please verify: fromBlock <= toBlock"));
    }
    if from > head {
        return Ok(json!([]));
    }
    if to.min(head) - from > RANGE_BLOCKS_MAX && filter.get("blockHash").is_none() {
        let message = format!("exceed max block range: {RANGE_BLOCKS_MAX}");
        return Err(RpcError::invalid_params(message));
    }
    rpc::call_method(chain, request).map_err(|error| match error.message.as_str() {
        "unknown block" => RpcError::invalid_params("invalid blockHash"),
        _ => error,
    })
}

fn as_block(mut block: Value) -> Value {
    let Some(fields) = block.as_object_mut() else { return block };
    for name in ["withdrawals", "withdrawalsRoot", "blobGasUsed", "excessBlobGas"] {
        fields.remove(name);
    }
    fields.remove("parentBeaconBlockRoot");
    for name in ["sha3Uncles", "receiptsRoot", "mixHash"] {
        fields.insert(name.into(), json!(hex_of(B256::ZERO)));
    }
    for name in ["gasLimit", "gasUsed", "baseFeePerGas"] {
        fields.insert(name.into(), json!("0x0"));
    }
    fields.insert("stateRoot".into(), json!("0x"));
    fields.insert("logsBloom".into(), json!(no_bloom()));
    fields.insert("nonce".into(), json!(hex_of([0; 8])));
    block
}

fn as_receipt(receipt: &mut Value) {
    if let Some(fields) = receipt.as_object_mut() {
        fields.insert("logsBloom".into(), json!(no_bloom()));
        fields.insert("type".into(), json!("0x0"));
    }
}

fn no_bloom() -> String {
    hex_of([0; 256])
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, U256};

    use super::*;
    use crate::witness::tests::chain;

    fn ask(chain: &Chain, method: &str, params: Value) -> Result<Value, (i64, String)> {
        call(chain, &json!({ "method": method, "params": params }))
            .map_err(|error| (error.code, error.message))
    }

    fn refused(message: &str) -> Result<Value, (i64, String)> {
        Err((-32602, message.to_owned()))
    }

    #[test]
    fn blocks_have_zeros_and_three_tags() {
        let chain = chain();
        chain.mine(40).unwrap();
        let block = |tag: &str| ask(&chain, "eth_getBlockByNumber", json!([tag, false]));
        let number = |tag: &str| block(tag).unwrap()["number"].take();
        assert_eq!(
            ["latest", "earliest", "finalized"].map(number),
            ["0x28", "0x0", "0x16"].map(Value::from)
        );
        for tag in ["safe", "pending"] {
            assert_eq!(block(tag), refused(&format!("TAG {tag} not supported")));
        }
        assert_eq!(block("0x29"), Ok(Value::Null));
        let block = block("0x5").unwrap();
        assert_eq!(
            (&block["stateRoot"], &block["nonce"]),
            (&json!("0x"), &json!("0x0000000000000000"))
        );
        assert_eq!(block["logsBloom"].as_str().map(str::len), Some(514));
        assert!(block.get("withdrawals").is_none());
    }

    #[test]
    fn logs_end_at_the_head_unknown_hash_is_an_error() {
        let chain = chain();
        let (token, from, to) = (Address::ZERO, Address::ZERO, Address::ZERO);
        chain.transfer(token, from, to, U256::from(5)).unwrap();
        chain.mine(1).unwrap();
        let logs = |filter: Value| ask(&chain, "eth_getLogs", json!([filter]));
        let found = logs(json!({ "fromBlock": "0x1", "toBlock": "0x99" })).unwrap();
        assert_eq!(found.as_array().map(Vec::len), Some(1));
        assert_eq!(logs(json!({ "fromBlock": "0x2", "toBlock": "0x99" })), Ok(json!([])));
        let order = "please verify: fromBlock <= toBlock";
        assert_eq!(logs(json!({ "fromBlock": "0x2", "toBlock": "0x1" })), refused(order));
        assert_eq!(logs(json!({ "blockHash": hex_of([7; 32]) })), refused("invalid blockHash"));
        assert_eq!(logs(json!({ "blockHash": found[0]["blockHash"] })), Ok(found));
        chain.mine(5_001).unwrap();
        let wide = json!({ "fromBlock": "0x1", "toBlock": "latest" });
        assert_eq!(logs(wide), refused("exceed max block range: 5000"));
    }
}
