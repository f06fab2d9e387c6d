//! A development chain, the embedded log, and a reader of what ingest publishes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy_primitives::U256;
use devnet::{Chain, Devnet};
use log::embedded::EmbeddedLog;
use log::{Log, Tail, TopicPartition};
use runtime::{Readiness, SystemClock};
use schemas::record::{Alert, Block, ChainBody, ChainProgress, ChainRecord, Observation};
use schemas::{
    Address, Blockchain, Hash, Layout, Partition, Stablecoin, StablecoinContract, Topic,
};
use testkit::DEADLINE;
use tidemark_ingest::{ChainConfig, EndpointConfig, Error, Policy, RpcUrl};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const LAYOUT: Layout = Layout { lanes: 2, orders: 1, webhooks: 1 };
pub(crate) const TOKEN: alloy_primitives::Address = alloy_primitives::Address::repeat_byte(0xaa);
pub(crate) const PAYER: alloy_primitives::Address = alloy_primitives::Address::repeat_byte(0x77);

pub(crate) fn wallet(number: u16) -> alloy_primitives::Address {
    let mut bytes = [0x10; 20];
    bytes[18..].copy_from_slice(&number.to_be_bytes());
    alloy_primitives::Address::new(bytes)
}

pub(crate) fn endpoint(blockchain: Blockchain, url: &str) -> EndpointConfig {
    EndpointConfig::of(blockchain, RpcUrl::parse(url).unwrap())
}

/// A chain with two wallets, polled every few milliseconds.
pub(crate) fn config(blockchain: Blockchain, url: &str) -> ChainConfig {
    let address = |a: alloy_primitives::Address| Address::new(blockchain.address_family(), a.0.0);
    let contract = StablecoinContract {
        blockchain,
        stablecoin: Stablecoin::Usdc,
        address: address(TOKEN),
        decimals: 6,
    };
    ChainConfig {
        blockchain,
        chain_id: 31_337,
        endpoints: vec![endpoint(blockchain, url)],
        request_timeout: Duration::from_secs(5),
        contracts: vec![contract],
        retired: Vec::new(),
        unlisted: Vec::new(),
        stablecoins: [Stablecoin::Usdc].into(),
        wallets: (0..2).map(|number| address(wallet(number))).collect(),
        own: (0..2).map(|number| address(wallet(number))).collect(),
        policy: Policy::flat(Some(3), None),
        start_block: None,
        poll_interval: Duration::from_millis(10),
        range_max: 50,
        reorg_window: 16,
        alone: schemas::Amount::ZERO,
        lag: 0,
        match_window: Duration::from_secs(3600),
    }
}

/// A served chain of some height.
pub(crate) async fn devnet(height: u64) -> Devnet {
    let token = devnet::Token { address: TOKEN, decimals: 6, symbol: "USDC".to_owned() };
    let config = devnet::Config { tokens: vec![token], ..devnet::Config::default() };
    let devnet = Devnet::start(config, SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    devnet.chain().mine(height).unwrap();
    devnet
}

/// Queues a payment of some base units.
pub(crate) fn pay(chain: &Chain, to: u16, units: u64) -> Hash {
    Hash(chain.transfer(TOKEN, PAYER, wallet(to), U256::from(units)).unwrap().0)
}

/// Mines a block with a payment of five units to the first wallet. Returns its transaction.
pub(crate) fn pay_in_block(chain: &Chain) -> Hash {
    let sent = pay(chain, 0, 5);
    chain.mine(1).unwrap();
    sent
}

pub(crate) struct Run {
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), Error>>,
}

impl Run {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap().unwrap();
    }
}

/// A chain of 20 blocks that is followed by a changed configuration, and was scanned up to its head.
pub(crate) async fn followed(
    blockchain: Blockchain,
    change: impl FnOnce(&mut ChainConfig),
) -> (Devnet, Chain, World, Run) {
    let devnet = devnet(20).await;
    let (chain, mut world) = (devnet.chain(), World::new());
    let mut config = config(blockchain, devnet.url());
    change(&mut config);
    let run = world.run(config);
    world.until_head(blockchain, &chain);
    (devnet, chain, world, run)
}

/// The log, and everything read from it since it was opened.
pub(crate) struct World {
    pub(crate) log: EmbeddedLog,
    tail: Box<dyn Tail>,
    _dir: tempfile::TempDir,
    pub(crate) published: BTreeMap<Blockchain, Published>,
    pub(crate) readiness: Readiness,
}

/// State of a reader of one chain.
#[derive(Default)]
pub(crate) struct Published {
    pub(crate) records: Vec<ChainRecord>,
    pub(crate) live: BTreeMap<(i64, i32), (Block, Observation)>,
    /// The last head of each lane.
    heads: BTreeMap<u32, ChainRecord>,
    pub(crate) progress: Option<ChainProgress>,
}

impl Published {
    /// The head, once every lane and the progress have it.
    pub(crate) fn head(&self) -> Option<Block> {
        let mut heads = self.heads.values().map(|record| (record.epoch, record.block));
        let first = heads.next()?;
        let progress = self.progress.as_ref()?;
        let agree = heads.all(|head| head == first)
            && self.heads.len() == LAYOUT.lanes as usize
            && (progress.epoch, progress.head) == first;
        agree.then_some(first.1)
    }

    pub(crate) fn epoch(&self) -> i64 {
        self.progress.as_ref().unwrap().epoch.0
    }

    /// The confirmed height of the smallest amounts; -1 before it is known.
    pub(crate) fn confirmed(&self) -> i64 {
        self.progress.as_ref().map_or(-1, |progress| progress.confirmed)
    }

    /// The hashes of the live transfers' transactions, in the order of the chain.
    pub(crate) fn transactions(&self) -> Vec<Hash> {
        self.live.values().map(|(_, seen)| seen.tx_hash).collect()
    }

    fn apply(&mut self, lane: u32, record: ChainRecord) {
        match &record.body {
            ChainBody::Transfer(seen) => {
                let place = (record.block.number, seen.log_index);
                assert!(
                    self.live.insert(place, (record.block, *seen)).is_none(),
                    "published twice"
                );
            }
            ChainBody::Retract(seen) => {
                let place = (record.block.number, seen.log_index);
                assert_eq!(self.live.remove(&place), Some((record.block, *seen)));
            }
            ChainBody::Watch(_) => {}
            ChainBody::Head(_) => {
                self.heads.insert(lane, record.clone());
            }
        }
        self.records.push(record);
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).unwrap();
        let tail = log.tail(&[Topic::TransfersRaw, Topic::Chains]).unwrap();
        Self { log, tail, _dir: dir, published: BTreeMap::new(), readiness: Readiness::default() }
    }

    pub(crate) fn run(&self, chain: ChainConfig) -> Run {
        self.run_on(Arc::new(self.log.clone()), chain, CancellationToken::new())
    }

    pub(crate) fn run_on(
        &self,
        log: Arc<dyn Log>,
        chain: ChainConfig,
        stop: CancellationToken,
    ) -> Run {
        let task = tokio::spawn(tidemark_ingest::follow(
            chain,
            self.readiness.clone(),
            log,
            Arc::new(SystemClock),
            stop.clone(),
        ));
        Run { stop, task }
    }

    pub(crate) fn published(&self, blockchain: Blockchain) -> &Published {
        &self.published[&blockchain]
    }

    pub(crate) fn alerts(&self) -> Vec<Alert> {
        let of = TopicPartition { topic: Topic::Alerts, partition: Partition(0) };
        let read = || {
            let bounds = self.log.bounds(of).unwrap();
            self.log.read(of, bounds.start, 1000).unwrap()
        };
        let records = tokio::task::block_in_place(read);
        let decode =
            |record: &Arc<log::Record>| schemas::decode(record.value.as_deref().unwrap()).unwrap();
        records.iter().map(decode).collect()
    }

    /// Reads the log until a condition holds.
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "not in time: {what}");
            self.read();
        }
    }

    /// Reads the log until the chain is scanned up to its head.
    pub(crate) fn until_head(&mut self, blockchain: Blockchain, chain: &Chain) {
        self.until("scanned up to the head", |world| {
            let head = world.published.get(&blockchain).and_then(Published::head);
            head.is_some_and(|head| head.hash.0 == chain.head().hash.0)
        });
    }

    /// Mines blocks, and reads until they are scanned.
    pub(crate) fn mine(&mut self, blockchain: Blockchain, chain: &Chain, blocks: u64) {
        chain.mine(blocks).unwrap();
        self.until_head(blockchain, chain);
    }

    pub(crate) fn until_confirmed(&mut self, blockchain: Blockchain, number: i64) {
        self.until(&format!("confirmed up to {number}"), |world| {
            world.published.get(&blockchain).is_some_and(|one| one.confirmed() >= number)
        });
    }

    fn read(&mut self) {
        let records =
            tokio::task::block_in_place(|| self.tail.poll(Duration::from_millis(50))).unwrap();
        for record in records {
            let value = record.value.as_deref().unwrap();
            if record.from.topic == Topic::Chains {
                let progress: ChainProgress = schemas::decode(value).unwrap();
                let published = self.published.entry(progress.blockchain).or_default();
                let before =
                    published.progress.replace(progress).map(|progress| progress.updated_at);
                assert!(before < published.progress.as_ref().map(|progress| progress.updated_at));
            } else {
                let decoded: ChainRecord = schemas::decode(value).unwrap();
                let published = self.published.entry(decoded.blockchain).or_default();
                published.apply(record.from.partition.0, decoded);
            }
        }
    }
}
