//! Blocks, logs and receipts as Ethereum JSON, with every field that strict clients expect.

use std::fmt::LowerHex;

use alloy_primitives::{B256, b256};
use serde_json::{Value, json};

use crate::block::{Block, Log, Transaction, bloom_of, hex_of};

/// `keccak256(rlp([]))`: the hash of no uncles.
const EMPTY_UNCLES: B256 =
    b256!("1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347");
/// The root of an empty trie.
const EMPTY_ROOT: B256 = b256!("56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");
/// Price of one gas, in wei.
const GAS_PRICE: &str = "0x3b9aca00";
/// Gas limit of a block that uses less.
const GAS_LIMIT_MIN: u64 = 30_000_000;

/// A quantity in hexadecimal, without leading zeros.
pub(crate) fn quantity(number: impl LowerHex) -> String {
    format!("{number:#x}")
}

/// A block with the hashes of its transactions.
pub(crate) fn block(block: &Block) -> Value {
    let hashes: Vec<String> = block.transactions.iter().map(|tx| hex_of(tx.hash)).collect();
    let gas = block.gas();
    json!({
        "number": quantity(block.id.number),
        "hash": hex_of(block.id.hash),
        "parentHash": hex_of(block.parent_hash),
        "timestamp": quantity(block.id.timestamp),
        "logsBloom": hex_of(block.bloom),
        "transactions": hashes,
        "transactionsRoot": hex_of(block.transactions_root),
        "stateRoot": hex_of(EMPTY_ROOT),
        "receiptsRoot": hex_of(EMPTY_ROOT),
        "sha3Uncles": hex_of(EMPTY_UNCLES),
        "uncles": [],
        "miner": hex_of([0; 20]),
        "mixHash": hex_of(B256::ZERO),
        "nonce": hex_of([0; 8]),
        "difficulty": "0x0",
        "totalDifficulty": "0x0",
        "extraData": "0x",
        "size": "0x400",
        "gasUsed": quantity(gas),
        "gasLimit": quantity(gas.max(GAS_LIMIT_MIN)),
        "baseFeePerGas": GAS_PRICE,
        "withdrawals": [],
        "withdrawalsRoot": hex_of(EMPTY_ROOT),
        "blobGasUsed": "0x0",
        "excessBlobGas": "0x0",
        "parentBeaconBlockRoot": hex_of(B256::ZERO),
    })
}

/// A block that is not mined yet has no hash, nonce and miner.
pub(crate) fn pending_block(pending: &Block) -> Value {
    let mut value = block(pending);
    for name in ["hash", "nonce", "miner"] {
        value[name] = Value::Null;
    }
    value
}

pub(crate) fn log(log: &Log<'_>) -> Value {
    json!({
        "address": hex_of(log.call.token),
        "topics": log.call.topics().map(hex_of),
        "data": hex_of(log.call.value.to_be_bytes::<32>()),
        "blockNumber": quantity(log.block.number),
        "blockHash": hex_of(log.block.hash),
        "blockTimestamp": quantity(log.block.timestamp),
        "transactionHash": hex_of(log.transaction_hash),
        "transactionIndex": quantity(log.transaction_index),
        "logIndex": quantity(log.log_index),
        "removed": false,
    })
}

/// Gas and logs in a block before one of its transactions.
#[derive(Clone, Copy, Default)]
struct Before {
    gas: u64,
    logs: usize,
}

impl Before {
    fn after(self, transaction: &Transaction) -> Self {
        Self {
            gas: self.gas.saturating_add(transaction.gas()),
            logs: self.logs + transaction.calls.len(),
        }
    }
}

/// The receipts of a block, in order.
pub(crate) fn receipts(block: &Block) -> Vec<Value> {
    let mut before = Before::default();
    let mut receipts = Vec::with_capacity(block.transactions.len());
    for (index, transaction) in block.transactions.iter().enumerate() {
        receipts.push(receipt_at(block, index, transaction, before));
        before = before.after(transaction);
    }
    receipts
}

/// The receipt of one transaction of a block.
pub(crate) fn receipt(block: &Block, index: usize) -> Option<Value> {
    let transaction = block.transactions.get(index)?;
    let earlier = block.transactions.iter().take(index);
    let before = earlier.fold(Before::default(), |before, earlier| before.after(earlier));
    Some(receipt_at(block, index, transaction, before))
}

fn receipt_at(block: &Block, index: usize, transaction: &Transaction, before: Before) -> Value {
    let logs = transaction.calls.iter().enumerate().map(|(offset, call)| {
        log(&Log {
            block: block.id,
            transaction_hash: transaction.hash,
            transaction_index: index,
            log_index: before.logs + offset,
            call,
        })
    });
    let first = transaction.calls.first();
    json!({
        "type": "0x2",
        "status": "0x1",
        "transactionHash": hex_of(transaction.hash),
        "transactionIndex": quantity(index),
        "blockHash": hex_of(block.id.hash),
        "blockNumber": quantity(block.id.number),
        "from": first.map(|call| hex_of(call.from)),
        "to": first.map(|call| hex_of(call.token)),
        "contractAddress": null,
        "gasUsed": quantity(transaction.gas()),
        "cumulativeGasUsed": quantity(before.after(transaction).gas),
        "effectiveGasPrice": GAS_PRICE,
        "logsBloom": hex_of(bloom_of(&transaction.calls)),
        "logs": logs.collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::block::Header;
    use crate::block::tests::call;

    #[test]
    fn one_receipt_equals_its_place_in_all_receipts() {
        let transaction = |nonce| Transaction::new(B256::ZERO, nonce, vec![call(1, 2, 3); 2]);
        let transactions = (0..3).map(transaction).map(Arc::new).collect();
        let block = Block::new(&Header::default(), transactions);
        let all = receipts(&block);
        let each: Vec<Value> = (0..3).filter_map(|index| receipt(&block, index)).collect();
        assert_eq!(all, each);
        assert_eq!(receipt(&block, 3), None);
        let logs: Vec<Value> = block.logs().map(|entry| log(&entry)).collect();
        let from_receipts: Vec<Value> =
            all.iter().flat_map(|receipt| receipt["logs"].as_array().unwrap().clone()).collect();
        assert_eq!(logs, from_receipts);
        assert_eq!(logs[5]["logIndex"], "0x5");
        assert_eq!(all[2]["cumulativeGasUsed"], quantity(block.gas()));
    }
}
