//! The pure model of the chain: commands in, blocks out; no clock, no I/O, no randomness.

use std::collections::HashMap;
use std::sync::Arc;

use alloy_primitives::{Address, B256, BlockHash, TxHash, U256};

use crate::block::{Block, Header, Transaction, salt};
use crate::config::TIMESTAMP_MAX;
use crate::{BlockId, Config, Error, TransferCall};

/// Most pending transactions.
pub(crate) const PENDING_COUNT_MAX: usize = 100_000;
/// Most transfers in one transaction.
pub(crate) const TRANSACTION_CALLS_MAX: usize = 1_000;
/// Most blocks mined by one command.
pub(crate) const MINE_COUNT_MAX: u64 = 100_000;
/// Greatest block number: at this height the chain refuses to mine.
pub(crate) const HEIGHT_MAX: u64 = 10_000_000;

/// Fate of the transactions in the replaced blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reorg {
    /// Every transaction is included again, in the new block of the same number.
    Keep,
    /// One transaction moves to another new block, after the others there; the rest is kept.
    Move {
        tx: TxHash,
        /// The new block: 0 is the lowest replaced one, `depth` is the extra block on top.
        to_offset: u64,
    },
    /// One transaction disappears for good; the rest is kept.
    Drop(TxHash),
}

/// Result of a reorg; both lists are from the lowest block up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reorged {
    pub replaced: Vec<BlockId>,
    /// The blocks in their place, one more than before.
    pub added: Vec<BlockId>,
}

/// Sums of one token that an address received and sent. Both wrap, so that a block can be reverted exactly.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    received: U256,
    sent: U256,
}

/// Canonical chain and pending pool.
#[derive(Debug)]
pub(crate) struct Ledger {
    config: Config,
    salt: B256,
    genesis: Block,
    /// Block `n` is at index `n - 1`; the genesis block is not among them.
    blocks: Vec<Block>,
    numbers: HashMap<BlockHash, u64>,
    /// Block number and index of each included transaction.
    places: HashMap<TxHash, (u64, usize)>,
    /// Flows by token and owner.
    flows: HashMap<(Address, Address), Flow>,
    pending: Vec<Arc<Transaction>>,
    nonce: u64,
    fork_nonce: u64,
    timestamp_next: Option<u64>,
}

impl Ledger {
    pub(crate) fn new(config: Config) -> Result<Self, Error> {
        config.validate()?;
        let salt = salt(config.seed, config.chain_id);
        let header = Header { salt, timestamp: config.genesis_timestamp, ..Header::default() };
        let genesis = Block::new(&header, Vec::new());
        let numbers = HashMap::from([(genesis.id.hash, 0)]);
        Ok(Self {
            config,
            salt,
            genesis,
            blocks: Vec::new(),
            numbers,
            places: HashMap::new(),
            flows: HashMap::new(),
            pending: Vec::new(),
            nonce: 0,
            fork_nonce: 0,
            timestamp_next: None,
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn head(&self) -> &Block {
        self.blocks.last().unwrap_or(&self.genesis)
    }

    pub(crate) fn block(&self, number: u64) -> Option<&Block> {
        let Some(index) = number.checked_sub(1) else { return Some(&self.genesis) };
        usize::try_from(index).ok().and_then(|index| self.blocks.get(index))
    }

    pub(crate) fn block_by_hash(&self, hash: BlockHash) -> Option<&Block> {
        self.numbers.get(&hash).and_then(|number| self.block(*number))
    }

    pub(crate) fn safe(&self) -> u64 {
        self.head().id.number.saturating_sub(self.config.safe_depth)
    }

    pub(crate) fn finalized(&self) -> u64 {
        self.head().id.number.saturating_sub(self.config.finalized_depth)
    }

    /// The block of a transaction and its index there.
    pub(crate) fn place(&self, hash: TxHash) -> Option<(&Block, usize)> {
        let (number, index) = self.places.get(&hash)?;
        Some((self.block(*number)?, *index))
    }

    /// The balance of an owner after a block; zero for an owner that sent more than it received.
    pub(crate) fn balance_at(&self, token: Address, owner: Address, number: u64) -> U256 {
        let mut flow = self.flows.get(&(token, owner)).copied().unwrap_or_default();
        let later = self.blocks.iter().rev().take_while(|block| block.id.number > number);
        let calls = later.flat_map(|block| &block.transactions).flat_map(|one| &one.calls);
        for call in calls.filter(|call| call.token == token) {
            if call.to == owner {
                flow.received -= call.value;
            }
            if call.from == owner {
                flow.sent -= call.value;
            }
        }
        flow.received.saturating_sub(flow.sent)
    }

    /// The block that mining would add now.
    pub(crate) fn pending_block(&self) -> Block {
        let header = self.header_next(self.timestamp_in_turn());
        Block::new(&header, self.pending.clone())
    }

    pub(crate) fn queue(&mut self, calls: Vec<TransferCall>) -> Result<TxHash, Error> {
        if calls.is_empty() || calls.len() > TRANSACTION_CALLS_MAX {
            return Err(Error::CallCount { count: calls.len() });
        }
        if self.pending.len() >= PENDING_COUNT_MAX {
            return Err(Error::PoolFull);
        }
        let transaction = Transaction::new(self.salt, self.nonce, calls);
        let hash = transaction.hash;
        self.nonce += 1;
        self.pending.push(Arc::new(transaction));
        Ok(hash)
    }

    /// Mines blocks; the first takes the whole pool.
    pub(crate) fn mine(&mut self, count: u64) -> Result<Vec<BlockHash>, Error> {
        if count > MINE_COUNT_MAX {
            return Err(Error::MineCount { count });
        }
        self.check_room(count)?;
        let mut hashes = Vec::new();
        for _ in 0..count {
            let transactions = std::mem::take(&mut self.pending);
            hashes.push(self.append(None, transactions).hash);
        }
        Ok(hashes)
    }

    pub(crate) fn set_next_timestamp(&mut self, timestamp: u64) -> Result<(), Error> {
        let parent_timestamp = self.head().id.timestamp;
        if timestamp <= parent_timestamp || timestamp > TIMESTAMP_MAX {
            return Err(Error::Timestamp { timestamp, parent_timestamp });
        }
        self.timestamp_next = Some(timestamp);
        Ok(())
    }

    pub(crate) fn mine_at(&mut self, timestamp: u64) -> Result<BlockId, Error> {
        self.check_room(1)?;
        self.set_next_timestamp(timestamp)?;
        let transactions = std::mem::take(&mut self.pending);
        Ok(self.append(None, transactions))
    }

    /// Replaces the last `depth` blocks and adds one more. Replacements keep the timestamps.
    pub(crate) fn reorg(&mut self, depth: u64, reorg: Reorg) -> Result<Reorged, Error> {
        let height = self.head().id.number;
        if depth == 0 || depth > height {
            return Err(Error::ReorgDepth { depth, height });
        }
        self.check_room(1)?;
        self.check_reorg(height - depth, depth, reorg)?;
        let old = self.remove_above(height - depth);
        let replaced = old.iter().map(|block| block.id).collect();
        let times = old.iter().map(|block| Some(block.id.timestamp)).chain([None]);
        let times: Vec<_> = times.collect();
        let mut contents: Vec<_> = old.into_iter().map(|block| block.transactions).collect();
        contents.push(Vec::new());
        rearrange(&mut contents, reorg);
        self.fork_nonce += 1;
        let added = times.into_iter().zip(contents).map(|(time, txs)| self.append(time, txs));
        let added = added.collect();
        Ok(Reorged { replaced, added })
    }

    fn check_room(&self, count: u64) -> Result<(), Error> {
        if self.head().id.number.saturating_add(count) > HEIGHT_MAX {
            return Err(Error::ChainFull);
        }
        Ok(())
    }

    fn check_reorg(&self, fork: u64, depth: u64, reorg: Reorg) -> Result<(), Error> {
        let (Reorg::Move { tx, .. } | Reorg::Drop(tx)) = reorg else { return Ok(()) };
        if self.places.get(&tx).is_none_or(|(number, _)| *number <= fork) {
            return Err(Error::UnknownTransaction(tx));
        }
        match reorg {
            Reorg::Move { to_offset: offset, .. } if offset > depth => {
                Err(Error::Offset { offset, offset_max: depth })
            }
            Reorg::Move { .. } | Reorg::Keep | Reorg::Drop(_) => Ok(()),
        }
    }

    fn timestamp_in_turn(&self) -> u64 {
        let interval = self.config.block_interval_secs;
        self.timestamp_next.unwrap_or_else(|| self.head().id.timestamp.saturating_add(interval))
    }

    fn header_next(&self, timestamp: u64) -> Header {
        let parent = self.head().id;
        Header {
            salt: self.salt,
            number: parent.number + 1,
            parent_hash: parent.hash,
            timestamp,
            fork_nonce: self.fork_nonce,
        }
    }

    /// Appends a block; without a timestamp it takes the next one in turn.
    fn append(&mut self, timestamp: Option<u64>, transactions: Vec<Arc<Transaction>>) -> BlockId {
        let timestamp = timestamp.unwrap_or_else(|| {
            let timestamp = self.timestamp_in_turn();
            self.timestamp_next = None;
            timestamp
        });
        let block = Block::new(&self.header_next(timestamp), transactions);
        let id = block.id;
        self.numbers.insert(id.hash, id.number);
        for (index, transaction) in block.transactions.iter().enumerate() {
            self.places.insert(transaction.hash, (id.number, index));
            for call in &transaction.calls {
                self.flow(call, U256::wrapping_add);
            }
        }
        self.blocks.push(block);
        id
    }

    /// Removes every block above a number.
    fn remove_above(&mut self, number: u64) -> Vec<Block> {
        let removed = self.blocks.split_off(number as usize);
        for block in &removed {
            self.numbers.remove(&block.id.hash);
            for transaction in &block.transactions {
                self.places.remove(&transaction.hash);
                for call in &transaction.calls {
                    self.flow(call, U256::wrapping_sub);
                }
            }
        }
        removed
    }

    fn flow(&mut self, call: &TransferCall, change: fn(U256, U256) -> U256) {
        let sent = &mut self.flows.entry((call.token, call.from)).or_default().sent;
        *sent = change(*sent, call.value);
        let received = &mut self.flows.entry((call.token, call.to)).or_default().received;
        *received = change(*received, call.value);
    }
}

/// Moves or drops one transaction among the contents of the new blocks.
fn rearrange(contents: &mut [Vec<Arc<Transaction>>], reorg: Reorg) {
    let (Reorg::Move { tx, .. } | Reorg::Drop(tx)) = reorg else { return };
    let mut taken = None;
    for transactions in contents.iter_mut() {
        if let Some(index) = transactions.iter().position(|t| t.hash == tx) {
            taken = Some(transactions.remove(index));
        }
    }
    if let Reorg::Move { to_offset, .. } = reorg {
        contents[to_offset as usize].extend(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(seed: u64) -> Config {
        Config { safe_depth: 3, seed, ..Config::default() }
    }

    fn ledger() -> Ledger {
        Ledger::new(config(1)).unwrap()
    }

    fn call(value: u64) -> Vec<TransferCall> {
        vec![TransferCall { value: U256::from(value), ..crate::block::tests::call(0xaa, 0, 2) }]
    }

    fn balance(ledger: &Ledger) -> U256 {
        ledger.balance_at(Address::repeat_byte(0xaa), Address::repeat_byte(2), u64::MAX)
    }

    #[test]
    fn equal_commands_and_seed_give_equal_hashes() {
        let run = |seed| {
            let mut ledger = Ledger::new(config(seed)).unwrap();
            let tx = ledger.queue(call(5)).unwrap();
            (tx, ledger.mine(3).unwrap())
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn the_first_block_takes_the_pool_and_timestamps_step() {
        let mut ledger = ledger();
        let first = ledger.queue(call(5)).unwrap();
        let second = ledger.queue(call(5)).unwrap();
        assert_ne!(first, second);
        ledger.mine(2).unwrap();
        assert_eq!(ledger.block(1).unwrap().transactions.len(), 2);
        assert_eq!(ledger.block(2).unwrap().transactions.len(), 0);
        assert_eq!(ledger.block(2).unwrap().parent_hash, ledger.block(1).unwrap().id.hash);
        assert_eq!(ledger.head().id.timestamp, 1_700_000_024);
        assert!(ledger.pending.is_empty());
        ledger.mine_at(1_700_000_100).unwrap();
        ledger.set_next_timestamp(1_700_000_200).unwrap();
        assert!(ledger.set_next_timestamp(1_700_000_100).is_err());
        ledger.mine(2).unwrap();
        assert_eq!(ledger.head().id.timestamp, 1_700_000_212);
    }

    #[test]
    fn a_reorg_replaces_hashes_and_keeps_transactions() {
        let mut ledger = ledger();
        ledger.mine(2).unwrap();
        let tx = ledger.queue(call(5)).unwrap();
        ledger.mine(2).unwrap();
        let fork = ledger.block(2).unwrap().id;
        let reorged = ledger.reorg(2, Reorg::Keep).unwrap();
        assert_eq!(reorged.replaced.len(), 2);
        assert_eq!(reorged.added.len(), 3);
        assert_eq!(ledger.head().id.number, 5);
        assert_eq!(ledger.block(3).unwrap().parent_hash, fork.hash);
        assert_eq!(ledger.place(tx).unwrap().0.id, reorged.added[0]);
        for (old, new) in reorged.replaced.iter().zip(&reorged.added) {
            assert_eq!((old.number, old.timestamp), (new.number, new.timestamp));
            assert_ne!(old.hash, new.hash);
            assert!(ledger.block_by_hash(old.hash).is_none());
        }
        assert_eq!(balance(&ledger), U256::from(5));
        let again = ledger.reorg(3, Reorg::Keep).unwrap();
        assert!(reorged.added.iter().all(|block| !again.added.contains(block)));
    }

    #[test]
    fn a_reorg_moves_a_transaction_in_both_directions() {
        let mut ledger = ledger();
        ledger.mine(1).unwrap();
        let tx = ledger.queue(call(5)).unwrap();
        ledger.mine(1).unwrap();
        ledger.reorg(2, Reorg::Move { tx, to_offset: 0 }).unwrap();
        assert_eq!(ledger.place(tx).unwrap().0.id.number, 1);
        ledger.reorg(3, Reorg::Move { tx, to_offset: 3 }).unwrap();
        assert_eq!(ledger.place(tx).unwrap().0.id.number, 4);
        assert_eq!(ledger.head().id.number, 4);
        assert_eq!(balance(&ledger), U256::from(5));
    }

    #[test]
    fn a_dropped_transaction_is_gone_with_its_balance() {
        let mut ledger = ledger();
        let kept = ledger.queue(call(5)).unwrap();
        let dropped = ledger.queue(call(7)).unwrap();
        ledger.mine(1).unwrap();
        assert_eq!(balance(&ledger), U256::from(12));
        ledger.reorg(1, Reorg::Drop(dropped)).unwrap();
        assert!(ledger.place(dropped).is_none());
        assert_eq!(ledger.place(kept).unwrap().1, 0);
        assert_eq!(balance(&ledger), U256::from(5));
        assert!(ledger.pending.is_empty());
    }

    #[test]
    fn refused_commands_change_nothing() {
        let mut ledger = ledger();
        let old = ledger.queue(call(5)).unwrap();
        ledger.mine(2).unwrap();
        let head = ledger.head().id;
        let absent = B256::repeat_byte(9);
        assert!(matches!(ledger.reorg(0, Reorg::Keep), Err(Error::ReorgDepth { .. })));
        assert!(matches!(ledger.reorg(3, Reorg::Keep), Err(Error::ReorgDepth { .. })));
        for tx in [absent, old] {
            let refused = ledger.reorg(1, Reorg::Drop(tx));
            assert!(matches!(refused, Err(Error::UnknownTransaction(_))));
        }
        let refused = ledger.reorg(2, Reorg::Move { tx: old, to_offset: 3 });
        assert!(matches!(refused, Err(Error::Offset { offset: 3, offset_max: 2 })));
        assert!(matches!(ledger.mine_at(head.timestamp), Err(Error::Timestamp { .. })));
        assert!(matches!(ledger.mine(MINE_COUNT_MAX + 1), Err(Error::MineCount { .. })));
        assert!(matches!(ledger.queue(Vec::new()), Err(Error::CallCount { .. })));
        assert_eq!(ledger.head().id, head);
    }

    #[test]
    fn tags_trail_the_head_and_stop_at_genesis() {
        let mut ledger = ledger();
        ledger.mine(4).unwrap();
        assert_eq!((ledger.safe(), ledger.finalized()), (1, 0));
        ledger.mine(6).unwrap();
        assert_eq!((ledger.safe(), ledger.finalized()), (7, 4));
    }
}
