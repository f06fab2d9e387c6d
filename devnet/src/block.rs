//! Blocks, transactions and the Transfer logs in them.

use std::collections::HashSet;
use std::sync::Arc;

use alloy_primitives::{
    Address, B256, BlockHash, Bloom, BloomInput, Keccak256, TxHash, U256, b256, hex, keccak256,
};

/// `keccak256("Transfer(address,address,uint256)")`.
pub(crate) const TRANSFER_TOPIC: B256 =
    b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// Gas of a transaction without transfers.
const GAS_BASE: u64 = 21_000;
/// Gas of one transfer.
const GAS_PER_CALL: u64 = 44_000;

/// One transfer to be made: it becomes one Transfer log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferCall {
    pub token: Address,
    /// Payer; the zero address mints.
    pub from: Address,
    pub to: Address,
    /// Amount in the smallest units of the token.
    pub value: U256,
}

impl TransferCall {
    /// The topics of the log: signature, sender, receiver.
    pub(crate) fn topics(&self) -> [B256; 3] {
        [TRANSFER_TOPIC, self.from.into_word(), self.to.into_word()]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockId {
    /// Height; the genesis block is 0.
    pub number: u64,
    /// Hash, unique over all forks.
    pub hash: BlockHash,
    /// Unix seconds.
    pub timestamp: u64,
}

/// A transaction: its hash does not depend on the block that includes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) hash: TxHash,
    pub(crate) calls: Vec<TransferCall>,
}

impl Transaction {
    /// Makes a transaction: `salt` separates the hashes of chains, `nonce` those of equal transactions of one chain.
    pub(crate) fn new(salt: B256, nonce: u64, calls: Vec<TransferCall>) -> Self {
        let mut hasher = Keccak256::new();
        hasher.update(b"transaction");
        hasher.update(salt);
        hasher.update(nonce.to_be_bytes());
        for call in &calls {
            hasher.update(call.token);
            hasher.update(call.from);
            hasher.update(call.to);
            hasher.update(call.value.to_be_bytes::<32>());
        }
        Self { hash: hasher.finalize(), calls }
    }

    /// Gas used: a plausible number, not a computed one.
    pub(crate) fn gas(&self) -> u64 {
        let calls = u64::try_from(self.calls.len()).unwrap_or(u64::MAX);
        GAS_BASE.saturating_add(GAS_PER_CALL.saturating_mul(calls))
    }
}

/// A block of one fork.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) id: BlockId,
    pub(crate) parent_hash: BlockHash,
    pub(crate) transactions_root: B256,
    pub(crate) bloom: Bloom,
    pub(crate) transactions: Vec<Arc<Transaction>>,
}

/// Inputs of a block, besides its transactions.
#[derive(Default)]
pub(crate) struct Header {
    pub(crate) salt: B256,
    pub(crate) number: u64,
    pub(crate) parent_hash: BlockHash,
    pub(crate) timestamp: u64,
    /// Number of reorgs before: gives a replacement another hash than the block it replaces.
    pub(crate) fork_nonce: u64,
}

impl Block {
    pub(crate) fn new(header: &Header, transactions: Vec<Arc<Transaction>>) -> Self {
        let mut root = Keccak256::new();
        root.update(b"transactions");
        for transaction in &transactions {
            root.update(transaction.hash);
        }
        let transactions_root = root.finalize();
        let mut hasher = Keccak256::new();
        hasher.update(b"block");
        hasher.update(header.salt);
        hasher.update(header.number.to_be_bytes());
        hasher.update(header.parent_hash);
        hasher.update(header.timestamp.to_be_bytes());
        hasher.update(header.fork_nonce.to_be_bytes());
        hasher.update(transactions_root);
        let id =
            BlockId { number: header.number, hash: hasher.finalize(), timestamp: header.timestamp };
        let bloom = bloom_of(transactions.iter().flat_map(|transaction| &transaction.calls));
        Self { id, parent_hash: header.parent_hash, transactions_root, bloom, transactions }
    }

    /// All logs in order, with their block-wide indexes.
    pub(crate) fn logs(&self) -> impl Iterator<Item = Log<'_>> {
        self.transactions
            .iter()
            .enumerate()
            .flat_map(|(index, transaction)| {
                transaction.calls.iter().map(move |call| (index, transaction.hash, call))
            })
            .enumerate()
            .map(|(log_index, (transaction_index, transaction_hash, call))| Log {
                block: self.id,
                transaction_hash,
                transaction_index,
                log_index,
                call,
            })
    }

    pub(crate) fn gas(&self) -> u64 {
        self.transactions.iter().fold(0, |sum: u64, tx| sum.saturating_add(tx.gas()))
    }
}

/// A Transfer log and its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log<'a> {
    pub(crate) block: BlockId,
    pub(crate) transaction_hash: TxHash,
    pub(crate) transaction_index: usize,
    pub(crate) log_index: usize,
    pub(crate) call: &'a TransferCall,
}

/// The bloom of the logs of transfers. Most of them share token and wallets, so each value is hashed once.
pub(crate) fn bloom_of<'a>(calls: impl IntoIterator<Item = &'a TransferCall>) -> Bloom {
    let mut addresses = HashSet::new();
    let mut topics = HashSet::new();
    for call in calls {
        addresses.insert(call.token);
        topics.extend(call.topics());
    }
    let mut bloom = Bloom::ZERO;
    for address in addresses {
        bloom.accrue(BloomInput::Raw(address.as_slice()));
    }
    for topic in topics {
        bloom.accrue(BloomInput::Raw(topic.as_slice()));
    }
    bloom
}

/// Returns the salt that separates the hashes of this chain from those of every other.
pub(crate) fn salt(seed: u64, chain_id: u64) -> B256 {
    keccak256([seed.to_be_bytes(), chain_id.to_be_bytes()].concat())
}

/// `0x` and the bytes in lower-case hexadecimal.
pub(crate) fn hex_of(bytes: impl AsRef<[u8]>) -> String {
    hex::encode_prefixed(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A transfer of one unit between accounts that consist of these bytes.
    pub(crate) fn call(token: u8, from: u8, to: u8) -> TransferCall {
        let [token, from, to] = [token, from, to].map(Address::repeat_byte);
        TransferCall { token, from, to, value: U256::ONE }
    }

    #[test]
    fn the_transfer_topic_is_the_hash_of_the_signature() {
        assert_eq!(TRANSFER_TOPIC, keccak256("Transfer(address,address,uint256)"));
    }

    #[test]
    fn the_bloom_holds_address_and_topics_and_no_others() {
        let call = call(1, 2, 3);
        let transaction = Arc::new(Transaction::new(B256::ZERO, 0, vec![call]));
        let bloom = Block::new(&Header::default(), vec![transaction]).bloom;
        assert!(bloom.contains_raw_log(call.token, &call.topics()));
        assert!(!bloom.contains_raw_log(Address::repeat_byte(9), &[]));
    }
}
