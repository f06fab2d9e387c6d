//! Ingest over HTTP into the embedded log, from a development chain of this process and from a local node: how fast it
//! catches up, how many requests a chain costs, and how soon a block is a committed record.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy_primitives::U256;
use devnet::{Chain, Devnet, TransferCall};
use ingest::{ChainConfig, EndpointConfig, Policy, RpcUrl, follow};
use log::embedded::EmbeddedLog;
use log::{Log, Tail};
use runtime::{Readiness, SystemClock};
use schemas::record::{ChainBody, ChainRecord};
use schemas::{Address, Blockchain, Layout, Stablecoin, StablecoinContract, Topic};
use tempfile::TempDir;
use testkit::harness::{Anvil, eventually, now, usdt_of};
use testkit::measure::{percent, rate};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const TOKEN: alloy_primitives::Address = alloy_primitives::Address::repeat_byte(0xaa);
const PAYER: alloy_primitives::Address = alloy_primitives::Address::repeat_byte(0x77);
const WALLET: alloy_primitives::Address = alloy_primitives::Address::repeat_byte(0x10);
const UNITS: u64 = 1_500_000;
const LAYOUT: Layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
/// Blocks to catch up with, at full length.
const BLOCKS: usize = 20_000;
/// One block in this many has transfers, and how many.
const BUSY: usize = 20;
const TRANSFERS: usize = 5;
/// The chain that makes most blocks, a second: Arbitrum.
const FASTEST: u64 = 4;
/// Blocks that are made one by one.
const LIVE: usize = 200;
const LIVE_POLL: Duration = Duration::from_millis(5);
/// The shortest interval of the defaults, and how many polls are counted.
const IDLE_POLL: Duration = Duration::from_secs(2);
const IDLE_POLLS: u32 = 5;
const IDLE_REQUESTS: u64 = 10;

/// An endpoint, and the coin of which it has transfers.
struct Source {
    url: String,
    chain_id: u64,
    contract: StablecoinContract,
}

impl Source {
    fn of(devnet: &Devnet) -> Self {
        let contract = StablecoinContract {
            blockchain: Blockchain::Eth,
            stablecoin: Stablecoin::Usdc,
            address: address(TOKEN),
            decimals: 6,
        };
        Self { url: devnet.url().to_owned(), chain_id: 31_337, contract }
    }
}

fn address(address: alloy_primitives::Address) -> Address {
    Address::new(Blockchain::Eth.address_family(), address.0.0)
}

struct Run {
    log: EmbeddedLog,
    tail: Box<dyn Tail>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ingest::Error>>,
    _dir: TempDir,
}

impl Run {
    /// Follows a chain from a block on, or from its head.
    fn start(source: &Source, start_block: Option<i64>, poll_interval: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).unwrap();
        let tail = log.tail(&[Topic::TransfersRaw]).unwrap();
        let chain = ChainConfig {
            blockchain: Blockchain::Eth,
            chain_id: source.chain_id,
            endpoints: vec![EndpointConfig::new(RpcUrl::parse(&source.url).unwrap())],
            request_timeout: Duration::from_secs(10),
            contracts: vec![source.contract],
            retired: Vec::new(),
            unlisted: Vec::new(),
            stablecoins: [source.contract.stablecoin].into(),
            wallets: vec![address(WALLET)],
            own: vec![address(WALLET)],
            policy: Policy::flat(Some(12), None),
            start_block,
            poll_interval,
            range_max: 2000,
            reorg_window: 128,
            alone: schemas::Amount::ZERO,
            lag: 0,
            match_window: Duration::from_secs(3600),
        };
        let stop = CancellationToken::new();
        let (shared, clock) = (Arc::new(log.clone()), Arc::new(SystemClock));
        let task = tokio::spawn(follow(chain, Readiness::default(), shared, clock, stop.clone()));
        Self { log, tail, stop, task, _dir: dir }
    }

    /// Reads on until a block is scanned. Returns how many transfers there were.
    fn until(&mut self, number: u64) -> usize {
        let mut transfers = 0;
        loop {
            for record in self.tail.poll(Duration::from_millis(50)).unwrap() {
                let record: ChainRecord =
                    schemas::decode(record.value.as_deref().unwrap()).unwrap();
                transfers += usize::from(matches!(record.body, ChainBody::Transfer(_)));
                let is_head = matches!(record.body, ChainBody::Head(_));
                if is_head && u64::try_from(record.block.number).is_ok_and(|head| head >= number) {
                    return transfers;
                }
            }
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.log.close();
    }
}

async fn devnet() -> Devnet {
    let token = devnet::Token { address: TOKEN, decimals: 6, symbol: "USDC".into() };
    let config = devnet::Config {
        tokens: vec![token],
        genesis_timestamp: now().unsigned_abs() - 1_000_000,
        ..devnet::Config::default()
    };
    Devnet::start(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap()
}

fn pay(chain: &Chain, count: usize) {
    let call = TransferCall { token: TOKEN, from: PAYER, to: WALLET, value: U256::from(UNITS) };
    for _ in 0..count {
        chain.batch(vec![call]).unwrap();
    }
}

/// The requests that ingest has sent in this process, a batch as one.
fn requests(render: &impl Fn() -> String) -> u64 {
    let text = render();
    let lines = text.lines().filter(|line| line.starts_with("tidemark_ingest_rpc_requests_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

async fn catch_up() {
    let (devnet, batches) = (devnet().await, BLOCKS * percent() / 100 / BUSY);
    let chain = devnet.chain();
    for _ in 0..batches {
        pay(&chain, TRANSFERS);
        chain.mine(BUSY as u64).unwrap();
    }
    catch_up_with("this process", &Source::of(&devnet), batches).await;

    let anvil = Anvil::start_as(1).await;
    let wallet = WALLET.to_string();
    for _ in 0..batches {
        for _ in 0..TRANSFERS {
            anvil.transfer(&[(&wallet, u128::from(UNITS))]).await;
        }
        anvil.mine(BUSY as u64).await;
    }
    let contract = usdt_of(Blockchain::Eth);
    let source = Source { url: anvil.url().to_owned(), chain_id: 1, contract };
    catch_up_with("a local anvil", &source, batches).await;
}

async fn catch_up_with(name: &str, source: &Source, batches: usize) {
    let blocks = batches * BUSY;
    let started = Instant::now();
    let mut run = Run::start(source, Some(1), LIVE_POLL);
    let transfers = tokio::task::block_in_place(|| run.until(blocks as u64));
    let time = started.elapsed();
    assert_eq!(transfers, batches * TRANSFERS, "each once");
    run.stop().await;
    let (blocks, transfers) = (rate(blocks, time), rate(transfers, time));
    println!(
        "  catching up with {name}  {blocks} blocks a second, {} times Arbitrum (aim 50); {transfers} transfers a second",
        blocks / FASTEST
    );
}

async fn live(render: &impl Fn() -> String) {
    let devnet = devnet().await;
    let (chain, source) = (devnet.chain(), Source::of(&devnet));
    chain.mine(200).unwrap();
    let mut run = Run::start(&source, None, LIVE_POLL);
    tokio::task::block_in_place(|| run.until(200));
    let mut times = Vec::new();
    for _ in 0..LIVE {
        pay(&chain, 1);
        let mined = chain.mine(1).map(|_| Instant::now()).unwrap();
        tokio::task::block_in_place(|| run.until(chain.head().number));
        times.push(mined.elapsed());
    }
    run.stop().await;
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1000.0;
    println!(
        "  block to committed record  p50 {:.1} ms, p99 {:.1} ms, polled every {} ms (aim 100)",
        at(50),
        at(99),
        LIVE_POLL.as_millis()
    );
    let before = requests(render);
    let run = Run::start(&source, None, IDLE_POLL);
    let started = Instant::now();
    let polled = before + IDLE_REQUESTS;
    eventually("polls", || async { (requests(render) >= polled).then_some(()) }).await;
    let seconds = started.elapsed().as_secs_f64();
    run.stop().await;
    println!(
        "  requests of an idle chain  {:.2} a second, polled every {} s, its start included (aim 1)",
        IDLE_REQUESTS as f64 / seconds,
        IDLE_POLL.as_secs()
    );
    let mut run = Run::start(&source, None, IDLE_POLL);
    tokio::task::block_in_place(|| run.until(chain.head().number));
    let before = requests(render);
    for _ in 0..IDLE_POLLS {
        pay(&chain, 1);
        chain.mine(1).unwrap();
        tokio::task::block_in_place(|| run.until(chain.head().number));
    }
    let used = requests(render) - before;
    run.stop().await;
    println!(
        "  requests of a live block   {:.1}, with a transfer in each block and one block a poll",
        used as f64 / f64::from(IDLE_POLLS)
    );
}

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() {
    let recorder = runtime::telemetry::init_metrics().unwrap();
    println!("ingest over HTTP into the embedded log, from a development chain and from anvil");
    catch_up().await;
    live(&|| recorder.render()).await;
}
