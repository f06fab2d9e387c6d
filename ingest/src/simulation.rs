//! Random histories of a chain, played against the cursor through a simulated endpoint and log.

mod checks;
mod memory_log;
mod node;
mod served;

use std::collections::BTreeMap;
use std::time::Duration;

use log::embedded::EmbeddedLog;
use log::{Log, TopicPartition};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use schemas::record::{
    Block, ChainBody, ChainRecord, ConfirmedTier, Head, Observation, Record, example,
};
use schemas::{
    Address, AddressFamily, Blockchain, Epoch, Partition, Stablecoin, StablecoinContract, Topic,
    UnixMicros,
};

pub(crate) use memory_log::MemoryLog;
pub(crate) use node::{FORGED, Node, Payment, event, time};
pub(crate) use served::{Answers, Served, replies};

use crate::endpoints::Pauses;
use crate::machine::{Cursor, Decision, Next, Policy, Refusal, Tag};
use crate::{ChainConfig, EndpointConfig, RpcUrl, restore, watched};

const DEPTH_MAX: usize = 6;
/// Reorganisation window in blocks, just above `DEPTH_MAX`: a rewind then fails if state was pruned
/// too early.
const WINDOW: i64 = 8;
/// Number of random histories, unless `TIDEMARK_TEST_CASES` has another one.
const CASES: u32 = 500;

/// Pauses of a millisecond. No endpoint is checked again, and none counts as stuck.
pub(crate) const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(1),
    max: Duration::from_millis(1),
    repair: Duration::from_millis(1),
    sole_max: Duration::from_millis(1),
    alone: Duration::ZERO,
    stuck: Duration::MAX,
    frozen: Duration::MAX,
    recheck: Duration::MAX,
    stalled: Duration::MAX,
};

pub(crate) fn wallet(position: u8) -> Address {
    Address::new(AddressFamily::Evm, [0x10 + position; 20])
}

pub(crate) fn endpoint(url: &str) -> EndpointConfig {
    EndpointConfig::of(Blockchain::Eth, RpcUrl::parse(url).unwrap())
}

/// A chain with one stablecoin of six decimals and three wallets.
pub(crate) fn chain(policy: Policy) -> ChainConfig {
    let address = Address::new(AddressFamily::Evm, node::TOKEN);
    let blockchain = Blockchain::Eth;
    let stablecoin = Stablecoin::Usdc;
    let contract = StablecoinContract { blockchain, stablecoin, address, decimals: 6 };
    ChainConfig {
        blockchain,
        chain_id: 1,
        endpoints: vec![endpoint("http://127.0.0.1")],
        request_timeout: Duration::from_secs(1),
        contracts: vec![contract],
        retired: Vec::new(),
        unlisted: Vec::new(),
        stablecoins: [stablecoin].into(),
        wallets: (0..3).map(wallet).collect(),
        own: (0..3).map(wallet).collect(),
        policy,
        start_block: None,
        // A head is held back for three polls.
        poll_interval: Duration::from_secs(10),
        range_max: 5,
        reorg_window: WINDOW,
        alone: schemas::Amount::ZERO,
        lag: 0,
        match_window: Duration::from_secs(3600),
    }
}

/// A head in epoch 0 that confirms these heights.
pub(crate) fn head(block: Block, confirmed: Vec<ConfirmedTier>, finalized: i64) -> ChainRecord {
    let (match_window_seconds, held, has_gap) = (1, Vec::new(), false);
    let head = Head { confirmed, finalized, match_window_seconds, held, has_gap };
    ChainRecord { epoch: Epoch(0), block, body: ChainBody::Head(head), ..example::chain_record() }
}

/// The records of a topic's first partition.
pub(crate) fn records<T: Record>(log: &EmbeddedLog, topic: Topic) -> Vec<T> {
    let of = TopicPartition { topic, partition: Partition(0) };
    let records = tokio::task::block_in_place(|| {
        let bounds = log.bounds(of).unwrap();
        log.read(of, bounds.start, 10_000).unwrap()
    });
    records.iter().map(|r| schemas::decode(r.value.as_deref().unwrap()).unwrap()).collect()
}

/// The cursor of a new process, which has only the log.
fn restarted(page: i64, memory: &MemoryLog, chain: &ChainConfig) -> Cursor {
    let history = restore::restore_by(page, memory, chain, i64::MAX).unwrap();
    let known = watched::known(memory, chain.blockchain).unwrap();
    Cursor::new(chain.rules(), history, chain.unannounced(&known))
}

#[derive(Debug, Clone)]
enum Action {
    Mine(Vec<Vec<Payment>>),
    /// Replaces the last blocks; each of their transactions moves by some blocks, or is dropped.
    Reorg {
        depth: usize,
        moves: Vec<Option<usize>>,
    },
    /// Number of answers to the cursor.
    Poll(usize),
    /// Answers of a node that lacks the last blocks.
    Behind {
        answers: usize,
        blocks: usize,
    },
    /// Number of answers of a node that is still on the chain before the last reorganisation.
    Stale(usize),
    /// Longer ranges are refused, with or without a hint.
    Limit {
        blocks: i64,
        hint: bool,
    },
    Refuse(Refusal),
    /// The process dies: only the log remains.
    Restart {
        page: i64,
    },
}

fn payment() -> impl Strategy<Value = Payment> {
    // Few values, so that equal payments occur. Wallet 3 is not ours, and a value of 0 pays
    // nothing.
    (0..4_u8, 0..3_u128).prop_map(|(wallet, value)| Payment { wallet, value })
}

fn action() -> impl Strategy<Value = Action> {
    let transactions = prop::collection::vec(prop::collection::vec(payment(), 1..4), 0..3);
    let moves = prop::collection::vec(prop::option::weighted(0.8, 0..3_usize), 0..6);
    let refusal = prop_oneof![
        Just(Refusal::Rate),
        Just(Refusal::Behind),
        Just(Refusal::Timeout),
        Just(Refusal::Transient),
        Just(Refusal::Size { hint: None }),
        Just(Refusal::Size { hint: Some((0, 3)) }),
    ];
    prop_oneof![
        6 => transactions.prop_map(Action::Mine),
        2 => (1..=DEPTH_MAX, moves).prop_map(|(depth, moves)| Action::Reorg { depth, moves }),
        6 => (1..8_usize).prop_map(Action::Poll),
        1 => (1..5_usize, 1..5_usize)
            .prop_map(|(answers, blocks)| Action::Behind { answers, blocks }),
        1 => (1..5_usize).prop_map(Action::Stale),
        1 => (1..6_i64, any::<bool>()).prop_map(|(blocks, hint)| Action::Limit { blocks, hint }),
        1 => refusal.prop_map(Action::Refuse),
        1 => (1..9_i64).prop_map(|page| Action::Restart { page }),
    ]
}

/// State of a reader of the records; checks each step against the invariants.
#[derive(Debug, Default)]
struct Reader {
    head: Option<(Epoch, Block)>,
    finalized: i64,
    confirmed: i64,
    watched: BTreeMap<Address, i64>,
    live: BTreeMap<(i64, i32), (Block, Observation)>,
}

impl Reader {
    fn step(&mut self, records: &[ChainRecord], policy_depth: Option<i64>) {
        let (before, is_first) = (self.live.clone(), self.head.is_none());
        let mut retracted = Vec::new();
        for record in records {
            let key = |seen: &Observation| (record.block.number, seen.log_index);
            match &record.body {
                ChainBody::Transfer(seen) => {
                    let (epoch, head) = self.head.expect("a head comes first");
                    assert_eq!(record.epoch, epoch);
                    assert!(record.block.number > head.number, "below what was scanned");
                    let watched = self.watched.get(&seen.to_address);
                    assert!(
                        watched < Some(&record.block.number) && watched.is_some(),
                        "not announced"
                    );
                    assert!(self.live.insert(key(seen), (record.block, *seen)).is_none());
                }
                ChainBody::Retract(seen) => {
                    let (epoch, _) = self.head.expect("a head comes first");
                    assert_eq!(record.epoch, Epoch(epoch.0 + 1));
                    // The same inclusion, and not retracted before.
                    assert_eq!(self.live.remove(&key(seen)), Some((record.block, *seen)));
                    retracted.push(key(seen));
                }
                ChainBody::Watch(watch) => {
                    let before = self.watched.insert(watch.wallet_address, record.block.number);
                    assert_eq!(before, None, "announced twice");
                }
                ChainBody::Head(head) => {
                    let number = record.block.number;
                    match self.head {
                        Some((epoch, last)) if record.epoch == epoch => {
                            assert!(number >= last.number);
                            assert!(number > last.number || record.block == last);
                            assert!(number - last.number <= 23, "a gap");
                            assert_eq!(retracted, []);
                        }
                        Some((epoch, last)) => {
                            assert_eq!(record.epoch, Epoch(epoch.0 + 1));
                            assert!(number < last.number && number >= self.finalized);
                            // The blocks after it are scanned again, for every wallet.
                            self.watched.values_mut().for_each(|from| *from = number.min(*from));
                            let above: Vec<_> =
                                before.keys().filter(|key| key.0 > number).copied().collect();
                            assert_eq!(retracted, above, "not exactly what was above");
                        }
                        None => assert_eq!(record.epoch, Epoch(0)),
                    }
                    assert!(head.finalized >= self.finalized && head.finalized <= number);
                    for tier in &head.confirmed {
                        assert!(tier.number <= number);
                        let newest = time(tier.number.max(head.finalized));
                        assert!(tier.timestamp <= Some(newest), "later than what is confirmed");
                        if let Some(depth) = policy_depth {
                            let kept = self.confirmed.min(number);
                            let deep = tier.number <= (number - depth + 1).max(kept);
                            assert!(is_first || deep, "confirmed too early");
                        }
                    }
                    self.finalized = head.finalized;
                    self.confirmed = head.confirmed_max();
                    self.head = Some((record.epoch, record.block));
                }
            }
        }
        let last = records.last().expect("a step holds something");
        assert!(matches!(last.body, ChainBody::Head(_)), "a step ends with its head");
        let (_, head) = self.head.expect("just read");
        assert!(self.live.keys().all(|key| key.0 <= head.number), "published before it is scanned");
    }
}

struct World {
    chain: ChainConfig,
    depth: Option<i64>,
    node: Node,
    before_reorg: Node,
    cursor: Cursor,
    memory: MemoryLog,
    reader: Reader,
    base: Option<i64>,
    now: UnixMicros,
    /// Number of the next answers that are faulty, and their source.
    other: Option<(usize, Other)>,
    /// Number of correct answers before the next fault may begin.
    right: usize,
    refusal: Option<Refusal>,
}

#[derive(Clone, Copy)]
enum Other {
    Behind(usize),
    Stale,
}

impl World {
    fn new(tags: bool) -> Self {
        let depth = if tags { None } else { Some(3) };
        let policy = match depth {
            Some(depth) => Policy::flat(Some(depth), None),
            None => Policy::flat(Some(2), Some(Tag::Safe)),
        };
        let chain = chain(policy);
        let node = Node::new(12);
        Self {
            cursor: Cursor::new(chain.rules(), None, chain.watched()),
            depth,
            before_reorg: node.clone(),
            node,
            memory: MemoryLog::new(),
            reader: Reader { finalized: -1, confirmed: -1, ..Reader::default() },
            base: None,
            now: UnixMicros(1),
            other: None,
            right: 0,
            refusal: None,
            chain,
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Mine(transactions) => self.node.mine(transactions),
            Action::Reorg { depth, moves } => {
                self.before_reorg = self.node.clone();
                self.node.reorg(*depth, moves);
            }
            Action::Poll(answers) => {
                for _ in 0..*answers {
                    self.poll();
                }
            }
            Action::Behind { answers, blocks } => self.other(*answers, Other::Behind(*blocks)),
            Action::Stale(answers) => self.other(*answers, Other::Stale),
            Action::Limit { blocks, hint } => self.node.limit = Some((*blocks, *hint)),
            Action::Refuse(refusal) => self.refusal = Some(*refusal),
            Action::Restart { page } => self.restart(*page),
        }
    }

    fn other(&mut self, answers: usize, other: Other) {
        if self.other.is_none() && self.right == 0 {
            self.other = Some((answers, other));
            self.right = 4;
        }
    }

    fn poll(&mut self) -> Next {
        let ask = self.cursor.ask();
        let answered = match (self.refusal.take(), &mut self.other) {
            (Some(refusal), _) => Err(refusal),
            (None, Some((answers, other))) => {
                let other = *other;
                *answers -= 1;
                if *answers == 0 {
                    self.other = None;
                }
                match other {
                    Other::Behind(blocks) => self.node.without(blocks).answer(&ask),
                    Other::Stale => self.before_reorg.answer(&ask),
                }
            }
            (None, None) => {
                self.right = self.right.saturating_sub(1);
                self.node.answer(&ask)
            }
        };
        self.now = self.node.clock().max(UnixMicros(self.now.0 + 5));
        let decision: Decision = match answered {
            Ok(answer) => self.cursor.answer(answer, self.now),
            Err(refusal) => self.cursor.fail(refusal).into(),
        };
        if !decision.publish.is_empty() {
            self.reader.step(&decision.publish, self.depth);
            let head = decision.publish.last().map(|record| record.block.number);
            self.base = self.base.or(head);
            self.memory.publish(&self.chain, &decision.publish);
        }
        assert!(!matches!(decision.next, Next::Halt(_)), "{:?}", decision.next);
        decision.next
    }

    fn restart(&mut self, page: i64) {
        let cursor = restarted(page, &self.memory, &self.chain);
        if let (Some(read), Some(known)) = (cursor.history(), self.cursor.history()) {
            // A rewind makes the floor lower: a restart may know more below.
            let known = known.from(known.complete_above());
            assert_eq!(read.from(known.complete_above()), known, "a restart knows something else");
        }
        self.cursor = cursor;
    }

    /// Ends all faults, and checks that the published records become the canonical chain.
    fn come_to_rest(&mut self) {
        self.other = None;
        self.refusal = None;
        for _ in 0..500 {
            // An open step may end at an older tip.
            let head = self.node.head();
            if self.poll() == Next::AtTip && self.reader.head.is_some_and(|(_, h)| h == head) {
                let base = self.base.unwrap();
                // If a reorganisation replaced the first block, transfers at or below its height
                // are published too.
                let published = self.reader.live.values().filter(|(block, _)| block.number > base);
                assert_eq!(published.copied().collect::<Vec<_>>(), self.node.transfers_after(base));
                return;
            }
        }
        panic!("the cursor does not come to rest");
    }
}

#[test]
fn what_is_published_is_the_canonical_chain() {
    let strategy = (any::<bool>(), prop::collection::vec(action(), 1..60));
    let cases = std::env::var_os("TIDEMARK_TEST_CASES");
    let cases = cases.map_or(CASES, |cases| cases.to_str().unwrap().parse().unwrap());
    let config = ProptestConfig { cases, source_file: Some(file!()), ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&strategy, |(tags, actions)| {
        let mut world = World::new(tags);
        for action in &actions {
            world.act(action);
        }
        world.come_to_rest();
        world.restart(3);
        world.come_to_rest();
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
