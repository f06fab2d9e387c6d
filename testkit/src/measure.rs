//! Shared parts of the measurements.

use std::net::Ipv4Addr;
use std::time::Duration;

use devnet::Devnet;
use log::NewRecord;
use log::config::{KafkaConfig, KafkaSecurity};
use schemas::record::{
    AmountRule, Block, ChainBody, ChainRecord, ConfirmedTier, CreateOrder, DepositCommand,
    DepositCommandBody, Head, Observation, OpenDeposit, OrderCommand, OrderCommandBody,
    PaymentRequest, Watch,
};
use schemas::{
    Address, AddressFamily, Amount, Blockchain, Epoch, Hash, Layout, OrderId, Stablecoin, Topic,
    UnixMicros, UnixSeconds,
};
use uuid::Uuid;

use crate::harness::{Chain, now, usdt};

/// Chain time of measurements without an ingestor.
pub const TIME: UnixSeconds = UnixSeconds(1_800_000_000);

/// The contract of the stablecoin.
pub const CONTRACT: Address = Address::new(AddressFamily::Evm, [0xda; 20]);

/// Configuration of a log that is measured, alone on its broker.
pub fn kafka_config(brokers: &str, prefix: &str) -> KafkaConfig {
    KafkaConfig {
        brokers: brokers.to_owned(),
        prefix: prefix.to_owned(),
        replication: 1,
        // Filling a log stalls the cores for seconds: no session may expire.
        session_timeout: Duration::from_secs(60),
        transaction_timeout: Duration::from_secs(50),
        security: KafkaSecurity::default(),
        continues: None,
    }
}

/// Resident memory of a process in bytes, as the kernel counts it.
pub fn resident_bytes(pid: u32) -> u64 {
    resident_bytes_until_end(pid).expect("VmRSS")
}

/// As [`resident_bytes`]; `None` for a process that ends.
pub fn resident_bytes_until_end(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("/proc");
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().expect("a number");
    Some(kib * 1024)
}

/// User and system time that a process has used, as the kernel counts it: in hundredths of a second.
pub fn cpu_time(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("/proc");
    // The name of the program, in brackets, may hold spaces.
    let (_, fields) = text.rsplit_once(')').expect("a name");
    let ticks = |field: &str| field.parse::<u64>().expect("a number");
    let times = fields.split_whitespace().skip(11).take(2).map(ticks);
    Duration::from_millis(times.sum::<u64>() * 10)
}

/// A chain without transfers, and its configuration.
pub async fn idle_chain() -> (Devnet, Chain) {
    chain(20, String::new()).await
}

/// A chain whose blocks are final at once, and mined on request only.
pub async fn final_chain() -> (Devnet, Chain) {
    chain(0, "confirmations = \"finalized\"".to_owned()).await
}

async fn chain(finalized_depth: u64, more: String) -> (Devnet, Chain) {
    let config = devnet::Config {
        chain_id: 1,
        // The present: a chain ahead of the clock is refused.
        genesis_timestamp: now().unsigned_abs(),
        block_interval_secs: 1,
        finalized_depth,
        safe_depth: finalized_depth / 2,
        tokens: vec![usdt()],
        seed: 1,
    };
    let net = Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.expect("a chain");
    let wallet = "0x00000000000000000000000000000000DeaDBeef";
    let chain = Chain { blockchain: "eth", rpc: net.url().into(), wallet, more };
    (net, chain)
}

/// Percentage of a long measurement to run. A small one only shows that the measurement works.
pub fn percent() -> usize {
    let percent = std::env::var_os("TIDEMARK_BENCH_PERCENT");
    percent.map_or(100, |text| {
        text.to_string_lossy().parse().expect("TIDEMARK_BENCH_PERCENT is a number")
    })
}

/// The duration at this percentile; zero without calls.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
}

pub fn rate(count: usize, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(count as u128 * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

/// The wallet of all payments.
pub fn wallet() -> Address {
    Address::new(AddressFamily::Evm, [0x11; 20])
}

/// A distinct amount for each number.
pub fn amount(number: usize) -> Amount {
    Amount::from_parts((number as u128 + 1) * 1_000_000_000_000).expect("small")
}

pub fn order(number: usize) -> OrderId {
    OrderId(Uuid::from_u128(number as u128 + 1))
}

fn hash(number: usize, kind: u8) -> Hash {
    let mut bytes = [kind; 32];
    bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
    Hash(bytes)
}

pub fn block(height: usize) -> Block {
    Block { number: height as i64, hash: hash(height, 0xb0), timestamp: TIME }
}

fn record(height: usize, body: ChainBody) -> ChainRecord {
    ChainRecord {
        blockchain: Blockchain::Eth,
        epoch: Epoch(0),
        block: block(height),
        observed_at: UnixMicros(TIME.0 * 1_000_000),
        body,
        confirmed: false,
    }
}

/// A transfer of the amount with this number.
pub fn transfer(number: usize, height: usize) -> ChainRecord {
    record(
        height,
        ChainBody::Transfer(Observation {
            stablecoin: Stablecoin::Usdt,
            contract: CONTRACT,
            from_address: Address::new(AddressFamily::Evm, [0x22; 20]),
            to_address: wallet(),
            tx_hash: hash(number, 0x7a),
            log_index: i32::try_from(number % 1000).expect("small"),
            ordinal: 0,
            value: amount(number),
            from_own_wallet: false,
        }),
    )
}

/// The start of the watch of the wallet.
pub fn watch(height: usize) -> ChainRecord {
    record(height, ChainBody::Watch(Watch { wallet_address: wallet(), contracts: vec![CONTRACT] }))
}

/// A head under a policy of one confirmation.
pub fn head(height: usize) -> ChainRecord {
    let (number, timestamp) = (height as i64, Some(block(height).timestamp));
    let confirmed = vec![ConfirmedTier { below: None, number, timestamp }];
    let head = Head {
        confirmed,
        finalized: height as i64 - 10,
        match_window_seconds: 3600,
        held: Vec::new(),
        has_gap: false,
    };
    record(height, ChainBody::Head(head))
}

/// A record of the chain in the lane of the wallet.
pub fn raw(record: &ChainRecord, layout: &Layout) -> NewRecord {
    let lane = layout.lane(Blockchain::Eth, &wallet());
    NewRecord::encode(Topic::TransfersRaw, lane, wallet().to_string(), record).expect("encodable")
}

/// Requests a deposit of the order's amount.
pub fn request() -> PaymentRequest {
    PaymentRequest {
        blockchain: Blockchain::Eth,
        stablecoin: Stablecoin::Usdt,
        contract: CONTRACT,
        decimals: 6,
        contracts: vec![CONTRACT],
        wallets: vec![wallet()],
        amounts: AmountRule::EXACT,
        late_window_seconds: 86_400,
        accepts_late: false,
        head_age_max_seconds: u32::MAX,
    }
}

/// Creates an order of the amount with this number, for half an hour from `issued_at`.
pub fn create(
    number: usize,
    issued_at: UnixMicros,
    payment: Option<PaymentRequest>,
    layout: &Layout,
) -> NewRecord {
    let body = OrderCommandBody::Create(CreateOrder {
        merchant_order_id: format!("bench-{number}"),
        amount: amount(number),
        amount_text: amount(number).to_string(),
        webhook_url: "http://127.0.0.1:1/webhooks".into(),
        expecting_wallet_address: None,
        blockchain: None,
        stablecoin: None,
        expires_at: issued_at.seconds().plus(1800),
        first_version: 1,
        payment,
    });
    let command = OrderCommand { order_id: order(number), command_id: None, issued_at, body };
    let key = command.order_id.to_string();
    NewRecord::encode(Topic::OrdersCommands, layout.order(&key), key, &command).expect("encodable")
}

/// Opens a deposit of the amount with this number.
pub fn open(number: usize) -> DepositCommand {
    DepositCommand {
        order_id: order(number),
        slot: 0,
        blockchain: Blockchain::Eth,
        wallet_address: wallet(),
        issued_at: UnixMicros(TIME.0 * 1_000_000),
        body: DepositCommandBody::Open(OpenDeposit {
            stablecoin: Stablecoin::Usdt,
            contract: CONTRACT,
            contracts: vec![CONTRACT],
            value: amount(number),
            user_address: None,
            started_at: TIME,
            expires_at: TIME.plus(1800),
            amounts: AmountRule::EXACT,
            late_window_seconds: 86_400,
            accepts_late: false,
            head_age_max_seconds: u32::MAX,
        }),
    }
}
