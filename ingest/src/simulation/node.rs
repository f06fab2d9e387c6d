//! A chain that answers the cursor's questions.

use std::collections::HashMap;

use schemas::record::{Block, Observation};
use schemas::{
    Address, AddressFamily, Amount, BlockHash, Hash, Stablecoin, TxHash, UnixMicros, UnixSeconds,
};

use super::wallet;
use crate::machine::{
    Answer, Ask, EventLog, Header, Outcome, Point, Proof, Receipt, Refusal, Span, TRANSFER_TOPIC,
    topic,
};

pub(crate) const TOKEN: [u8; 20] = [0xaa; 20];
/// Hash of the transaction of forged transfers, which no block holds.
pub(crate) const FORGED: TxHash = Hash([0xf0; 32]);
const PAYER: Address = Address::new(AddressFamily::Evm, [0x77; 20]);
/// Distance of `finalized` from the head, in blocks: beyond any reorganisation.
const FINALIZED_DEPTH: usize = 7;
const SAFE_DEPTH: usize = 2;

/// One transfer of a transaction, to a wallet by number, in base units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Payment {
    pub(crate) wallet: u8,
    pub(crate) value: u128,
}

#[derive(Debug, Clone)]
struct Transaction {
    hash: TxHash,
    payments: Vec<Payment>,
}

#[derive(Debug, Clone)]
struct Mined {
    header: Header,
    transactions: Vec<Transaction>,
}

/// The chain as one endpoint shows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    blocks: Vec<Mined>,
    fork: u64,
    count: u64,
    /// Longest range that is served, `true` if refusals name it.
    pub(crate) limit: Option<(i64, bool)>,
    pub(crate) tags: bool,
    /// Number of last blocks that are silently missing in the answers about logs.
    pub(crate) logs_lag: i64,
    /// Transactions that are left out of the answers about logs. Their receipts are complete.
    pub(crate) omitted: Vec<TxHash>,
    /// Log index that is left out of logs.
    pub(crate) hidden_index: Option<i32>,
    /// Transfers that no block holds, by block hash.
    pub(crate) forged: Vec<(BlockHash, Payment)>,
    /// `true` if there are receipts of forged transfers too.
    pub(crate) forges_receipts: bool,
    /// Transactions that failed and left their logs behind.
    pub(crate) failed: Vec<TxHash>,
}

fn hash(kind: u8, a: u64, b: u64) -> Hash {
    let mut bytes = [kind; 32];
    bytes[8..16].copy_from_slice(&a.to_be_bytes());
    bytes[16..24].copy_from_slice(&b.to_be_bytes());
    Hash(bytes)
}

impl Node {
    /// A chain of empty blocks, `height` above its genesis.
    pub(crate) fn new(height: usize) -> Self {
        let mut node = Self { tags: true, ..Self::default() };
        node.grow(height + 1);
        node
    }

    pub(crate) fn head(&self) -> Block {
        self.blocks.last().unwrap().header.block
    }

    /// The time at which its newest block was mined.
    pub(crate) fn clock(&self) -> UnixMicros {
        UnixMicros(self.head().timestamp.0 * 1_000_000)
    }

    pub(crate) fn mine(&mut self, transactions: &[Vec<Payment>]) {
        let transactions = transactions
            .iter()
            .map(|payments| {
                self.count += 1;
                Transaction { hash: hash(2, self.count, 0), payments: payments.clone() }
            })
            .collect();
        self.append(transactions);
    }

    /// Mines empty blocks.
    pub(crate) fn grow(&mut self, blocks: usize) {
        for _ in 0..blocks {
            self.append(Vec::new());
        }
    }

    /// Replaces the last `depth` blocks and adds one. Transactions move up by their entries of `moves`
    /// in turn, or are dropped.
    pub(crate) fn reorg(&mut self, depth: usize, moves: &[Option<usize>]) {
        let depth = depth.min(self.blocks.len() - 1);
        let old = self.blocks.split_off(self.blocks.len() - depth);
        self.fork += 1;
        let mut contents: Vec<Vec<Transaction>> = vec![Vec::new(); depth + 1];
        let mut moves = moves.iter().chain(std::iter::repeat(&Some(0)));
        for (offset, mined) in old.into_iter().enumerate() {
            for transaction in mined.transactions {
                if let Some(Some(by)) = moves.next() {
                    contents[(offset + by).min(depth)].push(transaction);
                }
            }
        }
        for transactions in contents {
            self.append(transactions);
        }
    }

    /// The same chain before its last blocks were known.
    pub(crate) fn without(&self, blocks: usize) -> Self {
        let mut node = self.clone();
        node.blocks.truncate(node.blocks.len().saturating_sub(blocks).max(1));
        node
    }

    /// Mines an empty block with this time.
    pub(crate) fn mine_at(&mut self, timestamp: UnixSeconds) {
        self.append(Vec::new());
        self.blocks.last_mut().unwrap().header.block.timestamp = timestamp;
    }

    fn append(&mut self, transactions: Vec<Transaction>) {
        let number = self.blocks.len();
        let parent = self.blocks.last().map_or(hash(0, 0, 0), |mined| mined.header.block.hash);
        let block = Block {
            number: i64::try_from(number).unwrap(),
            hash: hash(1, number as u64, self.fork),
            timestamp: time(i64::try_from(number).unwrap()),
        };
        self.blocks.push(Mined { header: Header { block, parent }, transactions });
    }

    /// Returns the transfers above a height on the canonical chain, which a reader should know.
    pub(crate) fn transfers_after(&self, number: i64) -> Vec<(Block, Observation)> {
        let mut transfers = Vec::new();
        for mined in self.blocks.iter().filter(|mined| mined.header.block.number > number) {
            let mut log_index = 0;
            for transaction in &mined.transactions {
                let mut equal: HashMap<Payment, i32> = HashMap::new();
                for payment in &transaction.payments {
                    let ordinal = equal.entry(*payment).or_default();
                    if payment.value > 0 && payment.wallet < 3 {
                        let seen = Observation {
                            stablecoin: Stablecoin::Usdc,
                            contract: Address::new(AddressFamily::Evm, TOKEN),
                            from_address: sender(payment),
                            to_address: wallet(payment.wallet),
                            tx_hash: transaction.hash,
                            log_index,
                            ordinal: *ordinal,
                            value: Amount::from_parts(payment.value * 10_u128.pow(12)).unwrap(),
                            from_own_wallet: sender(payment) != PAYER,
                        };
                        transfers.push((mined.header.block, seen));
                    }
                    *ordinal += 1;
                    log_index += 1;
                }
            }
        }
        transfers
    }

    pub(crate) fn answer(&self, ask: &Ask) -> Result<Answer, Refusal> {
        let header = |number: usize| self.blocks.get(number).map(|mined| mined.header);
        let trailing = |depth: usize| {
            self.blocks.len().checked_sub(1 + depth).filter(|_| self.tags).and_then(header)
        };
        let blocks = ask.blocks.iter().map(|point| match point {
            Point::Latest => self.blocks.last().map(|mined| mined.header),
            Point::Safe => trailing(SAFE_DEPTH),
            Point::Finalized => trailing(FINALIZED_DEPTH),
            Point::Number(number) => usize::try_from(*number).ok().and_then(header),
        });
        let logs: Result<_, Refusal> = ask.logs.iter().map(|span| self.logs(*span)).collect();
        let receipts = ask.receipts.iter().map(|Outcome { transaction, .. }| {
            let succeeded = !self.failed.contains(transaction);
            let found = self.blocks.iter().find_map(|mined| {
                let mut logs = block_logs(mined);
                if self.forges_receipts {
                    logs.extend(self.forged_logs(mined));
                }
                logs.retain(|log| log.tx_hash == *transaction);
                let is_empty = mined.transactions.iter().any(|t| t.hash == *transaction);
                let block_hash = mined.header.block.hash;
                (is_empty || !logs.is_empty()).then_some(Receipt { block_hash, succeeded, logs })
            });
            found.map_or(Proof::Unlisted, Proof::Receipt)
        });
        let spans = ask.logs.iter().filter_map(|span| match *span {
            Span::Receipts { from, to } => Some(from..=to),
            Span::Range { .. } | Span::Block(_) => None,
        });
        let read = spans.flatten().filter_map(|number| header(usize::try_from(number).ok()?));
        Ok(Answer {
            read: read.map(|header| (header.block.number, header.block.hash)).collect(),
            blocks: blocks.collect(),
            logs: logs?,
            receipts: receipts.collect(),
            ..Answer::default()
        })
    }

    fn logs(&self, span: Span) -> Result<Vec<EventLog>, Refusal> {
        let (from, to) = match span {
            Span::Block(hash) => {
                let mined = self.blocks.iter().find(|mined| mined.header.block.hash == hash);
                let number = mined.ok_or(Refusal::Behind)?.header.block.number;
                (number, number)
            }
            Span::Range { to, .. } | Span::Receipts { to, .. } if to > self.head().number => {
                return Err(Refusal::Behind);
            }
            Span::Range { from, to } | Span::Receipts { from, to } => (from, to),
        };
        if let Some((blocks, hint)) = self.limit
            && to - from >= blocks
        {
            let hint = hint.then_some((from, from + blocks - 1));
            return Err(Refusal::Size { hint });
        }
        let to = to.min(self.head().number - self.logs_lag);
        let inside = self.blocks.iter().filter(|mined| {
            let number = mined.header.block.number;
            number >= from && number <= to
        });
        let logs = inside.flat_map(|mined| {
            let mut logs = block_logs(mined);
            logs.retain(|log| !self.omitted.contains(&log.tx_hash));
            logs.retain(|log| Some(log.log_index) != self.hidden_index);
            logs.extend(self.forged_logs(mined));
            logs
        });
        Ok(logs.collect())
    }

    fn forged_logs(&self, mined: &Mined) -> Vec<EventLog> {
        let block = mined.header.block;
        let here = self.forged.iter().filter(|(hash, _)| *hash == block.hash);
        let payments = here.map(|(_, payment)| (FORGED, payment));
        (100..)
            .zip(payments)
            .map(|(index, (hash, payment))| log(block, hash, payment, index))
            .collect()
    }

    /// Makes the endpoint show a transfer in its newest block that the chain does not have.
    pub(crate) fn forge(&mut self, payment: Payment) {
        self.forged.push((self.head().hash, payment));
    }
}

/// Payments of two units come from a wallet of the shop's own.
fn sender(payment: &Payment) -> Address {
    if payment.value == 2 { wallet(0) } else { PAYER }
}

fn log(block: Block, tx_hash: TxHash, payment: &Payment, log_index: i32) -> EventLog {
    EventLog {
        address: TOKEN,
        topics: vec![TRANSFER_TOPIC, topic(&sender(payment)), topic(&wallet(payment.wallet))],
        data: [[0; 16], payment.value.to_be_bytes()].concat(),
        block_number: block.number,
        block_hash: block.hash,
        tx_hash,
        log_index,
        removed: false,
    }
}

/// The log of a transfer in a block, always of the same transaction.
pub(crate) fn event(block: Block, log_index: i32, units: u128) -> EventLog {
    log(block, Hash([1; 32]), &Payment { wallet: 1, value: units }, log_index)
}

fn block_logs(mined: &Mined) -> Vec<EventLog> {
    let payments = mined.transactions.iter().flat_map(|transaction| {
        transaction.payments.iter().map(|payment| (transaction.hash, payment))
    });
    (0..)
        .zip(payments)
        .map(|(index, (tx_hash, payment))| log(mined.header.block, tx_hash, payment, index))
        .collect()
}

/// The time of the block at a height, on any fork.
pub(crate) fn time(number: i64) -> UnixSeconds {
    UnixSeconds(1000 + 12 * number)
}
