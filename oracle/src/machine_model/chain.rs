//! A chain with reorganisations, and ingest's records of it on `transfers.raw`.

use std::collections::HashMap;

use schemas::record::{
    Block, ChainBody, ChainRecord, ConfirmedTier, Head, Held, Observation, Watch,
};
use schemas::{
    Address, AddressFamily, Amount, BlockHash, Blockchain, Epoch, Hash, PaymentKey, Stablecoin,
    UnixMicros, UnixSeconds,
};

use super::fact::Fact;

/// Amounts from this many cents on need the greater depth.
const LARGE_CENTS: u128 = 5_000;

/// The shop's wallets on every chain, watched or not. A transfer from one of them is not a payment.
pub const WALLETS: [Address; 2] = [account(0x11), account(0x12)];

/// The contract of every stablecoin.
pub const CONTRACT: Address = account(0xee);

/// A second contract of every stablecoin. It pays only deposits that were offered with it.
pub const OTHER_CONTRACT: Address = account(0xef);

/// Confirmation and finality rules of a chain.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Confirmations that a small amount needs, its own block counted.
    pub depth: i64,
    /// Confirmations that a large amount needs.
    pub depth_large: i64,
    /// Distance of the final height from the head, in blocks.
    pub finality: i64,
    /// Maximum depth of a fork below the highest head, in blocks.
    pub rewind_max: i64,
    /// Chain time in seconds for which a confirmed transfer waits for its deposit.
    pub match_window_seconds: i64,
}

impl Policy {
    /// Confirmations that `value` needs.
    pub fn depth_of(&self, value: Amount) -> i64 {
        if value < cents(LARGE_CENTS) { self.depth } else { self.depth_large }
    }
}

pub fn cents(cents: u128) -> Amount {
    Amount::from_parts(cents * 10_u128.pow(16)).unwrap()
}

pub const fn account(byte: u8) -> Address {
    Address::new(AddressFamily::Evm, [byte; 20])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Movement {
    pub stablecoin: Stablecoin,
    pub contract: Address,
    pub from: Address,
    pub to: Address,
    pub value: Amount,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    pub hash: Hash,
    pub movements: Vec<Movement>,
}

#[derive(Debug, Clone)]
struct Mined {
    block: Block,
    transactions: Vec<Transaction>,
}

/// The chain and ingest's records.
#[derive(Debug)]
pub struct Chain {
    pub blockchain: Blockchain,
    pub policy: Policy,
    /// All records written to `transfers.raw`.
    pub records: Vec<ChainRecord>,
    /// Policy of each head in `records`, by the time it was observed.
    policies: HashMap<UnixMicros, Policy>,
    /// The events of `records`, for the model.
    pub facts: Vec<Fact>,
    /// Transactions that are in no block yet.
    pub mempool: Vec<Transaction>,
    blocks: Vec<Mined>,
    /// Transfers that endpoints disagree about.
    disputed: Vec<Held>,
    /// `true` if ingest has blocks to scan that no endpoint has any more.
    pub has_gap: bool,
    /// The wallets that ingest watches, and the last block before each watch.
    watched: Vec<(Address, usize)>,
    parents: HashMap<BlockHash, BlockHash>,
    times: HashMap<BlockHash, UnixSeconds>,
    abandoned: Vec<Mined>,
    epoch: i64,
    scanned: usize,
    /// The newest block, if the node does not show its transfers yet.
    unseen: Option<usize>,
    scanned_max: usize,
    finalized: i64,
    hashes: u64,
    /// Lead of its block times over all other clocks, in seconds.
    pub ahead: i64,
    /// `true` if no endpoint answers: blocks are mined, and ingest does not see them.
    pub is_unseen: bool,
}

impl Chain {
    /// A chain of one empty block, scanned, on which these wallets are watched.
    pub fn new(
        blockchain: Blockchain,
        policy: Policy,
        time: UnixSeconds,
        wallets: &[Address],
    ) -> Self {
        let mut chain = Self {
            blockchain,
            policy,
            records: Vec::new(),
            policies: HashMap::new(),
            facts: Vec::new(),
            mempool: Vec::new(),
            blocks: Vec::new(),
            disputed: Vec::new(),
            has_gap: false,
            watched: Vec::new(),
            parents: HashMap::new(),
            times: HashMap::new(),
            abandoned: Vec::new(),
            epoch: 0,
            scanned: 0,
            unseen: None,
            scanned_max: 0,
            finalized: -1,
            hashes: 0,
            ahead: 0,
            is_unseen: false,
        };
        chain.mine(Vec::new(), time);
        wallets.iter().for_each(|wallet| chain.watch(*wallet));
        chain.write_head();
        chain
    }

    /// Makes ingest see payments to this wallet from the next block on, and write a watch.
    pub fn watch(&mut self, wallet: Address) {
        if !self.watched.iter().any(|(watched, _)| *watched == wallet) {
            self.watched.push((wallet, self.scanned));
        }
        let watch = Watch { wallet_address: wallet, contracts: vec![CONTRACT, OTHER_CONTRACT] };
        self.write(self.blocks[self.scanned].block, ChainBody::Watch(watch), false);
        self.facts.push(Fact::Watched { blockchain: self.blockchain, wallet });
    }

    /// A unique hash.
    fn fresh_hash(&mut self) -> Hash {
        self.hashes += 1;
        let mut bytes = [0xc5; 32];
        bytes[8..12].copy_from_slice(&self.blockchain.index().to_be_bytes());
        bytes[..8].copy_from_slice(&self.hashes.to_be_bytes());
        Hash(bytes)
    }

    /// Sends money, in a transaction of its own or together with the last one.
    pub fn send(&mut self, movement: Movement, joined: bool, times: usize) {
        let movements = vec![movement; times];
        match self.mempool.last_mut() {
            Some(transaction) if joined => transaction.movements.extend(movements),
            _ => {
                let hash = self.fresh_hash();
                self.mempool.push(Transaction { hash, movements });
            }
        }
    }

    /// The time of the last block.
    pub fn time(&self) -> UnixSeconds {
        self.blocks[self.blocks.len() - 1].block.timestamp
    }

    /// Time of the last block by all other clocks: without the lead of this chain.
    pub fn clock(&self) -> UnixSeconds {
        self.time().plus(-self.ahead)
    }

    /// Adds a block, which ingest has not scanned yet.
    pub fn mine(&mut self, transactions: Vec<Transaction>, time: UnixSeconds) {
        let hash = self.fresh_hash();
        let number = i64::try_from(self.blocks.len()).unwrap();
        if let Some(parent) = self.blocks.last() {
            self.parents.insert(hash, parent.block.hash);
        }
        self.times.insert(hash, time);
        self.blocks.push(Mined { block: Block { number, hash, timestamp: time }, transactions });
    }

    /// Makes ingest scan to the newest block: all transfers, then one head.
    pub fn scan(&mut self) {
        self.scan_until(false);
    }

    /// As [`Chain::scan`], with a node that does not show the logs of its newest block yet. They come with the next
    /// scan, before any head confirms that block.
    pub fn scan_with_late_logs(&mut self) {
        self.scan_until(true);
    }

    fn scan_until(&mut self, late: bool) {
        let tip = self.blocks.len() - 1;
        if tip == self.scanned || self.is_unseen {
            return;
        }
        let head = i64::try_from(tip).unwrap();
        let found = self.unseen.take();
        self.unseen = late.then_some(tip);
        let shown = self.scanned + 1..=if late { tip - 1 } else { tip };
        for number in found.into_iter().chain(shown) {
            for (block, seen) in self.seen_in(number).collect::<Vec<_>>() {
                let (payment, log_index) = (seen.payment(), seen.log_index);
                let is_deep = head - block.number + 1 >= self.policy.depth_of(seen.value);
                let confirmed = is_deep && !self.is_disputed(&block, &seen);
                self.write(block, ChainBody::Transfer(seen), confirmed);
                let blockchain = self.blockchain;
                let fact = Fact::Included { blockchain, payment, block, log_index, confirmed };
                self.facts.push(fact);
            }
        }
        self.scanned = tip;
        self.scanned_max = self.scanned_max.max(tip);
        let tip = i64::try_from(tip).unwrap();
        self.finalized = self.finalized.max(tip - self.policy.finality);
        self.write_head();
    }

    /// Makes ingest report the head again: its node has no later block.
    pub fn beat(&mut self) {
        self.write_head();
    }

    /// Removes the last `depth` blocks, as far as they are neither final nor deeper than [`Policy::rewind_max`]. Ingest
    /// rewinds to the fork or, as its anchors are sparse, up to `further` blocks below it.
    ///
    /// Returns the transactions that are in no block now, by the block they were in.
    pub fn fork(&mut self, depth: usize, further: usize) -> Vec<Vec<Transaction>> {
        let highest = i64::try_from(self.scanned_max).unwrap();
        let floor = self.finalized.max(highest - self.policy.rewind_max).max(0);
        let floor = usize::try_from(floor).unwrap();
        let tip = self.blocks.len() - 1;
        let ancestor = tip.saturating_sub(depth).max(floor);
        if ancestor < self.scanned {
            let anchor = ancestor.saturating_sub(further).max(floor);
            self.rewind_to(anchor);
        }
        self.abandoned = self.blocks.split_off(ancestor + 1);
        self.abandoned.iter().map(|mined| mined.transactions.clone()).collect()
    }

    /// Mines a new branch with the transactions of an old one, each block some seconds after the last. The fate of a
    /// transaction, by its block and its place there: 0 the same block of the new branch, 1 one more block at its end,
    /// 2 back in the mempool, 3 lost.
    pub fn mine_anew(
        &mut self,
        branch: Vec<Vec<Transaction>>,
        seconds: i64,
        mut fate: impl FnMut(usize, usize) -> usize,
    ) {
        let mut moved = Vec::new();
        for (block, transactions) in branch.into_iter().enumerate() {
            let mut kept = Vec::new();
            for (place, transaction) in transactions.into_iter().enumerate() {
                match fate(block, place) {
                    0 => kept.push(transaction),
                    1 => moved.push(transaction),
                    2 => self.mempool.push(transaction),
                    _ => {}
                }
            }
            self.mine(kept, self.time().plus(seconds));
        }
        self.mine(moved, self.time().plus(seconds));
    }

    /// Restores the last abandoned branch, with the same blocks. Returns `false` if its first block does not build on
    /// the current tip.
    pub fn take_back_fork(&mut self) -> bool {
        let Some(first) = self.abandoned.first() else { return false };
        let tip = self.blocks[self.blocks.len() - 1].block.hash;
        if self.parents.get(&first.block.hash) != Some(&tip) {
            return false;
        }
        self.blocks.append(&mut self.abandoned);
        true
    }

    /// Rewinds the chain as an operator does, also below final blocks. With `is_named` the transfers are retracted as
    /// for a fork; without it the records are gone, and nothing is retracted.
    ///
    /// Returns the transactions that are in no block now, by the block they were in.
    pub fn rewind_by_hand(&mut self, depth: usize, is_named: bool) -> Vec<Vec<Transaction>> {
        let ancestor = (self.blocks.len() - 1).saturating_sub(depth);
        self.finalized = self.finalized.min(i64::try_from(ancestor).unwrap());
        self.scanned_max = self.scanned_max.min(ancestor);
        if !is_named {
            self.scanned = ancestor;
            self.unseen = self.unseen.take_if(|unseen| *unseen <= ancestor);
            self.epoch += 1;
            self.write_head();
        }
        self.fork(depth, 0)
    }

    /// Makes endpoints disagree about one of the transfers that are not confirmed yet.
    pub fn dispute(&mut self, number: usize) {
        // Depth counts from the highest head: after a rewind the head is lower, but the highest one may have confirmed
        // the transfer.
        let tip = i64::try_from(self.scanned_max).unwrap();
        let waits = |(block, seen): &(Block, Observation)| {
            tip - block.number + 1 < self.policy.depth_of(seen.value)
                && Some(usize::try_from(block.number).unwrap()) != self.unseen
                && !self.is_disputed(block, seen)
        };
        let mut waiting: Vec<_> =
            (0..=self.scanned).flat_map(|n| self.seen_in(n)).filter(waits).collect();
        if !waiting.is_empty() {
            let (block, transfer) = waiting.swap_remove(number % waiting.len());
            self.disputed.push(Held { block, transfer });
            self.write_head();
        }
    }

    /// Makes endpoints agree that every disputed transfer exists.
    pub fn agree(&mut self) {
        self.disputed.clear();
        self.write_head();
    }

    /// Makes endpoints agree that a transaction, all of whose transfers are disputed, does not exist. Its transfers are
    /// retracted, and no block is scanned again.
    pub fn reject(&mut self) {
        let of = |held: &Held| {
            let number = usize::try_from(held.block.number).unwrap();
            let seen =
                self.seen_in(number).filter(|(_, seen)| seen.tx_hash == held.transfer.tx_hash);
            (number, seen.collect::<Vec<_>>())
        };
        let is_disputed = |(block, seen): &(Block, Observation)| self.is_disputed(block, seen);
        let whole = |(_, seen): &(usize, Vec<_>)| seen.iter().all(is_disputed);
        let Some((number, gone)) = self.held().iter().map(of).find(whole) else { return };
        self.epoch += 1;
        for (block, seen) in gone {
            self.write(block, ChainBody::Retract(seen), false);
            self.facts.push(Fact::Orphaned { payment: seen.payment() });
            self.blocks[number].transactions.retain(|transaction| transaction.hash != seen.tx_hash);
            self.disputed.retain(|held| held.transfer.tx_hash != seen.tx_hash);
        }
        self.write_head();
    }

    fn is_disputed(&self, block: &Block, seen: &Observation) -> bool {
        let payment = seen.payment();
        self.disputed.iter().any(|held| held.block == *block && held.transfer.payment() == payment)
    }

    /// Disputed transfers in scanned blocks.
    fn held(&self) -> Vec<Held> {
        let is_there = |held: &&Held| {
            let scanned = self.blocks.iter().take(self.scanned + 1);
            scanned.map(|mined| mined.block).any(|block| block == held.block)
        };
        self.disputed.iter().filter(is_there).copied().collect()
    }

    /// Number of confirmations of `block` on the chain that ends in `head`, itself counted; `None`
    /// if it is not on that chain.
    pub fn confirmations(&self, block: BlockHash, head: BlockHash) -> Option<i64> {
        let mut at = head;
        let mut count = 1;
        while at != block {
            at = *self.parents.get(&at)?;
            count += 1;
        }
        Some(count)
    }

    /// The newest block that has this many confirmations on the chain that ends in `head`, and its time.
    pub fn confirmed(&self, head: BlockHash, depth: i64) -> Option<(BlockHash, UnixSeconds)> {
        let parent = |hash: BlockHash| self.parents.get(&hash).copied();
        let hash = (1..depth).try_fold(head, |hash, _| parent(hash))?;
        Some((hash, *self.times.get(&hash)?))
    }

    /// Policy in force when ingest wrote this head.
    pub fn policy_of(&self, head: &ChainRecord) -> Policy {
        self.policies[&head.observed_at]
    }

    /// The time of a block, also of an orphaned one.
    pub fn time_of(&self, hash: BlockHash) -> Option<UnixSeconds> {
        self.times.get(&hash).copied()
    }

    /// `true` if this block is on the chain as it is now.
    pub fn has(&self, hash: BlockHash) -> bool {
        self.blocks.iter().any(|mined| mined.block.hash == hash)
    }

    /// Every payment on the chain that ingest sees, with the time of its block.
    pub fn payments(&self) -> impl Iterator<Item = (PaymentKey, UnixSeconds)> {
        let seen = (0..self.blocks.len()).flat_map(|n| self.seen_in(n));
        seen.map(|(block, seen)| (seen.payment(), block.timestamp))
    }

    fn rewind_to(&mut self, anchor: usize) {
        self.epoch += 1;
        let unseen = self.unseen.take_if(|unseen| *unseen > anchor);
        for number in (anchor + 1..=self.scanned).filter(|number| Some(*number) != unseen) {
            for (block, seen) in self.seen_in(number).collect::<Vec<_>>() {
                self.write(block, ChainBody::Retract(seen), false);
                self.facts.push(Fact::Orphaned { payment: seen.payment() });
            }
        }
        self.scanned = anchor;
        // The blocks above the anchor are scanned again, for every watched wallet.
        self.watched.iter_mut().for_each(|(_, last)| *last = anchor.min(*last));
        self.write_head();
    }

    fn seen_in(&self, number: usize) -> impl Iterator<Item = (Block, Observation)> {
        let is_watched = move |to: Address| {
            self.watched.iter().any(|(wallet, last)| *wallet == to && *last < number)
        };
        self.transfers_of(number).into_iter().filter(move |(_, seen)| is_watched(seen.to_address))
    }

    fn transfers_of(&self, number: usize) -> Vec<(Block, Observation)> {
        let mined = &self.blocks[number];
        let epoch = i32::try_from(self.epoch % 3).unwrap();
        let mut seen = Vec::new();
        for transaction in &mined.transactions {
            for (i, movement) in transaction.movements.iter().enumerate() {
                let equal = transaction.movements[..i].iter().filter(|m| *m == movement).count();
                seen.push(Observation {
                    stablecoin: movement.stablecoin,
                    contract: movement.contract,
                    from_address: movement.from,
                    to_address: movement.to,
                    tx_hash: transaction.hash,
                    // Each epoch uses another endpoint, with other log indexes.
                    log_index: i32::try_from(seen.len()).unwrap() * 3 + epoch,
                    ordinal: i32::try_from(equal).unwrap(),
                    value: movement.value,
                    from_own_wallet: WALLETS.contains(&movement.from),
                });
            }
        }
        seen.into_iter().map(|seen| (mined.block, seen)).collect()
    }

    fn write_head(&mut self) {
        let block = self.blocks[self.scanned].block;
        let tier = |below, depth: i64| {
            let number = (block.number - depth + 1).max(-1);
            let confirmed = usize::try_from(number).ok().and_then(|n| self.blocks.get(n));
            let timestamp = confirmed.map(|mined| mined.block.timestamp);
            ConfirmedTier { below, number, timestamp }
        };
        let head = Head {
            confirmed: vec![
                tier(Some(cents(LARGE_CENTS)), self.policy.depth),
                tier(None, self.policy.depth_large),
            ],
            finalized: self.finalized,
            match_window_seconds: self.policy.match_window_seconds,
            held: self.held(),
            has_gap: self.has_gap,
        };
        let blockchain = self.blockchain;
        self.facts.push(Fact::Scanned { blockchain, block, head: head.clone() });
        self.write(block, ChainBody::Head(head), false);
    }

    fn write(&mut self, block: Block, body: ChainBody, confirmed: bool) {
        let seen = i64::try_from(self.records.len()).unwrap();
        let observed_at = UnixMicros(block.timestamp.plus(-self.ahead).micros().0 + seen);
        if matches!(body, ChainBody::Head(_)) {
            self.policies.insert(observed_at, self.policy);
        }
        self.records.push(ChainRecord {
            blockchain: self.blockchain,
            epoch: Epoch(self.epoch),
            block,
            observed_at,
            body,
            confirmed,
        });
    }
}
